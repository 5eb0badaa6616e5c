"""One step of the program once more, from a mark, and everything put back as if it had not been.

The code is the user's own, from its source; the values that it begins with are those of the mark, by reference.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import sys
import types
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import torch

from whynan.capture.interruptions import theirs
from whynan.capture.outside import Outside, held_back
from whynan.capture.torch.contents import Contents, Gradients
from whynan.capture.torch.hooks import StepHooks
from whynan.capture.torch.judging import Fault, Judged, Losses, judge
from whynan.capture.torch.marks import stack
from whynan.capture.torch.moving import put
from whynan.capture.torch.observed import held_by
from whynan.capture.torch.standing import InGraph, TakenByHand
from whynan.capture.torch.state import Rng, ScalerState, restore, rng
from whynan.capture.torch.undo import TooMuch, Undo
from whynan.errors import NestedTraceError
from whynan.source.endings import GOES_ON, ending
from whynan.source.recompiled import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

    from whynan.capture.torch.loaders import Came
    from whynan.capture.torch.marks import Mark, Standing
    from whynan.capture.torch.moving import Slot
    from whynan.capture.torch.watch import Guard

_MOST_TURNS: Final = 64


class Reached(BaseException):
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


class TooLong(BaseException):
    """The replay has gone round a loop so often that it will not come to the step."""


class Way(Protocol):
    """One way to run what led to a step again."""

    @property
    def kind(self) -> Literal["loop", "step"]:
        """What is run again: a part of the program's loop, or its step function."""
        ...

    @property
    def where(self) -> str:
        """The same for a reader: ``from line 12 of train``."""
        ...

    @property
    def rng(self) -> Rng:
        """The generators of random numbers as they were at its beginning."""
        ...

    @property
    def scaler(self) -> ScalerState | None:
        """The loss scaler as it was then, if there is one."""
        ...

    @property
    def moving(self) -> list[tuple[Slot, Any]]:
        """What moves from step to step, as it was then."""
        ...

    @property
    def batches(self) -> list[tuple[Any, Came]]:
        """What loaders have given since, and where that came from."""
        ...

    def roots(self) -> list[Any]:
        """What its code can change."""
        ...

    def prepared(self, is_over: Callable[[], bool]) -> Callable[[], object]:
        """Its code, with the values that it begins with; raises where it cannot be made.

        `is_over`: whether it has come to its end, which the program may have caught.
        """
        ...


@dataclass(frozen=True)
class Tailed:
    """From a mark, in one of the frames that were there at it."""

    mark: Mark
    standing: Standing
    kind: Literal["loop"] = "loop"

    @property
    def where(self) -> str:
        statements = self.standing.tail.statements
        line = f"line {statements[0].lineno} of " if statements else "the end of "
        return f"from {line}{self.standing.frame.f_code.co_qualname}"

    @property
    def rng(self) -> Rng:
        return self.mark.rng

    @property
    def scaler(self) -> ScalerState | None:
        return self.mark.scaler

    @property
    def moving(self) -> list[tuple[Slot, Any]]:
        return self.mark.moving

    @property
    def batches(self) -> list[tuple[Any, Came]]:
        return self.mark.batches

    def roots(self) -> list[Any]:
        return [self.standing.values, self.standing.frame.f_locals, self.standing.frame.f_globals]

    def prepared(self, is_over: Callable[[], bool]) -> Callable[[], object]:
        return _prepared(self, is_over)


