"""The mark of a program's start is held for as long as the program may be replayed from there, and no longer."""

from __future__ import annotations

import sys
import threading

import pytest

from whynan.replay import checkpoint
from whynan.replay.checkpoint import Marks


@pytest.fixture
def marks() -> Marks:
    """Marks of a program whose first operation is about to run."""
    made = Marks()
    made.record_program()
    return made


def test_it_holds_one_frame(marks: Marks) -> None:
    assert marks.at_program is not None
    assert marks.at_program.is_short()
    assert len(marks.at_program.frames) <= 1
    assert marks.at_program not in marks.kept()


def test_a_step_keeps_it_for_a_later_one_that_finds_its_weights_bad(marks: Marks) -> None:
    marks.record_step(None)
    assert marks.at_program is not None
    assert marks.at_program not in marks.kept()


def test_time_lets_go_of_it(marks: Marks, monkeypatch: pytest.MonkeyPatch) -> None:
    marks.record_module_call()
    assert marks.at_program is not None
    monkeypatch.setattr(checkpoint, "SHORT", 0.0)
    marks.record_module_call()
    assert marks.at_program is None


def test_another_thread_has_none() -> None:
    made = Marks()
    thread = threading.Thread(target=made.record_program)
    thread.start()
    thread.join()
    assert made.at_program is None


def test_the_time_in_which_the_compiler_is_loaded_does_not_count(marks: Marks, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly: a small program takes less for all of its steps."""
    clock = [0.0]

    def load(_: str) -> None:
        clock[0] += 100.0

    monkeypatch.setattr(checkpoint.time, "process_time", lambda: clock[0])
    monkeypatch.setattr(checkpoint, "_loading", 0.0)
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.setattr(checkpoint.importlib, "import_module", load)
    fresh = Marks()
    fresh.record_program()
    assert fresh.at_program is not None
    checkpoint.load_compiler()
    assert fresh.at_program.is_short()
    clock[0] += 100.0
    assert not fresh.at_program.is_short()
