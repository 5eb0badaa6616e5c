"""WN601 mean-of-nothing: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def an_empty_selection() -> object:
    x = torch.ones(4)
    return x[x > 2].mean()


def a_deviation_of_one() -> object:
    return torch.ones(1, 3).std(0)


def a_variance_written_out() -> object:
    x = torch.ones(1)
    return ((x - x.mean()) ** 2).sum() / (len(x) - 1)


def a_mean_of_what_is_left() -> object:
    x, hidden = torch.ones(4), torch.ones(4, dtype=torch.bool)
    return x.masked_fill(hidden, 0.0).sum() / (~hidden).sum()


def a_masked_mean() -> object:
    kept = torch.zeros(2, 3)
    values = torch.ones(2, 3)
    return (values * kept).sum(1) / kept.sum(1)


def a_mean_under_a_mask() -> object:
    x, mask = torch.ones(4), torch.zeros(4, dtype=torch.bool)
    return torch.where(mask, x, 0.0).sum() / mask.sum()


def a_selection() -> object:
    x = torch.ones(4)
    return x[x > 0].mean()


def a_biased_deviation() -> object:
    return torch.ones(1, 3).std(0, unbiased=False)


def segments() -> object:
    values, segment = torch.ones(4, 2), torch.tensor([0, 0, 2, 2])
    total = torch.zeros(3, 2).index_add(0, segment, values)
    return total / torch.bincount(segment, minlength=3)[:, None]


def segments_by_ones() -> object:
    values, segment = torch.ones(4), torch.tensor([0, 0, 2, 2])
    total = torch.zeros(3).scatter_add(0, segment, values)
    return total / torch.zeros(3).scatter_add(0, segment, torch.ones_like(values))


def a_matrix_of_members() -> object:
    members = torch.nn.functional.one_hot(torch.tensor([0, 0, 2, 2]), 3).float()
    return (members.T @ torch.arange(8.0).view(4, 2)) / members.sum(0)[:, None]


@pytest.mark.parametrize(
    "program",
    [
        an_empty_selection,
        a_deviation_of_one,
        a_variance_written_out,
        a_mean_under_a_mask,
        a_masked_mean,
        segments,
        segments_by_ones,
        a_matrix_of_members,
        a_mean_of_what_is_left,
    ],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN601"
    assert said == snapshot


@pytest.mark.parametrize("program", [a_selection, a_biased_deviation])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)


def a_ratio_of_two_sums() -> object:
    x = torch.zeros(2)
    return x.square().sum() / x.sum()


@pytest.mark.parametrize("program", [a_ratio_of_two_sums])
def test_the_same_operations_of_another_cause_are_left_to_others(
    program: Any, first: Callable[..., dict[str, str]]
) -> None:
    assert first(program)["rule"] == "WN101"


def medians(*hidden: bool) -> object:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    left = x.masked_fill(torch.tensor([[False] * 3, list(hidden)]), float("nan")).nanmedian(1)
    left.values.sum().backward()
    return x.grad


def test_a_median_of_a_row_that_is_all_nan(first: Callable[..., dict[str, str]]) -> None:
    said = first(lambda: medians(True, True, True))
    assert said["rule"] == "WN601"
    assert said["message"] == "nanmedian of a row that is NaN throughout has nothing left to choose of: it is NaN"
    assert "multiplies" not in said["explanation"]


def test_a_median_of_what_is_left_is_clean(clean: Callable[..., bool]) -> None:
    assert clean(lambda: medians(True, False, True))
