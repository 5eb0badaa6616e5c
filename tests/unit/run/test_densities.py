"""The logarithm of a density is rewritten to what the density was the exponential of; magnitudes of complex numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import whynan

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

pytestmark = pytest.mark.proof

GAUSSIAN = """import math
import torch


def density(x, mu, sigma):
    return torch.exp(-0.5 * ((x - mu) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))


def target(x, mu, sigma):
    loss = -torch.log(density(x, mu, sigma)).mean()
    loss.backward()
    return loss
"""
RATE = """import torch


def target(x, y):
    rate = torch.exp(x)
    loss = (rate - y * torch.log(rate)).mean()
    loss.backward()
    return loss
"""
BRIGHTNESS = """import torch


def target(x, y):
    return torch.log(y * torch.exp(x))
"""
MAGNITUDE = """import torch


def target(x):
    spectrum = torch.fft.rfft(x)
    loss = torch.sqrt(spectrum.real ** 2 + spectrum.imag ** 2).sum()
    loss.backward()
    return loss
"""


def test_of_a_gaussian_in_a_function_of_its_own(loaded: Callable[[str], ModuleType]) -> None:
    x = torch.tensor([0.5, -1.0, 25.0])
    given = x, torch.zeros(3, requires_grad=True), torch.full((3,), 0.7, requires_grad=True)
    fix = whynan.explain(loaded(GAUSSIAN).target, *given, rerun=True).findings[0].fixes[0]
    assert fix.verdict.status == "verified", fix.verdict
    assert "-(-0.5 * ((x - mu) / sigma) ** 2 - torch.log(" in (fix.patch or "")


def test_of_a_rate(loaded: Callable[[str], ModuleType]) -> None:
    given = torch.tensor([0.5, -120.0, 3.0], requires_grad=True), torch.tensor([1.0, 2.0, 0.0])
    fix = whynan.explain(loaded(RATE).target, *given, rerun=True).findings[0].fixes[0]
    assert fix.verdict.status == "verified", fix.verdict
    assert "+    loss = (rate - y * x).mean()" in (fix.patch or "")


def test_of_a_product(loaded: Callable[[str], ModuleType]) -> None:
    given = torch.tensor([0.5, -120.0, 3.0]), torch.tensor([1.0, 2.0, 0.5])
    fix = whynan.explain(loaded(BRIGHTNESS).target, *given, rerun=True).findings[0].fixes[0]
    assert fix.verdict.status == "verified", fix.verdict
    assert "+    return torch.log(y) + x" in (fix.patch or "")


def test_the_gradient_of_a_magnitude_is_judged_by_its_parts(loaded: Callable[[str], ModuleType]) -> None:
    x = torch.zeros(2, 8)
    x[0] = torch.arange(8.0)
    fix = whynan.explain(loaded(MAGNITUDE).target, x.requires_grad_(), rerun=True).findings[0].fixes[0]
    assert fix.verdict.status == "verified", fix.verdict
    assert fix.verdict.backward_finite
