"""What reaches the outside of a process, in words: Python's audit events, and the calls that it tells no event of."""

# pyright: strict

from __future__ import annotations

import operator
import os
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS: Final = (
    ("makes the folder", 0, "os.mkdir"),
    ("removes the folder", 0, "os.rmdir"),
    ("removes", 0, "os.remove"),
    ("renames", 0, "os.rename"),
    ("links", 0, "os.link os.symlink"),
    ("truncates", 0, "os.truncate"),
    ("changes the mode of", 0, "os.chmod"),
    ("changes the owner of", 0, "os.chown"),
    ("changes the times of", 0, "os.utime"),
    ("changes the attributes of", 0, "os.setxattr os.removexattr"),
    ("changes the working directory to", 0, "os.chdir"),
    ("sends a signal to the process", 0, "os.kill"),
    ("sends a signal to the processes", 0, "os.killpg"),
    ("forks", None, "os.fork os.forkpty"),
    ("starts", 0, "os.system os.exec os.posix_spawn os.startfile subprocess.Popen"),
    ("starts", 1, "os.spawn"),
    ("listens at", 1, "socket.bind"),
    ("connects to", 1, "socket.connect"),
    ("sends to", 1, "socket.sendto socket.sendmsg"),
    ("looks up the address of", 0, "socket.getaddrinfo socket.gethostbyname"),
    ("requests", 0, "urllib.Request"),
    ("opens the database", 0, "sqlite3.connect"),
    ("writes to the system's log", None, "syslog.syslog"),
    ("asks for input", None, "builtins.input"),
)
"""A verb, which argument is its object, and the events that it is the word for."""
_BY_EVENT: Final = {event: row[:2] for row in _EVENTS for event in row[2].split()}
_CALLS: Final = (
    ("starts a thread", "threading", "Thread.start"),
    # what it would wait for has been had by the step itself; a queue and an event wait by a condition
    ("waits for another thread", "threading", "Thread.join Condition.wait"),
    ("ends the process", "os", "_exit abort"),
    ("reads from a descriptor", "os", "read"),
    ("sends a signal to itself", "signal", "raise_signal"),
    ("sets a timer or what a signal does", "signal", "alarm setitimer signal set_wakeup_fd siginterrupt"),
    ("takes from a queue", "queue", "Queue.get"),
    ("puts into a queue", "queue", "Queue.put"),
    ("takes from a queue", "multiprocessing.queues", "Queue.get SimpleQueue.get"),
    ("puts into a queue", "multiprocessing.queues", "Queue.put SimpleQueue.put"),
)
"""A clause, a module, and its functions and methods."""


def reached(event: str, args: tuple[Any, ...]) -> str | None:
    """What an audit event does outside of the process, as a clause without its subject; None if it does nothing."""
    if event == "open":
        path, _, flags = args
        nowhere = not isinstance(path, int) and os.fsencode(path) == os.fsencode(os.devnull)
        return None if nowhere or not flags & _WRITES else f"opens {_named(path)} for writing"
    verb, place = _BY_EVENT.get(event, (None, None))
    if verb is None or place is None:
        return verb
    value = args[place]
    return f"{verb} {_named(value) if isinstance(value, str | bytes | os.PathLike) else repr(value)}"


def _named(path: Any) -> str:
    return f"file {path}" if isinstance(path, int) else os.fsdecode(path)


def refused_calls() -> Iterator[tuple[Any, str]]:
    """The code objects and C functions that reach the outside, with what they do."""
    for what, module, names in _CALLS:
        for name in names.split() if module in sys.modules else ():
            try:
                function = operator.attrgetter(name)(sys.modules[module])
            except AttributeError:
                # not on this system
                continue
            yield getattr(function, "__code__", function), what
