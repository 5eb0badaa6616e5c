"""WN704 vanished-eps: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def in_a_logarithm() -> object:
    return torch.log(torch.tensor([0.0, 1.0]).half() + 1e-8)


def in_a_denominator() -> object:
    x = torch.tensor([0.0, 1.0]).half()
    return x / (x + 1e-8)


def inside_a_root() -> object:
    x = torch.tensor([0.0, 1.0]).half()
    return 1 / torch.sqrt(x.square() + 1e-12)


def beside_a_norm() -> object:
    x = torch.zeros(3).half()
    return x / (x.norm() + 1e-8)


def in_a_clamp() -> object:
    return torch.tensor([0.0, 1.0]).half().clamp(min=1e-8).log()


def its_gradient() -> object:
    x = torch.tensor([0.0, 1.0]).half().requires_grad_()
    torch.sqrt(x + 1e-8).sum().backward()
    return x.grad


def large_enough() -> object:
    return torch.log(torch.tensor([0.0, 1.0]).half() + 1e-4)


def in_float32() -> object:
    return torch.log(torch.tensor([0.0, 1.0]) + 1e-8)


def beside_a_deviation() -> object:
    r = torch.ones(4).half()
    return (r - r.mean()) / (r.std() + 1e-8)


def beside_norms() -> object:
    a, b = torch.zeros(4).half(), torch.ones(4).half()
    return (a * b).sum() / (a.norm() * b.norm() + 1e-8)


def of_cosine_similarity() -> object:
    return torch.nn.functional.cosine_similarity(torch.zeros(4).half(), torch.ones(4).half(), dim=0)


def beside_masks() -> object:
    p, t = torch.zeros(4).half(), torch.zeros(4).half()
    return (2 * (p * t).sum() + 1e-8) / (p.sum() + t.sum() + 1e-8)


def beside_a_softmax() -> object:
    return torch.log(torch.tensor([0.0, -100.0]).half().softmax(-1) + 1e-9)


def beside_a_probability() -> object:
    p = torch.tensor([0.0, 1.0]).half()
    return -(p * torch.log(p + 1e-8)).sum()


def the_gradient_of_a_product() -> object:
    p = torch.tensor([0.0, 1.0]).half().requires_grad_()
    (p * torch.log(p + 1e-8)).nan_to_num().sum().backward()
    return p.grad


@pytest.mark.parametrize(
    "program",
    [
        in_a_logarithm,
        in_a_denominator,
        inside_a_root,
        beside_a_norm,
        in_a_clamp,
        its_gradient,
        beside_a_deviation,
        beside_norms,
        of_cosine_similarity,
        beside_masks,
        beside_a_softmax,
        beside_a_probability,
        the_gradient_of_a_product,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN704"
    assert said == snapshot


@pytest.mark.parametrize("program", [large_enough, in_float32])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def without_one() -> object:
    return torch.log(torch.tensor([0.0, 1.0]).half())


def one_that_cancels() -> object:
    return torch.log(torch.tensor([-0.5, 1.0]).half() + 0.5)


def one_that_is_added_to_another() -> object:
    x = torch.tensor([0.0, 1.0]).half()
    return (x + 1e-8) / x


def a_sum_that_cancels() -> object:
    return torch.log((torch.tensor([-1.0, 1.0]).half() + 1e-8).sum())


@pytest.mark.parametrize("program", [a_sum_that_cancels, without_one, one_that_cancels, one_that_is_added_to_another])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN704"
