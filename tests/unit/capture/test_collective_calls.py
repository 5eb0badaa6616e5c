"""The program's calls of collectives, as they are kept for a replay: what is kept, of which tensors, and how much."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from whynan.capture.ranks import CollectiveRefused
from whynan.capture.torch.interposition import collective_calls
from whynan.capture.torch.interposition.collective_calls import CallLog

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")
Distributed: Any = dist


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=Distributed.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def fail() -> bool:
    raise


@pytest.fixture
def log(group: None) -> Iterator[CallLog]:
    del group
    made = CallLog(1 << 10, fail)
    made.install()
    yield made
    made.remove()


def sum_of(tensor: torch.Tensor) -> None:
    dist.all_reduce(tensor)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: torch.eye(3).to_sparse(), id="sparse"),
        pytest.param(lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), id="quantized"),
        pytest.param(lambda: torch.ones(3, device="meta"), id="meta"),
        pytest.param(lambda: torch.ones(3).as_subclass(type("Own", (torch.Tensor,), {})), id="subclass"),
    ],
)
def test_what_is_no_plain_tensor_is_not_kept_and_no_error(make: Callable[[], torch.Tensor], log: CallLog) -> None:
    try:
        sum_of(make())
    except (RuntimeError, NotImplementedError):
        # gloo's own word; what it gave is looked at all the same
        call = collective_calls.Call("all_reduce", "", 1, 0.0)
        log._end(call, 0, (make(),), {}, None)  # pyright: ignore[reportPrivateUsage]
    else:
        (call,) = log.calls_since(0.0)
    assert (call.results, call.lost) == ([], "it is no plain tensor")


def test_what_a_call_gave_is_kept_as_it_was(log: CallLog) -> None:
    x = torch.arange(3.0)
    sum_of(x)
    x += 1
    (call,) = log.calls_since(0.0)
    assert [t.tolist() for t in call.results] == [[0.0, 1.0, 2.0]]


def test_what_is_not_waited_for_is_held_within_the_budget(log: CallLog) -> None:
    works = [dist.all_reduce(torch.ones(100), async_op=True) for _ in range(8)]
    assert len(log._pending) == 2  # pyright: ignore[reportPrivateUsage]
    for work in works:
        work.wait()
    calls = log.calls_since(0.0)
    assert [len(call.results) for call in calls] == [1, 1, *[0] * 6]
    assert all("--memory" in call.lost for call in [*calls][2:])


def test_what_nobody_has_waited_for_is_let_go_of_with_its_step(log: CallLog) -> None:
    for _ in range(8):
        work: Any = dist.all_reduce(torch.ones(30), async_op=True)
        log.end_step()
    while not work.is_completed():
        threading.Event().wait(0.01)
    assert len(log._pending) <= 3  # pyright: ignore[reportPrivateUsage]
    (*_, last) = log.calls_since(0.0)
    assert [t.tolist() for t in last.results] == [[1.0] * 30]


def test_calls_ahead_of_where_a_replay_begins_are_left_out_of_what_it_is_given(log: CallLog) -> None:
    for number in range(3):
        sum_of(torch.full((1,), float(number)))
    log.leave_out(0.0, 1)
    assert [call.results[0].item() for call in log.calls_since(0.0)] == [1.0, 2.0]
    # of another mark all are there
    assert len(log.calls_since(-1.0)) == 3


def test_a_replay_that_calls_another_collective_has_the_calls_of_the_step_looked_at_later(log: CallLog) -> None:
    sum_of(torch.ones(1))
    Distributed.broadcast(torch.ones(1), 0)
    log.here.replayed = log.calls_since(0.0)
    with pytest.raises(CollectiveRefused, match="calls broadcast where the step called all_reduce"):
        Distributed.broadcast(torch.ones(1), 0)
    assert len(log.here.replayed) == 1
    log.here.replayed = None


def test_of_what_is_gathered_the_rank_is_known_that_it_came_from(log: CallLog) -> None:
    Distributed.all_gather([torch.zeros(1)], torch.ones(1))
    sum_of(torch.ones(1))
    gathered, summed = log.calls_since(0.0)
    log.note_received(gathered, "allgather", None, 0)
    log.note_received(summed, "allreduce", None, None)
    assert [bad.sender for bad in log.received] == [0, None]


def test_of_what_this_rank_alone_gives_the_line_is_kept(log: CallLog) -> None:
    dist.broadcast(torch.ones(2), group_src=0)
    sum_of(torch.ones(2))
    (call,) = log.given()
    assert call.key[1:] == (1, "broadcast")
    assert call.site is not None
    assert call.site.code == "dist.broadcast(torch.ones(2), group_src=0)"
    for _ in range(4):
        log.end_step()
    assert log.given() == []


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("given", [{"src": 3}, {"group_src": 1}], ids=["of all", "of the group"])
def test_the_sender_is_a_rank_of_all(given: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    known: Any = collective_calls.distributed_c10d
    monkeypatch.setattr(known, "get_global_rank", lambda group, number: {1: 3}[number])
    assert collective_calls._sender("irecv", (torch.ones(1),), given) == 3  # pyright: ignore[reportPrivateUsage]
    assert collective_calls._peers("irecv", (torch.ones(1),), given) == "3>0"  # pyright: ignore[reportPrivateUsage]
