"""Nothing that a replay does reaches the outside: what would is held back, made nothing of, or refused.

Held back: what is written to files that are open. Made nothing of: sleeping, and the calls of experiment trackers.
Refused: opening a file for writing, changing a folder, reaching for the network, starting a process or a thread,
waiting for one, taking what cannot be given back, setting timers, profiling, and going on for ever.
All but the first is of the thread that replays alone; what other threads print meanwhile is lost with the rest.
"""

# pyright: strict

from __future__ import annotations

import builtins
import functools
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Thread, get_ident
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from whynan.capture.reaching import REACHES
from whynan.capture.streams import as_warned, descriptors, environment, files, streams
from whynan.capture.taking import nothing_taken
from whynan.source.ownership import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

Where: TypeAlias = tuple[str, int]
SECONDS: Final = 300.0
"""So long may run what has taken nobody knows how long the first time."""


class Outside(BaseException):
    """A replay was about to reach the outside; the program may catch every ``Exception``."""

    def __init__(self, what: str, where: Where) -> None:
        super().__init__(what, where)
        self.what = what
        """What it was about to do, as a clause without its subject: `opens log.txt for writing`."""
        self.where = where
        """File and line of the user's innermost frame."""


_UNHEARD: Final[tuple[tuple[Any, str, str], ...]] = (
    # Python tells its hooks of new threads from 3.12 on
    (Thread, "start", "starts a thread"),
    # what it would wait for has been had by the step itself; a queue and an event wait by a condition
    (threading.Condition, "wait", "waits for another thread"),
    (Thread, "join", "waits for another thread"),
    (os, "_exit", "ends the process"),
    (os, "abort", "ends the process"),
    (signal, "raise_signal", "sends a signal to itself"),
)
"""What no audit event tells of, and what it is that the program does."""


@dataclass
class Held:
    """What a replay was refused, the first first: the program may have caught it and gone on."""

    thread: int
    refused: list[Outside] = field(default_factory=lambda: list[Outside]())
    looking: bool = False
    unprofiled: bool = False
    """Python is about to take our profile function away, as it has raised a refusal."""
    ending: bool = False
    """What the replay did is put back: its time is no matter."""


_TRACKERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("torch.utils.tensorboard.writer", "SummaryWriter"): ("add_*", "flush", "close"),
    ("tensorboardX.writer", "SummaryWriter"): ("add_*", "flush", "close"),
    ("wandb", ""): ("log",),
    ("wandb.sdk.wandb_run", "Run"): ("log", "log_*"),
    ("mlflow", ""): ("log_metric", "log_metrics", "log_param", "log_params"),
}
"""By module and class (of the module itself if empty), what is called for nothing; a `*` stands for any ending."""

_current: Held | None = None
_hooked = False


def _hook(event: str, args: tuple[Any, ...]) -> None:
    held = _current
    if held is None or held.looking or held.thread != get_ident():
        return
    if event == "sys.setprofile":
        if held.unprofiled:
            held.unprofiled = False
        elif not _of_ours():
            # Python leaves ours where it is if this raises, also where a deep recursion has left no room for it
            _refuse(held, "sets a profile function")
    clause = REACHES.get(event)
    if clause is None:
        return
    held.looking = True
    try:
        what = clause(args)
    finally:
        held.looking = False
    if what is not None and not _of_ours():
        _refuse(held, what)


def _refuse_by_profile(held: Held, what: str) -> NoReturn:
    try:
        _refuse(held, what)
    finally:
        held.unprofiled = True


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
def held_back(seconds: float = SECONDS) -> Generator[Held]:
    """Run the body so that nothing of it reaches the outside; raises `Outside` in it where that takes a refusal.

    `seconds`: and where it takes longer than that.
    """
    global _current, _hooked
    if _current is not None:
        raise RuntimeError("a replay is under way already")
    if not _hooked:
        # there for the rest of the process: Python takes no hook away again
        sys.addaudithook(_hook)
        _hooked = True
    owner_of(__file__)  # looks for torch's files the first time
    held = Held(get_ident())
    refuse = functools.partial(_refuse_by_profile, held)
    with ExitStack() as entered:
        null = entered.enter_context(open(os.devnull, "r+b", buffering=0))
        there = files()
        entered.enter_context(descriptors(null.fileno(), there))
        entered.enter_context(streams())
        entered.enter_context(as_warned())
        entered.enter_context(environment())
        entered.enter_context(_attributes(held))
        entered.enter_context(
            nothing_taken(refuse, seconds, there, lambda: held.ending, functools.partial(_refuse, held))
        )
        _current = held
        try:
            yield held
        finally:
            _current = None


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
        for owner, name, what in _UNHEARD:
            real = vars(owner)[name]
            replaced.append((owner, name, real))
            setattr(owner, name, _refused(held, real, what))
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


def _refused(held: Held, real: Any, what: str) -> Any:
    def refused(*args: Any, **kwargs: Any) -> Any:
        if get_ident() == held.thread:
            _refuse(held, what)
        return real(*args, **kwargs)

    return refused
