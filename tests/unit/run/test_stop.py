"""How a run is ended from inside: tracebacks without whynan, the debugger, an interrupt that stays one."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import whynan.run.stop
from tests.unit.report.programs import finding
from whynan.errors import NonFiniteError
from whynan.run.stop import Terminating, debugger, hide, stop_exception, user_frame

OURS = whynan.run.stop.__file__


def through(file: str, name: str = "between") -> Callable[[Callable[[], object]], object]:
    """A function of a file, which calls another one."""
    namespace: dict[str, object] = {}
    exec(compile(f"def {name}(call):\n    return call()\n", file, "exec"), namespace)
    return namespace[name]  # type: ignore[return-value]


TORCH = "/lib/site-packages/torch/nn/modules/module.py"


def raised(error: BaseException, *files: str) -> BaseException:
    """An exception that has passed a function of each file, the first one outermost."""

    def fail() -> None:
        raise error

    call: Callable[[], object] = fail
    for file in reversed(files):
        call = (lambda outer, inner: lambda: outer(inner))(through(file), call)
    try:
        call()
    except BaseException as caught:
        return caught
    raise AssertionError


def files_of(error: BaseException) -> list[str]:
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


def test_whynans_frames_go_and_all_others_stay() -> None:
    error = raised(KeyError(1), "user.py", OURS, TORCH, OURS, "inner.py")
    before = files_of(error)
    assert before.count(OURS) == 2
    hide(error)
    assert files_of(error) == [file for file in before if file != OURS]


def test_a_traceback_without_whynan_stays_as_it_is() -> None:
    error = raised(KeyError(1), "user.py", TORCH)
    before = files_of(error)
    hide(error)
    assert files_of(error) == before


@pytest.mark.parametrize("file", [OURS, TORCH])
def test_whynans_own_error_stands_at_the_users_line(file: str) -> None:
    names: dict[str, Any] = {"error": NonFiniteError(finding())}
    exec(compile("def halt():\n    raise error\n", file, "exec"), names)
    with pytest.raises(NonFiniteError) as caught:
        through("user.py")(names["halt"])
    assert files_of(caught.value)[-2:] == ["user.py", file]
    hide(caught.value)
    assert files_of(caught.value)[-1] == "user.py"


def test_causes_and_members_of_groups_are_cleared_too() -> None:
    def fresh() -> BaseException:
        return raised(ValueError(), "user.py", OURS, "inner.py")

    cause, context, member = fresh(), fresh(), fresh()
    error = raised(ExceptionGroup("several", [member]), "user.py", OURS)  # type: ignore[type-var]
    error.__cause__, error.__context__ = cause, context
    # one that leads back to itself
    context.__context__ = error
    hide(error)
    for one in (error, cause, context, member):
        assert OURS not in files_of(one)
        assert "user.py" in files_of(one)


@pytest.mark.parametrize("error", [SyntaxError("never ran"), KeyError()])
def test_an_exception_that_nothing_has_raised_has_nothing_to_hide(error: BaseException) -> None:
    hide(error)
    assert error.__traceback__ is None


def test_a_traceback_of_nothing_but_whynans_stays_for_the_sake_of_the_reader() -> None:
    error = raised(KeyError(1), OURS)
    first = error.__traceback__
    assert first is not None
    assert first.tb_next is not None
    # only the frame of the middle
    error.__traceback__ = next_of = first.tb_next
    while next_of.tb_frame.f_code.co_filename != OURS:
        assert next_of.tb_next is not None
        error.__traceback__ = next_of = next_of.tb_next
    next_of.tb_next = None
    hide(error)
    assert files_of(error) == [OURS]


# -- the debugger ----------------------------------------------------------------------------------------------------


def test_the_users_innermost_frame_is_found_below_libraries() -> None:
    found = through("user.py")(lambda: through(TORCH)(lambda: through(OURS)(sys._getframe)))
    assert isinstance(found, FrameType)
    frame = user_frame(found)
    assert frame is not None
    # the lambdas of this test are a user's code
    assert frame.f_code.co_filename == __file__


def test_where_no_frame_is_the_users_there_is_none() -> None:
    assert user_frame(None) is None


def session(commands: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the debugger prints when it is opened here and told this."""
    step = 41
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(commands))
    monkeypatch.setattr(sys, "stdout", out)
    debugger(sys._getframe())()
    assert step == 41
    return out.getvalue()


@pytest.mark.parametrize("last", ["q\n", "c\n", "n\n", ""])
def test_the_debugger_shows_values_and_comes_back(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = session(f"p step + 1\n{last}", monkeypatch)
    assert "42" in shown
    assert sys.gettrace() is None or "n\n" in last


def test_a_debugger_without_an_input_ends_with_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    opened = debugger(sys._getframe())
    opened()
    assert capsys.readouterr().err.startswith("whynan: the debugger has ended (")


# -- stop and interrupt ----------------------------------------------------------------------------------------------


def test_a_stop_in_the_main_thread_is_that_of_sys_exit() -> None:
    error = stop_exception()
    assert type(error) is SystemExit
    assert error.code == 1


def test_a_stop_in_another_thread_ends_the_main_one_too() -> None:
    done = threading.Event()

    def other() -> None:
        stop_exception()
        done.set()

    with pytest.raises(SystemExit):
        threading.Thread(target=other).start()
        while True:
            done.wait(0.001)


# -- terminated by a launcher ------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="needs SIGCHLD")
def test_a_report_after_sigterm_is_not_broken_by_another_handler() -> None:
    def fail(number: int, frame: object) -> None:
        # as torch's does, where a worker of a loader is terminated with the program
        raise RuntimeError("a worker is killed")

    told: list[str] = []

    def report() -> bool:
        told.append("begun")
        signal.raise_signal(signal.SIGCHLD)
        told.append("ended")
        # the process goes on
        return False

    before = signal.signal(signal.SIGCHLD, fail)
    ending = Terminating(report)
    ending.begin()
    try:
        with pytest.raises(RuntimeError, match="a worker"):
            signal.raise_signal(signal.SIGCHLD)
        signal.raise_signal(signal.SIGTERM)
    finally:
        ending.after_fork()
        signal.signal(signal.SIGCHLD, before)
    assert told == ["begun", "ended"]


@pytest.fixture
def _same_filters() -> Iterator[None]:
    before = asyncio.log.logger.filters[:]
    yield
    asyncio.log.logger.filters[:] = before


@pytest.mark.usefixtures("_same_filters")
@pytest.mark.parametrize("error", [stop_exception, lambda: SystemExit(1)], ids=["whynan's end", "its own end"])
def test_a_task_that_is_ended_beside_the_main_one_is_no_failure_of_the_programs(
    error: Callable[[], SystemExit], caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise error()

    async def main() -> None:
        await asyncio.gather(asyncio.sleep(60), fail())

    with pytest.raises(SystemExit):
        asyncio.run(main())
    gc.collect()
    logged = [record.getMessage() for record in caplog.records if "never retrieved" in record.getMessage()]
    assert bool(logged) is (error is not stop_exception)
