"""The channel between the ranks of one run: signals, heartbeats and reports, through the launcher's store.

The store is the one that torchrun's agent serves, over a connection of our own and under a prefix of our own: no group
of the program is used, and a rank that is killed takes nothing with it. A healthy step sends nothing; a thread of each
rank asks a few times a second.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from _thread import allocate_lock, start_new_thread
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from whynan.capture.ranks import spawned_store
from whynan.faults import report_internal_error
from whynan.replay.live_objects import live_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from whynan.capture.ranks import Rank

MERGED: Final = "merged"
"""Where the program that has started the ranks finds their report."""
_CONNECT: Final = 5.0
"""Seconds that a connection may take."""
_POLL: Final = 0.05
"""Seconds between two questions of a rank; more where there are many ranks."""
_MANY: Final = 64
_BEAT: Final = 0.5
_STALE: Final = 5.0
"""Seconds without a heartbeat, after which nobody is there who has not handed in a report."""
_STANDS: Final = 10.0
"""Seconds at one instruction, after which the program's main thread is taken to be blocked."""
_LONGEST: Final = 30.0
"""Seconds after the alarm, at which a rank is stopped wherever it is."""
_WORK: Final = 35.0
"""Seconds that a rank may take to explain a bad step of its own once the alarm was given."""
_SETTLE: Final = 40.0
"""Seconds that the report of a stopped run waits for the other ranks."""
_HURRY: Final = 10.0
"""The same of a run that its launcher terminates."""
_HELD: Final = 30.0
"""Seconds that a step waits for what another rank makes of a suspicion."""
_FLUSH: Final = 5.0
"""Seconds that a process that is ended may take to write what it has printed."""
_ALARM: Final = 1 << 20
"""What the alarm adds to the signal; a suspicion adds 1."""


class StoreError(Exception):
    """The store does not answer any more."""


