"""WN306 rmse-of-perfect-fit: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch.nn import functional as F


def a_loss_function() -> object:
    fit = torch.ones(3, requires_grad=True)
    F.mse_loss(fit, torch.ones(3)).sqrt().backward()
    return fit.grad


def written_out() -> object:
    fit = torch.ones(3, requires_grad=True)
    error = fit - torch.ones(3)
    loss = (error * error).mean() ** 0.5
    loss.backward()
    return fit.grad


def padded() -> object:
    fit = torch.ones(3, requires_grad=True)
    (F.mse_loss(fit, torch.ones(3)) + 1e-12).sqrt().backward()
    return fit.grad


@pytest.mark.parametrize("program", [a_loss_function, written_out])
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN306"
    assert said == snapshot


@pytest.mark.parametrize("program", [padded])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
