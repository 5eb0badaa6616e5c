"""The doors of a program at which a guard stands: backwards, module calls, steps of scalers, batches, gradients let go.

Each calls the original once and passes its result or exception on; what is ours around it is guarded.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn.utils import clip_grad
from torch.utils.data import dataloader

from whynan.capture.torch.interposition.data_loading import Loaders, watch_batches
from whynan.capture.torch.interposition.wrappers import Note, call_fenced, install_door, make_wrapper, strip_own_frames
from whynan.capture.torch.sinks.gradients import gradients_given
from whynan.replay.checkpoint import load_compiler
from whynan.training.cuda_graphs import is_capturing
from whynan.training.listeners import TakenByHand, TrainingListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.sinks.values_read import Observations
    from whynan.training.cuda_graphs import GraphReplays
    from whynan.training.evaluations import Evaluations
    from whynan.training.listeners import ThreadState
    from whynan.training.updates import WatchDetectors


class Watcher(Protocol):
    """A guard as its doors know it: where the program stands, what is looked at, and whom a step is told."""

    on: bool
    judging: bool
    here: ThreadState
    detectors: WatchDetectors
    graph_replays: GraphReplays
    evaluations: Evaluations | None

    def go_on(self) -> BaseException | None:
        """See `Evaluations.go_on`."""
        ...

    observations: Observations | None

    @property
    def is_watching(self) -> bool: ...
    def fail(self) -> bool: ...
    def finish_step(self, scaler: Any = None) -> None: ...
    def record_skip(self, scaler: Any, optimizer: Any) -> BaseException | None: ...


class TrainingPatches:
    """The doors of one guard, which `marking` is told of; `late`: the program ran before it was watched."""

    def __init__(self, guard: Watcher, marking: TrainingListener, *, late: bool) -> None:
        self._guard = guard
        self._marking = marking
        self._loaders = Loaders(late=late, keeps_indices=True)
        self._undo: list[Callable[[], object]] = []
        self._trains = late

    def install(self) -> None:
        """Stand at the doors."""
        self._replace(torch.autograd, "_engine_run_backward", self._engine)
        torch_graph: Any = torch.autograd.graph
        self._replace(torch_graph, "_engine_run_backward", lambda _: torch.autograd._engine_run_backward)
        self._replace(torch.nn.Module, "__call__", self._module)
        self._replace(torch.amp.grad_scaler.GradScaler, "step", self._scaled)
        self._replace(torch.amp.grad_scaler.GradScaler, "scale", self._noting(self._scales))
        self._replace(clip_grad, "_clip_grads_with_norm_", self._noting(self._clips, first=True))
        self._replace(dataloader._BaseDataLoaderIter, "__next__", self._fetched)
        one, many = dataloader._BaseDataLoaderIter, dataloader._MultiProcessingDataLoaderIter
        watch_batches(
            self._loaders,
            lambda name, note: self._replace(one, name, self._noting(note)),
            lambda name, note: self._replace(many, name, self._noting(note, first=True)),
        )
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            self._replace(owner, "zero_grad", self._noting(self._discarded, first=True, replayed=True))
        self._replace(torch.optim.Optimizer, "__init__", self._noting(load_compiler, first=True))
        self._replace(torch.optim.Optimizer, "__init__", self._noting(self._record_optimizer))
        self._guard.graph_replays.install(self._replace)
        if self._guard.observations is not None:
            self._guard.observations.install(self._replace)

    def remove(self) -> None:
        """Leave the doors."""
        while self._undo:
            self._undo.pop()()

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self._undo.append(install_door(owner, name, make))

    def _engine(self, original: Any) -> Any:
        @functools.wraps(original)
        def engine_run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if (ending := call_fenced(self._guard.fail, self._guard.go_on)) is not None:
                raise ending
            call_fenced(self._guard.fail, self._begins, t_outputs, args, kwargs)
            if not self._guard.here.depth:
                self._guard.here.differentiates = torch.is_grad_enabled()
            self._guard.here.depth += 1
            try:
                return original(t_outputs, *args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise
            finally:
                self._guard.here.depth -= 1
                if self._guard.here.stepped and not self._guard.here.depth:
                    # optimizers have stepped inside of it
                    self._guard.here.stepped = False
                    if self._guard.on and not self._guard.here.replaying:
                        call_fenced(self._guard.fail, self._guard.finish_step)

        return engine_run_backward

    def _begins(self, t_outputs: Any, args: Any, kwargs: Any) -> None:
        """A backward begins."""
        here = self._guard.here
        if not self._guard.on or torch.compiler.is_compiling():
            return
        if kwargs.get("accumulate_grad") and not is_capturing():
            # gradients that are only asked for may go anywhere; below the modes of the program and a replay
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                here.losses.record_backward(t_outputs, gradients_given(args))
        if self._guard.is_watching and not here.depth:
            here.model_wanted = True
            here.together.backward()
            self._marking.record_backward()

    def _module(self, original: Any) -> Any:
        guard = self._guard

        @functools.wraps(original)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            here, evaluations = guard.here, None
            outermost = not here.inside and not here.depth and not torch.compiler.is_compiling()
            if outermost:
                if (ending := call_fenced(guard.fail, guard.go_on)) is not None:
                    raise ending
                here.inside = True
                evaluations = call_fenced(guard.fail, self._begin_module_call, module)
            try:
                if evaluations is not None:
                    return evaluations.call(call, original, module, args, kwargs)
                return original(module, *args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise
            finally:
                if outermost:
                    here.inside = False

        return call

    def _begin_module_call(self, module: Any) -> Evaluations | None:
        """A module is called from outside of every other one; gives who calls it, where that is not just done."""
        here = self._guard.here
        if not self._guard.on or here.replaying or is_capturing():
            return None
        # a mark holds on to what the program has: where nothing is trained it would be for nothing
        if here.model_wanted and (self._trains or self._guard.is_watching):
            here.model_wanted = False
            self._guard.detectors.names.roots.add(module)
            # what traces the first steps must not see it
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                self._marking.record_module_call()
        if not self._guard.is_watching:
            return None
        # in a transform of functions (vmap) what a module gives has no numbers that could be read
        transform = torch._C._functorch.peek_interpreter_stack()  # pyright: ignore[reportAttributeAccessIssue]
        is_plain = not torch.is_grad_enabled() and transform is None
        return self._guard.evaluations if is_plain else None

    def _scaled(self, original: Any) -> Any:
        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            here = self._guard.here
            before = here.scaler, here.reached
            here.scaler, here.reached = (scaler if scaler.is_enabled() else None), False
            try:
                out = original(scaler, optimizer, *args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise
            finally:
                here.scaler = None
                if here.replaying:
                    # the program's own step has begun already
                    here.scaler, here.reached = before
            ending = call_fenced(self._guard.fail, self._scaler_stepped, scaler, optimizer)
            if ending is not None:
                raise ending
            return out

        return step

    def _scaler_stepped(self, scaler: Any, optimizer: Any) -> BaseException | None:
        """A scaler's step is over, in which it may have skipped the optimizer's; gives what is to be raised for it."""
        guard = self._guard
        if not guard.on or not scaler.is_enabled() or guard.here.replaying or is_capturing():
            return None
        if not guard.here.reached:
            return guard.record_skip(scaler, optimizer)
        if not guard.here.depth:
            guard.finish_step(scaler)
        return None

    def _record_optimizer(self, _args: Any, _kwargs: Any, _out: Any) -> None:
        """There is an optimizer: the program trains."""
        here = self._guard.here
        self._trains = True
        if self._guard.on and not here.replaying and not is_capturing():
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                self._marking.record_optimizer()

    def _scales(self, args: Any, kwargs: Any, out: Any) -> None:
        losses = args[1] if len(args) > 1 else kwargs.get("outputs")
        if not torch.compiler.is_compiling() and not is_capturing() and out is not losses:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                self._guard.here.losses.scales(losses, out)
                self._marking.record_scaled_loss(args[0])

    def _clips(self, args: Any, kwargs: Any, _out: Any) -> None:
        """The gradients are about to be scaled by a norm."""
        if self._guard.is_watching and not torch.compiler.is_compiling():
            self._guard.detectors.clip(args[2] if len(args) > 2 else kwargs["total_norm"])

    def _fetched(self, original: Any) -> Any:
        @functools.wraps(original)
        def fetch(iterator: Any) -> Any:
            if self._guard.here.replaying and not self._guard.here.is_fresh(iterator):
                raise TakenByHand
            try:
                batch = original(iterator)
            except BaseException as error:
                strip_own_frames(error)
                raise
            if self._guard.on and not self._guard.here.replaying:
                call_fenced(self._guard.fail, self._record_batch, iterator, batch)
            return batch

        return fetch

    def _record_batch(self, iterator: Any, batch: Any) -> None:
        """A loader has given a batch."""
        came = self._loaders.batch_origin(iterator)
        if self._guard.judging:
            self._marking.record_batch(batch, came)

    def _noting(self, note: Note, *, first: bool = False, replayed: bool = False) -> Callable[[Any], Any]:
        """A door that tells of a call: before it with `first`, else after it; with `replayed` in a replay too."""

        def tell(args: Any, kwargs: Any, out: Any) -> None:
            if self._guard.on and (replayed or not self._guard.here.replaying):
                call_fenced(self._guard.fail, note, args, kwargs, out)

        return make_wrapper(tell, first=first)

    def _discarded(self, _args: Any, _kwargs: Any, _out: Any) -> None:
        """The gradients of what was differentiated so far are not used."""
        if not torch.compiler.is_compiling() and not is_capturing():
            self._guard.here.losses.discard()