@dataclass(frozen=True)
class Called:
    """The program's step function, called with the same arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    rng: Rng
    scaler: ScalerState | None = None
    moving: list[tuple[Slot, Any]] = field(default_factory=list)
    batches: list[tuple[Any, Came]] = field(default_factory=list)
    kind: Literal["step"] = "step"

    @property
    def where(self) -> str:
        return f"by calling {getattr(self.function, '__qualname__', type(self.function).__name__)}"

    def roots(self) -> list[Any]:
        return [self.function, self.args, self.kwargs]

    def prepared(self, is_over: Callable[[], bool]) -> Callable[[], object]:
        del is_over
        return functools.partial(self.function, *self.args, **self.kwargs)


@dataclass(frozen=True)
class Outcome:
    """How a replay went: what it came to, or why it did not."""

    judged: Judged | None
    why: str = ""


def ways(marks: list[Mark], left: tuple[FrameType, ...] = ()) -> Iterator[Tailed]:
    """The ways to what led to here, the best first: what runs the most of it, and least else.

    `left`: the frames that an exception has left, where the program is over.
    """
    alive = [*left, *stack(libraries=True)]
    for mark in marks:
        mark.turn()
        standing = next((s for s in mark.frames if any(s.frame is frame for frame in alive)), None)
        if standing is not None:
            yield Tailed(mark, standing)


def compiles() -> bool:
    """Whether anything of the program may have been compiled."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"].get("total"))


