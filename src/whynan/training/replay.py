"""The replay of one step from a checkpoint, everything put back after it; and the edited steps that follow."""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import random
import sys
import time
import weakref
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.ranks import CollectiveRefused, is_one_of_several
from whynan.capture.torch.interposition.compiled import last_script_graph
from whynan.capture.torch.interposition.wrappers import StepHooks, install_door
from whynan.capture.torch.sinks.gradients import (
    Fault,
    Losses,
    StepEvidence,
    bad_parameters,
    gather_evidence,
    is_finite,
    is_zero,
    parameters_of,
)
from whynan.capture.torch.sinks.values_read import ReadLog, bad_elements_held
from whynan.errors import NestedTraceError
from whynan.faults import is_program_error
from whynan.replay.carried_state import assign
from whynan.replay.checkpoint import stack
from whynan.replay.live_objects import own_modules
from whynan.replay.mutable_state import Gradients, ObjectSnapshot
from whynan.replay.open_files import unpatched_modules
from whynan.replay.plan import TooLong, UnseenTurn
from whynan.replay.sandbox import OutsideAccess, block_side_effects, outside_event_loop
from whynan.replay.snapshot import ScalerState, context_of, restore, rng, same_bits
from whynan.replay.time_limit import TimeLimit, obstacle
from whynan.replay.undo_log import TooMuch, UndoLog
from whynan.source.text import shortened
from whynan.training.listeners import InGraph, TakenByHand

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator
    from contextlib import AbstractContextManager

    from torch import Tensor

    from whynan.capture.torch.interposition.collective_calls import CallLog
    from whynan.replay.plan import ReplayPlan
    from whynan.training.collective_replay import Ensemble
    from whynan.training.guard import Guard


# -- One step of the program once more, from a mark, and everything put back as if it had not been ---------------------
#
# The code is the user's own, from its source; the values that it begins with are those of the mark, by reference.


_NUMBERS: Final = 1 << 16
"""A tensor of so many elements may be one that a program gathers numbers in."""
_AT_LEAST: Final = 60.0
_TIMES: Final = 100.0
"""A step that is traced may take so many times as long as the program's own."""
_TIMES_WHOLE: Final = 4.0
"""The same of a whole program, which was traced before."""


class ReplayArrival(BaseException):
    """The replay has come to the step that was bad; the program may catch every ``Exception``."""


_MISSING: Final = object()


def _next(real: Any, begun_before: set[int], iterator: Any, *default: Any) -> Any:
    """Python's own, but for iterators that were there before the replay."""
    if id(iterator) in begun_before:
        raise TakenByHand
    return real(iterator, *default)


def _unset(names: dict[str, Any], before: Any) -> None:
    if before is _MISSING:
        names.pop("next", None)
    else:
        names["next"] = before


@dataclass(frozen=True)
class ReplayOutcome:
    """How a replay went: what it came to, or why it did not."""

    judged: StepEvidence | None
    why: str = ""
    shared: bool = False
    """Whether it is of this rank's part of what several have summed."""
    ended: bool = False
    """Whether an exception of the program's own, or what looks at it, has ended it on its way."""
    log: ReadLog = dataclasses.field(default_factory=ReadLog)
    uncalled: int = 0
    """How many collectives of the step it has not come to."""
    began_bad: bool = False
    """Whether the program held a NaN already where it began, in a number, or some, that may be read later.

    Of a step it may be what the step has left.
    """


def goes_past_steps(way: ReplayPlan, fault: Fault) -> bool:
    """Whether a way leads from the program's start, past other steps if there are any, to an optimizer made anew."""
    return way.is_whole and fault.optimizer is not None


def compiles() -> bool:
    """Whether anything of the program may have been compiled, or fused by TorchScript."""
    return last_script_graph() is not None or _runs_dynamo()


def _runs_dynamo() -> bool:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"].get("total"))


