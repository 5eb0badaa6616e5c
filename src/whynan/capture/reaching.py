"""What of Python's audit events reaches the outside of a process, in words.

Nothing is loaded here that Python has not loaded itself: it is asked for before the first line of a program.
"""

# pyright: strict

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NOWHERE: Final = os.fsencode(os.devnull)


def _opens(args: tuple[Any, ...]) -> str | None:
    path, _, flags = args
    if not flags & _WRITES or (not isinstance(path, int) and os.fsencode(path) == _NOWHERE):
        return None
    return f"opens {_named(path)} for writing"


def _named(path: Any) -> str:
    return f"file {path}" if isinstance(path, int) else os.fsdecode(path)


def _does(verb: str, *, of: int | None = None) -> Callable[[tuple[Any, ...]], str]:
    """A clause with its object, if `of` says which argument names it."""

    def clause(args: tuple[Any, ...]) -> str:
        if of is None:
            return verb
        value = args[of]
        return f"{verb} {_named(value) if isinstance(value, str | bytes | os.PathLike) else repr(value)}"

    return clause


REACHES: Final[dict[str, Callable[[tuple[Any, ...]], str | None]]] = {
    "open": _opens,
    "os.mkdir": _does("makes the folder", of=0),
    "os.rmdir": _does("removes the folder", of=0),
    "os.remove": _does("removes", of=0),
    "os.rename": _does("renames", of=0),
    "os.link": _does("links", of=0),
    "os.symlink": _does("links", of=0),
    "os.truncate": _does("truncates", of=0),
    "os.chmod": _does("changes the mode of", of=0),
    "os.chown": _does("changes the owner of", of=0),
    "os.utime": _does("changes the times of", of=0),
    "os.setxattr": _does("changes the attributes of", of=0),
    "os.removexattr": _does("changes the attributes of", of=0),
    "os.chdir": _does("changes the working directory to", of=0),
    "os.kill": _does("sends a signal to the process", of=0),
    "os.killpg": _does("sends a signal to the processes", of=0),
    "os.fork": _does("forks"),
    "os.forkpty": _does("forks"),
    "os.system": _does("starts", of=0),
    "os.exec": _does("starts", of=0),
    "os.spawn": _does("starts", of=1),
    "os.posix_spawn": _does("starts", of=0),
    "os.startfile": _does("starts", of=0),
    "subprocess.Popen": _does("starts", of=0),
    "socket.bind": _does("listens at", of=1),
    "socket.connect": _does("connects to", of=1),
    "socket.sendto": _does("sends to", of=1),
    "socket.sendmsg": _does("sends to", of=1),
    "socket.getaddrinfo": _does("looks up the address of", of=0),
    "socket.gethostbyname": _does("looks up the address of", of=0),
    "urllib.Request": _does("requests", of=0),
    "sqlite3.connect": _does("opens the database", of=0),
    "syslog.syslog": _does("writes to the system's log"),
    "builtins.input": _does("asks for input"),
}
"""By audit event of Python's, what it is that the program does."""
