"""The conditions of an experiment: float64, zeros in unwritten memory, one order, another batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from whynan.replay.undo_log import UndoLog
from whynan.training.experiments import InFloat64, ZeroedMemory, in_one_order, is_exchangeable, with_batch


def network() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.LayerNorm(24), nn.Linear(24, 3)
    )
    return model, torch.randn(5, 2, 8), torch.randint(0, 3, (5,))


def test_all_is_computed_in_float64_and_leaves_keep_their_format() -> None:
    model, x, y = network()
    wide, wide_x = network()[0].double(), x.double()
    loss = F.cross_entropy(wide(wide_x), y)
    loss.backward()
    with InFloat64():
        found = F.cross_entropy(model(x), y)
        found.backward()
    assert found.dtype is torch.float64
    torch.testing.assert_close(found, loss, rtol=1e-12, atol=0)
    for mine, theirs in zip(model.parameters(), wide.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-6, atol=1e-7)


def test_what_float16_cannot_hold_is_finite_and_what_is_written_in_place_is_seen() -> None:
    x = torch.full((3,), 300.0)
    held = torch.zeros(2, 3)
    with InFloat64():
        assert torch.isfinite(x.half().square()).all()
        held[0] = x.half().square()
        held[1].add_(x.double())
    assert held.dtype is torch.float32
    assert held.tolist() == [[9e4] * 3, [300.0] * 3]
    with InFloat64(), torch.autocast("cpu", dtype=torch.float16):
        assert torch.isfinite(torch.full((2, 8), 200.0) @ torch.full((8, 2), 200.0)).all()


def test_unwritten_memory_holds_zeros() -> None:
    with ZeroedMemory():
        for made in (torch.empty(3), torch.empty_like(torch.ones(2)), torch.ones(2).new_empty(4)):
            assert not made.any()
        assert torch.ones(2).all()


def test_one_order_is_asked_for_and_taken_back() -> None:
    with in_one_order():
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_another_batch_stands_in_the_tensors_of_this_one() -> None:
    batch, before = [torch.ones(2, 3)], [torch.full((4, 3), 2.0)]
    assert is_exchangeable(batch, before)
    with UndoLog(), with_batch(batch, before):
        assert batch[0].tolist() == [[2.0] * 3] * 2
    assert batch[0].tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize(
    "other",
    [
        [],
        [torch.ones(2, 4)],
        [torch.ones(1, 3)],
        [torch.ones(2, 3).double()],
        # of one batch that is all of the data the next one has the same numbers
        [torch.tensor([[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]])],
    ],
)
def test_what_is_of_another_kind_or_the_same_does_not(other: list[Tensor]) -> None:
    assert not is_exchangeable([torch.arange(6.0).reshape(2, 3)], other)


def test_what_shares_its_memory_is_not_written() -> None:
    assert not is_exchangeable([torch.ones(1, 3).expand(2, 3)], [torch.zeros(2, 3)])


def test_random_numbers_are_those_of_the_step() -> None:
    torch.manual_seed(1)
    expected = torch.randn_like(torch.ones(5)), F.dropout(torch.ones(8)), torch.rand(3)
    torch.manual_seed(1)
    with InFloat64():
        found = torch.randn_like(torch.ones(5)), F.dropout(torch.ones(8)), torch.rand(3)
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one.double(), other.double())