def replay(
    way: ReplayPlan,
    guard: Guard,
    fault: Fault,
    region: Callable[[], AbstractContextManager[object]],
    *,
    eager: bool = False,
    onward: TrialSteps | None = None,
) -> ReplayOutcome:
    """Run a way, in a region, up to the step that was bad; nothing of it stays.

    `region`: what looks at the operations meanwhile. `eager`: run what was compiled or fused as it is written.
    `onward`: what looks at the step as it is made, and at further ones; without it the replay ends before it.
    """
    endless = obstacle()
    if endless is not None:
        return ReplayOutcome(None, f"it {endless}")
    parameters = guard.parameters() if fault.optimizer is None else fault.parameters()
    begun = rng()
    frames = [*(fault.raised.frames if fault.raised else ()), *stack(libraries=True)]
    modules = own_modules()
    seen = [*(names for f in frames for names in (f.f_locals, f.f_globals)), *modules, *way.rng.context.values()]
    roots = [fault.optimizer, *way.roots(), *seen]
    contents = ObjectSnapshot(roots)
    begun_before = {id(iterator) for iterator in contents.iterators}
    parameters = [*parameters, *_with_bad_gradients(contents.tensors, parameters)]
    gradients = Gradients.snapshot(parameters)
    hooks = StepHooks(guard.fail)
    losses, guard.here.losses = guard.here.losses, Losses()
    guard.here.replaying = True
    inside, guard.here.inside = guard.here.inside, False
    reached: list[StepEvidence] = []
    failed = arrived = False
    refused: list[OutsideAccess] = []
    left: list[object] = []
    """What a program leaves behind: the region is to see that it is held."""
    undo = UndoLog()
    passed: dict[Any, None] = {}
    """The optimizers, made anew, that have made steps before what is read."""
    steps: Counter[Any] = Counter()
    """How many each optimizer has made, where the program is run from its start to a later one."""
    from_start = goes_past_steps(way, fault)
    exchanged: CallLog | None = None
    log = ReadLog()

    def note_evidence(optimizer: Any) -> None:
        if not reached and not refused:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                reached.append(gather_evidence(optimizer, guard.here.losses))

    def arrive(optimizer: Any = fault.optimizer) -> None:
        note_evidence(optimizer)
        raise ReplayArrival

    def note_mended() -> None:
        """An edited program has come past where a bad number was read, or held as it raised."""
        if onward is not None and onward.first is None and not fault.whole and not reached and not refused:
            reached.append(StepEvidence((), (), bad_loss=False))

    def read(judged: StepEvidence) -> None:
        nonlocal why
        if reads and way.is_whole and onward is None and not _have_same_weights(passed, guard.optimizers()):
            # one NaN is like another
            why = "with other weights than in the run"
            raise ReplayArrival
        if onward is not None and onward.first is not None:
            if not onward.over and not refused:
                onward.stop_at_decision()
        elif not reached and not refused:
            reached.append(judged)
        raise ReplayArrival

    def goes_on(going: TrialSteps, optimizer: Any) -> None:
        """Past the decision, or the step that was bad: it is made, and further ones are."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            makes = not going.over and not refused and going.begin_step(optimizer, guard.here.losses, undo)
        if not makes:
            raise ReplayArrival
        guard.here.losses.clear()
        if guard.observations is not None:
            guard.here.deciding, guard.here.arrive = True, read

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if from_start and (onward is None or onward.first is None):
            steps[optimizer] += 1
            guard.here.losses.clear()
        elif onward is not None and onward.first is not None and not onward.over:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                onward.end_step(optimizer)
            if onward.over:
                raise ReplayArrival
        elif fault.made and optimizer is fault.optimizer:
            raise ReplayArrival

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if onward is not None and onward.takes(optimizer) and not guard.here.depth and not contents.exceeded:
            goes_on(onward, optimizer)
            return
        if fault.whole:
            return
        if from_start:
            # it is another object, which the program has made anew
            tries = steps[optimizer] + 1
            came_as_far = tries == fault.step and max([tries, *steps.values()]) == max(guard.steps, fault.step)
            if came_as_far and _moves_alike(optimizer, fault.optimizer):
                if onward is None:
                    arrive(optimizer)
                else:
                    goes_on(onward, optimizer)
            elif onward is not None:
                with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                    goes = onward.pass_step(optimizer, guard.here.losses)
                if not goes:
                    raise ReplayArrival
            return
        if fault.optimizer is None and fault.decision is None:
            if way.is_whole:
                # what is read behind it is yet to come
                passed[optimizer] = None
                return
            # what was read, or held, is not met any more
            note_mended()
            raise ReplayArrival
        if fault.made and optimizer is fault.optimizer and not reached and not refused:
            note_evidence(optimizer)
            return
        if fault.optimizer is not None and optimizer is not fault.optimizer and fault.ahead and not reached:
            # it would step after this one, on the same gradients
            fault.optimizer.step()
        arrive(fault.optimizer or optimizer)

    def skips(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        out = scaled(scaler, optimizer, *args, **kwargs)
        if fault.decision is None and not fault.whole and (onward is None or onward.first is None):
            arrive()
        return out

    why = "it ended before it came to the step"
    reads = fault.optimizer is None and fault.raised is None and not fault.whole
    moved = [(slot, slot.read()) for slot, _ in way.moving]
    began_bad = False
    scaler = None if way.scaler is None else ScalerState(way.scaler.scaler)
    try:
        try:
            run = way.build_callable(lambda: bool(reached or refused or (onward is not None and onward.over)))
        except Exception as error:
            return ReplayOutcome(None, f"it cannot be made ({error})")
        # a `with` around the mark is entered again, and leaves behind what was before it; one that an exception has
        # left is not, where a loop is in it
        switches = way.rng.switches if fault.raised or way.differentiates_as_then else begun.switches
        restore(dataclasses.replace(way.rng, switches=switches, inference=begun.inference))
        if guard.here.depth:
            torch._C._set_grad_enabled(guard.here.differentiates)
        if way.scaler is not None:
            way.scaler.restore()
        assign(way.moving)
        if onward is None and not fault.whole:
            # of a trial nobody asks
            anew = {*way.bound_anew(frames), *(id(value) for _, value in moved)}
            began_bad = _holds_nan(t for t in contents.tensors if id(t) not in anew)
        for parameter in parameters:
            parameter.grad = None if parameter.grad is None else torch.zeros_like(parameter)
        with ExitStack() as entered:
            limit = TimeLimit(_seconds(way), lambda what: held.refuse(what))
            limit.start()
            entered.callback(_retry_once, limit.end)
            held = entered.enter_context(block_side_effects(roots))
            refused = held.refused
            if way.is_whole and reads:
                entered.enter_context(_without_entropy(held.refuse))
            entered.enter_context(outside_event_loop())
            if way.is_whole:
                entered.enter_context(unpatched_modules())
                entered.callback(_finalize, left, set(_finalizers()))
            undo.__enter__()
            entered.callback(_retry_once, undo.restore)
            entered.callback(undo.leave)
            if is_one_of_several():
                from whynan.training.collective_replay import replayed_collectives

                exchanged = entered.enter_context(replayed_collectives(way.began, undo.keep, whole=way.is_whole))
            if eager:
                entered.enter_context(torch.jit.optimized_execution(False))
                if _runs_dynamo():
                    entered.enter_context(torch.compiler.set_stance("force_eager"))
            elif compiles():
                # what was compiled writes without operators
                for tensor in contents.tensors:
                    undo.keep(tensor)
            entered.enter_context(region())
            entered.callback(hooks.remove)
            scaled = torch.amp.GradScaler.step
            entered.callback(setattr, torch.amp.GradScaler, "step", scaled)
            hooks.install()
            hooks.before, hooks.after = before, after
            for names in {id(n): n for n in (*(f.f_globals for f in frames), *modules)}.values():
                entered.callback(_unset, names, names.get("next", _MISSING))
                names["next"] = functools.partial(_next, names.get("next", next), begun_before)
            torch.amp.GradScaler.step = skips  # type: ignore[method-assign]
            loader: Any = torch.utils.data.DataLoader
            entered.callback(setattr, loader, "__iter__", loader.__iter__)
            loader.__iter__ = functools.partialmethod(_iterate_here, loader.__iter__, get_ident())
            guard.here.arrive = read if reads else None
            if guard.observations is not None and (reads or fault.whole):
                guard.observations.log = log
                if not guard.on:
                    guard.observations.install(lambda *door: entered.callback(install_door(*door)) and None)
            if guard.observations is not None and fault.decision is not None:
                guard.here.deciding = True
                guard.observations.expected = fault.judged.losses[0]
            # before anything is put back
            entered.callback(limit.disarm)
            try:
                left.append(context_of(way.rng).run(run))
                note_mended()
                if way.is_whole and not reached and not refused:
                    reached.append(StepEvidence((), (), bad_loss=False))
            except ReplayArrival:
                arrived = True
            except OutsideAccess:
                pass
            except TakenByHand:
                why = "it takes from an iterator by hand, which cannot be rewound"
            except InGraph:
                why = "it runs in a CUDA graph, whose writes cannot be put back"
            except TooMuch:
                why = "it writes more memory than can be kept meanwhile"
            except UnseenTurn:
                note_mended()
                why = "it comes to a turn of a loop that was not seen"
            except TooLong:
                why = "it goes round a loop"
            except CollectiveRefused as collective:
                why = collective.why
            except SystemExit:
                if is_program_error():
                    raise
                why = "it ends the program"
            except NestedTraceError:
                why = "it begins with the watch itself: what led to the step has returned"
            except Exception as error:
                if is_program_error():
                    raise
                failed, why = True, f"it raises {type(error).__name__}: {shortened(str(error), 120)}"
                bad = bad_elements_held(error) if fault.raised and fault.raised.kind is type(error) else None
                if bad is not None:
                    reached.append(StepEvidence((bad[0],), (), bad_loss=True))
                    guard.here.raised = error
            if onward is not None and onward.first is not None and not (failed and fault.ends_itself):
                reached.append(onward.first)
            if refused and not reached:
                file, number = refused[0].where
                why = f"it {refused[0].what} at {os.path.basename(file)}:{number}"
    finally:
        with ExitStack() as last:
            last.callback(_reset_guard, guard, losses, inside=inside)
            last.callback(restore, begun)
            last.callback(assign, moved)
            last.callback(_retry_once, contents.restore)
            last.callback(_retry_once, gradients.restore)
            if scaler is not None:
                last.callback(scaler.restore)
    if not reached:
        return ReplayOutcome(
            None,
            why,
            ended=(failed or arrived) and not refused,
            uncalled=0 if exchanged is None else exchanged.uncalled,
        )
    why = why if failed else ""
    if exchanged is None:
        return ReplayOutcome(reached[0], why, log=log, began_bad=began_bad)
    return ReplayOutcome(reached[0], why, shared=exchanged.shared, log=log, uncalled=exchanged.uncalled)


def _iterate_here(loader: Any, own: Callable[[Any], Iterator[Any]], thread: int) -> Iterator[Any]:
    """The batches of a loader that takes its samples by their indices; workers would be processes of their own."""
    workers = loader.num_workers, loader.timeout
    if not workers[0] or get_ident() != thread or isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return own(loader)
    loader.num_workers, loader.timeout = 0, 0
    try:
        return loader._get_iterator()
    finally:
        loader.num_workers, loader.timeout = workers


def _moves_alike(optimizer: Any, known: Any) -> bool:
    """Whether an optimizer may be another one made anew: both are of one kind, and so are their parameters."""
    shapes, theirs = ([p.shape for p in parameters_of(each)] for each in (optimizer, known))
    return type(optimizer) is type(known) and shapes == theirs


def _have_same_weights(made: Iterable[Any], known: Iterable[Any]) -> bool:
    """Whether some optimizers move the same numbers, bit for bit, as those of the run."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        mine, theirs = ([p for optimizer in those for p in parameters_of(optimizer)] for those in (made, known))
        return same_bits(mine, theirs)


