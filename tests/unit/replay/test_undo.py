"""What is written while it can be undone is as it was afterwards, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from whynan.replay.undo_log import TooMuch, UndoLog


def bits(tensor: Tensor) -> bytes:
    """What lies in a tensor's whole memory."""
    return bytes(tensor.untyped_storage())


PAYLOAD = torch.tensor([0x7FC00001, -0x003FFFFE, 0x7F800001, -0x80000000], dtype=torch.int32).view(torch.float32)
"""NaN of three kinds, one of them signalling, and -0.0."""

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,)])
def test_every_kind_of_tensor_is_put_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.randint(0, 2, shape).to(dtype)
    before = bits(tensor)
    with UndoLog():
        tensor.fill_(1)
        tensor.logical_not_()
        tensor.zero_()
        during = tensor.clone()
    assert not during.any()
    assert bits(tensor) == before


def test_payloads_of_nan_and_the_sign_of_zero_stay() -> None:
    tensor = PAYLOAD.clone()
    before = bits(tensor)
    with UndoLog():
        tensor.mul_(-2.0).add_(1.0)
    assert bits(tensor) == before == bits(PAYLOAD)


def through_a_view(t: Tensor) -> None:
    t[1:, ::2].mul_(3.0)


def through_a_transposed_view(t: Tensor) -> None:
    t.t().view(-1)[3] = 7.0


def through_detach(t: Tensor) -> None:
    t.detach().exp_()


def through_data(t: Tensor) -> None:
    t.data.add_(1.0)


def through_another_dtype(t: Tensor) -> None:
    t.view(torch.int32).bitwise_not_()


def through_out(t: Tensor) -> None:
    torch.add(t, 1.0, out=t)


def through_a_list(t: Tensor) -> None:
    torch._foreach_mul_([t, torch.ones(3)], 2.0)


def through_indices(t: Tensor) -> None:
    t[torch.tensor([0, 2])] = 9.0
    t.index_add_(0, torch.tensor([1]), torch.ones(1, 3))
    t.masked_fill_(t > 1, 0.0)
    t.scatter_(1, torch.zeros(4, 1, dtype=torch.int64), 5.0)


def through_copying(t: Tensor) -> None:
    t.copy_(torch.randn(4, 3))
    t.normal_()


def through_inference(t: Tensor) -> None:
    with torch.inference_mode():
        t.mul_(2.0)


def through_set(t: Tensor) -> None:
    t.set_(torch.zeros(7))
    t.add_(1.0)


def through_resizing(t: Tensor) -> None:
    t.resize_(100, 100)
    t.zero_()


def through_shrinking(t: Tensor) -> None:
    t.add_(1.0)
    t.resize_(2)


def through_turning(t: Tensor) -> None:
    t.t_()
    t.unsqueeze_(0)
    t.add_(1.0)


def through_an_exception(t: Tensor) -> None:
    t.add_(1.0)
    raise KeyError


WAYS = [
    through_a_view, through_a_transposed_view, through_detach, through_data, through_another_dtype, through_out,
    through_a_list, through_indices, through_copying, through_inference, through_set, through_resizing,
    through_shrinking, through_turning, through_an_exception,
]  # fmt: skip


@pytest.mark.parametrize("write", WAYS)
def test_every_way_to_write_is_undone(write: Callable[[Tensor], None]) -> None:
    tensor = torch.randn(4, 3)
    if write is through_a_transposed_view:
        tensor = torch.randn(3, 4).t()
    alias = tensor.detach()
    before = bits(tensor), tensor.shape, tensor.stride()
    version = tensor._version
    during = None
    try:
        with UndoLog():
            try:
                write(tensor)
            finally:
                during = bits(tensor), tensor.shape, tensor.stride()
    except KeyError:
        assert write is through_an_exception
    assert during != before
    assert (bits(tensor), tensor.shape, tensor.stride()) == before
    assert bits(alias) == before[0]
    assert alias.data_ptr() == tensor.data_ptr()
    assert tensor._version == version


def test_what_the_operators_compute_meanwhile_is_the_same() -> None:
    x = torch.randn(64, 64)

    def work() -> list[Tensor]:
        held = x.clone()
        held.mul_(0.9).add_(x)
        return [held.prod(), held.sum(), held @ x, torch.linalg.norm(held), held.softmax(0), held.std(), held.cumsum(1)]

    bare = work()
    with UndoLog() as undo:
        watched = work()
    assert [bits(a) for a in bare] == [bits(b) for b in watched]
    assert undo.bytes == 0


def test_what_was_made_meanwhile_keeps_what_was_written() -> None:
    with UndoLog() as undo:
        made = torch.zeros(4)
        made.add_(1.0)
        made.view(2, 2)[0] = 5.0
        literal = torch.tensor([1.0, 2.0])
        literal.mul_(2.0)
        made.resize_(4)
    assert made.tolist() == [5.0, 5.0, 1.0, 1.0]
    assert literal.tolist() == [2.0, 4.0]
    assert undo.bytes == 0


def test_a_storage_is_copied_once_however_often_it_is_written() -> None:
    tensor = torch.zeros(100)
    with UndoLog() as undo:
        for k in range(100):
            tensor[k].add_(1.0)
    assert undo.bytes == 400


def test_what_it_may_keep_is_bounded() -> None:
    small, large = torch.zeros(10), torch.zeros(1000)

    class FullError(Exception):
        pass

    with pytest.raises(FullError), UndoLog(limit=100, error=FullError):
        small.add_(1.0)
        large.add_(1.0)
    with pytest.raises(TooMuch), UndoLog(limit=100):
        large.add_(1.0)
    assert not small.any()
    assert not large.any()


