"""All spellings of an expression have one normal form, which has the numbers of the expression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.expr.spelled import IN_ATEN_ONLY, LEAVES, SPELLINGS, Program, Value, computed

LEAF_NUMBERS = {"x0": LEAVES["a"], "x1": LEAVES["b"]}
ALL = {name: (*SPELLINGS.get(name, ()), *IN_ATEN_ONLY.get(name, ())) for name in {**SPELLINGS, **IN_ATEN_ONLY}}
INNER = ("leaf", "twice", "product", "sub", "one minus", "square")


def operand(program: Program, kind: str, choice: int) -> Value:
    """Something simple, spelled in one of its ways."""
    a, b = ("a", LEAVES["a"]), ("b", LEAVES["b"])
    if kind == "leaf":
        return a
    if kind == "twice":
        return program.run("mul", a, 2.0) if choice % 2 else program.run("add", a, a)
    if kind == "product":
        return program.run("mul", a, b) if choice % 2 else program.run("mul", b, a)
    return ALL[kind][choice % len(SPELLINGS[kind])](program, a, b)


def whole(name: str, inner: str, choices: tuple[int, int], dialect: Any = "aten") -> tuple[Any, Any]:
    """The normal form of one spelling, and its numbers."""
    program = Program(dialect)
    ways = ALL[name] if dialect == "aten" else SPELLINGS[name]
    made = ways[choices[0] % len(ways)](program, operand(program, inner, choices[1]), ("b", LEAVES["b"]))
    return program.term(made), made[1]


CHOICES = st.tuples(st.integers(0, 11), st.integers(0, 11))


@given(st.sampled_from(sorted(ALL)), st.sampled_from(INNER), CHOICES, CHOICES)
def test_two_spellings_have_one_form(name: str, inner: str, first: Any, second: Any) -> None:
    one, other = whole(name, inner, first)[0], whole(name, inner, second)[0]
    assert str(one) == str(other)


@given(st.sampled_from(sorted(SPELLINGS)), st.sampled_from(INNER), CHOICES, CHOICES)
def test_onnx_has_the_form_of_aten(name: str, inner: str, first: Any, second: Any) -> None:
    assert str(whole(name, inner, first, "onnx")[0]) == str(whole(name, inner, second)[0])


@given(st.sampled_from(sorted(ALL)), st.sampled_from(INNER), CHOICES)
def test_the_form_has_the_numbers_of_the_program(name: str, inner: str, choices: Any) -> None:
    with np.errstate(invalid="ignore", divide="ignore"):
        term, expected = whole(name, inner, choices)
        np.testing.assert_allclose(
            np.broadcast_to(computed(term, LEAF_NUMBERS), expected.shape), expected, rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_spelling_has_one_form(name: str) -> None:
    """All of them once, whatever the chance of the others."""
    forms = {str(whole(name, "leaf", (i, 0))[0]) for i in range(len(ALL[name]))}
    assert len(forms) == 1, forms


def test_what_is_equal_for_some_operands_only_is_not_made_one() -> None:
    program = Program()
    a = ("a", LEAVES["a"])
    assert program.term(program.run("sqrt", program.run("mul", a, a))) != program.term(program.run("clone", a))
    assert program.term(program.run("div", a, a)).number is None
    log_of_square = program.term(program.run("log", program.run("mul", a, a)))
    assert log_of_square != program.term(program.run("mul", program.run("log", a), 2.0))


def test_different_expressions_have_different_forms() -> None:
    forms = [str(whole(name, "leaf", (0, 0))[0]) for name in sorted(ALL)]
    assert len(set(forms)) == len(forms)