@contextmanager
def _without_entropy(refuse: Callable[[str], object]) -> Generator[None]:
    """Refuse what the system draws: it is another number in each run."""

    def refused(size: int) -> bytes:
        refuse("draws numbers that no seed gives again")
        return bytes(size)

    places = [(os, "urandom"), (random, "_urandom")]
    held = [(place, name, getattr(place, name)) for place, name in places]
    try:
        for place, name in places:
            setattr(place, name, refused)
        yield
    finally:
        for place, name, known in held:
            setattr(place, name, known)


def _with_bad_gradients(tensors: Iterable[Tensor], known: Collection[Tensor]) -> list[Tensor]:
    """The leaves, but for the known ones, whose gradient is bad: as far as is known, the step has left it so."""
    apart = {id(tensor) for tensor in known}
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        leaves = (t for t in tensors if t.is_leaf and t.requires_grad and id(t) not in apart)
        return [t for t in leaves if t.grad is not None and not is_finite(t.grad)]


def _holds_nan(tensors: Iterable[Tensor]) -> bool:
    """Whether some of the small tensors hold a NaN: what is gathered or written down from step to step."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        small = (t for t in tensors if t.layout is torch.strided and t.numel() <= _NUMBERS)
        return any(not is_finite(t) and bool(torch.isnan(t).any()) for t in small if t.is_floating_point())


def _finalizers() -> dict[Any, Any]:
    registry: dict[Any, Any] = vars(weakref.finalize)["_registry"]
    return registry


def _finalize(left: list[object], before: set[Any]) -> None:
    """Let go of what a program has made, while nothing of it reaches the outside; its exit handlers do not run."""
    left.clear()
    for made in _finalizers().keys() - before:
        made.detach()
    gc.collect()


def _retry_once(put_back: Callable[[], None]) -> None:
    """Put back what is the program's, if need be a second time."""
    try:
        put_back()
    except Exception:
        put_back()
        raise


