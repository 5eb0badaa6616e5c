"""Infinities that are meant are told from those that are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from whynan.models.checkpoint.contents import Allowances, Contents

NAN, INF = float("nan"), float("inf")
CAUSAL = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), -INF)


def judged(name: str, value: Any, *allow: str) -> tuple[bool, str | None]:
    contents = Contents(Allowances(allow))
    contents.add(name, value, None)
    (stored,) = (*contents.tensors, *contents.numbers)
    return stored.bad, stored.literal


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("blocks.0.attn.bias", CAUSAL, "a mask of 0 and -Inf"),
        ("blocks.0.attn.bias", CAUSAL[None, None], "a mask of 0 and -Inf"),
        ("key_padding_mask", torch.tensor([0.0, -INF, -INF]), "a mask of 0 and -Inf"),
        ("observer.min_val", torch.tensor(INF), "the start of a minimum"),
        ("observer.max_val", torch.full((8,), -INF), "the start of a maximum"),
        ("callbacks.EarlyStopping{'mode': 'min'}.best_score", torch.tensor(INF), "a start value"),
        ("callbacks.ModelCheckpoint.kth_value", torch.tensor(INF), "a start value"),
        ("best_loss", torch.tensor(INF), "a start value"),
        ("max_grad_norm", [INF], "taken for a setting or a start value"),
        ("schedule", [1.0, INF], "taken for a setting or a start value"),
    ],
)
def test_these_are_meant(name: str, value: Any, why: str) -> None:
    assert judged(name, value) == (False, why)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight", CAUSAL + torch.eye(4)),
        ("weight", -CAUSAL),
        ("weight", torch.tensor([[0.0, -INF], [INF, 0.0]])),
        ("attn_mask", torch.tensor([0.0, -INF, NAN])),
        ("bias", torch.tensor([0.0, -INF])),
        ("observer.min_val", torch.tensor(-INF)),
        ("observer.max_val", torch.tensor([-INF, 1.0])),
        ("logit_scale", torch.tensor(INF)),
        ("luminance", torch.tensor([INF, INF])),
        ("maxout", torch.tensor([-INF, -INF])),
        ("discriminator.weight", torch.tensor([INF, INF])),
        ("weight", torch.full((4, 4), INF)),
        ("callbacks.EarlyStopping.best_score", torch.tensor(NAN)),
        ("callbacks.Averaging.weight", torch.tensor([INF, 1.0])),
        ("loss", [NAN]),
        ("schedule", [INF, NAN]),
    ],
)
def test_these_are_not(name: str, value: Any) -> None:
    assert judged(name, value) == (True, None)


@pytest.mark.parametrize("value", [torch.ones(2), torch.zeros(3, 3), torch.tensor([1, 2])])
def test_what_is_finite_needs_no_reason(value: torch.Tensor) -> None:
    assert judged("attn_mask", value) == (False, None)


@pytest.mark.parametrize("pattern", ["cache.scale", "*.scale", "cache.*", "c?che.scale"])
def test_a_name_or_a_pattern_allows_what_is_bad(pattern: str) -> None:
    assert judged("cache.scale", torch.tensor([NAN, INF]), pattern) == (False, f"allowed by {pattern}")
    assert judged("cache.scale", [NAN], "other", pattern) == (False, f"allowed by {pattern}")
    assert judged("other.scales", torch.tensor([NAN]), pattern) == (True, None)


def test_an_allowance_that_excused_nothing_is_known() -> None:
    allowances = Allowances(["a", "b", "*"])
    contents = Contents(allowances)
    contents.add("a", torch.tensor(NAN), None)
    contents.add("b", torch.tensor(1.0), None)
    assert allowances.unused == ("b", "*")
