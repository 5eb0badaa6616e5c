"""WN207 log-of-sigmoid: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F


def a_method() -> object:
    return torch.tensor([-200.0, 1.0]).sigmoid().log()


def written_out() -> object:
    margin = torch.tensor([-200.0, 1.0])
    p = torch.tanh(margin / 2) * 0.5 + 0.5
    return torch.log10(p)


def its_gradient() -> object:
    margin = torch.tensor([-200.0, 1.0], requires_grad=True)
    log_p = margin.sigmoid().log()
    torch.where(log_p.isfinite(), log_p, 0.0).sum().backward()
    return margin.grad


def logsigmoid() -> object:
    return F.logsigmoid(torch.tensor([-200.0, 1.0]))


@pytest.mark.parametrize("program", [a_method, written_out, its_gradient])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN207"
    assert said == snapshot


@pytest.mark.parametrize("program", [logsigmoid])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def of_minus_infinity() -> object:
    return torch.log(torch.sigmoid(torch.log(torch.tensor([0.0, 1.0]))))


@pytest.mark.parametrize(("program", "rule"), [(of_minus_infinity, "WN201")])
def test_what_only_looks_like_it_has_its_own_rule(
    program: Any, rule: str, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == rule
