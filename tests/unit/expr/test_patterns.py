"""Patterns are read as terms, in the one form that the spellings of an expression share."""

from __future__ import annotations

import pytest

from whynan.expr.pattern import fold_constant, formula, pattern
from whynan.expr.term import number


def _key(text: str) -> object:
    return pattern(text)[0].key


def test_a_called_name_is_an_operator_and_another_a_variable() -> None:
    term, _ = pattern("log(softmax(x, d))")
    (inner,) = term.operands
    assert (term.name, inner.name) == ("log", "softmax")
    assert [(name, child.name, child.text) for name, child in inner.children] == [
        ("input", "variable", "x"),
        ("dim", "variable", "d"),
    ]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("x - y", "x + -1 * y"),
        ("x / y", "x * reciprocal(y)"),
        ("rsqrt(x)", "x ** -0.5"),
        ("x * x", "square(x)"),
        ("log1p(x)", "log(1 + x)"),
        ("expm1(x)", "exp(x) - 1"),
        ("clamp_min(x, y)", "clamp(x, min=y)"),
        ("sum(x, d, False)", "sum(x, dim=d)"),
        ("norm(x, 2, d)", "vector_norm(x, dim=d)"),
        ("absolute(x)", "abs(x)"),
    ],
)
def test_spellings_of_one_expression_are_one_term(text: str, other: str) -> None:
    assert _key(text) == _key(other)


@pytest.mark.parametrize(("text", "other"), [("x - y", "y - x"), ("x / y", "y / x"), ("sum(x, d, True)", "sum(x, d)")])
def test_other_expressions_are_other_terms(text: str, other: str) -> None:
    assert _key(text) != _key(other)


def test_a_formula_is_of_its_operands_and_leaves_out_arguments_that_there_are_none_for() -> None:
    x, d = pattern("exp(z)")[0], number(1)
    text = "sqrt(sum(input ** 2, dim=dim, keepdim=keepdim))"
    assert formula(text, {"input": x, "dim": d}).key == _key("sqrt(sum(exp(z) ** 2, 1))")


@pytest.mark.parametrize(
    ("text", "value"),
    [("-1e-3", -1e-3), ("1 / 4", 0.25), ("log(1)", 0.0), ("pi", 3.141592653589793), ("x", None), ("log(x)", None),
     ("log(0)", None), ("True", None)],
)  # fmt: skip
def test_what_is_made_of_numbers_alone_has_a_value(text: str, value: float | None) -> None:
    assert fold_constant(pattern(text)[1]) == value
