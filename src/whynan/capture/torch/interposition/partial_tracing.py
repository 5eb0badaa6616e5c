"""Looking at less than all: at the forward of some modules only, from some optimizer step on, at so many steps."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.dispatch_mode import leave
from whynan.capture.torch.interposition.wrappers import (
    call_fenced,
    call_untraced_fenced,
    register_door,
    strip_own_frames,
)
from whynan.capture.torch.names import Identities, tensors_of
from whynan.capture.torch.shadow_memory import is_bad, is_readable
from whynan.capture.torch.sinks.sink_log import distinct
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.interposition.wrappers import StepHooks
    from whynan.capture.torch.sites import Lane
    from whynan.capture.torch.tracer import Tracer
    from whynan.traces import Sink


class ModuleFilter:
    """The modules whose forward is looked at, by path, by the path of a module around them, or by class.

    The mode is entered where such a call begins and left where it ends, so that all else costs nothing; a backward is
    looked at as a whole. What such a module gives leaves what is looked at: it is read there, and it is a fatal sink if
    a loss or an output is bad later, of which nothing else is known.
    """

    def __init__(self, wanted: str, tracer: Tracer) -> None:
        self.wanted = wanted
        self._tracer = tracer
        self._context = tracer.context
        self._fits: dict[int, bool] = {}
        self._seen: dict[str, None] = {}
        self._inside = False
        self._left: list[Sink] = []

    def call(self, lane: Lane, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Call a module, looking at it if it is one of those."""
        if self._inside or not call_untraced_fenced(self._context, self._wants, module, lane.module):
            return original(module, *args, **kwargs)
        number = lane.module
        out = self.run(lane, original, (module, *args), kwargs)
        call_untraced_fenced(self._context, self._leaves, number, out)
        return out

    def run(self, lane: Lane, original: Any, args: Any, kwargs: Any) -> Any:
        """Call a function and look at what it runs."""
        mode = None if self._inside else call_fenced(self._context.fail, self._enter, lane)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            strip_own_frames(error)
            raise
        finally:
            if mode is not None:
                self._inside = False
                try:
                    leave(mode, entered=True)
                except Exception:
                    # once more: it would stay on
                    leave(mode, entered=True)
                    if self._context.fail():
                        raise

    def _enter(self, lane: Lane) -> Any:
        mode = self._context.mode
        if mode is not None:
            lane.begin()
            mode.__enter__()
            self._inside = True
        return mode

    def met(self, value: Any) -> None:
        """A loss or an output that was computed out of sight: if it is bad, so is what has left before."""
        tensors = [t for _, t in tensors_of(value, "") if self._context.state_of(t) is None] if self._left else []
        if any(is_readable(t) and is_bad(t) for t in tensors):
            self._context.log.found += self._left
            self._left = []

    def finish(self) -> None:
        """The run has ended: what has left, and is not known to have reached anything, was only read."""
        found = self._context.log.found
        known = frozenset[int]().union(*(sink.labels for sink in found))
        found += [replace(sink, kind="observed", fatal=False) for sink in self._left if not sink.labels <= known]
        self._left = []

    def _leaves(self, number: int, out: Any) -> None:
        self._tracer.deferred.run_checks()
        for name, tensor in tensors_of(out, self._context.names.module_path(number) or self.wanted):
            if self._context.state_of(tensor) is not None:
                self._left += self._tracer.bad.sinks.sink(tensor, "output", name, True)
        self._left = distinct(self._left)

    def note(self) -> Note:
        """What was looked at, or that no module was one of those."""
        if any(self._fits.values()):
            return Note.create("only_modules", module=self.wanted)
        return Note.create("no_such_module", module=self.wanted, others=tuple(self._seen)[:12])

    def _wants(self, module: Any, number: int) -> bool:
        found = self._fits.get(number)
        if found is None:
            path = self._context.names.module_path(number) or ""
            kind = type(module).__name__
            self._seen[path or kind] = None
            found = self._fits[number] = self.wanted in (path, kind) or path.startswith(f"{self.wanted}.")
        return found


class Attempts:
    """Counts the step attempts of a program that is not looked at yet; those that a scaler skips are attempts too."""

    def __init__(self, wanted: int, hooks: StepHooks, reached: Callable[[], None], fail: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._reached = reached
        self._fail = fail
        self._hooks = hooks
        self._counts: Identities[int] = Identities()
        self._by_scaler = False
        hooks.after = self._stepped
        self._scaled = torch.amp.grad_scaler.GradScaler.step
        self._patched = self._scaler_step(self._scaled)
        register_door(self._patched)
        torch.amp.grad_scaler.GradScaler.step = self._patched

    def stop(self) -> None:
        """Count no further."""
        self._hooks.after = None
        if torch.amp.grad_scaler.GradScaler.step is self._patched:
            torch.amp.grad_scaler.GradScaler.step = self._scaled

    def _scaler_step(self, original: Any) -> Any:
        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._by_scaler = True
            try:
                return original(scaler, optimizer, *args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise
            finally:
                self._by_scaler = False
                self._count(optimizer)

        return step

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not self._by_scaler:
            self._count(optimizer)

    def _count(self, optimizer: Any) -> None:
        try:
            if self._hooks.after != self._stepped:
                # it has been reached, or given up
                return
            count = (self._counts.get(optimizer) or 0) + 1
            self._counts.set(optimizer, count)
            if count >= self._wanted:
                self.stop()
                self._reached()
        except Exception:
            self.stop()
            if self._fail():
                raise
