"""The guard: one look at the loss and the gradients of every optimizer step, before it moves a weight.

Nothing is done for an operation, and nothing is copied but the losses, which are numbers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import LBFGS

from whynan.capture.torch.interposition.wrappers import StepHooks, call_fenced, strip_own_frames
from whynan.capture.torch.names import Identities
from whynan.capture.torch.sinks.gradients import (
    Fault,
    Probes,
    Raised,
    StepEvidence,
    bad_parameters,
    count_infinities,
    device_of,
    gather_evidence,
    gradients_of,
    parameters_of,
)
from whynan.capture.torch.sinks.values_read import Observations, Read, bad_elements_held, is_nonfinite_error
from whynan.faults import is_program_error, report_internal_error
from whynan.training.cuda_graphs import GraphReplays, is_capturing
from whynan.training.listeners import History, ThreadState, TrainingListener
from whynan.training.patches import TrainingPatches
from whynan.training.read_back import Parts, PendingReads, ReadBack, StepStatistics, read_statistics
from whynan.training.step_checkpoint import StepCheckpoint
from whynan.training.updates import WatchDetectors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from torch import Tensor

    from whynan.source.decisions import Decision
    from whynan.training.evaluations import Evaluations
    from whynan.training.listeners import Entry

    class Agreement(Protocol):
        """What the ranks of a run make of a step; `is_bad`: it is left out on this one."""

        def __call__(self, optimizer: Any, *, is_bad: bool) -> BaseException | None: ...


class Guard:
    """Watches the optimizers of a program; `explain` is given a bad step, and `deliver` what it made of it.

    What `deliver` gives is raised at that step, before it has moved a weight.

    `late`: the program ran before it was watched. `marking` is told where the program stands: after a step, as the
    first module is called after that, as a backward begins, and what a loader gives. `after`: so many steps are not
    judged, but counted. `only`: the optimizers that are judged; all where there are none. `deferred`: the numbers of a
    step are read at the next one. `told` is given the numbers of each step. `detectors` look for silent damage.
    """

    def __init__(
        self,
        *,
        explain: Callable[[Fault], Any],
        deliver: Callable[[Any, Fault], BaseException | None],
        marking: TrainingListener,
        after: int = 0,
        only: Sequence[Any] = (),
        late: bool = True,
        deferred: bool = False,
        told: Callable[[Entry], None] | None = None,
        detectors: WatchDetectors | None = None,
    ) -> None:
        self._explain = explain
        self._deliver = deliver
        self._marking = marking
        self.here = ThreadState()
        self._hooks = StepHooks(self.fail)
        self._steps: Identities[int] = Identities()
        self._infinite: Identities[Tensor] = Identities()
        """How many infinities parameters held before their first step, as a mask does."""
        self.steps = 0
        """How many the optimizer has tried that has tried the most, be it there or not."""
        self.history = History(told)
        self.detectors = detectors or WatchDetectors(frozenset(), tuple)
        self.judging = not after
        """Off while the program is traced."""
        self.failed = False
        self.keeps_steps = False
        """Whether a step that is traced can be rewound, for a proof."""
        self.passed_over = 0
        """How many steps a loss scaler has skipped."""
        self.watched = 0
        """How many steps have been judged."""
        self._unjudged = after
        self._only = [id(o) for o in only]
        self._deferred = deferred
        self.pending = PendingReads(self._read_back)
        self.graph_replays = GraphReplays(self.here, lambda: self.on)
        self.evaluations: Evaluations | None = None
        """Who calls modules without gradients."""
        self.observations: Observations | None = None
        self._observed: Callable[[Fault], BaseException | None] | None = None
        self.agreed: Agreement | None = None
        """In a run of several ranks: what a step that is good by itself, or left out, is to end with."""
        self.decided: Callable[[Fault], BaseException | None] = lambda _: None  # the same, while it is traced
        self._entrances = TrainingPatches(self, marking, late=late)
        self.on = False

    def install(self) -> None:
        """Stand at the doors."""
        self.on = True
        self._hooks.install()
        self._hooks.before, self._hooks.after = self._before, self._after
        self._entrances.install()

    def remove(self) -> None:
        """Leave the doors."""
        self.on = False
        self._hooks.remove()
        self._entrances.remove()
        self.history.publish()

    def fail(self) -> bool:
        """An error of ours: warn once and watch no further; True where it is the program's own."""
        if is_program_error():
            return True
        self.on, self.failed = False, True
        report_internal_error()
        return False

    @property
    def is_watching(self) -> bool:
        """Whether what the program does now is watched."""
        return self.judging and not self.here.replaying and not is_capturing()

    def _judges(self, optimizer: Any) -> bool:
        return self.judging and self._watches(optimizer)

    def _watches(self, optimizer: Any) -> bool:
        return not self._only or id(optimizer) in self._only

    def attempts(self, optimizer: Any) -> int:
        """How many steps an optimizer has tried."""
        return self._steps.get(optimizer) or 0

    def device(self) -> str:
        """What the optimizers that have stepped compute on."""
        return device_of(self.optimizers())

    def _tries(self, optimizer: Any) -> None:
        attempts = self.attempts(optimizer) + 1
        self._steps.set(optimizer, attempts)
        self.steps = max(self.steps, attempts)
        if attempts == 1:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                for parameter in parameters_of(optimizer):
                    if (number := count_infinities(parameter)) is not None:
                        self._infinite.set(parameter, number)

    def parameters(self) -> list[Any]:
        """All that the optimizers move that have stepped."""
        return [p for optimizer in self.optimizers() for p in parameters_of(optimizer)]

    def observe(self, explain: Callable[[Fault], BaseException | None]) -> None:
        """Have bad numbers that are read looked into: `explain` is given each, as a fault; what it gives is raised."""
        self._observed = explain
        self.observations = Observations(self._on_bad_read, self._wants_numbers, self.fail)

    def _wants_numbers(self, made: Decision | None) -> bool:
        here = self.here
        if here.replaying or not self.on or here.depth or is_capturing():
            return here.replaying and here.arrive is not None and (made is not None or not here.deciding)
        # once there is a gradient, the step that is made of it is judged, unless the program decides that there is none
        return made is not None or (self.judging and not here.losses.held)

    def _on_bad_read(self, read: Read) -> BaseException | None:
        """The program has read a bad number."""
        judged = StepEvidence((read.bits,), (), bad_loss=True)
        if self.here.arrive is not None:
            self.here.seen = None if read.decision is not None else read.tensor
            self.here.arrive(judged)
        elif self._observed is not None:
            made, certain, at = read.decision, read.is_loss, read.place
            fault = Fault(None, self.steps + 1, judged, decision=made, certain=certain, read_at=at)
            return self._observed(fault) if self.judging else self.decided(fault)
        return None

    def exception_fault(self, error: BaseException) -> Fault | None:
        """What the program held as it raised, as a fault; None where nothing of it was bad."""
        held = bad_elements_held(error)
        if not (self.on and self.is_watching) or held is None:
            return None
        judged = StepEvidence((held[0],), (), bad_loss=True)
        raised = Raised(type(error), held[1], names_it=is_nonfinite_error(error))
        return Fault(None, self.steps + 1, judged, raised=raised)

    def optimizers(self) -> list[Any]:
        """Those that have tried a step, by their first one."""
        return self._steps.keys()

    def go_on(self) -> BaseException | None:
        """At a door of the program's: see `Evaluations.go_on`."""
        return None if self.evaluations is None or self.here.replaying else self.evaluations.go_on()

    def count_bad_parameters(self) -> int:
        """How many parameters of the optimizers watched are NaN or Inf now, but infinities that always were."""
        judged = (o for o in self.optimizers() if self._watches(o))
        bad = {id(p): p for optimizer in judged for p in bad_parameters(optimizer)}
        return sum(not self._always_were(p) for p in bad.values())

    def _always_were(self, parameter: Any) -> bool:
        """Whether a bad parameter held so many infinities before its first step, and no NaN."""
        before, now = self._infinite.get(parameter), count_infinities(parameter)
        return before is not None and now is not None and 0 < int(now) <= int(before)

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if self.here.replaying:
            if closure is None:
                return None
            # by itself, and then a step without one: what a closure leaves counts where the step is made of it
            closure()
            return args[:1], {name: value for name, value in kwargs.items() if name != "closure"}
        self.here.reached = True
        if (ending := call_fenced(self.fail, self.go_on)) is not None:
            raise ending
        begun = call_fenced(self.fail, self._begins, optimizer, closure, args, kwargs) if self.on else None
        if begun is None:
            begun = call_fenced(self.fail, self._agrees, optimizer)
        if isinstance(begun, BaseException):
            raise begun
        return begun

    def _agrees(self, optimizer: Any) -> BaseException | None:
        """A step is about to be made, or was skipped by a scaler: what another rank has it end with."""
        is_bad, self.here.is_left_out = self.here.is_left_out, False
        if self.agreed is None or not self.on or self.here.depth:
            return None
        return self.agreed(optimizer, is_bad=is_bad)

    def _begins(self, optimizer: Any, closure: Any, args: Any, kwargs: Any) -> Any:
        """A step begins: what is to be raised for it, or its arguments with a closure that is looked at."""
        if is_capturing():
            # known, and not counted: its weights are looked at as the watch ends
            self._steps.set(optimizer, self.attempts(optimizer))
            return None
        self._tries(optimizer)
        traced = self.keeps_steps and not self.judging and not self.here.depth
        losses = self.here.losses
        self.here.checkpoint = StepCheckpoint.take(optimizer, self.attempts(optimizer), losses) if traced else None
        if closure is not None:
            return self._with_closure(optimizer, closure, args, kwargs)
        return self._judge(optimizer) if self.judging else None

    def _after(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        ending = call_fenced(self.fail, self._ends, optimizer)
        if ending is not None:
            raise ending

    def _ends(self, optimizer: Any) -> BaseException | None:
        """A step has been made."""
        if self.here.depth:
            self.here.stepped = True
        if self.here.depth or not self.on or self.here.replaying or is_capturing():
            return None
        self._moved(optimizer)
        probes, self.here.probes = self.here.probes, None
        ending = None if probes is None else self._finish_probes(probes)
        if self.here.scaler is None:
            self.finish_step()
        return ending

    # -- what they see ------------------------------------------------------------------------------------------------

    def finish_step(self, scaler: Any = None) -> None:
        """A step has been made, or skipped: what led to it is over."""
        self.history.publish()
        self.here.losses.clear()
        self.here.model_wanted = True
        if self._unjudged:
            self._unjudged -= 1
            self.judging = not self._unjudged
        if self.judging:
            self._marking.record_step(scaler)

    def _moved(self, optimizer: Any) -> None:
        """A step has moved the weights."""
        if self._judges(optimizer):
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                self.detectors.end(optimizer, self.attempts(optimizer))

    def _judge(self, optimizer: Any, *, in_closure: bool = False) -> BaseException | None:
        if not self._judges(optimizer):
            return None
        if (ending := self.pending.read(optimizer)) is not None:
            return ending
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            gradients = gradients_of(optimizer)
            found_inf = getattr(optimizer, "found_inf", None)
            losses = self.here.losses
            parts = Parts([g for _, g in gradients], (*losses.held,), self.here.scaler, found_inf, (*losses.before,))
            step, judged = self.attempts(optimizer), None
            beside = not self.here.depth and self.here.together.step(optimizer)
            if not in_closure and not self.here.depth:
                # in a backward there may be a step for each parameter
                self.detectors.begin(optimizer, step)
            clipped = self.detectors.take_norm()
            if self._deferred:
                self.pending.add(ReadBack(optimizer, step, parts, gradients))
                self.watched += 1
                return None
            reading = read_statistics(parts)
            if not reading.passed:
                self.here.falling.record_step(reading.scale)
                self.watched += 1
                self.history.note(optimizer, step, reading.loss, reading.norm, reading.scale)
                if not reading.is_finite or reading.bad_loss(scaled=self.here.scaler is not None):
                    judged = gather_evidence(optimizer, self.here.losses)
                if judged is None or judged.is_good:
                    self.detectors.consume(optimizer, step, reading, clipped, losses)
        if reading.passed:
            return self.record_skip(self.here.scaler, optimizer, reading)
        if judged is None or judged.is_good:
            # finite gradients, whose norm may be none
            self.detectors.look()
            self._look_ahead(optimizer)
            return None
        return self.report_fault(Fault(optimizer, step, judged, beside=beside))

    def _look_ahead(self, optimizer: Any) -> None:
        """Explain what is bad for those that come after this one, before its step has moved a weight."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            found = self.here.together.bad_later_step(optimizer, self.here.losses, self._only)
        if found is not None:
            fault = Fault(found[0], self.attempts(found[0]) + 1, found[1], ahead=True)
            self.here.together.keep(fault, self._explain(fault))

    def _read_back(self, made: ReadBack) -> BaseException | None:
        """Read the numbers of a step that has been made."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            fault = self._lagging(made)
        return None if fault is None else self.report_fault(fault)

    def _lagging(self, made: ReadBack) -> Fault | None:
        """What was bad of a step that has been made, or that a fused optimizer has skipped for a loss scaler."""
        reading, falling = made.reading(), self.here.falling
        norm = None if reading.passed else reading.norm
        self.history.note(made.optimizer, made.step, reading.loss, norm, reading.scale, skipped=reading.passed)
        (falling.skip if reading.passed else falling.record_step)(reading.scale)
        self.passed_over += reading.passed
        lost = falling.scale_fall() if reading.passed else None
        bad = reading.bad_loss(scaled=made.scaled) or lost is not None
        if not bad and (reading.passed or not any(reading.bad)):
            return None
        return Fault(made.optimizer, made.step, made.judge_gradients(reading), falling.on_end, lost, lag=1)

    def report_fault(self, fault: Fault) -> BaseException | None:
        """A step is bad: have it explained, and told of."""
        self.history.publish()
        known = self.here.together.explained(fault)
        return self._deliver(self._explain(fault) if known is None else known[1], fault)

    def record_skip(self, scaler: Any, optimizer: Any, reading: StepStatistics | None = None) -> BaseException | None:
        """A scaler has skipped a step, as it may; but not for ever, and not for a loss that is NaN."""
        if not self.here.reached:
            self._tries(optimizer)
        step, ending, judged = self.attempts(optimizer), None, None
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            reading = reading or read_statistics(
                Parts([], self.here.losses.held, scaler, before=self.here.losses.before)
            )
            if self._watches(optimizer):
                self.history.note(optimizer, step, reading.loss, None, reading.scale, skipped=True)
            self.here.falling.skip(reading.scale)
            self.passed_over += 1
            lost = self.here.falling.scale_fall()
            if self.judging and (lost is not None or reading.bad_loss(scaled=True)):
                judged = gather_evidence(optimizer, self.here.losses)
        if judged is not None and not judged.is_good:
            ending = self.report_fault(Fault(optimizer, step, judged, self.here.falling.on_end, lost))
            self.here.falling.forget()
        if not self.here.reached:
            ending = ending or self._agrees(optimizer)
        if ending is None and not self.here.reached:
            self.finish_step(scaler)
        return ending

    def _with_closure(self, optimizer: Any, closure: Any, args: Any, kwargs: Any) -> Any:
        """The closure of a step, looked at when it has run: before the weights move, but for those that probe."""
        probes = Probes(optimizer) if isinstance(optimizer, LBFGS) and self.is_watching else None
        self.here.probes = probes

        @functools.wraps(closure)
        def run() -> Any:
            try:
                out = closure()
            except BaseException as error:
                strip_own_frames(error)
                raise
            ending = call_fenced(self.fail, self._evaluated, optimizer, probes)
            if ending is not None:
                raise ending
            return out

        return ((args[0], run, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": run})

    def _evaluated(self, optimizer: Any, probes: Probes | None) -> BaseException | None:
        """The closure of a step has run."""
        ending = None
        if self.here.checkpoint is not None:
            self.here.checkpoint.evaluate(self.here.losses)
        if self.on and self.is_watching:
            if probes is None:
                ending = self._judge(optimizer, in_closure=True) or self._agrees(optimizer)
            elif probes.begin() and self._judges(optimizer):
                ending = self._judge_first_point(optimizer, probes)
            else:
                self._probed(probes)
        if ending is None:
            self.here.losses.clear()
        return ending

    def _judge_first_point(self, optimizer: Any, probes: Probes) -> BaseException | None:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            judged = gather_evidence(optimizer, self.here.losses)
        probes.is_told = not judged.is_good
        return self.report_fault(Fault(optimizer, self.attempts(optimizer), judged)) if probes.is_told else None

    def _probed(self, probes: Probes) -> None:
        """A point has been tried: what is bad there is explained there, and told of only if the step keeps it."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            fault = probes.first_fault(self.here.losses, self.attempts(probes.optimizer))
        if fault is not None:
            probes.explained = self._explain(fault)

    def _finish_probes(self, probes: Probes) -> BaseException | None:
        """A step of probes has ended: where it has spoilt the weights and is not to be, they are as before it again."""
        self.watched += 1
        if probes.fault is None or not probes.spoilt_weights():
            return None
        ending = None if probes.is_told else self._deliver(probes.explained, probes.fault)
        if ending is not None or self.here.is_left_out:
            probes.restore_weights()
        return ending
