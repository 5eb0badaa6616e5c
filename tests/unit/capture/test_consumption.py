"""A replay takes nothing from the program for good: queues, pipes and sockets are refused, files are gone back in."""

from __future__ import annotations

import cProfile
import gc
import io
import multiprocessing
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from whynan.replay.sandbox import OutsideAccess, Refusals
from whynan.replay.sandbox import block_side_effects as held_back_from


def held_back() -> AbstractContextManager[Refusals]:
    """With the names of the test as roots."""
    return held_back_from([sys._getframe(1).f_locals])


def refused(action: Callable[[], object]) -> str:
    """What a replay is told when it tries."""
    with pytest.raises(OutsideAccess) as caught, held_back_from([action]) as held:
        action()
    assert held.refused == [caught.value]
    assert caught.value.where[0] == __file__
    return caught.value.what


def _filled(made: Any) -> Any:
    made.put(1)
    made.put(2)
    return made


QUEUES: dict[str, Callable[[], Any]] = {
    "SimpleQueue": queue.SimpleQueue,
    "Queue": queue.Queue,
    "LifoQueue": queue.LifoQueue,
    "PriorityQueue": queue.PriorityQueue,
    "multiprocessing SimpleQueue": multiprocessing.get_context("spawn").SimpleQueue,
}


@pytest.mark.parametrize("kind", list(QUEUES))
def test_a_queue_is_neither_taken_from_nor_put_into(kind: str) -> None:
    waiting = _filled(QUEUES[kind]())
    assert refused(waiting.get) == "takes from a queue"
    assert refused(lambda: waiting.put(3)) == "puts into a queue"
    assert sorted((waiting.get(), waiting.get())) == [1, 2]
    assert waiting.empty()


@pytest.mark.parametrize("kind", ["SimpleQueue", "Queue"])
def test_a_queue_that_is_asked_without_waiting_is_refused_too(kind: str) -> None:
    waiting = _filled(QUEUES[kind]())
    assert refused(waiting.get_nowait) == "takes from a queue"
    assert refused(lambda: waiting.put_nowait(3)) == "puts into a queue"
    assert waiting.qsize() == 2


def test_the_other_threads_of_the_program_use_their_queues() -> None:
    asked: queue.Queue[int] = queue.Queue()
    answered: queue.SimpleQueue[int] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: answered.put(asked.get()))
    thread.start()
    with held_back():
        pass
    asked.put(7)
    thread.join()
    assert answered.get() == 7


def test_another_thread_is_not_refused_while_a_replay_runs() -> None:
    asked, answered, held = _filled(queue.Queue()), queue.SimpleQueue[int](), threading.Event()

    def work() -> None:
        held.wait()
        answered.put(asked.get())

    thread = threading.Thread(target=work)
    join = thread.join
    thread.start()
    with held_back():
        held.set()
        while answered.empty():
            pass
    join()
    assert answered.get() == 1


def test_what_another_thread_puts_into_a_queue_meanwhile_stays() -> None:
    from whynan.replay.mutable_state import ObjectSnapshot

    waiting, seen = _filled(queue.Queue()), [1]
    contents = ObjectSnapshot([{"waiting": waiting, "seen": seen}])
    waiting.put(3)
    seen.append(2)
    contents.restore()
    assert (waiting.qsize(), seen) == (3, [1])


def test_a_pipe_is_not_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"abc")
    assert refused(lambda: os.read(reading, 3)) == "reads from a descriptor"
    with open(reading, "rb") as file:
        assert refused(lambda: file.read(1)) == "reads a file in which it cannot go back"
        os.close(writing)
        assert file.read() == b"abc"


def test_a_socket_is_not_received_from() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"abc")
        assert refused(lambda: other.recv(3)) == "receives from a socket"
        assert other.recv(3) == b"abc"


READS: list[Callable[[Any], object]] = [
    lambda file: file.readline(),
    lambda file: file.read(3),
    lambda file: file.readlines(),
    next,
    lambda file: [len(line) for line in file],
]