def test_batch_norm_forgets_what_it_saw() -> None:
    for norm, x in ((nn.BatchNorm1d(4), torch.randn(8, 4)), (nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4))):
        norm(x)
        before = {name: bits(value) for name, value in norm.state_dict().items()}
        with UndoLog():
            norm(x * 2.0).sum().backward()
            assert int(norm.num_batches_tracked or 0) == 2
            during = {name: bits(value) for name, value in norm.state_dict().items()}
        assert during["running_mean"] != before["running_mean"]
        assert {name: bits(value) for name, value in norm.state_dict().items()} == before


@pytest.mark.parametrize("keywords", [{"foreach": False}, {"foreach": True}, {"fused": True}])
def test_a_step_of_adam_is_undone(keywords: dict[str, Any]) -> None:
    model = nn.Linear(4, 4)
    average = [p.detach().clone() for p in model.parameters()]
    adam = torch.optim.Adam(model.parameters(), **keywords)

    def step() -> None:
        model(torch.ones(2, 4)).sum().backward()
        adam.step()
        for kept, p in zip(average, model.parameters(), strict=True):
            kept.mul_(0.9).add_(p.detach(), alpha=0.1)

    def held() -> list[bytes]:
        state = [v for one in adam.state.values() for v in one.values()]
        return [bits(t) for t in (*model.parameters(), *average, *state, *(p.grad for p in model.parameters()))]

    step()
    before = held()
    with UndoLog():
        step()
        during = held()
    assert all(a != b for a, b in zip(before, during, strict=True))
    assert held() == before


def test_a_gradient_added_to_is_as_it_was() -> None:
    weight = torch.ones(3, requires_grad=True)
    weight.sum().backward()
    grad = weight.grad
    assert grad is not None
    with UndoLog():
        (weight * 5.0).sum().backward()
        assert grad.tolist() == [6.0, 6.0, 6.0]
    assert weight.grad is grad
    assert grad.tolist() == [1.0, 1.0, 1.0]


def test_a_graph_from_before_can_still_be_differentiated() -> None:
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * weight).sum()
    with torch.no_grad(), UndoLog():
        weight.add_(1.0)
        weight[0].add_(1.0)
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]


def test_without_it_that_graph_is_lost() -> None:
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * weight).sum()
    with torch.no_grad():
        weight.add_(1.0)
        weight.sub_(1.0)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


@pytest.mark.parametrize("view", [False, True])
def test_a_batch_that_a_gradient_was_written_into_is_a_leaf_again(view: bool) -> None:
    batch, weight = torch.ones(3), torch.ones(3, requires_grad=True)
    seen = batch[:3] if view else batch
    with UndoLog():
        seen.mul_(weight)
        assert batch.requires_grad
    assert not batch.requires_grad
    assert batch.is_leaf
    assert batch.tolist() == [1.0, 1.0, 1.0]


def test_memory_of_numpys_is_put_back() -> None:
    array = np.ones(3)
    with UndoLog():
        torch.empty(3)
        torch.from_numpy(array).add_(1.0)
        assert array.tolist() == [2.0, 2.0, 2.0]
    assert array.tolist() == [1.0, 1.0, 1.0]


def test_what_cannot_be_kept_is_named() -> None:
    sparse = torch.eye(3).to_sparse()
    with UndoLog() as undo:
        sparse.mul_(2.0)
    assert list(undo.missed) == ["aten.mul_.Tensor"]


def test_what_is_written_without_an_operator_can_be_kept_by_hand() -> None:
    tensor = torch.ones(3)
    with UndoLog() as undo:
        undo.keep(tensor)
        tensor.numpy()[:] = 5.0
    assert tensor.tolist() == [1.0, 1.0, 1.0]


class Counting(Tensor):
    """A subclass with operators of its own, over a tensor that was there."""

    inner: Tensor

    @staticmethod
    def __new__(cls: type[Counting], inner: Tensor) -> Counting:
        made = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        unwrapped = [a.inner if isinstance(a, Counting) else a for a in args]
        out = func(*unwrapped, **(kwargs or {}))
        return args[0] if func.__name__.partition(".")[0].endswith("_") else out


def test_a_subclass_is_looked_into() -> None:
    inner = torch.ones(3)
    wrapped = Counting(inner)
    with UndoLog():
        wrapped.add_(1.0)
        assert inner.tolist() == [2.0, 2.0, 2.0]
    assert inner.tolist() == [1.0, 1.0, 1.0]


@torch.library.custom_op("whynan_undo_test::scale", mutates_args={"x"})
def scale(x: Tensor, by: float) -> None:
    x.mul_(by)


def test_an_operator_of_the_programs_own_is_undone() -> None:
    tensor = torch.ones(3)
    with UndoLog():
        scale(tensor, 3.0)
        assert tensor.tolist() == [3.0, 3.0, 3.0]
    assert tensor.tolist() == [1.0, 1.0, 1.0]


def test_it_can_be_below_another_mode_and_above_one() -> None:
    tensor = torch.ones(3)
    outer, inner = UndoLog(), UndoLog()
    with outer:
        tensor.add_(1.0)
        with inner:
            tensor.add_(1.0)
        assert tensor.tolist() == [2.0, 2.0, 2.0]
    assert tensor.tolist() == [1.0, 1.0, 1.0]
