"""The meeting of the ranks before each optimizer step, where a step that is bad on one is to be left out on all.

Two questions to the store a step: a rank adds itself and whether its step is bad, and waits for the last one's answer,
over a connection of its own. The wait has an end: ranks need not make their steps side by side.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from whynan.run.ranks.channel import Channel, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

_SLICE: Final = 1.0
"""Seconds after which a rank that waits looks whether it waits in vain."""
_STILL: Final = 30.0
"""Seconds for which no other rank has moved, after which they are taken to wait for this one."""
_LONGEST: Final = 600.0
"""Seconds that a rank waits in any case."""
_BAD: Final = 1 << 20
"""What a rank adds that has a bad step."""


class Meeting:
    """One rank's part in the meetings; ``parted`` is the step before which they were given up, 0 while they are held.

    `connect`: opens the store once more.
    """

    def __init__(self, channel: Channel, connect: Callable[[], Any]) -> None:
        self.parted = 0
        self._channel = channel
        self._connect = connect
        self._store: Any = None
        self._steps = 0
        self._left = 0
        """How many ranks had ended when they were last asked for."""

    def is_bad(self, *, here: bool) -> bool:
        """Before a step: whether it is bad on any rank; `here`: whether it is on this one."""
        if self.parted:
            return here
        self._steps += 1
        self._channel.is_waiting = True
        try:
            if self._store is None:
                self._store = self._connect()
            return self._meet(here=here)
        except (StoreError, RuntimeError, ValueError, OSError):
            self.parted = self._steps
            return here
        finally:
            self._channel.is_waiting = False

    def _meet(self, *, here: bool) -> bool:
        place, answer = f"meeting/{self._steps}", f"answer/{self._steps}"
        held = self._store.add(place, 1 + here * _BAD)
        if not self._is_complete(held):
            begun = moved = time.monotonic()
            moves = self._store.add("moves", 0)
            while not self._has_answer(answer):
                held, now, left = self._store.add(place, 0), time.monotonic(), self._left
                self._left = self._store.add("left", 0)
                if self._is_complete(held):
                    break
                before, moves = moves, self._store.add("moves", 0)
                moved = now if moves != before or left != self._left else moved
                is_vain = now - moved > _STILL or now - begun > _LONGEST
                if is_vain or self._channel.is_alarmed or self._store.check(["parted"]):
                    self._store.set("parted", "1")
                    self.parted = self._steps
                    break
            else:
                return self._store.get(answer) == b"1"
        self._store.set(answer, str(int(held >= _BAD)))
        for key in (f"meeting/{self._steps - 1}", f"answer/{self._steps - 1}"):
            # all ranks have read it; not every store can
            with suppress(RuntimeError, NotImplementedError):
                self._store.delete_key(key)
        return held >= _BAD

    def _is_complete(self, held: int) -> bool:
        """Whether all have come who are still there."""
        return held % _BAD + self._left >= self._channel.rank.world

    def _has_answer(self, answer: str) -> bool:
        try:
            self._store.wait([answer], timedelta(seconds=_SLICE))
        except RuntimeError:
            return False
        return True
