"""Products of vectors, and what is chosen at their limits, as ONNX writes them: one form with what they are."""

from __future__ import annotations

from typing import Any

import pytest

from whynan.expr import Expressions, NormalForm
from whynan.expr.normal import call, leaf, multiply
from whynan.records import Argument, Neighbourhood, Operation

A, B = leaf("x0"), leaf("x1")


def given(name: str, of: int, *, event: bool = False, shape: tuple[int, ...] = (3,), value: float = 0.5) -> Argument:
    where: dict[str, Any] = {"event": of} if event else {"elements": of}
    return Argument(name=name, **where, shape=shape, min=value, max=value + 0.25 if shape else value)


def form(*operations: tuple[str, tuple[Argument, ...]], shape: tuple[int, ...] = ()) -> NormalForm:
    """The normal form of the last of some operations."""
    told = [Operation(event=i, op=op, hops=0, arguments=a, shape=shape) for i, (op, a) in enumerate(operations)]
    around = Neighbourhood(dialect="onnx", middle=len(told) - 1, operations=tuple(told))
    return Expressions(around).output_term(len(told) - 1)


def einsum(equation: str, *shapes: tuple[int, ...], shape: tuple[int, ...] = (2,)) -> NormalForm:
    operands = [given(f"Inputs[{i}]", i, shape=of) for i, of in enumerate(shapes)]
    return form(("Einsum", (*operands, Argument(name="equation", text=equation))), shape=shape)


@pytest.mark.parametrize("equation", ["i,i->", "...i,...i->...", "b i, b i -> b"])
def test_an_einsum_over_shared_places_is_a_sum_of_products(equation: str) -> None:
    assert einsum(equation, (2, 3), (2, 3)) == call("sum", multiply(A, B))


def test_an_einsum_that_sums_nothing_is_a_product() -> None:
    assert einsum("bi,bi->bi", (2, 3), (2, 3)) == multiply(A, B)


@pytest.mark.parametrize("equation", ["i,j->", "ij,jk->ik", "bi,bi"])
def test_any_other_einsum_is_a_product_of_matrices(equation: str) -> None:
    assert einsum(equation, (2, 2), (2, 2)) == call("matmul", A, B)


def test_a_matrix_product_of_two_vectors_is_a_sum_of_products() -> None:
    vectors = given("A", 0), given("B", 1)
    assert form(("MatMul", vectors)) == call("sum", multiply(A, B))


def test_a_matrix_product_of_a_matrix_and_a_vector_is_none() -> None:
    operands = given("A", 0, shape=(2, 3)), given("B", 1)
    assert form(("MatMul", operands), shape=(2,)) == call("matmul", A, B)


def chosen(zero: float, at: int, other: int) -> NormalForm:
    """``Where(at == zero, at, other log(b))``."""
    return form(
        ("Log", (given("input", 1),)),
        ("Mul", (given("A", other), given("B", 0, event=True))),
        ("Equal", (given("A", at), given("B", 7, shape=(), value=zero))),
        ("Where", (given("condition", 2, event=True), given("X", at), given("Y", 1, event=True))),
        shape=(3,),
    )


def test_the_limit_of_x_log_y_is_no_choice() -> None:
    assert chosen(0.0, 0, 0) == multiply(A, call("log", B))


@pytest.mark.parametrize(("zero", "at"), [(1.0, 0), (0.0, 2)])
def test_another_choice_is_one(zero: float, at: int) -> None:
    assert chosen(zero, at, 0).is_call("where")


def test_a_nan_handed_on_is_no_choice() -> None:
    assert form(
        ("IsNaN", (given("X", 0),)),
        ("Exp", (given("input", 0),)),
        ("Where", (given("condition", 0, event=True), given("X", 0), given("Y", 1, event=True))),
        shape=(3,),
    ) == call("exp", A)