def store_address(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Where the agent of a launcher serves a store; None where none does."""
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    try:
        return environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    except (KeyError, ValueError):
        return None


def open_channel(environment: Mapping[str, str], rank: Rank) -> Channel | None:
    """The channel of a rank; None where its launcher serves no store, or that does not answer."""
    import torch.distributed

    # not exported as pyright would have it
    distributed: Any = torch.distributed
    own = spawned_store()
    address = own or store_address(environment)
    if address is None or not distributed.is_available():
        return None
    patience = timedelta(seconds=_CONNECT)
    serve = partial(distributed.TCPStore, *address, is_master=False, timeout=patience, wait_for_workers=False)
    try:
        served = serve()
        if own is not None:
            # of this start alone
            return Channel(served, rank, serve)
        prefix = _round_of(served, environment, rank)

        def connect() -> Any:
            return distributed.PrefixStore(prefix, serve())

        return Channel(distributed.PrefixStore(prefix, served), rank, connect)
    except Exception:
        # refused or too slow: this rank has a report of its own, as without a store
        return None


def _round_of(served: Any, environment: Mapping[str, str], rank: Rank) -> str:
    """The prefix of the keys of this start of the ranks, which those of an earlier one must not stop.

    A restart has a number of its own; a change of the members has none (torch 2.13), but starts every rank once more.
    """
    run, attempt = environment.get("TORCHELASTIC_RUN_ID", ""), environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"whynan/{run}/{attempt}/{rank.world}"
    return f"{prefix}/{served.add(f'{prefix}/starts/{rank.number}', 1)}"


class Channel:
    """One rank's end of the channel.

    `store`: with the methods of ``torch.distributed.Store`` that do not wait; `connect` opens it once more, for one
    that waits. All methods may be called from any thread; those that ask the store raise ``StoreError`` where it is
    gone.
    """

    def __init__(self, store: Any, rank: Rank, connect: Callable[[], Any] | None = None) -> None:
        self.rank = rank
        self.connect = connect or (lambda: store)
        self.is_waiting: bool | None = None
        """Whether this rank waits for what another says before a step; None where ranks do not meet."""
        self.is_alarmed = False
        """Whether a rank has found what stops the run; kept by the thread, so that a step asks no one."""
        self.is_rehearsing = False
        """Whether others wait for what this rank says in a rehearsal: it gives signs of life of its own."""
        self._store = store
        self._is_suspected = False
        self._own_suspicions = 0
        self._patient = True
        self._closed = threading.Event()
        self._over = threading.Event()
        self._one = threading.Lock()
        self._heart = threading.Lock()
        self._reported = False
        self._busy = False
        self._deadline: float | None = None
        self._is_terminated = False
        self._interval = _POLL * max(1.0, rank.world / _MANY)
        self._told = False
        """Whether this rank's own report stands where that of all ranks shall, and tells of a bad number."""
        self._order = 0
        """This rank's place in the order in which the ranks hand in their reports, from 1; 0 before it has."""

    # -- signals ---------------------------------------------------------------------------------------------------

    def begin(self, blocked: Callable[[], None]) -> None:
        """Listen in a thread; `blocked` is called there once, where the alarm meets a rank that cannot stop itself."""
        start_new_thread(self._listen, (blocked, threading.get_ident()))

    def close(self) -> None:
        """Listen no further: no thread of ours may wait for the interpreter as it ends."""
        self._closed.set()
        self._over.wait(1.0)

    def abandon_in_child(self) -> None:
        """In a forked child: the connection is its parent's, and locks may be held by threads that are not there."""
        self._closed, self._over = threading.Event(), threading.Event()
        self._one, self._heart = threading.Lock(), threading.Lock()
        self._closed.set()
        self._over.set()
        self.is_alarmed = self._is_suspected = False

    def alarm(self) -> None:
        """Tell all ranks to stop; nothing where they have been told."""
        if not self.is_alarmed:
            self.is_alarmed = self._busy = True
            self._ask("add", "signal", _ALARM)

    @contextmanager
    def suspicion(self) -> Generator[None]:
        """For as long as a bad step is looked into: the others make no step meanwhile, if they hear of it in time."""
        self._busy = True
        self._suspect(1)
        try:
            yield
        finally:
            self._busy = self.is_alarmed
            self._suspect(-1)

    def beats_of(self, rank: int) -> int:
        """The signs of life of a rank that rehearses."""
        return self._ask("add", f"beats/{rank}", 0)

    def are_all_suspicious(self) -> bool:
        """Whether every rank looks into a bad step of its own."""
        return not self.is_alarmed and self._ask("add", "signal", 0) % _ALARM >= self.rank.world

    def take_over(self) -> bool:
        """Make the report of this rank from here on; whether nobody else has begun to."""
        with self._one:
            first, self._reported = not self._reported, True
        return first

    def _suspect(self, more: int) -> None:
        self._own_suspicions += more
        try:
            self._ask("add", "signal", more)
        except StoreError:
            return

    @property
    def is_quiet(self) -> bool:
        """Whether nothing keeps a step from being made; asks no one."""
        return not self.is_alarmed and not (self._is_suspected and self._patient)

    def hold(self) -> bool:
        """Before a step: wait while another rank looks into a suspicion; whether the run is to stop."""
        end = time.monotonic() + _HELD
        while self._is_suspected and self._patient and not self.is_alarmed and not self._closed.is_set():
            self._patient = time.monotonic() < end
            time.sleep(_POLL)
        return self.is_alarmed

    def _listen(self, blocked: Callable[[], None], main: int) -> None:
        next_beat = 0.0
        standing: tuple[object, float] = (None, 0.0)
        last: object = None
        since: float | None = None
        try:
            while not self._closed.wait(self._interval):
                now = time.monotonic()
                if now >= next_beat:
                    next_beat = now + _BEAT
                    self._beat()
                    if self.is_waiting is False and (place := _place_of(main)) != last:
                        last = place
                        self._ask("add", "moves", 1)
                if not self.is_alarmed:
                    signal = self._ask("add", "signal", 0)
                    self._is_suspected = signal % _ALARM > self._own_suspicions
                    self.is_alarmed = signal >= _ALARM
                if not self.is_alarmed or self._reported:
                    continue
                since = now if since is None else since
                place = _place_of(main)
                if place != standing[0]:
                    standing = (place, now)
                limit = _WORK if self._busy else _LONGEST
                is_late = now - since > limit or (not self._busy and now - standing[1] > _STANDS)
                if is_late and self.take_over():
                    # in a thread of its own: this one's heart goes on beating
                    start_new_thread(blocked, ())
        except StoreError:
            return
        except Exception:
            report_internal_error()
        finally:
            self._over.set()

    def _beat(self) -> None:
        with self._heart:
            if not self._order:
                self._ask("add", "beats", 1)
                if self.is_rehearsing or self._own_suspicions:
                    self._ask("add", f"beats/{self.rank.number}", 1)

    # -- reports ---------------------------------------------------------------------------------------------------

    def post(self, document: dict[str, Any]) -> None:
        """Give the others the report of this rank, whose heart beats no longer."""
        self._reported = True
        self._ask("add", "left", 1)
        place = self._ask("add", "begun", 1)
        self._ask("set", f"report/{place}", json.dumps([self.rank.number, document]))
        with self._heart:
            self._order = self._ask("add", "reports", 1)
        if self._is_terminated:
            self._ask("add", "terminating", -1)

    def is_first_to_tell(self, *, found: bool) -> bool:
        """Whether no rank has told before that it has `found` a bad number, or else of its end."""
        first = self._told or self._ask("add", "told/found" if found else "told/ended", 1) == 1
        self._told = self._told or (found and first)
        is_known = not found and self._ask("add", "told/found", 0) > 0
        return first and not is_known and not self._ask("check", ["done"])

    def hurry(self) -> None:
        """The launcher terminates the run: wait for the others only a little."""
        self._deadline = min(self._deadline or float("inf"), time.monotonic() + _HURRY)
        if not self._is_terminated and not self._order:
            self._is_terminated = True
            with suppress(StoreError):
                self._ask("add", "terminating", 1)

    def collect(self, *, waits: bool) -> dict[int, dict[str, Any]] | None:
        """The reports of all ranks that have one, the first to end first, if this rank is to write; else None.

        The last one to hand in a report writes. `waits`: the launcher ends all ranks as soon as this one is gone, which
        therefore stays until that is written. Any other leaves as soon as it sees that another is still to come.
        """
        if waits:
            self._deadline = min(self._deadline or float("inf"), time.monotonic() + _SETTLE)
        if self._order < self.rank.world and not self._is_left_alone(waits=waits):
            return None
        keys = (f"report/{place}" for place in range(1, self.rank.world + 1))
        return dict(json.loads(self._ask("get", key)) for key in keys if self._ask("check", [key]))

    def _is_left_alone(self, *, waits: bool) -> bool:
        """Whether nobody else is there who would write."""
        beats, last = self._ask("add", "beats", 0), time.monotonic()
        while True:
            if self._ask("add", "reports", 0) >= self.rank.world:
                # the last one writes
                return waits and self._is_heir()
            if waits and self._ask("check", ["done"]):
                return False
            now, latest = time.monotonic(), self._ask("add", "beats", 0)
            if latest != beats:
                if not waits:
                    return False
                beats, last = latest, now
            if now - last > _STALE:
                break
            if self._deadline is not None and now > self._deadline:
                if self._is_terminated and not self._ask("add", "terminating", 0):
                    # it alone was told to: the launcher tells the others once it is gone, and the last one writes
                    return False
                break
            time.sleep(self._interval)
        # several may think so
        return self._ask("add", "writers", 1) == 1 or (waits and self._is_heir())

    def conclude(self, merged: str | None = None) -> None:
        """The report is written, or is to be by the program that has started the ranks: all may leave."""
        if merged is not None:
            self._ask("set", MERGED, merged)
        self._ask("set", "done", "1")

    def _is_heir(self) -> bool:
        """Wait for the one that writes; whether it has not done so, and this rank is the next to try."""
        end = time.monotonic() + _HURRY
        while time.monotonic() < end:
            if self._ask("check", ["done"]):
                return False
            time.sleep(self._interval)
        return self._ask("add", "heirs", 1) == 1

    def _ask(self, what: str, *given: Any) -> Any:
        try:
            return getattr(self._store, what)(*given)
        except (RuntimeError, ValueError, OSError) as error:
            raise StoreError(str(error)) from error


def _place_of(thread: int) -> object:
    """Where a thread stands: frame and instruction."""
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    return None if frame is None else (id(frame), frame.f_lasti)


def leave(status: int) -> NoReturn:
    """End this process from another thread than its main one, which may be blocked; what it has printed is kept."""
    import posix

    started: Any = sys.modules.get("multiprocessing")
    workers: list[Any] = [] if started is None else started.active_children()
    for worker in workers:
        # Python would end those that are daemons, as a loader's workers are
        if worker.daemon:
            worker.terminate()
    # what is blocked holds the lock of its stream
    written = allocate_lock()
    written.acquire()
    with suppress(RuntimeError):
        start_new_thread(_flush, (written.release,))
        written.acquire(timeout=_FLUSH)
    # Python's own is the program's door
    posix._exit(status)  # pyright: ignore[reportPrivateUsage]


def _flush(over: Callable[[], None]) -> None:
    """Write what the program's files and then its streams hold, as Python would at its end: text before bytes."""
    held = live_objects(io.TextIOWrapper, io.BufferedWriter)
    streams = {id(part) for s in (sys.stdout, sys.stderr) for part in (s, getattr(s, "buffer", None))}
    for one in sorted(held, key=lambda one: (id(one) in streams, issubclass(type(one), io.BufferedWriter))):
        try:
            one.flush()
        except Exception:
            # closed, or the program's own
            continue
    over()
