"""What is read of a step: all of it in one transfer where a device has it, and the same numbers wherever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import whynan
from whynan.training import read_back
from whynan.training.read_back import Parts, PendingStatistics, StepStatistics, read_statistics

if TYPE_CHECKING:
    from collections.abc import Callable

INF, NAN = float("inf"), float("nan")


@pytest.fixture
def transferred(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many numbers each transfer had, as if the host were a device."""
    sizes: list[int] = []
    fetched = read_back.fetch_now

    def counting(vector: Tensor) -> Callable[[], list[float]]:
        sizes.append(vector.numel())
        return fetched(vector)

    monkeypatch.setattr(read_back, "is_on_host", lambda _: False)
    monkeypatch.setattr(read_back, "fetch_now", counting)
    return sizes


def _exactly(parts: Parts) -> StepStatistics:
    numbers = PendingStatistics(parts, exact=True)
    return numbers.reading(read_back.Transfer(numbers.vectors(), waits=False).numbers())


def _sparse(value: float) -> Tensor:
    return torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([value, 1.0]), (4,))


GRADIENTS: dict[str, list[Tensor]] = {
    "finite": [torch.ones(3), torch.full((2, 2), 2.0)],
    "none": [],
    "an empty one": [torch.ones(0), torch.ones(2)],
    "nan": [torch.ones(3), torch.tensor([1.0, NAN])],
    "inf": [torch.tensor([[INF]]), torch.ones(3)],
    "a norm that overflows": [torch.full((4,), 3e38), torch.ones(2)],
    "several types": [torch.ones(3).half(), torch.ones(2).double(), torch.tensor([NAN]).bfloat16()],
    "double": [torch.full((4,), 1e300, dtype=torch.float64)],
    "complex": [torch.tensor([complex(1, INF)]), torch.tensor([complex(3e38, 3e38)])],
    "sparse": [_sparse(NAN), _sparse(1.0), torch.ones(2)],
}


@pytest.mark.parametrize("name", list(GRADIENTS))
def test_it_is_known_exactly_which_gradients_are_bad(name: str) -> None:
    gradients = GRADIENTS[name]
    found = _exactly(Parts(gradients, ()))
    dense = [g.to_dense() if g.is_sparse else g for g in gradients]
    assert found.bad == tuple(not bool(torch.isfinite(g).all()) for g in dense)
    if any(found.bad):
        assert not found.is_finite


@pytest.mark.parametrize("name", list(GRADIENTS))
def test_a_device_gives_the_numbers_that_the_host_gives(name: str, transferred: list[int]) -> None:
    loss = torch.tensor(0.1)
    parts = Parts(GRADIENTS[name], (torch.ones(3), loss))
    here, there = read_back._read_here(parts), read_statistics(parts)
    assert (there.losses, there.loss) == (here.losses, here.loss) == ((1.0, loss.item()), loss.item())
    assert here.norm is not None
    assert there.norm is not None
    assert there.is_finite == here.is_finite
    if here.is_finite:
        assert there.norm == pytest.approx(here.norm, rel=1e-6)
    assert len(transferred) == 1


@pytest.mark.parametrize(
    ("loss", "bad", "bad_if_scaled"),
    [
        (torch.tensor(1.0), False, False),
        (torch.tensor(INF), True, False),
        (torch.tensor(NAN), True, True),
        (torch.tensor([1.0, -INF, 2.0]), True, False),
        (torch.tensor([1.0, -INF, NAN]), True, True),
        (torch.tensor([3e38, -3e38]), False, False),
        (torch.ones(0), False, False),
        (torch.tensor([60000.0, -60000.0]).half(), False, False),
    ],
)
def test_one_number_of_a_loss_tells_whether_it_is_bad(loss: Tensor, bad: bool, bad_if_scaled: bool) -> None:
    for found in (read_statistics(Parts([], (loss,))), _exactly(Parts([], (loss,)))):
        assert (found.bad_loss(scaled=False), found.bad_loss(scaled=True)) == (bad, bad_if_scaled)


def _fit(optimizer: Any, weight: Tensor, steps: int = 4) -> None:
    for k in range(steps):
        optimizer.zero_grad()
        (weight * (k + 1)).sum().backward()
        # several losses, one of which is many numbers
        (weight.square()).backward(torch.ones(3))
        optimizer.step()


def _waits(watched: bool) -> tuple[int, Any]:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1, foreach=False)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        if watched:
            with whynan.watch(optimizer, quiet=True) as w:
                _fit(optimizer, weight)
                history = w._training.guard.history.steps_of(optimizer)  # type: ignore[union-attr]
        else:
            history = None
            _fit(optimizer, weight)
    return sum(e.name == "aten::_local_scalar_dense" for e in profile.events()), history


def test_a_step_is_read_in_one_transfer(transferred: list[int]) -> None:
    waits, history = _waits(True)
    assert (waits, len(transferred)) == (_waits(False)[0], 4)
    assert [round(e.norm, 4) for e in history] == [round(e.norm, 4) for e in _here()]
    assert [e.loss for e in history] == [None] * 4


def _here() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_back, "is_on_host", lambda t: t.is_cpu)
        return _waits(True)[1]


def test_a_read_of_its_own_is_noticed(transferred: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_back.StepStatistics, "is_finite", property(lambda r: torch.ones(()).item() == 1))
    assert _waits(True)[0] == _waits(False)[0] + 4


def test_a_scaler_and_what_it_found_travel_with_the_rest(transferred: list[int]) -> None:
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1e-3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9, fused=True)
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=2.0**124)
    with whynan.watch(optimizer, quiet=True) as w:
        for _ in range(6):
            optimizer.zero_grad()
            scaler.scale(model(torch.full((1, 2), 2.0**7)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        entries = w._training.guard.history.steps_of(optimizer)  # type: ignore[union-attr]
    assert [e.skipped for e in entries] == [True] * 4 + [False] * 2
    assert [e.scale for e in entries] == [2.0**k for k in (124, 123, 122, 121, 120, 120)]
    assert (w.report.verdict, len(transferred)) == ("clean", 6)


def test_numbers_come_back_in_the_order_in_which_they_were_given() -> None:
    vectors = [torch.tensor([1.0, 2.0]), torch.ones(0), torch.tensor([True]), torch.tensor([0.1], dtype=torch.float64)]
    for waits in (True, False):
        assert read_back.Transfer(vectors, waits=waits).numbers() == [[1.0, 2.0], [], [1.0], [0.1]]
    assert read_back.Transfer([], waits=True).numbers() == []


def test_what_is_sent_is_what_it_was_then() -> None:
    moving = torch.ones(2, dtype=torch.float64)
    under_way = read_back.Transfer([moving], waits=False)
    moving.zero_()
    assert under_way.numbers() == [[1.0, 1.0]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_sends_without_waiting() -> None:
    vector = torch.arange(3.0, device="cuda")
    previous = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        under_way = read_back.Transfer([vector], waits=False)
    finally:
        torch.cuda.set_sync_debug_mode(previous)
    assert under_way.numbers() == [[0.0, 1.0, 2.0]]