@pytest.mark.parametrize("mode", ["r", "rb"])
@pytest.mark.parametrize("read", READS)
def test_a_file_that_is_read_is_gone_back_in(tmp_path: Path, mode: str, read: Callable[[Any], object]) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("ä\n2\n3\n4\n" * 5000, encoding="utf-8")
    with open(path, mode, encoding=None if "b" in mode else "utf-8") as file:
        first = file.readline()
        with held_back():
            read(file)
        rest = file.read()
    assert len(first + rest) == len(path.read_bytes() if "b" in mode else path.read_text("utf-8"))


def test_a_file_whose_lines_a_loop_goes_over_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("1\n2\n3\n")
    lines: list[str] = []
    with open(path) as file:
        for line in file:
            lines.append(line)
            assert refused(file.readline) == "reads a file in which it cannot go back"
    assert lines == ["1\n", "2\n", "3\n"]


def test_a_file_that_is_written_too_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "rows.txt", "w+") as file:
        file.write("1\n2\n")
        file.seek(0)
        assert refused(file.readline) == "reads a file in which it cannot go back"
        assert file.read() == "1\n2\n"


def test_a_file_that_a_replay_opens_itself_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("1\n2\n")
    with held_back():
        assert path.read_text() == "1\n2\n"
        assert io.StringIO("5").read() == "5"


def test_the_programs_profiler_goes_on_afterwards() -> None:
    calls: list[str] = []
    sys.setprofile(lambda _frame, event, _: calls.append(event))
    try:
        mine = sys.getprofile()
        with held_back():
            assert sys.getprofile() is not mine
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)


def test_a_profiler_that_is_written_in_c_goes_on_afterwards() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    with held_back():
        pass
    _seen()
    profiler.disable()
    names = {entry.code.co_name for entry in profiler.getstats() if not isinstance(entry.code, str)}
    assert "_seen" in names


def _seen() -> None:
    pass


# -- after a refusal ---------------------------------------------------------------------------------------------------


def clauses(action: Callable[[], object]) -> list[str]:
    """What a replay was refused, in order."""
    with held_back_from([action]) as held, suppress(OutsideAccess):
        action()
    assert sys.getprofile() is None
    return [r.what for r in held.refused]


def test_the_semaphores_of_what_is_gone_may_end_meanwhile() -> None:
    held = [multiprocessing.get_context("spawn").Lock()]

    def collects() -> None:
        held.clear()
        gc.collect()

    assert clauses(collects) == []


def test_what_is_put_into_a_queue_after_a_refusal_is_refused_too() -> None:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()

    def ends() -> None:
        try:
            waiting.get(timeout=0)
        finally:
            waiting.put(0)

    assert clauses(ends) == ["takes from a queue", "puts into a queue"]
    assert waiting.empty()


@pytest.mark.parametrize("kind", ["SimpleQueue", "Queue"])
def test_a_loop_that_catches_everything_is_refused_each_time(kind: str) -> None:
    waiting = _filled(QUEUES[kind]())

    def tries() -> None:
        for _ in range(5):
            try:
                waiting.get()
            except BaseException:
                continue

    assert clauses(tries) == ["takes from a queue"] * 5
    assert waiting.qsize() == 2


def test_what_comes_after_a_recursion_that_is_too_deep_is_looked_at() -> None:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    waiting.put(1)

    def deeper(depth: int) -> int:
        return deeper(depth + 1)

    def takes() -> None:
        with suppress(RecursionError):
            deeper(0)
        waiting.get()

    assert clauses(takes)[-1] == "takes from a queue"
    assert waiting.qsize() == 1


def test_a_profile_function_is_not_put_in_the_place_of_ours() -> None:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    waiting.put(1)

    def takes() -> None:
        sys.setprofile(None)
        waiting.get()

    assert clauses(takes) == ["sets a profile function"]
    assert waiting.qsize() == 1


@pytest.mark.parametrize(
    ("action", "refused"),
    [
        (lambda: signal.alarm(0), ["sets a timer or what a signal does"]),
        (lambda: signal.setitimer(signal.ITIMER_REAL, 0), ["sets a timer or what a signal does"]),
        # made nothing of
        (lambda: signal.signal(signal.SIGALRM, signal.SIG_IGN), []),
    ],
    ids=["alarm", "setitimer", "signal"],
)
def test_the_programs_timers_and_handlers_stay(action: Callable[[], object], refused: list[str]) -> None:
    before = signal.getsignal(signal.SIGALRM)
    assert clauses(action) == refused
    assert signal.getsignal(signal.SIGALRM) is before
