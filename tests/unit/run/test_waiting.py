"""A line while whynan takes long: on a terminal only, gone when it is done, and never in the way."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from whynan.run.output import delivery


class Terminal(io.StringIO):
    """What says that it is a terminal, and when something has been written to it."""

    def __init__(self, *, terminal: bool = True) -> None:
        super().__init__()
        self.terminal = terminal
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.written.set()


def test_long_work_has_a_line_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "__stderr__", out)
    monkeypatch.setattr(delivery, "LONG", 0.0)
    with delivery.progress_message("explaining", quiet=False):
        assert out.written.wait(30)
        assert out.getvalue() == "whynan: explaining"
    assert out.getvalue().endswith("\r\x1b[2K")


@pytest.mark.parametrize(("terminal", "quiet"), [(False, False), (True, True)])
def test_elsewhere_nothing_is_said(terminal: bool, quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal(terminal=terminal)
    monkeypatch.setattr(sys, "__stderr__", out)
    monkeypatch.setattr(delivery, "LONG", 0.0)
    monkeypatch.setattr(threading, "Timer", None)
    with delivery.progress_message("explaining", quiet=quiet):
        pass
    assert out.getvalue() == ""


@pytest.mark.parametrize("out", [None, io.StringIO()])
def test_without_a_stream_nothing_is_said(out: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if out is not None:
        out.close()
    monkeypatch.setattr(sys, "__stderr__", out)
    with delivery.progress_message("explaining", quiet=False):
        pass


def test_short_work_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "__stderr__", out)
    with delivery.progress_message("explaining", quiet=False):
        pass
    assert out.getvalue() == ""


def test_where_no_thread_can_be_started_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        # as Python 3.12 says it once the program is over
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(sys, "__stderr__", Terminal())
    monkeypatch.setattr(threading.Timer, "start", refused)
    done = False
    with delivery.progress_message("explaining", quiet=False):
        done = True
    assert done
