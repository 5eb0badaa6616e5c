"""A program once more from its beginning, from within: traced as its first run was, and over where it is told."""

# pyright: strict

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from whynan.config import Options
from whynan.session.starting import environment_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import NoReturn

    from whynan.capture.torch import Capture
    from whynan.capture.torch.keeping import Keeper
    from whynan.session.region import Region
    from whynan.verify.loading import Loaded

End = Literal["door", "step", "end", "raised"]
"""How a run is over: at a door of the program's, after the steps that are traced, at its end, or by an exception."""


class Repeated:
    """A run of a program again, of which ``told`` says what was asked for; its process ends with it.

    ``apart`` sets its modules and paths aside for as long as whynan works; ``out`` ends the process at once.
    """

    keeper: Keeper | None = None

    def __init__(
        self, told: str, folder: str, apart: Callable[[], AbstractContextManager[None]], out: Callable[[int], NoReturn]
    ) -> None:
        # before the program can change them
        self._environ, self._place = dict(os.environ), os.getcwd()
        self._document: dict[str, Any] = json.loads(told)
        self._folder, self._apart, self._out = folder, apart, out
        self.asked = read_document(self._document["asked"])
        self.options = Options.restored(self._document["options"])
        self.doors = 0
        self._region: Region | None = None
        self._pid = os.getpid()
        self._over = False

    def loaded(self) -> Loaded:
        """What the program is loaded with, from before its first line on."""
        raise NotImplementedError

    def told(self, region: Region, end: End, why: str) -> None:
        """The run is over and its region has ended: leave what is to be known of it."""
        raise NotImplementedError

    def begin(self) -> None:
        """Torch is loaded: look at everything from here on."""
        from whynan.capture.torch.state import restore_stored
        from whynan.session.attended import MEMORY
        from whynan.session.region import Region
        from whynan.session.watching import Watched

        if self.asked["eager"]:
            _uncompiled()
        watched = Watched(
            on_sink=None if self.options.on_nonfinite == "continue" else self._sunk,
            only=self.options.only,
            first_step=self.options.start_step,
            steps=1 if self.options.watches else self.options.steps,
            watches=self.options.watches,
            threads=True,
            keeper=self.keeper,
        )
        options = self.options if self.options.memory is not None else replace(self.options, memory=MEMORY)
        self._region = Region(options, command=self._document["command"], watched=watched, quiet=True)
        if self.options.baseline is not None:
            from whynan.session.baseline import Baseline

            self._region.baseline = Baseline.read(self.options.baseline)
        restore_stored(self.asked["random"])
        self._region.__enter__()
        self._region.watching.tell(self._hear)

    def end(self, error: BaseException | None = None) -> None:
        """The program has ended."""
        self.over("end" if error is None else "raised", error)

    def forked(self) -> None:
        """In a child of the program's: nothing is looked at there."""
        self._over = True
        if self._region is not None:
            self._region.desert()

    def passed(self) -> None:
        """The program has come to a door."""

    def over(self, end: End, error: BaseException | None = None) -> None:
        """End the run here, and the process; nothing where that has begun."""
        if self._over or os.getpid() != self._pid:
            return
        self._over = True
        with self._apart():
            try:
                self._tell(end, error)
            finally:
                self._out(0)

    def _tell(self, end: End, error: BaseException | None) -> None:
        from whynan.session.ending import hide
        from whynan.session.region import exception_text

        region = self._region
        if region is None:
            return
        if error is not None:
            hide(error)
        kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
        region.end(kind, error, traceback, early=end in ("door", "step"))
        self.told(region, end, "" if error is None else exception_text(error))

    def _hear(self, capture: Capture) -> None:
        tracer = capture.tracer
        ended = tracer.on_last_step

        def last_step() -> None:
            if ended is not None:
                ended()
            self.over("step")

        def door() -> None:
            self.doors += 1
            self.passed()

        tracer.on_door = door
        tracer.on_last_step = None if ended is None else last_step

    def _sunk(self, capture: Capture) -> None:
        """At a door, after a fatal sink: the first run was stopped here, if it is an error."""
        assert self._region is not None
        with self._apart():
            is_error = any(f.severity == "error" for f in self._region.preview(capture).findings)
        if is_error:
            self.over("door")

    def environment(self, told: str, status: str, again: str) -> dict[str, str]:
        """That of one more run."""
        return environment_of(self._environ, told, status, hashseed=self._document["hashseed"], again=again)


def read_document(path: str) -> dict[str, Any]:
    """A document that another process of the same run has left."""
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def _uncompiled() -> None:
    import torch

    torch.compiler.set_stance("force_eager")
