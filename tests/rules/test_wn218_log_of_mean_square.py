"""WN218 log-of-mean-square: what triggers it, what it says, and its twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def psnr() -> object:
    image = torch.ones(3)
    return -10 * torch.log10(torch.nn.functional.mse_loss(image, image.clone()))


def of_the_reciprocal() -> object:
    image = torch.ones(3)
    error = ((image - image.clone()) ** 2).mean()
    return 10 * torch.log10(1 / error)


def of_the_root() -> object:
    image = torch.ones(3)
    error = torch.nn.functional.mse_loss(image, image.clone())
    return 20 * torch.log10(1.0 / torch.sqrt(error))


def of_the_root_of_a_mean() -> object:
    image = torch.ones(2, 3, 4)
    error = torch.mean((image - image.clone()) ** 2)
    return 20 * torch.log10(1.0 / torch.sqrt(error))


def signal_to_noise() -> object:
    signal = torch.ones(3)
    noise = signal - signal.clone()
    return 10 * torch.log10(signal.square().sum() / noise.square().sum())


def log_mel_of_silence() -> object:
    power = torch.fft.rfft(torch.zeros(8)).abs() ** 2
    return torch.log(power @ torch.ones(5, 2))


def its_gradient() -> object:
    image = torch.ones(3, requires_grad=True)
    psnr = -10 * torch.log10(torch.nn.functional.mse_loss(image, torch.ones(3)))
    torch.where(psnr.isfinite(), psnr, 0.0).backward()
    return image.grad


def padded() -> object:
    image = torch.ones(3)
    return -10 * torch.log10(torch.nn.functional.mse_loss(image, image.clone()) + 1e-10)


def of_a_fit_that_is_not_perfect() -> object:
    return 10 * torch.log10(1 / torch.nn.functional.mse_loss(torch.ones(3), torch.zeros(3)))


def a_bank_of_filters() -> object:
    bank, spectrum = torch.rand(3, 5), torch.zeros(5, 7, dtype=torch.complex64)
    return torch.log(bank @ spectrum.abs() ** 2)


@pytest.mark.parametrize(
    "program",
    [
        psnr,
        of_the_reciprocal,
        of_the_root,
        of_the_root_of_a_mean,
        signal_to_noise,
        log_mel_of_silence,
        its_gradient,
        a_bank_of_filters,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN218"
    assert said == snapshot


@pytest.mark.parametrize("program", [padded, of_a_fit_that_is_not_perfect])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def a_mean_that_is_no_mean_of_squares() -> object:
    return torch.log10(torch.tensor([1.0, -1.0]).mean())


def a_ratio_without_a_logarithm() -> object:
    image = torch.ones(3)
    return 1 / torch.nn.functional.mse_loss(image, image.clone())


def a_product_with_another_zero() -> object:
    image = torch.ones(3)
    return torch.log10(torch.tensor(0.0) * image.mean())


@pytest.mark.parametrize(
    "program", [a_mean_that_is_no_mean_of_squares, a_ratio_without_a_logarithm, a_product_with_another_zero]
)
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] != "WN218"


def a_projection() -> object:
    estimate, reference = torch.ones(1, 4), torch.zeros(1, 4)
    share = (estimate * reference).sum(-1, keepdim=True) / reference.pow(2).sum(-1, keepdim=True)
    target = share * reference
    return 10 * torch.log10(target.pow(2).sum(-1) / (estimate - target).pow(2).sum(-1))


@pytest.mark.parametrize(("program", "rule"), [(a_projection, "WN101")])
def test_what_only_looks_like_it_has_its_own_rule(
    program: Any, rule: str, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == rule
