"""What a replay would take from the program, which would lack it afterwards: refused before it is taken, or given back.

Refused: queues, pipes, sockets, timers, and files in which one cannot go back. Given back: the positions in files that
are read. What C code does is seen as a profiler sees it, on the thread that replays.
"""

# pyright: strict

from __future__ import annotations

import io
import queue
import socket
import sys
from _thread import allocate_lock
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.lookout import Lookout
from whynan.capture.waking import woken
from whynan.source.ownership import Owner, owner_of_code

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from types import BuiltinMethodType, CodeType, FrameType

_TEXTS: Final[Any] = io.TextIOWrapper
_BUFFERS: Final[Any] = (io.BufferedReader, io.BufferedRandom)
_READS: Final = frozenset(("read", "read1", "readall", "readinto", "readinto1", "readline", "readlines", "__next__"))
_RECEIVES: Final = frozenset(("recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into"))
_QUEUED: Final = {"get": "takes from", "get_nowait": "takes from", "put": "puts into", "put_nowait": "puts into"}
_SIGNALS: Final = frozenset(("alarm", "setitimer", "signal", "set_wakeup_fd", "siginterrupt"))
_LOCK: Final[Any] = type(allocate_lock())
_NAMES: Final = _READS | _RECEIVES | _SIGNALS | {"acquire"} | _QUEUED.keys()
_QUEUES: Final = (("queue", "Queue"), ("multiprocessing.queues", "Queue"), ("multiprocessing.queues", "SimpleQueue"))
"""Those that are written in Python."""


@contextmanager
def nothing_taken(
    refuse: Callable[[str], object],
    seconds: float,
    there: list[Any],
    ending: Callable[[], bool],
    raises: Callable[[str], object],
) -> Generator[None]:
    """Run the body so that it takes nothing for good, and not for longer than that; `refuse` raises where it would.

    `there`: the files of the process. `ending`: whether only what the body did is put back, however long that takes.
    `raises` is `refuse` where that is not called by a profile function.
    """
    files = Positions(there)
    try:
        lookout = Lookout(_judge(files), refuse, seconds, ending, raises)
        with woken(lookout.over, lookout.wake), lookout.looking():
            yield
    finally:
        files.put_back()


def _judge(files: Positions) -> Callable[[FrameType, str, Any], str | None]:
    codes = dict(_codes())

    def judge(frame: FrameType, event: str, function: Any) -> str | None:
        if event == "call":
            return codes.get(frame.f_code)
        if event != "c_call" or function.__name__ not in _NAMES:
            return None
        return _waits(frame, function) or _takes(function, files)

    return judge


def _codes() -> Iterator[tuple[CodeType, str]]:
    """What the methods of the queues that are written in Python would do."""
    for module, kind in _QUEUES:
        owner: Any = vars(sys.modules[module]).get(kind) if module in sys.modules else None
        for name in ("get", "put") if owner is not None else ():
            yield vars(owner)[name].__code__, f"{_QUEUED[name]} a queue"


def _waits(frame: FrameType, function: BuiltinMethodType) -> str | None:
    """What it would wait for; Python's own code asks for locks that it holds to learn that it does."""
    owner: Any = function.__self__
    if function.__name__ != "acquire" or not isinstance(owner, _LOCK) or not owner.locked():
        return None
    return None if owner_of_code(frame.f_code) is Owner.STDLIB else "waits for a lock that is held"


def _takes(function: BuiltinMethodType, files: Positions) -> str | None:
    """What a function written in C would take."""
    owner, name = function.__self__, function.__name__
    if name in _QUEUED and type(owner) is queue.SimpleQueue:
        return f"{_QUEUED[name]} a queue"
    if name in _RECEIVES and isinstance(owner, socket.socket):
        return "receives from a socket"
    if name in _SIGNALS and function.__module__ in ("_signal", "signal"):
        return "sets a timer or what a signal does"
    if name == "read" and function.__module__ in ("posix", "nt"):
        return "reads from a descriptor"
    if name in _READS and files.cannot_go_back(owner):
        return "reads a file in which it cannot go back"
    return None


class Positions:
    """Where one is in each file that is open for reading."""

    def __init__(self, there: list[Any]) -> None:
        self._lost: dict[int, Any] = {}
        self._kept: list[tuple[Any, int]] = []
        inside = {id(_inner(o)) for o in there if issubclass(type(o), _TEXTS)}
        for file in there:
            if id(file) not in inside and is_read(file):
                at = None if _kind_of(file).writable(file) else told(file)
                if at is None:
                    # where it is written to as well, a replay has nothing to read from
                    self._lost[id(file)] = file
                else:
                    self._kept.append((file, at))

    def cannot_go_back(self, file: object) -> bool:
        """Whether what is read of it is gone."""
        return self._lost.get(id(file)) is file

    def put_back(self) -> None:
        """Be there again."""
        for file, at in self._kept:
            go_to(file, at)


def is_read(value: Any) -> bool:
    """Whether a value is a file that is open for reading."""
    if not issubclass(type(value), (_TEXTS, *_BUFFERS)):
        return False
    try:
        return not _closed(value) and _kind_of(value).readable(value)
    except (OSError, ValueError):
        return False


def told(file: Any) -> int | None:
    """Where one is in a file; None where that cannot be said: in a pipe, or where a loop is going over its lines."""
    try:
        return _kind_of(file).tell(file)
    except (OSError, ValueError):
        return None


def go_to(file: Any, at: int | None) -> None:
    """Be at a place of a file."""
    with suppress(OSError, ValueError):
        if at is not None and not _closed(file) and told(file) != at:
            _kind_of(file).seek(file, at)


def _kind_of(file: Any) -> Any:
    """Python's own class of a file: a method of a subclass is the program's code."""
    return next(kind for kind in (_TEXTS, *_BUFFERS) if issubclass(type(file), kind))


def _inner(text: Any) -> Any:
    try:
        return _TEXTS.buffer.__get__(text)
    except (AttributeError, ValueError):
        return None


def _closed(file: Any) -> bool:
    return bool(_kind_of(file).closed.__get__(file))
