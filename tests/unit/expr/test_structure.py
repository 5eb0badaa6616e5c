"""A structure is a term however it is spelled, and its names are what stands in their places."""

from __future__ import annotations

import pytest

from whynan.expr.normal import ONE, NormalForm, add, call, leaf, multiply, number, power, scale, subtract
from whynan.expr.structure import contains, fits, matches, operand, sources

A, B, C = map(leaf, "abc")
HALF_SQUARES = scale(0.5, call("sum", power(A, 2)))


@pytest.mark.parametrize(
    ("structure", "term"),
    [
        ("sum(x ** 2)", call("sum", power(multiply(A, B), 2))),
        ("sum(x ** P)", call("sum", power(A, 3))),
        ("P * sum(x ** 2)", HALF_SQUARES),
        ("p / (1 - p)", multiply(A, power(subtract(ONE, A), -1))),
        ("log(A * exp(x) + A * exp(-x))", call("log", add(call("exp", A), call("exp", scale(-1, A))))),
        ("exp(x) / sum(exp(x)) * ...", multiply(call("softmax", A), B)),
        ("(softmax | sigmoid)(A * x + ...)", call("softmax", add(A, scale(2, B), ONE))),
        ("where(~x, ...)", call("where", call("logical_not", A), B, C)),
        ("each(P * x ** 2)", add(power(A, 2), scale(2, power(B, 2)), power(C, 2))),
        ("... / (A * x - A * y)", multiply(C, power(subtract(B, A), -1))),
    ],
)
def test_a_term_has_a_structure(structure: str, term: NormalForm) -> None:
    assert fits(structure, term)


@pytest.mark.parametrize(
    ("structure", "term"),
    [
        ("sum(x ** 2)", call("sum", multiply(power(A, 2), B))),
        ("sum(x ** 2)", HALF_SQUARES),
        ("N * sum(x ** 2)", HALF_SQUARES),
        ("x * y", multiply(A, B, C)),
        ("x + y", add(A, B, ONE)),
        ("p / (1 - p)", multiply(A, power(subtract(ONE, B), -1))),
        ("each(P * x ** 2)", add(power(A, 2), ONE)),
        ("each(P * x ** 2)", subtract(power(A, 2), power(B, 2))),
        ("A * x - A * y", add(A, B)),
    ],
)
def test_a_term_has_it_not(structure: str, term: NormalForm) -> None:
    assert not fits(structure, term)


def test_names_are_what_stands_there() -> None:
    (found,) = matches("P * sum(x ** 2)", HALF_SQUARES)
    assert found.terms == {"x": A}
    assert found.numbers == {"P": 0.5}
    assert found.one_sign()
    assert operand("1 - sigmoid(x)", subtract(ONE, call("sigmoid", add(A, B)))) == add(A, B)


def test_a_name_that_is_known_is_that_term_only() -> None:
    term = multiply(call("log", A), B)
    assert fits("log(x) * ...", term, x=A)
    assert not fits("log(x) * ...", term, x=B)
    assert fits("C * x", scale(3, add(A, B)), x=add(A, B))


def test_what_a_name_stands_for_may_bring_a_function_into_another_form() -> None:
    assert fits("x * log(sum(x))", multiply(call("exp", A), call("logsumexp", A)))
    assert list(matches("a * exp(logsigmoid(-x))", number(0), a=number(0)))
    assert fits("where(x == 1, log(y))", call("where", A, call("log", B)))


def test_a_condition_is_about_the_bindings() -> None:
    assert not fits("P * x", HALF_SQUARES, where=lambda found: found.numbers["P"] > 1)


def test_what_a_term_was_computed_from() -> None:
    term = call("log", add(multiply(A, B), C))
    assert sources(term) == {A, B, C}
    assert sources(term, multiply(A, B)) == {multiply(A, B), C}
    assert contains(term, multiply(A, B))
    assert not contains(term, ONE)
