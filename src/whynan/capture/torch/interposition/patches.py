"""Where a dispatch mode is blind: the engine's start, module calls, optimizer steps, values read without an event.

Each patch calls the original exactly once and passes its result or exception on; what is ours around it is guarded.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import _tensor_str

from whynan.capture.torch.interposition.compiled import know_dynamo, known_by_dynamo, watch_regions
from whynan.capture.torch.interposition.data_loading import watch_origins
from whynan.capture.torch.interposition.threads import watch_threads
from whynan.capture.torch.interposition.wrappers import (
    call_fenced,
    call_untraced_fenced,
    install_door,
    make_picklable,
    make_trace_wrapper,
    raise_if_stopped,
    strip_own_frames,
)
from whynan.capture.torch.names import tensors_of
from whynan.capture.torch.sinks.gradients import gradients_given
from whynan.capture.torch.sites import ENGINE, is_own_step

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.interposition.partial_tracing import ModuleFilter
    from whynan.capture.torch.interposition.wrappers import StepHooks
    from whynan.capture.torch.tracer import Tracer

_READERS: Final = ("tolist", "numpy", "__array__", "__dlpack__")


class Patches:
    """Installs the patches of one trace, and takes them off again."""

    def __init__(self, tracer: Tracer, hooks: StepHooks, only: ModuleFilter | None) -> None:
        self.tracer = tracer
        self.context = tracer.context
        self.hooks = hooks
        self.only = only
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        """Put every patch on; taken off in reverse order."""
        know_dynamo()
        run = self._engine(torch.autograd.graph._engine_run_backward)
        save = self._before(_saved)(torch.save)
        code: CodeType = getattr(run, "__code__")  # noqa: B009
        ENGINE[id(code)] = code
        for owner, name, make in (
            *((home, "_engine_run_backward", lambda _: run) for home in (torch.autograd, torch.autograd.graph)),
            (torch.nn.Module, "__call__", self._module),
            *((torch.Tensor, name, self._before(_leaves, name=f"Tensor.{name}")) for name in _READERS),
            # one function in both places: pickle looks for it in its own module
            *((home, "save", lambda _: save) for home in (torch, torch.serialization)),
            # what prints a tensor puts every mode aside
            (_tensor_str, "_str", self._before(_leaves)),
            (torch.Tensor, "__new__", self._new),
            (torch.utils, "swap_tensors", make_trace_wrapper(self.context, self._swapped, first=True, anywhere=False)),
        ):
            self._replace(owner, name, make)
        self._optimizers()
        watch_threads(self.context, self._replace)
        watch_origins(self.tracer, self._replace)
        watch_regions(self.tracer, self._replace)

    def remove(self) -> None:
        """Take every patch off."""
        while self._undo:
            undo = self._undo.pop()
            try:
                undo()
            except Exception:
                if self.context.fail():
                    raise
                # once more: a patch that stays on would outlive its trace
                undo()

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        take_off = install_door(owner, name, make)

        def undo() -> None:
            off = take_off()
            if off is not None:
                known_by_dynamo(*off)

        self._undo.append(undo)

    def _before(self, note: Callable[[Tracer, Any], None], *, name: str | None = None) -> Callable[[Any], Any]:
        """The wrapper of a function that is given, first of all, what `note` looks at before."""

        def tell(args: Any, kwargs: Any, _out: Any) -> None:
            note(self.tracer, args[0] if args else kwargs.get("obj"))

        return make_trace_wrapper(self.context, tell, first=True, name=name, anywhere=False)

    def _swapped(self, args: Any, kwargs: Any, _out: Any) -> None:
        """Torch refuses to swap what somebody has a weak reference to."""
        self.context.forget(*args, *kwargs.values())

    def _engine(self, original: Any) -> Any:
        tracer, context, only, ending = self.tracer, self.context, self.only, self.tracer.ending

        @functools.wraps(original)
        def engine_run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if context.log.returned:
                call_untraced_fenced(context, _goes_on, tracer)
            kept = call_untraced_fenced(context, _engine_starts, tracer, only, t_outputs, args)
            try:
                raise_if_stopped(ending)
                if only is not None and kept is not None:
                    return only.run(kept[0], original, (t_outputs, *args), kwargs)
                return original(t_outputs, *args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                if kept is not None:
                    call_untraced_fenced(context, _engine_raises, tracer, kept)
                raise
            finally:
                if kept is not None:
                    call_untraced_fenced(context, _engine_ends, tracer, kept)

        return engine_run_backward

    def _module(self, original: Any) -> Any:
        tracer, context, only, ending = self.tracer, self.context, self.only, self.tracer.ending

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if context.log.returned:
                call_untraced_fenced(context, _goes_on, tracer)
            raise_if_stopped(ending)
            lane = call_untraced_fenced(context, _module_starts, context, module)
            try:
                if only is not None and lane is not None:
                    out = only.call(lane, original, module, args, kwargs)
                else:
                    out = original(module, *args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise
            finally:
                if lane is not None:
                    call_untraced_fenced(context, _module_ends, lane)
            if lane is not None and not lane.modules:
                call_untraced_fenced(context, _module_returned, tracer, only, module, (args, kwargs), out)
                raise_if_stopped(ending)
            return out

        return make_picklable(functools.wraps(original)(call), original.__module__, "Module.__call__")

    def _optimizers(self) -> None:
        tracer, context, ending = self.tracer, self.context, self.tracer.ending

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if context.log.returned:
                call_untraced_fenced(context, _goes_on, tracer)
            call_untraced_fenced(context, _step_starts, tracer, optimizer, args, kwargs)
            raise_if_stopped(ending)

        def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            call_untraced_fenced(context, _step_ends, tracer, optimizer)
            raise_if_stopped(ending)
            if ending.last_step is not None and context.active:
                call_fenced(context.fail, ending.record_step_end)

        self.hooks.before, self.hooks.after = before, after
        self._undo.append(self.hooks.remove)

    def _new(self, original: Any) -> Any:
        fail = self.context.fail

        @functools.wraps(original)
        def new(*args: Any, **kwargs: Any) -> Any:
            aside = None
            try:
                if args and args[0] is not torch.Tensor and not torch.compiler.is_compiling():
                    # below a mode what is made of a list is a Tensor already, and can be no other kind
                    aside = torch._C._DisableTorchDispatch()
            except Exception:
                aside = torch._C._DisableTorchDispatch()
                if fail():
                    raise
            try:
                if aside is None:
                    return original(*args, **kwargs)
                with aside:
                    return original(*args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise

        return staticmethod(new)


def _engine_starts(tracer: Tracer, only: ModuleFilter | None, outputs: Any, args: Any) -> Any:
    tracer.deferred.run_checks()
    lane = tracer.context.lane()
    kept = (lane, lane.create_graph, lane.backward, lane.loss_labels, lane.engine_depth)
    nested = lane.engine_depth > 0
    lane.engine_depth += 1
    # positional: grad_tensors, keep_graph, create_graph, inputs, ...
    lane.create_graph = bool(args[2]) if len(args) > 2 else False
    seeds = gradients_given(args)
    for seed in seeds:
        # the gradients that a backward begins with are made before the engine runs, and belong to it
        state = tracer.context.state_of(seed) if isinstance(seed, torch.Tensor) else None
        if state is not None:
            state.backward = True
            tracer.bad.seeds_backward(seed)
    if not nested:
        roots = [t for t in outputs if isinstance(t, torch.Tensor)]
        seeds = seeds if len(seeds) == len(roots) else ()
        tracer.bad.sinks.begin_backward(lane, roots, seeds, into_leaves=not (len(args) > 3 and args[3]))
        if only is not None:
            only.met(roots)
    for other in tracer.context.lanes.engines:
        if other is not lane:
            other.follow(lane)
    return kept


def _engine_raises(tracer: Tracer, kept: Any) -> None:
    tracer.deferred.run_checks()
    tracer.bad.sinks.record_interrupted(kept[0].backward)


def _engine_ends(tracer: Tracer, kept: Any) -> None:
    tracer.deferred.run_checks()
    lane, create_graph, backward, labels, depth = kept
    if not depth:
        tracer.bad.sinks.end_backward(lane.backward)
        tracer.end_stretch()
    lane.create_graph = create_graph
    lane.engine_depth = depth
    if depth:
        lane.backward, lane.loss_labels = backward, labels


def _goes_on(tracer: Tracer) -> None:
    """The program goes on from what a module gave."""
    if not tracer.context.lane().modules:
        tracer.deferred.run_checks()
        tracer.bad.sinks.settle_outputs(waits=True)


def _module_starts(context: TraceContext, module: Any) -> Any:
    lane = context.lane()
    if not lane.modules:
        context.names.roots.add(module)
        if lane.optimizer is not None and not lane.closure and not lane.engine_depth:
            # an exception has left a step, whose end was never told
            lane.optimizer, lane.optimizer_site, context.log.steps.owner = None, 0, None
    number = context.names.number(module)
    lane.modules.append(number)
    lane.module = number
    return lane


def _module_ends(lane: Any) -> None:
    lane.modules.pop()
    lane.module = lane.modules[-1] if lane.modules else 0


def _module_returned(tracer: Tracer, only: ModuleFilter | None, module: Any, given: Any, out: Any) -> None:
    lane = tracer.context.lane()
    if lane.closure or lane.engine_depth or tracer.context.target is module:
        # inside of the engine it is a checkpoint's forward, run again
        return
    tracer.deferred.run_checks()
    tracer.bad.sinks.record_module_output(given, out)
    if only is not None:
        only.met(out)
    tracer.end_stretch()


def _step_starts(tracer: Tracer, optimizer: Any, args: Any, kwargs: Any) -> None:
    closure = (len(args) > 1 and callable(args[1])) or callable(kwargs.get("closure"))
    tracer.deferred.run_checks()
    lane = tracer.context.lane()
    lane.optimizer_site = tracer.context.sites.current_site(7)
    lane.optimizer_own = is_own_step(optimizer)
    tracer.bad.sinks.begin_step(optimizer, closure)
    lane.optimizer = optimizer
    lane.closure = closure
    # a closure computes its gradients only then
    tracer.detectors.updates.begin(None if closure else optimizer, lane)


def _step_ends(tracer: Tracer, optimizer: Any) -> None:
    tracer.deferred.run_checks()
    lane = tracer.context.lane()
    tracer.detectors.updates.end(lane)
    lane.optimizer = None
    if lane.closure:
        tracer.bad.sinks.end_closure(optimizer)
    lane.closure = False
    lane.optimizer_site = 0
    tracer.bad.sinks.end_step(optimizer)
    tracer.end_stretch()


def _leaves(tracer: Tracer, tensor: Any) -> None:
    if tracer.context.marked or tracer.deferred.events:
        tracer.deferred.run_checks()
        tracer.bad.sinks.record_conversion(tensor)


def _saved(tracer: Tracer, obj: Any) -> None:
    if not tracer.context.marked and not tracer.deferred.events:
        return
    tracer.deferred.run_checks()
    for _, tensor in tensors_of(obj, "saved"):
        tracer.bad.sinks.record_conversion(tensor)
