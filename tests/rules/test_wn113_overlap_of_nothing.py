"""WN113 overlap-of-nothing: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def dice() -> object:
    a, b = torch.zeros(4), torch.zeros(4)
    return 2 * (a * b).sum() / (a.sum() + b.sum())


def iou() -> object:
    a, b = torch.zeros(4), torch.zeros(4)
    both = torch.dot(a, b)
    return both / (a.sum() + b.sum() - both)


def of_squares() -> object:
    a, b = torch.zeros(4), torch.zeros(4)
    return 2 * (a * b).sum() / ((a**2).sum() + (b**2).sum())


def smoothed() -> object:
    a, b = torch.zeros(4), torch.zeros(4)
    return (2 * (a * b).sum() + 1) / (a.sum() + b.sum() + 1)


def its_gradient() -> object:
    a, b = torch.zeros(4, requires_grad=True), torch.zeros(4)
    dice = 2 * (a * b).sum() / (a.sum() + b.sum())
    torch.where(dice.isfinite(), dice, 0.0).backward()
    return a.grad


def of_boxes() -> object:
    a, b = torch.zeros(1, 4), torch.zeros(1, 4)
    sides = (torch.min(a[:, 2:], b[:, 2:]) - torch.max(a[:, :2], b[:, :2])).clamp(min=0)
    both = sides.prod(-1)
    return both / ((a[:, 2:] - a[:, :2]).prod(-1) + (b[:, 2:] - b[:, :2]).prod(-1) - both)


@pytest.mark.parametrize("program", [dice, iou, of_squares, its_gradient, of_boxes])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN113"
    assert said == snapshot


@pytest.mark.parametrize("program", [smoothed])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def test_another_quotient_of_sums_is_left_to_others(first: Callable[..., dict[str, str]]) -> None:
    def program() -> object:
        a, b, c = torch.zeros(4), torch.zeros(4), torch.zeros(4)
        return (a * b).sum() / c.sum()

    assert first(program)["rule"] == "WN101"


def test_the_zero_point_of_a_range_that_is_nothing_is_no_overlap(first: Callable[..., dict[str, str]]) -> None:
    def program() -> object:
        least, greatest = torch.zeros(4).aminmax()
        least, greatest = torch.min(least, torch.zeros(())), torch.max(greatest, torch.zeros(()))
        return least / ((greatest - least) / 15)

    assert first(program)["rule"] == "WN101"


def test_a_count_of_one_less_one_is_no_empty_mask(first: Callable[..., dict[str, str]]) -> None:
    def program() -> object:
        x, mask = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 0.0])
        variance = (((x - 1.0) ** 2 * mask).sum() / mask.sum()) * mask.sum() / (mask.sum() - 1)
        return variance.sqrt()

    assert first(program)["rule"] == "WN601"