def replay(
    way: Way,
    guard: Guard,
    fault: Fault,
    region: Callable[[], AbstractContextManager[object]],
    *,
    eager: bool = False,
) -> Outcome:
    """Run a way, in a region, up to the step that was bad; nothing of it stays.

    `region`: what looks at the operations meanwhile. `eager`: run what was compiled as it is written.
    """
    parameters = guard.parameters() if fault.optimizer is None else fault.parameters()
    begun = rng()
    frames = [*(fault.raised.frames if fault.raised else ()), *stack(libraries=True)]
    contents = Contents([*way.roots(), *(names for f in frames for names in (f.f_locals, f.f_globals))])
    begun_before = {id(iterator) for iterator in contents.iterators}
    gradients = Gradients.taken(parameters)
    hooks = StepHooks(guard.fail)
    losses, guard.here.losses = guard.here.losses, Losses()
    guard.here.replaying = True
    inside, guard.here.inside = guard.here.inside, False
    reached: list[Judged] = []
    refused: list[Outside] = []

    def arrive() -> None:
        if not reached and not refused:
            with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                reached.append(judge(fault.optimizer, guard.here.losses))
        raise Reached

    def read(judged: Judged) -> None:
        if not reached and not refused:
            reached.append(judged)
        raise Reached

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if fault.optimizer is None:
            # what was read, or held, is not met any more
            raise Reached
        if optimizer is not fault.optimizer and fault.ahead and not reached:
            # it would step after this one, on the same gradients
            fault.optimizer.step()
        arrive()

    def skips(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        scaled(scaler, optimizer, *args, **kwargs)
        arrive()

    why = "it ended before it came to the step"
    moved = [(slot, slot.read()) for slot, _ in way.moving]
    scaler = None if way.scaler is None else ScalerState(way.scaler.scaler)
    try:
        try:
            run = way.prepared(lambda: bool(reached or refused))
        except Exception as error:
            return Outcome(None, f"it cannot be made ({error})")
        # a `with` around the mark is entered again, and leaves behind what was before it
        restore(dataclasses.replace(way.rng, switches=begun.switches, inference=begun.inference))
        if guard.here.depth:
            torch._C._set_grad_enabled(guard.here.differentiates)
        if way.scaler is not None:
            way.scaler.put_back()
        put(way.moving)
        for parameter in parameters:
            parameter.grad = None if parameter.grad is None else torch.zeros_like(parameter)
        with ExitStack() as entered:
            refused = entered.enter_context(held_back()).refused
            undo = entered.enter_context(Undo())
            if eager:
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
            hooks.before = before
            for names in {id(f.f_globals): f.f_globals for f in frames}.values():
                entered.callback(_unset, names, names.get("next", _MISSING))
                names["next"] = functools.partial(_next, names.get("next", next), begun_before)
            torch.amp.GradScaler.step = skips  # type: ignore[method-assign]
            guard.here.arrive = read if fault.optimizer is None and fault.raised is None else None
            try:
                run()
            except (Reached, Outside):
                pass
            except TakenByHand:
                why = "it takes from an iterator by hand, which cannot be rewound"
            except InGraph:
                why = "it runs in a CUDA graph, whose writes cannot be put back"
            except TooMuch:
                why = "it writes more memory than can be kept meanwhile"
            except TooLong:
                why = "it goes round a loop"
            except SystemExit:
                if theirs():
                    raise
                why = "it ends the program"
            except NestedTraceError:
                why = "it begins with the watch itself: what led to the step has returned"
            except Exception as error:
                if theirs():
                    raise
                why = f"it raises {type(error).__name__}: {error}"
                held = held_by(error) if fault.raised and fault.raised.kind is type(error) else None
                if held is not None:
                    reached.append(Judged((held[0],), (), bad_loss=True))
            if refused and not reached:
                file, number = refused[0].where
                why = f"it {refused[0].what} at {os.path.basename(file)}:{number}"
    finally:
        with ExitStack() as last:
            last.callback(_leave, guard, losses, inside=inside)
            last.callback(restore, begun)
            last.callback(put, moved)
            last.callback(contents.put_back)
            last.callback(gradients.put_back)
            if scaler is not None:
                last.callback(scaler.put_back)
    return Outcome(reached[0]) if reached else Outcome(None, why)


def _leave(guard: Guard, losses: Losses, *, inside: bool) -> None:
    """What the guard knew before a replay, it knows again."""
    here = guard.here
    here.losses, here.replaying, here.inside, here.arrive, here.fresh = losses, False, inside, None, []


def _prepared(way: Tailed, is_over: Callable[[], bool]) -> Callable[[], None]:
    """The code of a way, with the values that it begins with; raises ``ValueError`` where it cannot be made."""
    standing = way.standing
    frame = standing.frame
    tail = dataclasses.replace(standing.tail, statements=ending(standing.tail.statements))
    code = frame.f_code
    values = {**frame.f_locals, **standing.values}
    loops = ((k, loop) for k, loop in enumerate(tail.loops) if loop.items is not None)
    items: dict[str, Any] = {str(loop.items): _until(is_over, _items(way, k)) for k, loop in loops}
    items[GOES_ON] = lambda: not is_over()
    if code.co_name == "<module>":
        made = compiled(tail)

        def run_module() -> None:
            namespace = frame.f_globals
            saved = dict(namespace)
            namespace.update(values, **items)
            try:
                exec(made, namespace)
            finally:
                namespace.clear()
                namespace.update(saved)

        return run_module
    free = {name: values[name] for name in code.co_freevars if name in values}
    own = [n for n in (*code.co_varnames, *code.co_cellvars) if n in values and n not in free]
    # the first argument comes first: `super()` takes it
    names = [*dict.fromkeys(own), *items]
    made = compiled(tail, parameters=names, free=list(free))
    closure = tuple(types.CellType(free[name]) for name in made.co_freevars)
    function = types.FunctionType(made, frame.f_globals, code.co_name, None, closure)
    given = {**values, **items}
    return lambda: function(*(given[name] for name in made.co_varnames[: made.co_argcount]))


def _until(is_over: Callable[[], bool], items: Iterator[Any]) -> Iterator[Any]:
    for item in items:
        if is_over():
            return
        yield item


def _items(way: Tailed, k: int) -> Iterator[Any]:
    """What a loop around the mark has gone on to; the last once more where nobody saw it turn."""
    loop, turns = way.standing.tail.loops[k], way.standing.turns[k]
    rows: list[Any] = []
    batches = (batch for batch, _ in way.mark.batches)
    for turn in turns:
        if not turn.stale:
            rows.append(loop.item(turn.values))
            continue
        batch = next(batches, None)
        if batch is not None and loop.shape == "enumerate" and loop.targets[0] not in turn.stale:
            rows.append((turn.values[loop.targets[0]], batch))
        elif batch is not None and loop.shape != "enumerate":
            rows.append(batch)
        else:
            rows.append(loop.item(turn.values))
    if not rows and k == way.standing.goes_round():
        rows.append(loop.item(way.standing.values))
    return itertools.chain(rows, _again(rows))


def _again(rows: list[Any]) -> Iterator[Any]:
    for _ in range(_MOST_TURNS):
        if not rows:
            return
        yield rows[-1]
    raise TooLong
