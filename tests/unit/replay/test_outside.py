"""Nothing that runs while it is held back reaches a file, a process or the network."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import csv
import gc
import io
import logging
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import save

from whynan.replay import sandbox
from whynan.replay.sandbox import OutsideAccess, Refusals
from whynan.replay.sandbox import block_side_effects as held_back_from

HERE = __file__
DATABASE, PAIR = sqlite3.connect(":memory:"), socket.socketpair()
SCRIPT = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))


def held_back() -> contextlib.AbstractContextManager[Refusals]:
    """With the names of the test as roots."""
    return held_back_from([sys._getframe(1).f_locals])


def line() -> int:
    return sys._getframe(1).f_lineno


def test_a_file_that_was_open_keeps_its_content_and_its_place(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    with open(path, "w") as file:
        file.write("before\n")
        with held_back():
            file.write("during\n" * 10_000)
            file.flush()
            assert path.read_text() == "before\n"
            file.write("not flushed\n")
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == len("before\n")
        assert file.tell() == len("before\n")
        file.write("after\n")
    assert path.read_text() == "before\nafter\n"


@pytest.mark.parametrize("mode", ["wb", "ab", "w+b", "r+b"])
@pytest.mark.parametrize("buffering", [0, -1])
def test_binary_files_of_every_mode_go_on_where_they_were(tmp_path: Path, mode: str, buffering: int) -> None:
    path = tmp_path / "log.bin"
    path.write_bytes(b"")
    with open(path, mode, buffering=buffering) as file:
        file.write(b"before ")
        with held_back():
            file.write(b"during ")
        file.write(b"after")
        if "+" in mode:
            file.seek(0)
            assert file.read() == b"before after"
    assert path.read_bytes() == b"before after"


def test_a_file_that_was_frozen_is_not_written_to(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        log.write("before")
        gc.freeze()
        try:
            with held_back():
                log.write("within")
                log.flush()
        finally:
            gc.unfreeze()
    assert (tmp_path / "log").read_text() == "before"


def test_a_csv_writer_and_a_log_handler_write_nothing(tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "run.log")
    logger = logging.Logger("of the test", logging.INFO)
    logger.addHandler(handler)
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        for word in ("before", "during", "after"):
            if word == "during":
                with held_back():
                    rows.writerow([word])
                    logger.info(word)
            else:
                rows.writerow([word])
                logger.info(word)
    handler.close()
    assert (tmp_path / "rows.csv").read_text() == "before\nafter\n"
    assert (tmp_path / "run.log").read_text() == "before\nafter\n"


PROGRAM = """
import ctypes, logging, os, sys
from whynan.replay.sandbox import block_side_effects
logging.basicConfig(stream=sys.stderr, format="%(message)s")
def say(word):
    print(word)
    print(word, file=sys.stderr)
    logging.warning(word)
    sys.stdout.flush()
    os.write(1, word.encode() + b" raw\\n")
    ctypes.CDLL(None).puts(word.encode() + b" libc")
say("before")
with block_side_effects():
    say("during")
