"""The sandbox of a replay: what would reach the outside is held back, made nothing of, or refused."""

from __future__ import annotations

import builtins
import operator
import os
import queue
import signal
import socket
import sys
import time
import warnings
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from threading import get_ident
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from whynan.replay.open_files import (
    discarded_writes,
    environment,
    open_files,
    profiled,
    replaced,
    same_positions,
    warning_filters,
)
from whynan.source.ownership import Owner, owner_of, owner_of_code

if TYPE_CHECKING:
    from collections.abc import Iterator


# -- What reaches the outside of a process, in words: Python's audit events, and the calls that it tells no event of


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
    # these open files below Python
    ("saves a file", "torch.serialization", "_open_zipfile_writer_file.__init__"),
    ("saves a file", "torch.jit", "save ScriptModule.save RecursiveScriptModule.save"),
    ("saves a file", "torch.export.pt2_archive._package", "PT2ArchiveWriter.__init__"),
    ("saves a file", "torch.package", "PackageExporter.__init__"),
    ("saves a file", "safetensors", "serialize_file"),
    ("saves a file", "cv2", "imwrite imwritemulti"),
    ("registers what runs at the program's end", "atexit", "register unregister"),
    ("adds a log handler", "logging", "Logger.addHandler"),
    (
        "registers a hook of all modules",
        "torch.nn.modules.module",
        "register_module_buffer_registration_hook register_module_module_registration_hook "
        "register_module_parameter_registration_hook register_module_forward_pre_hook register_module_forward_hook "
        "register_module_backward_hook register_module_full_backward_pre_hook register_module_full_backward_hook",
    ),
    ("takes from a queue", "queue", "Queue.get"),
    ("puts into a queue", "queue", "Queue.put"),
    ("takes from a queue", "multiprocessing.queues", "Queue.get SimpleQueue.get"),
    ("puts into a queue", "multiprocessing.queues", "Queue.put SimpleQueue.put"),
)
"""A clause, a module, and its functions and methods."""


def outside_effect(event: str, args: tuple[Any, ...]) -> str | None:
    """What an audit event does outside of the process, as a clause without its subject; None if it does nothing."""
    if event == "open":
        path, _, flags = args
        nowhere = not isinstance(path, int) and os.fsencode(path) == os.fsencode(os.devnull)
        return None if nowhere or not flags & _WRITES else f"opens {_file_text(path)} for writing"
    verb, place = _BY_EVENT.get(event, (None, None))
    if verb is None or place is None:
        return verb
    value = args[place]
    return f"{verb} {_file_text(value) if isinstance(value, str | bytes | os.PathLike) else repr(value)}"


def _file_text(path: Any) -> str:
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


# -- The sandbox of a replay: nothing that it does reaches the outside; what would is held back, undone or refused -----
#
# Held back: what is written to files that are open. Made nothing of: sleeping, warning, setting what a signal does, and
# the calls of trackers.
# Refused: opening a file for writing, changing a folder, reaching for the network, starting a process or a thread,
# waiting for one, taking what cannot be given back (out of queues, pipes and sockets), setting timers, and profiling.
# All but the first is of the thread that replays alone; what other threads print meanwhile is lost with the rest.


if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from types import FrameType

    Profile: TypeAlias = Callable[[FrameType, str, Any], None]

Where: TypeAlias = tuple[str, int]


class OutsideAccess(BaseException):
    """A replay was about to reach the outside; the program may catch every ``Exception``."""

    def __init__(self, what: str, where: Where) -> None:
        super().__init__(what, where)
        self.what = what
        """What it was about to do, as a clause without its subject: `opens log.txt for writing`."""
        self.where = where
        """File and line of the user's innermost frame."""


_QUEUED: Final = {"get": "takes from", "get_nowait": "takes from", "put": "puts into", "put_nowait": "puts into"}
_READS: Final = frozenset(("read", "read1", "readall", "readinto", "readinto1", "readline", "readlines", "__next__"))
_SENDS: Final = frozenset(("send", "sendall", "sendfile"))
_QUERIES: Final = frozenset(("execute", "executemany", "executescript", "commit", "rollback", "backup"))
_RECEIVES: Final = frozenset(("recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into"))


@dataclass
class Refusals:
    """What a replay was refused, the first first: the program may have caught it and gone on."""

    thread: int
    refused: list[OutsideAccess] = field(default_factory=lambda: list[OutsideAccess]())
    profiling: bool = False
    """The profile function raises a refusal, upon which Python is about to take it away."""
    pausing: bool = False
    """The profile function is being taken away, or put back, for work of whynan's own."""

    def refuse(self, what: str) -> NoReturn:
        """Raise `OutsideAccess` for what the program is about to do, a clause without its subject."""
        self.refused.append(OutsideAccess(what, _where()))
        raise self.refused[-1]


_TRACKERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("torch.utils.tensorboard.writer", "SummaryWriter"): ("add_*", "flush", "close"),
    ("tensorboardX.writer", "SummaryWriter"): ("add_*", "flush", "close"),
    ("wandb", ""): ("log",),
    ("wandb.sdk.wandb_run", "Run"): ("log", "log_*"),
    ("mlflow", ""): ("log_metric", "log_metrics", "log_param", "log_params"),
}
"""By module and class (of the module itself if empty), what is called for nothing; a `*` stands for any ending."""

_current: Refusals | None = None
_hooked = False


def pause() -> Profile | None:
    """Have no calls looked at while whynan itself works in a replay; gives what ``resume`` is to be given."""
    held = _current
    if held is None or held.thread != get_ident():
        return None
    profile: Any = sys.getprofile()
    _set_profile(held, None)
    return profile


def resume(profile: Profile | None) -> None:
    """The program goes on, and its calls are looked at again."""
    if profile is not None and _current is not None:
        _set_profile(_current, profile)


def _set_profile(held: Refusals, profile: Profile | None) -> None:
    held.pausing = True
    try:
        sys.setprofile(profile)
    finally:
        held.pausing = False


def _hook(event: str, args: tuple[Any, ...]) -> None:
    held = _current
    if held is None or held.thread != get_ident():
        return
    if event == "sys.setprofile":
        if held.pausing:
            return
        # where this raises, Python leaves the function that there is
        if not held.profiling:
            held.refuse("sets a profile function")
        held.profiling = False
        raise held.refused[-1]
    what = outside_effect(event, args)
    if what is not None and not _is_ours():
        held.refuse(what)


def _is_ours() -> bool:
    """Whether it is whynan that reaches out: where it has failed, it writes down why."""
    frame: Any = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and owner_of_code(frame.f_code) is Owner.STDLIB:
        frame = frame.f_back
    return frame is not None and owner_of_code(frame.f_code) is Owner.WHYNAN


def _where() -> Where:
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    last: Where = frame.f_code.co_filename, frame.f_lineno
    while True:
        if owner_of(frame.f_code.co_filename) is Owner.USER:
            return frame.f_code.co_filename, frame.f_lineno
        if frame.f_back is None:
            return last
        frame = frame.f_back


@contextmanager
def block_side_effects(roots: Iterable[Any] = ()) -> Generator[Refusals]:
    """Run the body so that nothing of it reaches the outside; raises `OutsideAccess` in it where that takes a refusal.

    `roots`: what leads to the files that it may use, beside the program's modules.
    """
    global _current, _hooked
    if _current is not None:
        raise RuntimeError("a replay is under way already")
    if not _hooked:
        # there for the rest of the process: Python takes no hook away again
        sys.addaudithook(_hook)
        _hooked = True
    owner_of(__file__)  # looks for torch's files the first time
    held = Refusals(get_ident())
    files = open_files(roots)
    with ExitStack() as entered:
        null = entered.enter_context(open(os.devnull, "r+b", buffering=0))
        nowhere = entered.enter_context(open(os.devnull, "w", encoding="utf-8"))
        entered.enter_context(discarded_writes(files, null.fileno()))
        lost = entered.enter_context(same_positions(files))
        entered.enter_context(redirect_stdout(nowhere))
        entered.enter_context(redirect_stderr(nowhere))
        entered.enter_context(warning_filters())
        entered.enter_context(environment())
        entered.enter_context(replaced(sys, "dont_write_bytecode", True))
        # looked up before they are replaced: what a module has imported by its name is refused
        profile = _profile(held, lost)
        for owner, name in [
            (time, "sleep"),
            (signal, "signal"),
            (warnings, "warn"),
            (warnings, "warn_explicit"),
            *_tracked(),
        ]:
            entered.enter_context(replaced(owner, name, _nothing(held, vars(owner)[name])))
        if "torch" in sys.modules:
            owner = sys.modules["torch"]
            entered.enter_context(replaced(owner, "save", _save_in_memory(held, vars(owner)["save"])))
        for name in ("write", "writev", "pwrite"):
            if hasattr(os, name):
                entered.enter_context(replaced(os, name, _discarding(held, getattr(os, name), null.fileno())))
        entered.enter_context(profiled(profile))
        _current = held
        try:
            yield held
        finally:
            _current = None


