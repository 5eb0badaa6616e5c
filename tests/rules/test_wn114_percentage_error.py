"""WN114 percentage-error: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def mape() -> object:
    y, p = torch.tensor([0.0, 2.0]), torch.tensor([1.0, 2.0])
    return ((y - p) / y).abs().mean()


def of_magnitudes() -> object:
    y, p = torch.tensor([0.0, 2.0]), torch.tensor([0.0, 2.0])
    return (torch.abs(p - y) / torch.abs(y)).mean()


def squared() -> object:
    y, p = torch.tensor([0.0, 2.0]), torch.tensor([1.0, 2.0])
    relative = (p - y) / y
    return (relative * relative).mean()


def symmetric() -> object:
    y, p = torch.tensor([0.0, 2.0]), torch.tensor([0.0, 2.0])
    return (2 * (y - p).abs() / (y.abs() + p.abs())).mean()


def its_gradient() -> object:
    y, p = torch.tensor([0.0, 2.0]), torch.tensor([0.0, 2.0], requires_grad=True)
    relative = ((y - p) / y).abs()
    torch.where(y > 0, relative, 0.0).sum().backward()
    return p.grad


def clamped() -> object:
    y, p = torch.tensor([0.0, 2.0]), torch.tensor([1.0, 2.0])
    return ((y - p).abs() / y.abs().clamp_min(1e-6)).mean()


@pytest.mark.parametrize("program", [mape, of_magnitudes, squared, symmetric, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN114"
    assert said == snapshot


@pytest.mark.parametrize("program", [clamped])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def a_quotient_of_another_difference() -> object:
    y, p, z = torch.tensor([0.0, 2.0]), torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])
    return (y - p) / z


def a_ratio() -> object:
    y, p = torch.tensor([0.0, 2.0]), torch.tensor([1.0, 2.0])
    return (p / y).mean()


def a_sum() -> object:
    y, p = torch.tensor([0.0, 2.0]), torch.tensor([1.0, 2.0])
    return ((p + y) / y).mean()


@pytest.mark.parametrize("program", [a_quotient_of_another_difference, a_ratio, a_sum])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN114"


def a_hue() -> object:
    colours = torch.tensor([[0.5, 0.5, 0.5], [0.1, 0.2, 0.3]])
    _, green, blue = colours.unbind(-1)
    high, low = colours.amax(-1), colours.amin(-1)
    return (green - blue) / (high - low) + (high - low) / high


def a_normalised_difference() -> object:
    a, b = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0])
    return (a - b) / (a + b)


@pytest.mark.parametrize(("program", "rule"), [(a_hue, "WN112"), (a_normalised_difference, "WN101")])
def test_what_only_looks_like_it_has_its_own_rule(
    program: Any, rule: str, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == rule
