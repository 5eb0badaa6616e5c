"""Nothing that a replay does reaches the outside: what would is held back, made nothing of, or refused.

Held back: what is written to files that are open. Made nothing of: sleeping, and the calls of experiment trackers.
Refused: opening a file for writing, changing a folder, reaching for the network, starting a process or a thread.
All but the first is of the thread that replays alone; what other threads print meanwhile is lost with the rest.
"""

# pyright: strict

from __future__ import annotations

import builtins
import ctypes
import gc
import io
import os
import stat
import sys
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread, get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from whynan.source.ownership import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

Where: TypeAlias = tuple[str, int]


class Outside(BaseException):
    """A replay was about to reach the outside; the program may catch every ``Exception``."""

    def __init__(self, what: str, where: Where) -> None:
        super().__init__(what, where)
        self.what = what
        """What it was about to do, as a clause without its subject: `opens log.txt for writing`."""
        self.where = where
        """File and line of the user's innermost frame."""


@dataclass
class Held:
    """What a replay was refused, the first first: the program may have caught it and gone on."""

    thread: int
    refused: list[Outside] = field(default_factory=lambda: list[Outside]())
    looking: bool = False


_TRACKERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("torch.utils.tensorboard.writer", "SummaryWriter"): ("add_*", "flush", "close"),
    ("tensorboardX.writer", "SummaryWriter"): ("add_*", "flush", "close"),
    ("wandb", ""): ("log",),
    ("wandb.sdk.wandb_run", "Run"): ("log", "log_*"),
    ("mlflow", ""): ("log_metric", "log_metrics", "log_param", "log_params"),
}
"""By module and class (of the module itself if empty), what is called for nothing; a `*` stands for any ending."""

_BUFFERED: Final[tuple[Any, ...]] = io.BufferedWriter, io.BufferedRandom
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _opens(args: tuple[Any, ...]) -> str | None:
    path, _, flags = args
    if not flags & _WRITES or os.fspath(path) in (os.devnull, os.fsencode(os.devnull)):
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