def _profile(held: Refusals, lost: list[Any]) -> Profile:
    """Refuses the calls that no audit event tells of; `lost`: files in which one cannot go back."""
    refused = dict(refused_calls())
    # a code object is not hashed: that takes longer than most calls
    codes = {id(call): what for call, what in refused.items() if type(call) is CodeType}

    def profile(frame: FrameType, event: str, function: Any) -> None:
        try:
            if event == "call":
                what = codes.get(id(frame.f_code))
            elif event == "c_call":
                what = refused.get(function) or _consumes(function, lost)
            else:
                return
        except Exception:
            # not raised: it may be whynan's own code that makes the call
            what = None
            held.refused.append(OutsideAccess("cannot be looked at", (frame.f_code.co_filename, frame.f_lineno)))
        if what is not None:
            held.profiling = True
            held.refuse(what)

    return profile


def _consumes(function: Any, lost: list[Any]) -> str | None:
    """What a method written in C would take from the program, or give away, for good."""
    owner, name = function.__self__, function.__name__
    if name in _QUEUED and type(owner) is queue.SimpleQueue:
        return f"{_QUEUED[name]} a queue"
    if name in _RECEIVES and issubclass(type(owner), socket.socket):
        return "receives from a socket"
    if name in _SENDS and issubclass(type(owner), socket.socket):
        return "sends to a socket"
    if name in _QUERIES and type(owner).__module__ == "sqlite3":
        return "uses a database"
    if name in _READS and any(owner is file for file in lost):
        return "reads a file in which it cannot go back"
    return None


def _tracked() -> Iterator[tuple[Any, str]]:
    for (module, kind), patterns in _TRACKERS.items():
        owner = sys.modules.get(module)
        if kind and owner is not None:
            owner = vars(owner).get(kind)
        for name in list(vars(owner)) if owner is not None else ():
            matches = any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)
            if matches and builtins.callable(vars(owner)[name]):
                yield owner, name


def _save_in_memory(held: Refusals, real: Any) -> Any:
    def save(obj: object, f: Any, *args: Any, **kwargs: Any) -> Any:
        """A checkpoint that a step writes has been written by the step itself."""
        is_path = isinstance(f, (str, os.PathLike))
        return None if is_path and get_ident() == held.thread else real(obj, f, *args, **kwargs)

    return save


def _discarding(held: Refusals, real: Any, nowhere: int) -> Any:
    """What writes to a descriptor that leads nowhere by now, as that of a file which is known, and to no other."""
    known = os.fstat(nowhere).st_rdev

    def write(descriptor: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() == held.thread and descriptor != _tracker() and os.fstat(descriptor).st_rdev != known:
            held.refuse("writes to a descriptor")
        return real(descriptor, *args, **kwargs)

    return write


def _tracker() -> int | None:
    """Where Python says which semaphores are gone: the collector may end those of an old loader at any time."""
    module: Any = sys.modules.get("multiprocessing.resource_tracker")
    return None if module is None else getattr(module._resource_tracker, "_fd", None)


def _nothing(held: Refusals, real: Any) -> Any:
    def nothing(*args: Any, **kwargs: Any) -> Any:
        return None if get_ident() == held.thread else real(*args, **kwargs)

    return nothing


# -- What runs the program: an event loop, which a program that is begun again makes another one of --------------------


@contextmanager
def outside_event_loop() -> Generator[None]:
    """As where no event loop runs in this thread or is set; what runs, in which task, and what is set are put back.

    A loop that is made meanwhile ends with the block, and what it was still to do is not logged as lost.
    """
    events: Any = sys.modules.get("asyncio.events")
    tasks: Any = sys.modules.get("asyncio.tasks")
    base: Any = sys.modules.get("asyncio.base_events")
    if events is None or tasks is None or base is None:
        yield
        return
    loop = events._get_running_loop()
    # from Python 3.14 on a thread has one task at a time, whatever its loop
    swap = getattr(tasks, "_swap_current_task", None)
    task = None if loop is None or swap is None else swap(loop, None)
    policy = vars(events).get("_event_loop_policy")
    names: dict[str, Any] = getattr(getattr(policy, "_local", None), "__dict__", {})
    before = dict(names)
    begun, thread, made = base.BaseEventLoop.__init__, get_ident(), list[Any]()

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        begun(self, *args, **kwargs)
        if get_ident() == thread:
            made.append(self)

    names.clear()
    events._set_running_loop(None)
    base.BaseEventLoop.__init__ = begin
    try:
        yield
    finally:
        base.BaseEventLoop.__init__ = begun
        events._event_loop_policy = policy
        names.clear()
        names.update(before)
        events._set_running_loop(loop)
        if loop is not None and swap is not None:
            swap(loop, task)
        for own in made:
            with suppress(Exception):
                for unfinished in tasks.all_tasks(own):
                    unfinished._log_destroy_pending = False
                if not own.is_closed() and not own.is_running():
                    own.close()
