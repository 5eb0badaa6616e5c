"""The first that a program does to the outside: that by which a second run of it would do harm.

Nothing is loaded here that Python has not loaded itself.
"""

# pyright: strict

from __future__ import annotations

import os
import sys
from _thread import get_ident

from whynan.capture.reaching import REACHES
from whynan.session.harmless import Harmless, place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

# before the program can put others in their place
_open, _write, _close, _read = os.open, os.write, os.close, os.read
_pid, _basename = os.getpid, os.path.basename
_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]

_SPAWNING: Final = "multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver"
_LONGEST: Final = 4096
_KEPT: Final = "outward"
"""The file in which a worker leaves its word."""


def _spawns(args: tuple[Any, ...]) -> str | None:
    # Python tells of no process that is started so; what starts it has to be loaded
    return "spawns processes" if args[0] in _SPAWNING else None


_EVENTS: Final = {**REACHES, "import": _spawns}


class Outward:
    """Listens to the audit events of a process and of those that it forks.

    `folder`: where one of these leaves its word. `met` is called with the first, as it is about to happen, and with
    those after it for as long as it gives True.
    """

    def __init__(self, folder: str, met: Callable[[str], bool | None] | None = None) -> None:
        self._folder = folder
        self._met = met
        self._pid = _pid()
        self._said: str | None = None
        self._harmless = Harmless()
        self._looking: set[int] = set()
        self.elsewhere: Callable[[], bool] = lambda: False
        """Whether what happens on this thread is no doing of the program's."""

    @property
    def first(self) -> str | None:
        """What was done first, as a clause: ``opens log.txt for writing at train.py:12``."""
        return self._said or self._of_a_worker()

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit event; called from the hook, by the program's frame."""
        clause = _EVENTS.get(event)
        if clause is None or self._said is not None or (thread := get_ident()) in self._looking:
            return
        self._looking.add(thread)
        try:
            self._hear(event, args, clause)
        except Exception:
            # what cannot be judged may be anything
            self._say(f"reaches the outside ({event})")
        finally:
            self._looking.discard(thread)

    def _hear(self, event: str, args: tuple[Any, ...], clause: Callable[[tuple[Any, ...]], str | None]) -> None:
        what = clause(args)
        # the frame below the hook's; Python itself has none
        frame = _frame(2).f_back
        if what is None or self.elsewhere() or self._harmless(event, args, frame):
            return
        file, line = place_of(frame)
        self._say(f"{what} at {_basename(file)}:{line}")

    def _say(self, text: str) -> None:
        if self._met is not None and self._met(text):
            return
        self._said = text
        if self._met is None and _pid() != self._pid:
            leave(self._folder, _KEPT, text)

    def _of_a_worker(self) -> str | None:
        try:
            descriptor = _open(os.path.join(self._folder, _KEPT), os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return _read(descriptor, _LONGEST).decode("utf-8", "replace")
        finally:
            _close(descriptor)


def leave(folder: str, name: str, text: str) -> None:
    """Leave a word in a file of its own; the first that does is heard."""
    try:
        descriptor = _open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return
    try:
        _write(descriptor, text.encode("utf-8", "replace")[:_LONGEST])
    finally:
        _close(descriptor)
