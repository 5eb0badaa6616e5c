"""One capture: mode, patches and tracer, entered and left together."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch

from whynan.capture.torch.context import TraceContext
from whynan.capture.torch.dispatch_mode import TraceMode, enter_below, leave
from whynan.capture.torch.event_log import Rows
from whynan.capture.torch.interposition.compiled import last_script_graph
from whynan.capture.torch.interposition.partial_tracing import Attempts, ModuleFilter
from whynan.capture.torch.interposition.patches import Patches
from whynan.capture.torch.interposition.wrappers import StepHooks, call_untraced
from whynan.capture.torch.sinks.sink_log import distinct
from whynan.capture.torch.trace_segments import Recording
from whynan.capture.torch.tracer import Tracer
from whynan.records import Coverage, Note
from whynan.traces import Trace
from whynan.traces.format import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from whynan.capture.torch.kept_operations import OperationKeeper
    from whynan.capture.torch.provenance.before_the_run import Inherited
    from whynan.records import ScaleFall
    from whynan.traces import Birth, Silent, Sink
    from whynan.traces.writer import TraceWriter


FORKED = Note.create("forked")


class Capture:
    """Watches everything that PyTorch runs on this thread while it is entered."""

    def __init__(
        self,
        *,
        memory: int | None = None,
        ranges: bool = False,
        copy_all: bool = False,
        on_sink: Callable[[Capture], BaseException | None] | None = None,
        only: str | None = None,
        first_step: int = 1,
        steps: int | None = None,
        watches: bool = False,
        threads: bool = False,
        recording: TraceWriter | None = None,
        reads: frozenset[str] = frozenset(),
        keeper: OperationKeeper | None = None,
        sees_steps: bool = True,
        at_once: bool = False,
    ) -> None:
        self.context = context = TraceContext(
            Rows(memory), copy_all=copy_all, narrowed=only is not None, every_thread=threads
        )
        context.log.steps.offset = first_step - 1
        self.tracer = Tracer(context, ranges=ranges, keeper=keeper, reads=reads)
        if recording is not None:
            self.tracer.recording = Recording(recording, context, self.snapshot)
        self.ending = self.tracer.ending
        self.ending.on_sink = None if on_sink is None else partial(on_sink, self)
        if steps is not None:
            self.ending.last_step = first_step - 1 + steps
            self.ending.on_last_step = self.leave if watches else self._leave_as_asked
        self._only = None if only is None else ModuleFilter(only, self.tracer)
        self._first_step = first_step
        self._waiting: Attempts | None = None
        self._mode = context.mode = TraceMode(self.tracer)
        self.tracer.bad.sinks.at_once = at_once
        self._sees_steps = sees_steps
        self._hooks = StepHooks(context.fail)
        self._patches = Patches(self.tracer, self._hooks, self._only)
        self.trace: Trace | None = None
        self._entered = False

    def __enter__(self) -> Self:
        _captures.add(self)
        try:
            if self._sees_steps:
                self._hooks.install()
            if self._first_step > 1:
                self._waiting = Attempts(self._first_step - 1, self._hooks, self._enter_late, self.context.fail)
            else:
                self._enter()
        except BaseException:
            self._hooks.remove()
            raise
        return self

    def call_at_first_event(self, listener: Callable[[], None]) -> None:
        """Have a listener called before the first operation runs."""
        self._mode.call_at_first_event(listener)

    def _enter(self, *, late: bool = False) -> None:
        self.context.begin()
        try:
            self._patches.install()
            if self._only is None:
                if late:
                    enter_below(self._mode)
                else:
                    self._mode.__enter__()
                self._entered = True
        except BaseException:
            self._patches.remove()
            raise

    def _enter_late(self) -> None:
        self._waiting = None
        self._enter(late=True)

    def start_at_step(self, step: int) -> None:
        """Look from here on, and not from the step on that was said; what comes now belongs to this one, from 1."""
        if self._waiting is not None:
            self._waiting.stop()
            self._enter_late()
            self.begin_at(step)

    def begin_at(self, step: int, optimizer: Any = None) -> None:
        """What comes now belongs to an optimizer's step of this number, from 1."""
        steps = self.context.log.steps
        steps.offset, steps.met, steps.concerned = step - 1, True, optimizer

    def release_outputs(self, read: Any = None, error: BaseException | None = None) -> None:
        """No backward comes to what the modules have given so far, and to a tensor that was read: it has left.

        `error`: what was raised for a number that is NaN or Inf.
        """
        call_untraced(self.context, self.tracer.deferred.run_checks)
        call_untraced(self.context, self.tracer.bad.sinks.release_outputs)
        if error is not None:
            call_untraced(self.context, self.tracer.bad.sinks.record_exception, error)
        if isinstance(read, torch.Tensor):
            call_untraced(self.context, self.tracer.bad.sinks.record_conversion, read)

    def await_outputs(self, out: Any) -> None:
        """Follow what a module gave as far as the program's next call of one: whether the program mends it."""
        call_untraced(self.context, self.tracer.bad.sinks.await_outputs, out)

    def has_bad_output(self) -> bool:
        """Whether something bad that a module gave has not been mended."""
        call_untraced(self.context, self.tracer.deferred.run_checks)
        return self.context.log.has_left or bool(self.context.log.awaited(self.context.labels))

    def stands_alone(self) -> bool:
        """Whether no other dispatch mode is on in this thread."""
        return torch._C._len_torch_dispatch_stack() == 1

    def set_inherited_state(self, inherited: Inherited) -> None:
        """What comes now begins with weights that may be bad already."""
        self.tracer.bad.entries.inherited = inherited

    def set_start_place(self, where: str) -> None:
        """What comes now is not all that the step does: it goes on there."""
        self.tracer.bad.entries.ahead = where

    def set_scale_fall(self, fall: ScaleFall | None) -> None:
        """What comes now a loss scaler skips in vain, if it fell so before."""
        self.tracer.bad.sinks.scaler.given = fall

    def leave(self) -> None:
        """Look no further while the program goes on: what it still holds has not left it."""
        tracer, context = self.tracer, self.context
        self._stop_waiting()
        self._leave()
        self._patches.remove()
        self._hooks.remove()
        with context.alone():
            try:
                try:
                    if context.active and self.trace is None:
                        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                            tracer.deferred.run_checks()
                            tracer.bad.sinks.look_at_modules()
                            tracer.bad.sinks.settle_outputs(waits=True)
                            self.trace = self.snapshot()
                finally:
                    context.active = False
                    tracer.close()
            except Exception:
                if context.fail():
                    raise
                self._failed()

    def _leave_as_asked(self) -> None:
        self.context.notes[Note.create("looked_up_to", step=self.ending.last_step)] = None
        self.leave()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_waiting()
        try:
            self._leave(kind, error, traceback)
        finally:
            self._patches.remove()
            self._hooks.remove()
        tracer, context = self.tracer, self.context
        with context.alone():
            try:
                if context.active and self.trace is None:
                    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                        tracer.deferred.run_checks()
                        if error is not None:
                            tracer.bad.sinks.record_exception(error)
                        tracer.bad.sinks.settle_outputs()
                        if self._only is not None:
                            self._only.finish()
                        self.trace = self._finish()
            except Exception:
                if context.fail():
                    raise
            finally:
                # a thread that goes on has the mode still
                context.active = False
                tracer.close()
        if self.trace is None:
            self.trace = Trace([], [], self._coverage(), failed=True)
        if tracer.recording is not None:
            tracer.recording.finish(self.trace)

    def _failed(self) -> None:
        """Say of the trace that was made that something failed after it."""
        if self.trace is not None:
            self.trace.coverage = self.trace.coverage.with_notes(FAILED)
            self.trace.failed = True

    def _leave(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if not self._entered:
            return
        self._entered = False
        if self._first_step > 1:
            leave(self._mode)
            return
        depth = torch._C._len_torch_dispatch_stack()
        # below a mode of the program's it stays, and does nothing any more
        if depth and torch._C._get_dispatch_stack_at(depth - 1) is self._mode:
            self._mode.__exit__(kind, error, traceback)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None
            self.context.notes[Note.create("never_reached", step=self._first_step)] = None

    def abandon(self) -> None:
        """Stop looking after an error of our own: the mode and the patches go, whatever else there was."""
        self.context.active = False
        if self._waiting is not None:
            self._waiting.stop()
        with suppress(Exception):
            self._leave()
        self._patches.remove()
        self._hooks.remove()

    def disable_in_child(self) -> None:
        """This is a child process: look at nothing, and report nothing but that."""
        if self.trace is not None or not self.context.active:
            return
        # a thread that is not there any more may have held it
        self.context.lock, self.tracer.recording = None, None
        leave(self._mode)
        self.abandon()
        self.trace = Trace([], [], Coverage(events=0, eager=0, compiled_regions=0, typed_notes=(FORKED,)))

    def listen(self, door: Callable[[], None], step: Callable[[], None]) -> None:
        """Have `door` called at each door of the program's, and `step` after the last step that is looked at."""
        ended = self.ending.on_last_step

        def last_step() -> None:
            if ended is not None:
                ended()
            step()

        self.ending.on_door = door
        self.ending.on_last_step = None if ended is None else last_step

    def enter_scope(self, number: int) -> None:
        """Number what follows: what is born in it carries the number."""
        call_untraced(self.context, self.tracer.deferred.run_checks)
        self.context.enter_scope(number)

    def leave_scope(self, number: int) -> None:
        """End the numbered stretch."""
        call_untraced(self.context, self.tracer.deferred.run_checks)
        self.context.leave_scope(number)

    def target_returned(self, value: Any) -> None:
        """The target of `explain` has returned; to be called while the capture is still entered."""
        call_untraced(self.context, self.tracer.deferred.run_checks)
        call_untraced(self.context, self.tracer.bad.sinks.record_target_return, value)

    def flags(self) -> dict[str, Any]:
        """Switches that change numbers."""
        return {
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
            "threads": torch.get_num_threads(),
        }

    def device(self) -> str:
        """The device that the run computed on, as far as it is known."""
        return "cuda" if torch.cuda.is_initialized() else "cpu"

    def snapshot(self, waiting: Iterable[Sink] = ()) -> Trace:
        """What the run has left for analysis until now, with sinks that it would have if it ended now; it goes on."""
        log = self.context.log
        sinks = distinct([*log.found, *waiting])
        unexplained = [s for s in sinks if not s.labels]
        seen, silent = log.fatal_seen, self._silent()
        return Trace(self._births(sinks), sinks, self._coverage(), (), seen, unexplained, silent=silent)

    def _births(self, sinks: list[Sink]) -> list[Birth]:
        """Births and literals with the step that they belong to, as far as it is known."""
        steps = self.context.log.steps
        births = [replace(b) for b in self.context.labels.births]
        for birth in births:
            event = birth.event
            if not steps.met:
                birth.event = replace(event, step=None, micro=None)
            elif event.phase != "optimizer":
                step = steps.step_of_birth(event.ordinal, frozenset((birth.label,)), sinks)
                birth.event = replace(event, step=step or event.step, micro=steps.micro_of(event))
        return births

    def _silent(self) -> list[Silent]:
        """Silent damage, with a step where the program has any."""
        found = self.tracer.detectors.log.found
        if self.context.log.steps.met:
            return list(found)
        return [replace(s, event=replace(s.event, step=None, micro=None)) for s in found]

    def _finish(self) -> Trace:
        context = self.context
        sinks = self.tracer.bad.sinks.finish()
        births = self._births(sinks)
        ranges = context.ranges.records(lambda n: context.sites.resolve(n, None)[0])
        unexplained = [s for s in sinks if not s.labels]
        seen, silent = context.log.fatal_seen, self._silent()
        return Trace(births, sinks, self._coverage(), ranges, seen, unexplained, context.failed, silent)

    def _coverage(self) -> Coverage:
        context = self.context
        notes = list(context.notes)
        if self._only is not None:
            notes.append(self._only.note())
        if context.failed:
            notes.append(FAILED)
        if context.rows.evicted and any(b.label_kind == "birth" for b in context.labels.births):
            notes.append(Note.create("operands_let_go", events=context.rows.evicted))
        if any(b.kind == "entered" for b in context.labels.births) and _runs_fused():
            notes.append(Note.create("fused_kernel"))
        if context.ranges.omitted:
            notes.append(Note.create("ranges_left_out", tensors=context.ranges.omitted))
        return Coverage(
            events=context.events,
            eager=context.events,
            compiled_regions=context.compiled_regions,
            skipped_steps=context.log.skipped_steps,
            typed_notes=tuple(notes),
        )


def _runs_fused() -> bool:
    """Whether what TorchScript last ran in this thread has a fused kernel."""
    return any(kind in str(last_script_graph()) for kind in ("TensorExprGroup", "FusionGroup"))


_captures: weakref.WeakSet[Capture] = weakref.WeakSet()


def _forked() -> None:
    """In a child of the program's, which has a copy of the trace that nobody will read."""
    for capture in list(_captures):
        with suppress(Exception):
            capture.disable_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
