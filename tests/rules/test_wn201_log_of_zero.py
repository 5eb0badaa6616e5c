"""WN201 log-of-zero: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_probability() -> object:
    p = torch.tensor([0.0, 1.0])
    return p.log()


def one_plus_x() -> object:
    return torch.log1p(torch.tensor([-1.0, 1.0]))


def a_logit() -> object:
    return torch.logit(torch.tensor([1.0, 0.5]))


def a_log_of_softmax() -> object:
    return torch.tensor([-200.0, 200.0]).log_softmax(0)


@pytest.mark.parametrize("program", [a_probability, one_plus_x, a_logit])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN201"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_log_of_softmax])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
