"""Interrupts of a command that changes a file: none is lost, and none comes in the middle of the change."""

# pyright: strict

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType


class Interrupts:
    """Whether an interrupt has come; while it is ``held`` it ends nothing."""

    def __init__(self) -> None:
        self.came = False
        self.held = False

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` where one has come: it may have met a callback, in which Python drops it."""
        if self.came:
            raise KeyboardInterrupt

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """What happens at an interrupt."""
        self.came = True
        if not self.held:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Let interrupts wait; one that came before is raised."""
        self.held = True
        try:
            self.check()
            yield
        finally:
            self.held = False


@contextmanager
def noticed() -> Generator[Interrupts]:
    """Notice interrupts, where Python does; where they are ignored, or another one's, they stay that."""
    found = Interrupts()
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield found
        return
    signal.signal(signal.SIGINT, found)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def agreed(question: str) -> bool:
    """Whether the user says yes; raises ``KeyboardInterrupt`` where the question is broken off."""
    while True:
        click.echo(f"{question} [y/N]: ", nl=False)
        answer = _line(sys.stdin)
        if not answer:
            raise KeyboardInterrupt
        known = _ANSWERS.get(answer.strip().lower())
        if known is not None:
            return known
        click.echo("y or n, please")


_ANSWERS = {"y": True, "yes": True, "n": False, "no": False, "": False}


def _line(stream: TextIO) -> str:
    if os.name == "posix" and threading.current_thread() is threading.main_thread():
        _await(stream)
    return stream.readline()


def _await(stream: TextIO) -> None:
    """Wait until there is a line.

    A signal between the last look for one and the read would be seen after the line only; here it ends the wait.
    """
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    before = signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
    try:
        while ours in select.select([stream, ours], [], [])[0]:
            os.read(ours, 4096)
    finally:
        signal.set_wakeup_fd(before)
        os.close(ours)
        os.close(theirs)
