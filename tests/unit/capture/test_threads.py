"""Threads: the one that entered is traced, others are named and left alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from tests.unit.capture.seen import traced


def test_a_thread_that_the_program_starts_is_noted_by_name() -> None:
    values: list[float] = []

    def work() -> None:
        thread = threading.Thread(target=lambda: values.extend(torch.zeros(2).log().tolist()), name="loader-3")
        thread.start()
        thread.join()

    report = traced(work)
    assert values == [-torch.inf, -torch.inf]
    assert report.verdict == "clean"
    assert report.coverage.notes == ("thread 'loader-3' was not entered: what it computed was not traced",)


def test_a_pool_is_noted_and_its_results_are_looked_at_when_they_are_used() -> None:
    def work() -> None:
        with ThreadPoolExecutor(1) as pool:
            nan = pool.submit(lambda: torch.full((2,), -1.0).sqrt()).result()
        (nan + 1).tolist()

    report = traced(work)
    (finding,) = report.findings
    assert finding.birth == "entered"
    assert len(report.coverage.notes) == 1


def test_a_thread_that_ran_before_is_not_noted() -> None:
    ready, go = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        go.wait()
        torch.zeros(2).log()

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    report = traced(go.set)
    thread.join()
    assert report.verdict == "clean"


def test_backward_of_the_engine_is_in_the_trace() -> None:
    weight = torch.zeros(2, requires_grad=True)
    report = traced(lambda: weight.sqrt().sum().backward())
    assert report.findings[0].phase == "backward"
    assert report.coverage.notes == ()