@functools.lru_cache(maxsize=16)
def _taken(began: float) -> float:
    """Seconds from a mark to the first replay from it; those of a proof do not count."""
    return time.monotonic() - began


def _seconds(way: ReplayPlan) -> float:
    """How long a replay may take: the program has come from there to the step in a part of that."""
    taken = _taken(way.began)
    alone = 2.0 + _TIMES_WHOLE * taken if way.is_whole else _AT_LEAST + _TIMES * taken
    together = _ensemble()
    return alone if together is None else min(alone, together.seconds)


def _ensemble() -> Ensemble | None:
    """What ranks need that make the replay together; None of one that this process makes by itself."""
    if not is_one_of_several():
        return None
    from whynan.training.collective_replay import active_ensemble

    return active_ensemble()


def _is_over_anywhere(*, here: bool) -> bool:
    """Whether an edited program is to make no more steps, on this rank or on another that makes them too."""
    together = _ensemble()
    return here if together is None else together.agree(over=here)


def _reset_guard(guard: Guard, losses: Losses, *, inside: bool) -> None:
    """What the guard knew before a replay, it knows again."""
    here = guard.here
    here.losses, here.replaying, here.inside, here.arrive, here.fresh = losses, False, inside, None, []
    here.deciding = False
    if guard.observations is not None:
        guard.observations.expected = guard.observations.log = None


