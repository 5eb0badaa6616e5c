"""The rehearsal: all ranks that have met the same bad step replay it together, in lockstep, with one edit or none.

What they agree on goes through the store, as everything else between ranks; what the program exchanges goes through
groups of whynan's own, made anew for each replay. All of it has one end, by the clock. Where a rank does not follow, it
is over on all of them, and nothing is proved.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from whynan.run.ranks.channel import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

    from whynan.run.ranks.channel import Channel

_SECONDS: Final = 30.0
"""So long edits are tried together, all in all, with what each rank does meanwhile by itself."""
_FIRST: Final = 40.0
"""Seconds until the first of them, in which the step is replayed as it was, and edits are judged on its operands."""
_GONE: Final = 5.0
"""Seconds without a sign of life, after which a rank is not waited for."""
_GATHER: Final = 1.0
"""Seconds in which all ranks that will come have met a bad step."""
_EXCHANGE: Final = 10.0
"""Seconds that one collective, or one replay, may take."""
_POLL: Final = 0.01
_LOOK: Final = 0.3
"""Seconds between two looks at who is still there."""


class Rehearsal:
    """One rank's part."""

    def __init__(self, channel: Channel) -> None:
        self.rank = channel.rank
        self.is_over = False
        self._channel = channel
        self._store: Any = None
        self._rounds = 0
        self._deadline = 0.0
        self._tries = False

    def gather(self) -> bool:
        """Wait for the others; whether all ranks look into a bad step now."""
        if self.is_over:
            return False
        end = time.monotonic() + _GATHER
        self._deadline = time.monotonic() + _FIRST
        self._channel.is_rehearsing = True
        try:
            self._store = self._store or self._channel.connect()
            while not self._channel.are_all_suspicious():
                if time.monotonic() > end:
                    self.leave()
                    return False
                time.sleep(_POLL)
        except (StoreError, RuntimeError, ValueError, OSError):
            self.is_over = True
        return not self.is_over

    def begin_trials(self) -> None:
        """All ranks are about to try an edit: what that may take is counted from the first one on."""
        if not self._tries:
            self._tries = True
            self._deadline = time.monotonic() + _SECONDS

    def exchange(self, value: object) -> list[Any]:
        """What each rank says in this round; nothing where one does not, from then on for good."""
        if self.is_over:
            return []
        self._rounds += 1
        keys = [f"rehearsal/{self._rounds}/{rank}" for rank in range(self.rank.world)]
        try:
            self._store.set(keys[self.rank.number], json.dumps(value))
            if self._has_all(keys):
                return [json.loads(self._store.get(key)) for key in keys]
        except (StoreError, RuntimeError, ValueError, OSError):
            self.is_over = True
        return []

    def _has_all(self, keys: list[str]) -> bool:
        """Wait until each rank has said something; whether it has."""
        alive: dict[int, tuple[int, float]] = {}
        looked = 0.0
        while not self._store.check(keys):
            now = time.monotonic()
            if now - looked > _LOOK:
                looked = now
                missing = [rank for rank, key in enumerate(keys) if not self._store.check([key])]
                beats = {rank: self._channel.beats_of(rank) for rank in missing}
                alive = {r: alive[r] if alive.get(r, (-1, 0))[0] == n else (n, now) for r, n in beats.items()}
                gone = any(now - since > _GONE for _, since in alive.values())
                if gone or self._store.check(["rehearsal/left"]) or self._store.add("left", 0):
                    self._deadline = 0.0
            if now > self._deadline or self._channel.is_alarmed:
                self.leave()
                return False
            time.sleep(_POLL * max(1.0, self.rank.world / 8))
        return True

    @contextmanager
    def together(self) -> Generator[None]:
        """Replays in here are made by all ranks, which have said so in the same round."""
        from torch import distributed

        from whynan.training.collective_replay import Ensemble, ensemble

        made: Any = distributed
        store = made.PrefixStore(f"rehearsal/groups/{self._rounds}", self._store)
        left = self._deadline - time.monotonic()
        with ensemble(Ensemble(store, self.rank, min(max(0.1, left), _EXCHANGE))):
            yield

    def leave(self) -> None:
        """Take no further part: the others go on alone."""
        if self.is_over:
            return
        self.is_over = True
        self._channel.is_rehearsing = False
        try:
            self._store = self._store or self._channel.connect()
            self._store.set("rehearsal/left", "1")
        except (RuntimeError, ValueError, OSError):
            return