_REFUSED: Final[dict[str, Callable[[tuple[Any, ...]], str | None]]] = {
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

_current: Held | None = None
_hooked = False


def _hook(event: str, args: tuple[Any, ...]) -> None:
    held = _current
    if held is None or held.looking or held.thread != get_ident():
        return
    clause = _REFUSED.get(event)
    if clause is None:
        return
    held.looking = True
    try:
        what = clause(args)
    finally:
        held.looking = False
    if what is not None and not _of_ours():
        _refuse(held, what)


def _refuse(held: Held, what: str) -> NoReturn:
    held.looking = True
    try:
        refused = Outside(what, _where())
    finally:
        held.looking = False
    held.refused.append(refused)
    raise refused


def _of_ours() -> bool:
    """Whether it is whynan that reaches out: where it has failed, it writes down why."""
    frame: Any = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and owner_of(frame.f_code.co_filename) is Owner.STDLIB:
        frame = frame.f_back
    return frame is not None and owner_of(frame.f_code.co_filename) is Owner.WHYNAN


def _where() -> Where:
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    last: Where = frame.f_code.co_filename, frame.f_lineno
    while True:
        if owner_of(frame.f_code.co_filename) is Owner.USER:
            return frame.f_code.co_filename, frame.f_lineno
        if frame.f_back is None:
            return last
        frame = frame.f_back


@contextmanager
def held_back() -> Generator[Held]:
    """Run the body so that nothing of it reaches the outside; raises `Outside` in it where that takes a refusal."""
    global _current, _hooked
    if _current is not None:
        raise RuntimeError("a replay is under way already")
    if not _hooked:
        # there for the rest of the process: Python takes no hook away again
        sys.addaudithook(_hook)
        _hooked = True
    owner_of(__file__)  # looks for torch's files the first time
    held = Held(get_ident())
    with ExitStack() as entered:
        null = entered.enter_context(open(os.devnull, "r+b", buffering=0))
        entered.enter_context(_descriptors(null.fileno()))
        entered.enter_context(_streams())
        entered.enter_context(_as_warned())
        entered.enter_context(_environment())
        entered.enter_context(_attributes(held))
        _current = held
        try:
            yield held
        finally:
            _current = None


@contextmanager
def _descriptors(null: int) -> Generator[None]:
    """Point the descriptors of what is open for writing at nothing, and back: the offsets in the files stay."""
    objects: list[Any] = gc.get_objects()
    # by its type: what stands for something else may answer `__class__` by code of its own
    raws = [o for o in objects if issubclass(type(o), io.FileIO)]
    numbers = {n for n in (1, 2, *map(_writes_to, raws)) if n is not None and _is_open(n)}
    buffered = [o for o in objects if issubclass(type(o), _BUFFERED) and _of(o, numbers)]
    texts = [o for o in objects if issubclass(type(o), io.TextIOWrapper) and _of(_buffer(o), numbers)]
    del objects
    _flush(texts, buffered)
    kept = {n: (os.dup(n), os.get_inheritable(n)) for n in numbers}
    try:
        for n, (_, inheritable) in kept.items():
            os.dup2(null, n, inheritable)
        yield
    finally:
        _flush(texts, buffered)
        for n, (copy, inheritable) in kept.items():
            os.dup2(copy, n, inheritable)
            os.close(copy)
        for o in buffered:
            # it counts by itself where it is, and asks when it is asked
            with suppress(OSError, ValueError):
                _type_of(o).tell(o)


def _type_of(buffered: Any) -> Any:
    """Python's own class of a buffer: a method of a subclass is the program's code."""
    return next(kind for kind in _BUFFERED if isinstance(buffered, kind))


def _flush(texts: list[Any], buffered: list[Any]) -> None:
    for text in texts:
        with suppress(OSError, ValueError):
            io.TextIOWrapper.flush(text)
    for o in buffered:
        with suppress(OSError, ValueError):
            _type_of(o).flush(o)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _writes_to(raw: io.FileIO) -> int | None:
    """The descriptor of a file or a terminal that is open for writing; pipes and sockets lead to other processes."""
    try:
        if not io.FileIO.writable(raw):
            return None
        number = io.FileIO.fileno(raw)
        return number if stat.S_ISREG(os.fstat(number).st_mode) or os.isatty(number) else None
    except (OSError, ValueError):
        return None


def _buffer(text: Any) -> Any:
    try:
        return io.TextIOWrapper.buffer.__get__(text)  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return None


def _of(buffered: Any, numbers: set[int]) -> bool:
    """Whether a buffer is that of one of these descriptors."""
    try:
        raw = _type_of(buffered).raw.__get__(buffered) if isinstance(buffered, _BUFFERED) else buffered
        return isinstance(raw, io.FileIO) and io.FileIO.fileno(raw) in numbers
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def _streams() -> Generator[None]:
    """Take away what stands for stdout and stderr, but for files: those write to nothing already."""
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as null:
        for name, stream in zip(("stdout", "stderr"), before, strict=True):
            if stream is not None and not (type(stream) is io.TextIOWrapper and isinstance(_raw(stream), io.FileIO)):
                setattr(sys, name, null)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def _raw(text: Any) -> Any:
    return getattr(_buffer(text), "raw", None)


@contextmanager
def _as_warned() -> Generator[None]:
    """What has been warned of stays so, and what a replay warns of is not: `catch_warnings` forgets the first."""
    filters, shows = list(warnings.filters), warnings.showwarning
    begun = _version()
    known = {id(r): (r, dict(r)) for r in _registries()}
    try:
        yield
    finally:
        warnings.showwarning = shows
        if list(warnings.filters) != filters:
            warnings.filters[:] = filters  # type: ignore[index]
            getattr(warnings, "_filters_mutated", lambda: None)()
        now = _version()
        for registry in _registries():
            before = known.get(id(registry), (registry, {"version": begun}))[1]
            registry.clear()
            registry.update(before)
            if before.get("version") == begun:
                registry["version"] = now


def _registries() -> list[dict[Any, Any]]:
    modules: list[Any] = list(sys.modules.values())
    found = (vars(m).get("__warningregistry__") for m in modules if isinstance(m, ModuleType))
    return [r for r in found if type(r) is dict]


def _version() -> object:
    """The number of the filters' state: a registry with another is emptied at its next warning."""
    registry: dict[Any, Any] = {}
    shows = warnings.showwarning
    warnings.showwarning = _shown
    try:
        with suppress(Warning):
            warnings.warn_explicit("", Warning, "", 0, registry=registry)
    finally:
        warnings.showwarning = shows
    return registry.get("version")


def _shown(*_args: object, **_keywords: object) -> None:
    """Show no warning."""


@contextmanager
def _environment() -> Generator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        if dict(os.environ) != before:
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def _attributes(held: Held) -> Generator[None]:
    """Give the replay's thread nothing to call where it would sleep or tell a tracker."""
    replaced: list[tuple[Any, str, Any]] = []
    compiled, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        for owner, name in [(time, "sleep"), *_tracked()]:
            real = vars(owner)[name]
            replaced.append((owner, name, real))
            setattr(owner, name, _nothing(held, real))
        # Python tells its hooks of new threads from 3.12 on
        start = Thread.start
        replaced.append((Thread, "start", start))
        setattr(Thread, "start", _no_thread(held, start))  # noqa: B010
        for owner, name in ((threading.Condition, "wait"), (Thread, "join")):
            # a queue and an event wait by a condition
            replaced.append((owner, name, vars(owner)[name]))
            setattr(owner, name, _no_wait(held, vars(owner)[name]))
        yield
    finally:
        for owner, name, real in reversed(replaced):
            setattr(owner, name, real)
        sys.dont_write_bytecode = compiled


def _tracked() -> Iterator[tuple[Any, str]]:
    for (module, kind), patterns in _TRACKERS.items():
        owner = sys.modules.get(module)
        if kind and owner is not None:
            owner = vars(owner).get(kind)
        for name in list(vars(owner)) if owner is not None else ():
            matches = any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)
            if matches and builtins.callable(vars(owner)[name]):
                yield owner, name


def _nothing(held: Held, real: Any) -> Any:
    def nothing(*args: Any, **kwargs: Any) -> Any:
        return None if get_ident() == held.thread else real(*args, **kwargs)

    return nothing


def _no_wait(held: Held, real: Any) -> Any:
    def wait(*args: Any, **kwargs: Any) -> Any:
        if get_ident() == held.thread:
            # what it would wait for has been had by the step itself
            _refuse(held, "waits for another thread")
        return real(*args, **kwargs)

    return wait


def _no_thread(held: Held, real: Callable[[Thread], None]) -> Callable[[Thread], None]:
    def start(self: Thread) -> None:
        if get_ident() == held.thread:
            _refuse(held, "starts a thread")
        real(self)

    return start
