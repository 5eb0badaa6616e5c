"""The channel between the ranks of one run: signals, heartbeats and reports, through the launcher's store.

The store is the one that torchrun's agent serves, over a connection of our own and under a prefix of our own: no group
of the program is used, and a rank that is killed takes nothing with it. A healthy step sends nothing; a thread of each
rank asks a few times a second.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from _thread import start_new_thread
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from whynan.faults import report_internal_error

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from whynan.capture.ranks import Rank

_CONNECT: Final = 5.0
"""Seconds that a connection may take."""
_POLL: Final = 0.05
"""Seconds between two questions of a rank; more where there are many ranks."""
_MANY: Final = 64
_BEAT: Final = 0.5
_STALE: Final = 5.0
"""Seconds without a heartbeat, after which a rank is gone."""
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
    address = store_address(environment)
    if address is None or not distributed.is_available():
        return None
    run, attempt = environment.get("TORCHELASTIC_RUN_ID", ""), environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    patience = timedelta(seconds=_CONNECT)
    try:
        served = distributed.TCPStore(*address, is_master=False, timeout=patience, wait_for_workers=False)
        store = distributed.PrefixStore(f"whynan/{run}/{attempt}", served)
        # what an earlier round has left there would stop this one
        return None if store.check(["done"]) else Channel(store, rank)
    except Exception:
        # refused or too slow: this rank has a report of its own, as without a store
        return None


class Channel:
    """One rank's end of the channel.

    `store`: with the methods of ``torch.distributed.Store`` that do not wait. All methods may be called from any
    thread; those that ask the store raise ``StoreError`` where it is gone.
    """

    def __init__(self, store: Any, rank: Rank) -> None:
        self.rank = rank
        self.is_alarmed = False
        """Whether a rank has found what stops the run; kept by the thread, so that a step asks no one."""
        self._store = store
        self._is_suspected = False
        self._own_suspicions = 0
        self._patient = True
        self._closed = threading.Event()
        self._over = threading.Event()
        self._one = threading.Lock()
        self._reported = False
        self._busy = False
        self._deadline: float | None = None
        self._interval = _POLL * max(1.0, rank.world / _MANY)
        self._posted = False

    # -- signals ---------------------------------------------------------------------------------------------------

    def begin(self, blocked: Callable[[], None]) -> None:
        """Listen in a thread; `blocked` is called there once, where the alarm meets a rank that cannot stop itself."""
        start_new_thread(self._listen, (blocked, threading.get_ident()))

    def close(self) -> None:
        """Listen no further: no thread of ours may wait for the interpreter as it ends."""
        self._closed.set()
        self._over.wait(1.0)

    def abandon_in_child(self) -> None:
        """In a forked child: the connection is its parent's."""
        self._closed.set()
        self._over.set()
        self.is_alarmed = False

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
        beats, next_beat = 0, 0.0
        standing: tuple[object, float] = (None, 0.0)
        since: float | None = None
        try:
            while not self._closed.wait(self._interval):
                now = time.monotonic()
                if now >= next_beat:
                    beats, next_beat = beats + 1, now + _BEAT
                    self._ask("set", f"beat/{self.rank.number}", str(beats))
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

    # -- reports ---------------------------------------------------------------------------------------------------

    def post(self, document: dict[str, Any]) -> None:
        """Give the others the report of this rank."""
        self._reported = True
        self._ask("set", f"report/{self.rank.number}", json.dumps(document))
        if not self._posted:
            self._posted = True
            self._ask("add", "reports", 1)

    def hurry(self) -> None:
        """The launcher terminates the run: wait for the others only a little."""
        self._deadline = min(self._deadline or float("inf"), time.monotonic() + _HURRY)

    def collect(self, *, stopping: bool) -> dict[int, dict[str, Any]] | None:
        """The reports of all ranks that have one, if this rank is to write; None if another does.

        The first rank that is alive writes. Where the run ends well the others do not wait for it. `stopping`: the
        run is being stopped, and the launcher would end all ranks as soon as one is gone.
        """
        if stopping:
            self._deadline = min(self._deadline or float("inf"), time.monotonic() + _SETTLE)
        elif self.rank.number != 0:
            return None
        hearts = _Hearts(self)
        while True:
            if self._ask("check", ["done"]):
                return None
            if self._deadline is not None and time.monotonic() > self._deadline:
                break
            waiting = hearts.missing()
            lower = [number for number in hearts.unfinished() if number < self.rank.number]
            if not lower and not waiting:
                break
            time.sleep(self._interval)
        # two may think that they are the first
        if self._ask("add", "writer", 1) != 1:
            self._await_done()
            return None
        return {number: self._report_of(number) for number in range(self.rank.world) if self._has_report(number)}

    def conclude(self) -> None:
        """The report is written: all may leave."""
        self._ask("set", "done", "1")

    def _await_done(self) -> None:
        end = time.monotonic() + _HURRY
        while time.monotonic() < end and not self._ask("check", ["done"]):
            time.sleep(self._interval)

    def _has_report(self, number: int) -> bool:
        return bool(self._ask("check", [f"report/{number}"]))

    def _report_of(self, number: int) -> dict[str, Any]:
        return json.loads(self._ask("get", f"report/{number}"))

    def _ask(self, what: str, *given: Any) -> Any:
        try:
            return getattr(self._store, what)(*given)
        except (RuntimeError, ValueError, OSError) as error:
            raise StoreError(str(error)) from error


class _Hearts:
    """Which ranks are still to be waited for: those without a report whose heart beats."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        now = time.monotonic()
        self._missing = set(range(channel.rank.world)) - {channel.rank.number}
        self._beats: dict[int, tuple[bytes | None, float]] = dict.fromkeys(self._missing, (None, now))
        self._asked = 0.0
        self._known = -1

    def missing(self) -> set[int]:
        """Those that are alive and have no report."""
        ask = self._channel._ask  # pyright: ignore[reportPrivateUsage]
        reports = ask("add", "reports", 0)
        if reports != self._known:
            self._known = reports
            self._missing = {n for n in self._missing if not ask("check", [f"report/{n}"])}
        return self._missing & self.unfinished()

    def unfinished(self) -> set[int]:
        """Those whose heart beats, whether they have a report or not."""
        now = time.monotonic()
        if now - self._asked >= _BEAT:
            self._asked = now
            ask = self._channel._ask  # pyright: ignore[reportPrivateUsage]
            for number, (beat, _) in self._beats.items():
                key = f"beat/{number}"
                latest = ask("get", key) if ask("check", [key]) else None
                if latest != beat:
                    self._beats[number] = (latest, now)
        return {number for number, (_, last) in self._beats.items() if now - last < _STALE}


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
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            # closed, or the program's own
            continue
    # Python's own is the program's door
    posix._exit(status)  # pyright: ignore[reportPrivateUsage]
