"""A zero that is none in a wider dtype is said to be an underflow; one that is zero in any dtype is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import whynan
from whynan.records import ChainLink, Element, Finding, Note
from whynan.rules.facts import underflow

Program = Callable[[], object]


def _did(operator: str, *operands: float, result: float = 0.0, arithmetic: bool = True) -> Note:
    told: dict[str, Any] = {"arithmetic": arithmetic, "dtype": None, "smallest": None}
    return Note.create("computed", operator=operator, operands=operands, result=result, **told)


def _from(did: Note, dtype: str = "float16") -> Finding:
    element = Element(index=(0,), shape=(3,), dtype=dtype, value=float("nan"), count=1, total=3)
    return Finding(
        severity="error",
        fate="escaped",
        birth="invalid",
        phase="forward",
        op="aten.div.Tensor",
        element=element,
        site=None,
        chain=(ChainLink(role="cause", op="aten.mul.Tensor", typed_summary=did),),
    )


@pytest.mark.parametrize(
    ("did", "dtype", "said"),
    [
        (_did("mul", 1e-5, -1e-5, result=-0.0), "float16", "of float16: in float32 1e-5 × (-1e-5) is -1e-10."),
        (_did("pow", 1e-5, 2), "float16", "of float16: in float32 1e-5 ** 2 is 1e-10."),
        (_did("exp", -200, arithmetic=False), "float32", "of float32: in float64 exp(-200) is 1.38e-87."),
        (_did("Mul", 1e-30, 1e-30), "float32", "of float32: in float64 1e-30 × 1e-30 is 1e-60."),
        (_did("mul", 1.00001e-5, 1e-5), "float32", "of float16: in float32 1e-5 × 1e-5 is 1e-10."),
    ],
)
def test_an_underflow_is_named(did: Note, dtype: str, said: str) -> None:
    assert underflow(_from(did, dtype)) == f" That 0 is an underflow {said}"


@pytest.mark.parametrize(
    "did",
    [
        _did("mul", 1e-5, 0),
        _did("mul", 1e-200, 1e-200),  # of no format it would not be
        _did("pow", 0, 2),
        _did("mul", 0.001, 0.001),  # 1e-6 is a float16: the sentence says something else than it seems
        _did("mul", 1e-5, 1e-5, arithmetic=False),
        _did("mul", 1e-5, float("nan")),
        _did("mul", 1e-5, 1e-5, result=0.5),
        Note.create("row_of", operator="sum", operand=0, result=0),
        _did("sub", 1, 1),
        _did("exp", 2, result=7.389, arithmetic=False),
        Note.create("written", sentence="1e-5 times 1e-5 is 0"),
    ],
)
def test_what_is_no_underflow_is_not_called_one(did: Note) -> None:
    assert underflow(_from(did)) == ""


def test_without_a_chain_nothing_is_said() -> None:
    assert underflow(_from(_did("exp", -200)).model_copy(update={"chain": ()})) == ""


def a_cosine_of_small_vectors() -> object:
    x = torch.full((4,), 1e-4).half()
    return (x * x).sum() / (x * x).sum()


def a_cosine_of_nothing() -> object:
    x = torch.zeros(4).half()
    return (x * x).sum() / (x * x).sum()


def a_softmax_by_hand() -> object:
    x = torch.tensor([-200.0, -300.0])
    return x.exp() / x.exp().sum()


@pytest.mark.parametrize(
    ("program", "rule", "dtype"),
    [(a_cosine_of_small_vectors, "WN101", "float16"), (a_softmax_by_hand, "WN503", "float32")],
)
def test_a_run_is_told_of_its_underflow(program: Program, rule: str, dtype: str) -> None:
    (finding,) = whynan.explain(program).findings
    assert finding.rule == rule
    assert f" That 0 is an underflow of {dtype}: in float" in finding.explanation


def test_a_run_with_plain_zeros_is_not() -> None:
    (finding,) = whynan.explain(a_cosine_of_nothing).findings
    assert finding.rule == "WN101"
    assert "underflow" not in finding.explanation