# -- The steps that an edited program makes from its bad step on: whether they and what they leave behind are finite


FURTHER: Final = 10
"""So many steps are made after the one that was bad."""


class TrialSteps:
    """The steps of one trial, the bad one first; `seconds`: of processor time that the further ones may take."""

    def __init__(self, fault: Fault, seconds: float) -> None:
        self.first: StepEvidence | None = None
        """What the step that was bad is made of now."""
        self.steps = 0
        """How many were made."""
        self.bad: str | None = None
        """What became bad after that step."""
        self.over = False
        self.used = 0.0
        self.most = FURTHER
        self.later: list[float] = []
        """The last loss of each step of the same optimizer after it, times the scale of a loss scaler."""
        self.learns = is_one_of_several()
        """Whether an element of a gradient was other than 0 in one of them; of several ranks none knows all of it."""
        self._fault = fault
        self._seconds = seconds
        self._began = 0.0
        self._made: Counter[int] = Counter()
        self._bad_before: frozenset[int] = frozenset()

    @property
    def further(self) -> int:
        """How many steps were made after the first."""
        return max(0, self.steps - 1)

    def pass_step(self, optimizer: Any, losses: Losses) -> bool:
        """A step ahead of that which was bad is about to be made, too; whether it is worth going on to that."""
        del optimizer, losses
        return self.first is None

    def takes(self, optimizer: Any) -> bool:
        """Whether a step of an optimizer is one of them."""
        return self.first is not None or self._fault.ends_itself or optimizer is self._fault.optimizer

    def begin_step(self, optimizer: Any, losses: Losses, undo: UndoLog) -> bool:
        """A step is about to be made; whether it is to be made, too."""
        judged = gather_evidence(optimizer, losses)
        if self.first is None:
            self.first, self._began = judged, time.process_time()
            self.over = not judged.is_good
        elif judged.bad_loss or (judged.bad and not getattr(optimizer, "found_inf", None)):
            what = [*(["the loss"] if judged.bad_loss else []), *(["the gradients"] if judged.bad else [])]
            self.stop_at(f"with it step {self._step(optimizer)} is bad: NaN or Inf in {' and '.join(what)}")
        gradients = (parameter.grad for parameter in parameters_of(optimizer))
        self.learns = self.learns or not all(gradient is None or is_zero(gradient) for gradient in gradients)
        self.used = time.process_time() - self._began
        self.over = self.over or self.steps > self.most or (self.steps > 0 and self.used > self._seconds)
        self.over = _is_over_anywhere(here=self.over)
        if not self.over:
            if self.steps and optimizer is self._fault.optimizer:
                self.later += judged.numbers[-1:]
            # what writes without operators is put back too
            for tensor in (*parameters_of(optimizer), *(state for _, state in _states(optimizer))):
                undo.keep(tensor)
            self._bad_before = frozenset(id(state) for _, state in _states(optimizer) if not is_finite(state))
        return not self.over

    def end_step(self, optimizer: Any) -> None:
        """A step has been made."""
        state = next((n for n, s in _states(optimizer) if id(s) not in self._bad_before and not is_finite(s)), None)
        if bad_parameters(optimizer):
            self.stop_at(f"with it step {self._step(optimizer)} leaves NaN or Inf in the weights")
        elif state is not None:
            self.stop_at(f"with it step {self._step(optimizer)} leaves NaN or Inf in {state} of the optimizer")
        self.steps += 1
        self._made[id(optimizer)] += 1
        self.used = time.process_time() - self._began
        self.over = _is_over_anywhere(here=self.over)

    def stop_at(self, bad: str) -> None:
        """Something is bad."""
        self.bad, self.over = bad, True

    def stop_at_decision(self) -> None:
        """The program has decided on a number that is NaN or Inf."""
        step = self._fault.step + max(self._made.values(), default=0)
        self.stop_at(f"with it step {step} is bad: the program decides on a number that is NaN or Inf")

    def _step(self, optimizer: Any) -> int:
        return self._fault.step + self._made[id(optimizer)]


def _states(optimizer: Any) -> list[tuple[str, Tensor]]:
    """What an optimizer keeps of each element of its parameters, with its name."""
    state: Any = getattr(optimizer, "state", {})
    return [
        (str(name), value)
        for parameter in parameters_of(optimizer)
        for name, value in state.get(parameter, {}).items()
        if isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.is_floating_point()
    ]
