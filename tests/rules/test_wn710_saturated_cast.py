"""WN710 saturated-cast: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_cast() -> object:
    x = torch.tensor([1000.0, 3.0, -500.0])
    return x.to(torch.float8_e4m3fn).float()


def of_infinity() -> object:
    x = torch.tensor([float("inf"), 3.0])
    return x.to(torch.float8_e4m3fn).float()


def into_a_buffer() -> object:
    x = torch.tensor([1000.0, 3.0]).half()
    held = torch.zeros(2, dtype=torch.float8_e4m3fn)
    held.copy_(x)
    return held.float()


def scaled() -> object:
    x = torch.tensor([1000.0, 3.0, -500.0])
    return (x * (448 / x.abs().max())).to(torch.float8_e4m3fn).float()


def rounded_to_the_greatest() -> object:
    return torch.tensor([455.0, 440.0]).to(torch.float8_e4m3fn).float()


def cut_off_on_purpose() -> object:
    return torch.tensor([1000.0, 3.0]).clamp(-448, 448).to(torch.float8_e4m3fn).float()


def a_copy() -> object:
    return torch.tensor([448.0, 3.0]).to(torch.float8_e4m3fn).clone().float()


@pytest.mark.parametrize("program", [a_cast, of_infinity, into_a_buffer])
def test_it_says_what_happened(
    program: Any, warned: Callable[..., dict[str, str]], snapshot: SnapshotAssertion
) -> None:
    said = warned(program)
    assert said["rule"] == "WN710"
    assert said == snapshot


@pytest.mark.parametrize("program", [scaled, rounded_to_the_greatest, cut_off_on_purpose, a_copy])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
