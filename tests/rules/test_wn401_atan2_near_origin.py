"""WN401 atan2-near-origin: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_phase_of_silence() -> object:
    real = torch.full((2,), 1e-20, requires_grad=True)
    imag = torch.full((2,), 1e-20, requires_grad=True)
    torch.atan2(imag, real).sum().backward()
    return real.grad


def a_phase_of_sound() -> object:
    real = torch.full((2,), 0.5, requires_grad=True)
    imag = torch.full((2,), 0.5, requires_grad=True)
    torch.atan2(imag, real).sum().backward()
    return real.grad


@pytest.mark.parametrize("program", [a_phase_of_silence])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN401"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_phase_of_sound])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
