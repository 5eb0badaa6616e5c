"""The guard: one look at the loss and the gradients of every optimizer step, before it moves a weight.

Nothing is done for an operation, and nothing is copied but the losses, which are numbers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.optim import LBFGS
from torch.utils.data import dataloader

from whynan.capture.failure import report_internal_error
from whynan.capture.interruptions import theirs
from whynan.capture.torch.doors import stands
from whynan.capture.torch.frames import unseen
from whynan.capture.torch.history import History
from whynan.capture.torch.hooks import StepHooks
from whynan.capture.torch.identities import Identities
from whynan.capture.torch.judging import Fault, Probes, gradients_of, judge, norm_of, spoilt_of
from whynan.capture.torch.standing import Here, Marking, TakenByHand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


SKIPS: Final = 8
"""A loss scaler that skips so many steps on end, down to a scale of 1, is not looking for its scale any more."""


class Guard:
    """Watches the optimizers of a program; `explain` is given a bad step, and `deliver` what it made of it.

    What `deliver` gives is raised at that step, before it has moved a weight.

    `marking` is told where the program stands: after a step, as the first module is called after that, as a backward
    begins, and what a loader gives. `after`: so many steps are not judged, but counted. `only`: the
    optimizers that are judged; all where there are none.
    """

    def __init__(
        self,
        *,
        explain: Callable[[Fault], Any],
        deliver: Callable[[Any, Fault], BaseException | None],
        marking: Marking,
        after: int = 0,
        only: Sequence[Any] = (),
    ) -> None:
        self._explain = explain
        self._deliver = deliver
        self._marking = marking
        self.here = Here()
        self._hooks = StepHooks(self.fail)
        self._undo: list[Callable[[], None]] = []
        self._steps: Identities[int] = Identities()
        self.history = History()
        self.judging = not after
        """Off while the program is traced."""
        self.watched = 0
        """How many steps have been judged."""
        self._unjudged = after
        self._only = [id(o) for o in only]
        self.on = False

    def install(self) -> None:
        """Stand at the doors."""
        self.on = True
        self._hooks.install()
        self._hooks.before, self._hooks.after = self._before, self._after
        self._replace(torch.autograd, "_engine_run_backward", self._engine)
        torch_graph: Any = torch.autograd.graph
        self._replace(torch_graph, "_engine_run_backward", lambda _: torch.autograd._engine_run_backward)
        self._replace(torch.nn.Module, "__call__", self._module)
        self._replace(torch.amp.grad_scaler.GradScaler, "step", self._scaled)
        self._replace(dataloader._BaseDataLoaderIter, "__next__", self._fetched)
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            self._replace(owner, "zero_grad", self._discarded)

    def remove(self) -> None:
        """Leave the doors."""
        self.on = False
        self._hooks.remove()
        while self._undo:
            self._undo.pop()()

    def fail(self) -> bool:
        """An error of ours: warn once and watch no further; True where it is the program's own."""
        if theirs():
            return True
        self.on = False
        report_internal_error()
        return False

    @property
    def _looks(self) -> bool:
        return self.judging and not self.here.replaying

    def attempts(self, optimizer: Any) -> int:
        """How many steps an optimizer has tried."""
        return self._steps.get(optimizer) or 0

    def optimizers(self) -> list[Any]:
        """Those that have tried a step, by their first one."""
        return self._steps.keys()

    def spoilt(self) -> int:
        """How many parameters of the optimizers watched are NaN or Inf now."""
        judged = (o for o in self._steps.keys() if not self._only or id(o) in self._only)  # noqa: SIM118
        return len({id(p) for optimizer in judged for p in spoilt_of(optimizer)})

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        made = make(original)
        stands(made)
        setattr(owner, name, made)

        def undo() -> None:
            if getattr(owner, name) is made:
                setattr(owner, name, original)

        self._undo.append(undo)

    # -- the doors ----------------------------------------------------------------------------------------------------

    def _engine(self, original: Any) -> Any:
        @functools.wraps(original)
        def engine_run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if self.on and not torch.compiler.is_compiling():
                    # below the modes of the program, and of a replay
                    if kwargs.get("accumulate_grad"):
                        # gradients that are only asked for (`autograd.grad`) may go anywhere
                        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                            self.here.losses.note(t_outputs)
                    if self._looks and not self.here.depth:
                        self.here.model_wanted = True
                        self._marking.backward()
            except Exception:
                if self.fail():
                    raise
            self.here.depth += 1
            try:
                return original(t_outputs, *args, **kwargs)
            except BaseException as error:
                unseen(error)
                raise
            finally:
                self.here.depth -= 1
                if self.here.stepped and not self.here.depth:
                    self.here.stepped = False
                    self.here.losses.held.clear()

        return engine_run_backward

    def _module(self, original: Any) -> Any:
        @functools.wraps(original)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if self.here.model_wanted and not torch.compiler.is_compiling():
                try:
                    if self.on and self._looks and not self.here.depth:
                        self.here.model_wanted = False
                        self._marking.model()
                except Exception:
                    if self.fail():
                        raise
            try:
                return original(module, *args, **kwargs)
            except BaseException as error:
                unseen(error)
                raise

        return call

    def _scaled(self, original: Any) -> Any:
        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self.here.scaler, self.here.reached = (scaler if scaler.is_enabled() else None), False
            try:
                out = original(scaler, optimizer, *args, **kwargs)
            except BaseException as error:
                unseen(error)
                raise
            finally:
                self.here.scaler = None
            ending = None
            try:
                if self.on and scaler.is_enabled() and not self.here.replaying:
                    if not self.here.reached:
                        ending = self._skipped(scaler, optimizer)
                    elif not self.here.depth:
                        self._stepped(scaler)
            except Exception:
                if self.fail():
                    raise
            if ending is not None:
                raise ending
            return out

        return step

    def _fetched(self, original: Any) -> Any:
        @functools.wraps(original)
        def fetch(iterator: Any) -> Any:
            if self.here.replaying and not self._is_fresh(iterator):
                raise TakenByHand
            try:
                batch = original(iterator)
            except BaseException as error:
                unseen(error)
                raise
            try:
                if self.on and self._looks:
                    self._marking.batch(batch)
            except Exception:
                if self.fail():
                    raise
            return batch

        return fetch

    def _is_fresh(self, iterator: Any) -> bool:
        """Whether a replay has begun with an iterator of a loader; the program's own would lack what it takes."""
        fresh = self.here.fresh
        if getattr(iterator, "_num_yielded", 0) == 0:
            fresh.append(iterator)
        return any(iterator is one for one in fresh)

    def _discarded(self, original: Any) -> Any:
        @functools.wraps(original)
        def zero_grad(*args: Any, **kwargs: Any) -> Any:
            try:
                if self.on and not torch.compiler.is_compiling():
                    # the gradients of what was differentiated so far are not used
                    self.here.losses.held.clear()
            except Exception:
                if self.fail():
                    raise
            return original(*args, **kwargs)

        return zero_grad

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        ending = new = None
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if self.here.replaying:
            if closure is None:
                return None
            # by itself, and then a step without one: what a closure leaves counts where the step is made of it
            closure()
            return args[:1], {name: value for name, value in kwargs.items() if name != "closure"}
        try:
            self.here.reached = True
            if self.on:
                self._steps.set(optimizer, self.attempts(optimizer) + 1)
                if closure is not None:
                    new = self._with_closure(optimizer, closure, args, kwargs)
                elif self.judging:
                    ending = self._judge(optimizer)
        except Exception:
            if self.fail():
                raise
        if ending is not None:
            raise ending
        return new

    def _after(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        ending = None
        try:
            if self.here.depth:
                self.here.stepped = True
            elif self.on and not self.here.replaying:
                probes, self.here.probes = self.here.probes, None
                ending = None if probes is None else self._kept(probes)
                if self.here.scaler is None:
                    self._stepped()
        except Exception:
            if self.fail():
                raise
        if ending is not None:
            raise ending

    # -- what they see ------------------------------------------------------------------------------------------------

    def _stepped(self, scaler: Any = None) -> None:
        self.here.losses.held.clear()
        self.here.model_wanted = True
        if self._unjudged:
            self._unjudged -= 1
            self.judging = not self._unjudged
        if self.judging:
            self._marking.step(scaler)

    def _judge(self, optimizer: Any) -> BaseException | None:
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is not None and bool(found_inf):
            # a fused optimizer is called, and does nothing
            return self._skipped(self.here.scaler, optimizer)
        self.here.skips = 0
        if self._only and id(optimizer) not in self._only:
            return None
        self.watched += 1
        gradients = [g for _, g in gradients_of(optimizer)]
        with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            norm = norm_of(gradients)
            bad_loss = self.here.losses.bad(scaled=self.here.scaler is not None)
            step = self.attempts(optimizer)
            self.history.note(optimizer, step, self.here.losses.held, norm, self.here.scaler)
            if norm - norm == 0 and not bad_loss:
                return None
            judged = judge(optimizer, self.here.losses)
        if judged.is_good:
            # finite gradients whose norm is none
            return None
        return self._fault(Fault(optimizer, step, judged))

    def _fault(self, fault: Fault) -> BaseException | None:
        return self._deliver(self._explain(fault), fault)

    def _skipped(self, scaler: Any, optimizer: Any) -> BaseException | None:
        """A scaler has skipped a step, as it may; but not for ever, and not for a loss that is NaN."""
        if not self.here.reached:
            self._steps.set(optimizer, self.attempts(optimizer) + 1)
        self.here.skips += 1
        step = self.attempts(optimizer)
        ending = judged = None
        with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            self.history.note(optimizer, step, self.here.losses.held, None, scaler, skipped=True)
            if self.judging and (self._lost(scaler) or self.here.losses.bad(scaled=True)):
                judged = judge(optimizer, self.here.losses)
        if judged is not None and not judged.is_good:
            ending = self._fault(Fault(optimizer, step, judged, self.here.skips))
            self.here.skips = 0
        if ending is None and not self.here.reached:
            self._stepped(scaler)
        return ending

    def _lost(self, scaler: Any) -> bool:
        """Whether a scaler is not looking for its scale any more: the gradients are bad at every scale."""
        return self.here.skips >= SKIPS and (scaler is None or scaler.get_scale() <= 1.0)

    def _with_closure(self, optimizer: Any, closure: Any, args: Any, kwargs: Any) -> Any:
        """The closure of a step, looked at when it has run: before the weights move, but for those that probe."""
        probes = Probes(optimizer) if isinstance(optimizer, LBFGS) and self._looks else None
        self.here.probes = probes

        def run() -> Any:
            out = closure()
            ending = None
            try:
                if self.on and self._looks:
                    if probes is None:
                        ending = self._judge(optimizer)
                    else:
                        self._probed(probes)
            except Exception:
                if self.fail():
                    raise
            if ending is not None:
                raise ending
            self.here.losses.held.clear()
            return out

        if len(args) > 1:
            return (args[0], run, *args[2:]), kwargs
        return args, {**kwargs, "closure": run}

    def _probed(self, probes: Probes) -> None:
        """A point has been tried: what is bad there is explained there, and told of only if the step keeps it."""
        if probes.fault is None:
            with torch.no_grad():
                judged = judge(probes.optimizer, self.here.losses)
            if not judged.is_good:
                probes.fault = Fault(probes.optimizer, self.attempts(probes.optimizer), judged)
                probes.explained = self._explain(probes.fault)

    def _kept(self, probes: Probes) -> BaseException | None:
        """A step of probes has ended: if it has spoilt the weights, they are as before it again."""
        self.watched += 1
        with torch.no_grad():
            if probes.fault is None or not probes.spoilt():
                return None
            probes.put_back()
        return self._deliver(probes.explained, probes.fault)
