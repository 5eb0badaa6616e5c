"""A zero that is none in a wider dtype is said to be an underflow; one that is zero in any dtype is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import whynan
from whynan.records import ChainLink, Element, Finding
from whynan.rules.underflow import underflow

Program = Callable[[], object]


def _from(summary: str, dtype: str = "float16") -> Finding:
    element = Element(index=(0,), shape=(3,), dtype=dtype, value=float("nan"), count=1, total=3)
    return Finding(
        severity="error",
        fate="escaped",
        birth="invalid",
        phase="forward",
        op="aten.div.Tensor",
        element=element,
        site=None,
        chain=(ChainLink(role="cause", op="aten.mul.Tensor", summary=summary),),
    )


@pytest.mark.parametrize(
    ("summary", "dtype", "said"),
    [
        ("1e-5 times -1e-5 is -0", "float16", "of float16: in float32 1e-5 × (-1e-5) is -1e-10."),
        ("1e-5 to the power 2 is 0", "float16", "of float16: in float32 1e-5 ** 2 is 1e-10."),
        ("exp of -200 is 0", "float32", "of float32: in float64 exp(-200) is 1.38e-87."),
        ("1e-30 times 1e-30 is 0 in float32", "float32", "of float32: in float64 1e-30 × 1e-30 is 1e-60."),
        ("1e-5 times 1e-5 is 0", "float32", "of float16: in float32 1e-5 × 1e-5 is 1e-10."),
    ],
)
def test_an_underflow_is_named(summary: str, dtype: str, said: str) -> None:
    assert underflow(_from(summary, dtype)) == f" That 0 is an underflow {said}"


@pytest.mark.parametrize(
    "summary",
    [
        "1e-5 times 0 is 0",
        "1e-200 times 1e-200 is 0",  # of no format it would not be
        "0 to the power 2 is 0",
        "0.001 times 0.001 is 0",  # 1e-6 is a float16: the sentence says something else than it seems
        "1e-5 times 1e-5 is 0.5",
        "sum of a row of 0 is 0",
        "1 minus 1 is 0",
        "exp of 2 is 7.389",
    ],
)
def test_what_is_no_underflow_is_not_called_one(summary: str) -> None:
    assert underflow(_from(summary)) == ""


def test_without_a_chain_nothing_is_said() -> None:
    assert underflow(_from("x").model_copy(update={"chain": ()})) == ""


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
