"""A function that is run for a proof draws the same each time, and nothing of the program's moves."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from whynan.verify.torch_program import outcome


def drawing(x: torch.Tensor) -> torch.Tensor:
    """Draws from all that can be drawn from."""
    return x + torch.rand(3) + random.random() + float(np.random.rand())


def test_what_is_drawn_is_the_same_each_time_and_the_programs_generators_stay() -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    first, second = (outcome(drawing, {"x": torch.zeros(3)}).outputs[0] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), before[2], strict=True))


def test_no_device_is_given_a_seed_that_is_not_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # what CUDA has not begun yet is kept for when it does
    def late(*_: Any) -> None:
        pytest.fail("a seed is left for when the device begins")

    monkeypatch.setattr(torch.cuda, "_lazy_call", late)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", late)
    outcome(drawing, {"x": torch.zeros(3)})
