"""Children of a traced program: nothing is looked at there, and nothing of the trace's can hold them up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.data import DataLoader, Dataset

import whynan
from tests.unit.capture.seen import traced, watched
from whynan.capture.torch import Capture
from whynan.capture.torch.capture import FORKED

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are started anew here")
# what Python says of a fork beside threads
ALLOWED = "ignore:.*fork.*:DeprecationWarning"


def in_a_child(work: Callable[[], object]) -> int:
    """The exit status of a forked child that does some work."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Looking(Dataset[Any]):
    """Says whether a mode is on where its entries are made, and which functions stand where torch has its own."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        (torch.zeros(1) / torch.zeros(1)).tolist()
        return len(_get_current_dispatch_mode_stack()), torch.load.__code__ is LOAD


LOAD = torch.load.__code__


def test_workers_are_not_looked_at() -> None:
    seen: list[Any] = []
    report = traced(lambda: seen.extend(DataLoader(Looking(), num_workers=1, batch_size=None)))
    assert seen == [[0, True]] * 2
    assert report.verdict == "clean"


def test_a_child_that_ends_the_trace_says_that_it_is_one() -> None:
    def end() -> None:
        capture.__exit__(None, None, None)
        assert capture.trace is not None
        assert (capture.trace.births, capture.trace.coverage.typed_notes) == ([], (FORKED,))
        assert _get_current_dispatch_mode_stack() == []
        assert torch.load.__code__ is LOAD

    with Capture() as capture:
        torch.zeros(1).log()
        assert in_a_child(end) == 0
    assert capture.trace is not None
    assert capture.trace.coverage.events == 2


@pytest.mark.filterwarnings(ALLOWED)
def test_a_child_does_not_wait_for_a_thread_that_it_has_not() -> None:
    def compute() -> None:
        x = torch.zeros(3)
        for _ in range(20):
            (x / x).nan_to_num().sum().item()

    def program() -> None:
        busy = [threading.Thread(target=compute) for _ in range(3)]
        for thread in busy:
            thread.start()
        statuses.extend(in_a_child(compute) for _ in range(5))
        for thread in busy:
            thread.join()

    statuses: list[int] = []
    watched(program, threads=True)
    assert statuses == [0] * 5


def test_a_trace_that_a_child_begins_is_its_own() -> None:
    def work() -> None:
        with whynan.trace() as trace:
            (torch.zeros(1) / torch.zeros(1)).tolist()
        assert trace.report.verdict == "nonfinite"

    assert in_a_child(work) == 0