say("after")
"""


@pytest.mark.process
def test_print_and_the_descriptors_below_it_write_nothing_into_pipes() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split("\n")) == sorted(
        ["", "before", "before raw", "before libc", "after", "after raw", "after libc"]
    )
    assert done.stderr == "before\nbefore\nafter\nafter\n"


def test_what_stands_for_stdout_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    print("before")
    with held_back():
        print("during")
    print("after")
    assert sys.stdout is stream
    assert stream.getvalue() == "before\nafter\n"


def test_pipes_to_other_processes_are_left_alone() -> None:
    out, into = os.pipe()
    with os.fdopen(into, "wb", buffering=0) as writer, held_back():
        writer.write(b"to a worker")
    assert os.read(out, 100) == b"to a worker"
    os.close(out)


def writes(path: Path) -> None:
    (path / "new.txt").write_text("")


def appends(path: Path) -> None:
    with open(path / "there.txt", "a"):
        pass


def creates(path: Path) -> None:
    os.close(os.open(path / "new.txt", os.O_CREAT | os.O_WRONLY))


def makes(path: Path) -> None:
    (path / "new").mkdir()


def removes(path: Path) -> None:
    (path / "there.txt").unlink()


def renames(path: Path) -> None:
    (path / "there.txt").rename(path / "gone.txt")


def connects(path: Path) -> None:
    with socket.socket() as made:
        made.connect(("127.0.0.1", 9))


def binds(path: Path) -> None:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))


def starts(path: Path) -> None:
    subprocess.run(["touch", str(path / "new.txt")], check=True)


def shells(path: Path) -> None:
    os.system(f"touch {path / 'new.txt'}")


def forks(path: Path) -> None:
    if os.fork() == 0:
        os._exit(0)


def threads(path: Path) -> None:
    threading.Thread(target=print).start()


def asks(path: Path) -> None:
    input()


def saves(path: Path) -> None:
    save(torch.ones(2), path / "new.pt")


def saves_tensors(path: Path) -> None:
    safetensors.torch.save_file({"x": torch.ones(2)}, path / "new.safetensors")


def saves_a_script(path: Path) -> None:
    SCRIPT.save(str(path / "new.pt"))


def registers(path: Path) -> None:
    atexit.register(print)


def handles(path: Path) -> None:
    logging.getLogger("a").addHandler(logging.NullHandler())


def queries(path: Path) -> None:
    DATABASE.execute("select 1")


def sends(path: Path) -> None:
    PAIR[0].send(b"once")


@pytest.mark.parametrize(
    ("does", "what"),
    [
        (writes, "opens {}/new.txt for writing"),
        (appends, "opens {}/there.txt for writing"),
        (creates, "opens {}/new.txt for writing"),
        (makes, "makes the folder {}/new"),
        (removes, "removes {}/there.txt"),
        (renames, "renames {}/there.txt"),
        (connects, "connects to ('127.0.0.1', 9)"),
        (binds, "listens at ('127.0.0.1', 0)"),
        (starts, "starts touch"),
        (shells, "starts touch {}/new.txt"),
        (forks, "forks"),
        (threads, "starts a thread"),
        (asks, "asks for input"),
        (saves, "saves a file"),
        (saves_tensors, "saves a file"),
        (saves_a_script, "saves a file"),
        (registers, "registers what runs at the program's end"),
        (handles, "adds a log handler"),
        (queries, "uses a database"),
        (sends, "sends to a socket"),
    ],
)
def test_what_would_last_is_refused_with_its_line(tmp_path: Path, does: Any, what: str) -> None:
    (tmp_path / "there.txt").write_text("there")
    with held_back() as held, pytest.raises(OutsideAccess) as refused:
        does(tmp_path)
    assert refused.value.what == what.format(tmp_path)
    file, number = refused.value.where
    assert file == HERE
    assert number in range(does.__code__.co_firstlineno + 1, does.__code__.co_firstlineno + 3)
    assert held.refused[0] is refused.value
    assert [p.name for p in tmp_path.iterdir()] == ["there.txt"]
    assert (tmp_path / "there.txt").read_text() == "there"


def test_a_checkpoint_is_not_written_a_second_time(tmp_path: Path) -> None:
    kept, memory = tmp_path / "kept.pt", io.BytesIO()
    torch.save(torch.zeros(2), kept)
    with held_back() as held:
        torch.save(torch.ones(2), kept)
        torch.save(torch.ones(2), tmp_path / "new.pt")
        torch.save(torch.ones(2), memory)
    assert not held.refused
    assert torch.equal(torch.load(kept), torch.zeros(2))
    assert not (tmp_path / "new.pt").exists()
    assert torch.equal(torch.load(io.BytesIO(memory.getvalue())), torch.ones(2))


def test_a_program_that_catches_everything_is_seen_to_have_been_refused(tmp_path: Path) -> None:
    with held_back() as held, contextlib.suppress(BaseException):
        writes(tmp_path)
    assert [r.what for r in held.refused] == [f"opens {tmp_path}/new.txt for writing"]


def test_reading_and_writing_to_nowhere_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("there")
    with held_back() as held:
        assert (tmp_path / "there.txt").read_text() == "there"
        with open(os.devnull, "w") as null:
            null.write("nothing")
    assert not held.refused


def test_an_import_writes_no_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_in_a_replay.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = sys.dont_write_bytecode
    with held_back():
        import imported_in_a_replay  # type: ignore[import-not-found]
    assert imported_in_a_replay.x == 1
    assert not (tmp_path / "__pycache__").exists()
    assert sys.dont_write_bytecode is before


def test_everything_is_allowed_again_afterwards_and_to_other_threads(tmp_path: Path) -> None:
    go, done = threading.Event(), threading.Event()

    def other() -> None:
        go.wait(10)
        writes(tmp_path)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with held_back():
        go.set()
        # to wait for it would be refused
        until = time.monotonic() + 10
        while not done.is_set() and time.monotonic() < until:
            pass
    thread.join()
    assert (tmp_path / "new.txt").exists()
    makes(tmp_path)


def test_all_is_put_back_where_the_body_raises(tmp_path: Path) -> None:
    sleep = time.sleep
    with pytest.raises(KeyError), held_back():
        assert time.sleep is not sleep
        raise KeyError
    assert time.sleep is sleep
    writes(tmp_path)


@pytest.mark.parametrize("wait", [threading.Barrier(2).wait, threading.Event().wait])
def test_nobody_waits_for_what_another_thread_would_bring(wait: Any) -> None:
    with held_back(), pytest.raises(OutsideAccess, match="waits for another thread"):
        wait()


def test_nobody_sleeps() -> None:
    began = time.monotonic()
    with held_back():
        time.sleep(600)
    assert time.monotonic() - began < 300


def test_what_a_signal_does_is_not_changed() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    with held_back():
        signal.signal(signal.SIGUSR2, lambda *_: None)
        assert signal.getsignal(signal.SIGUSR2) is before
    handle = signal.signal
    with held_back(), pytest.raises(OutsideAccess, match="sets a timer or what a signal does"):
        handle(signal.SIGUSR2, before)
    assert signal.getsignal(signal.SIGUSR2) is before


def test_trackers_are_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Writer:
        def add_scalar(self, name: str, value: float) -> None:
            told.append(name)

        def get_logdir(self) -> str:
            return "runs"

    module = types.ModuleType("a_tracker")
    vars(module).update(Writer=Writer, log=told.append)
    monkeypatch.setitem(sys.modules, "a_tracker", module)
    monkeypatch.setitem(sandbox._TRACKERS, ("a_tracker", "Writer"), ("add_*", "flush"))
    monkeypatch.setitem(sandbox._TRACKERS, ("a_tracker", ""), ("log",))
    add, writer = Writer.add_scalar, Writer()
    writer.add_scalar("before", 1.0)
    with held_back():
        writer.add_scalar("during", 1.0)
        module.log("during")
        assert writer.get_logdir() == "runs"
    module.log("after")
    assert Writer.add_scalar is add
    assert told == ["before", "after"]


def warn(word: str) -> None:
    warnings.warn(word, UserWarning, stacklevel=1)


def test_a_warning_comes_once_whatever_the_replay_warned_of() -> None:
    shown: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *args, **kwargs: shown.append(str(message))
        warn("first")
        filters = list(warnings.filters)
        with held_back():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
            warnings.simplefilter("ignore")
        assert list(warnings.filters) == filters
        with held_back():
            warnings.showwarning = lambda *args, **kwargs: None
            warn("second")
        warn("first")
        warn("second")
    assert shown == ["first", "second"]


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_TEST", "before")
    with held_back():
        os.environ["OF_THE_TEST"] = "during"
        os.environ["ANOTHER_OF_THE_TEST"] = "during"
    assert os.environ["OF_THE_TEST"] == "before"
    assert "ANOTHER_OF_THE_TEST" not in os.environ


def test_one_replay_at_a_time() -> None:
    with held_back(), pytest.raises(RuntimeError, match="under way"), held_back():
        pass


def test_a_clock_and_a_draw_are_no_outside() -> None:
    with held_back() as held:
        time.time()
        random.random()
    assert not held.refused


def test_work_of_our_own_is_not_looked_at_and_what_follows_is() -> None:
    with held_back() as held:
        profile = sandbox.pause()
        try:
            assert sys.getprofile() is None
        finally:
            sandbox.resume(profile)
        assert sys.getprofile() is profile is not None
        with pytest.raises(OutsideAccess):
            sys.setprofile(None)
        assert sys.getprofile() is profile
    assert len(held.refused) == 1
    assert sandbox.pause() is None


def test_another_event_loop_may_run_and_the_programs_own_is_as_it_was() -> None:
    async def inner() -> tuple[object, object]:
        return asyncio.get_running_loop(), asyncio.current_task()

    async def outer() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        with pytest.raises(ValueError, match="it failed"), sandbox.outside_event_loop():
            with pytest.raises(RuntimeError, match="no running event loop"):
                asyncio.get_running_loop()
            other, inside = asyncio.run(inner())
            assert other is not loop
            assert inside is not task
            asyncio.set_event_loop(None)
            raise ValueError("it failed")
        assert asyncio.get_running_loop() is asyncio.get_event_loop_policy().get_event_loop() is loop
        assert asyncio.current_task() is task
        await asyncio.sleep(0)

    asyncio.run(outer())


def test_where_no_event_loop_runs_none_does_afterwards() -> None:
    with sandbox.outside_event_loop():
        asyncio.run(asyncio.sleep(0))
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
