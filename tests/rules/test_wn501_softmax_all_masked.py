"""WN501 softmax-all-masked: what triggers it, what it says, and the twin that is healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion


def a_row_of_padding() -> object:
    scores = torch.zeros(2, 3).masked_fill(torch.tensor([[True] * 3, [False] * 3]), float("-inf"))
    return scores.softmax(-1)


def an_attention_over_padding() -> object:
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x = torch.ones(2, 3, 4)
    padding = torch.tensor([[True, True, True], [False, False, True]])
    with torch.no_grad():
        return attention(x, x, x, key_padding_mask=padding)[0]


def a_row_of_padding_in_inference_mode() -> object:
    with torch.inference_mode():
        return a_row_of_padding()


def an_attention_over_a_key() -> object:
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x = torch.ones(2, 3, 4)
    padding = torch.tensor([[True, True, False], [False, False, True]])
    with torch.no_grad():
        return attention(x, x, x, key_padding_mask=padding)[0]


def an_ignored_row_that_comes_back() -> object:
    scores, values = torch.zeros(2, 3, requires_grad=True), torch.ones(3, 4, requires_grad=True)
    padding = torch.tensor([[True, True, True], [False, False, True]])
    weights = scores.masked_fill(padding, float("-inf")).softmax(-1)
    torch.nn.functional.cross_entropy(weights @ values, torch.tensor([-100, 1])).backward()
    return values.grad


def one_place_left() -> object:
    scores = torch.zeros(2, 3).masked_fill(torch.tensor([[True, True, False]] * 2), float("-inf"))
    return scores.softmax(-1)


@pytest.mark.parametrize(
    "program",
    [a_row_of_padding, an_attention_over_padding, a_row_of_padding_in_inference_mode, an_ignored_row_that_comes_back],
)
def test_it_says_what_happened(program: Any, first: Callable[..., dict[str, str]], snapshot: SnapshotAssertion) -> None:
    said = first(program)
    assert said["rule"] == "WN501"
    assert said == snapshot


@pytest.mark.parametrize("program", [one_place_left, an_attention_over_a_key])
def test_the_healthy_twin_is_clean(program: Any, clean: Callable[..., bool]) -> None:
    assert clean(program)
