"""The ways to what led to a step: a part of the program's loop from a mark on, or its step function.

The code is the user's own, from its source; the values that it begins with are those of the mark, by reference.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import time
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import torch

from whynan.capture.torch.provenance.origins import parts_of
from whynan.replay.carried_state import assign
from whynan.replay.checkpoint import stack
from whynan.replay.continuation.code import AS_THEN, call_where_entered, compile_tail
from whynan.replay.continuation.liveness import GOES_ON, guard_while_loops
from whynan.replay.loading_again import is_loaded_the_same, load_again, loadable
from whynan.replay.snapshot import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from whynan.capture.torch.interposition.data_loading import BatchOrigin, Fetch
    from whynan.replay.carried_state import Slot
    from whynan.replay.checkpoint import FrameCheckpoint, Mark
    from whynan.replay.snapshot import Rng, ScalerState

_MOST_TURNS: Final = 64


class TooLong(BaseException):
    """The replay has gone round a loop so often that it will not come to the step."""


class UnseenTurn(BaseException):
    """The replay has come to a turn of a loop that the program had not come to."""


class ReplayPlan(Protocol):
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
    def began(self) -> float:
        """When the program was there, by ``time.monotonic``."""
        ...

    @property
    def moving(self) -> list[tuple[Slot, Any]]:
        """What moves from step to step, as it was then."""
        ...

    @property
    def batches(self) -> list[tuple[Any, BatchOrigin]]:
        """What loaders have given since, and where that came from."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether it is all of a program, whose end is the end of what led to the step."""
        ...

    @property
    def loads_again(self) -> bool:
        """Whether batches are made again by their datasets, where they can be."""
        ...

    @property
    def amid(self) -> str | None:
        """Where it begins, if the step has done something before that; else None."""
        ...

    @property
    def differentiates_as_then(self) -> bool:
        """Whether it begins in the modes (``no_grad`` and its like) of its mark, and not in those of the step."""
        ...

    def roots(self) -> list[Any]:
        """What its code can change."""
        ...

    def bound_anew(self, frames: Sequence[FrameType]) -> set[int]:
        """The identities of what names hold, in frames from the innermost on, that its code binds before it reads."""
        ...

    def build_callable(self, is_over: Callable[[], bool]) -> Callable[[], object]:
        """Its code, with the values that it begins with; raises where it cannot be made.

        `is_over`: whether it has come to its end, which the program may have caught.
        """
        ...


@dataclass(frozen=True)
class TailPlan:
    """From a mark, in one of the frames that were there at it."""

    mark: Mark
    standing: FrameCheckpoint
    differentiates_as_then: bool = False
    carried: Mark | None = None
    """A later mark, at which what moves from step to step is taken."""
    beneath: tuple[tuple[Slot, Any], ...] = ()
    """What libraries hold, put back too."""
    loaded: tuple[tuple[Any, Fetch], ...] = ()
    """The batches that are made again by their datasets."""
    kind: Literal["loop"] = "loop"

    @property
    def loads_again(self) -> bool:
        return bool(self.loaded)

    @property
    def where(self) -> str:
        beneath = ", with what libraries held there" if self.beneath else ""
        return f"from {self._place}{', its batch loaded again' * self.loads_again}{beneath}"

    @property
    def is_whole(self) -> bool:
        return self.mark.kind == "program"

    @property
    def amid(self) -> str | None:
        return self._place if self.mark.kind == "model" else None

    @property
    def _place(self) -> str:
        statements = self.standing.tail.statements
        line = f"line {statements[0].lineno} of " if statements else "the end of "
        return f"{line}{self.standing.frame.f_code.co_qualname}"

    @property
    def rng(self) -> Rng:
        return self.mark.rng

    @property
    def scaler(self) -> ScalerState | None:
        return self.mark.scaler

    @property
    def began(self) -> float:
        return self.mark.began

    @property
    def moving(self) -> list[tuple[Slot, Any]]:
        return [*(self.carried or self.mark).moving, *self.beneath]

    @property
    def batches(self) -> list[tuple[Any, BatchOrigin]]:
        return self.mark.batches

    def roots(self) -> list[Any]:
        return [self.standing.values, self.standing.frame.f_locals, self.standing.frame.f_globals]

    def bound_anew(self, frames: Sequence[FrameType]) -> set[int]:
        kept, found = self.standing.values, set[int]()
        stored_first = self.standing.tail.stored - self.standing.tail.live
        for frame in frames:
            is_own = frame is self.standing.frame
            for name, value in frame.f_locals.items():
                if not is_own or name in stored_first or kept.get(name, value) is not value:
                    found.add(id(value))
            if is_own:
                return found
        return set()

    def build_callable(self, is_over: Callable[[], bool]) -> Callable[[], object]:
        return _build_tail(self, is_over)

    def loading_again(self, *, workers: bool) -> TailPlan | None:
        """The same, its bad batches made again, of `workers` too; None where that cannot be, or none is bad."""
        found = loadable(self.batches, workers=workers)
        return dataclasses.replace(self, loaded=tuple(found)) if found else None

    def has_loaded_the_same(self) -> bool:
        """Whether what was made again has the same numbers, bit for bit."""
        return is_loaded_the_same(self.loaded)


@dataclass(frozen=True)
class CallPlan:
    """The program's step function, called with the same arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    rng: Rng
    scaler: ScalerState | None = None
    moving: list[tuple[Slot, Any]] = field(default_factory=list)
    batches: list[tuple[Any, BatchOrigin]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    differentiates_as_then: bool = False
    loads_again: bool = False
    kind: Literal["step"] = "step"

    @property
    def is_whole(self) -> bool:
        return False

    @property
    def amid(self) -> None:
        return None

    @property
    def where(self) -> str:
        return f"by calling {getattr(self.function, '__qualname__', type(self.function).__name__)}"

    def roots(self) -> list[Any]:
        return [self.function, self.args, self.kwargs]

    def bound_anew(self, frames: Sequence[FrameType]) -> set[int]:
        del frames
        return set()

    def build_callable(self, is_over: Callable[[], bool]) -> Callable[[], object]:
        del is_over
        return functools.partial(self.function, *self.args, **self.kwargs)


def replay_plans(marks: list[Mark], left: tuple[FrameType, ...] = ()) -> Iterator[TailPlan]:
    """The ways to what led to here, the best first: what runs the most of it, and least else.

    Where gradients were wanted at a mark and are not here, the bad number may be in a function under ``no_grad``: then
    there is a way in the modes of the mark, too. What a function does behind the step that it makes, as to empty the
    lists of an episode, is done where it has returned: there is a way that begins with what a later mark has found.
    What libraries hold moves, too, as whether a loader is at its end: the last way begins with that.

    `left`: the frames that an exception has left, where the program is over.
    """
    alive = [*left, *stack(libraries=True)]
    found: list[tuple[Mark, FrameCheckpoint]] = []
    for mark in marks:
        mark.turn()
        standing = next((s for s in mark.frames if any(s.frame is frame for frame in alive)), None)
        if standing is not None:
            found.append((mark, standing))
            yield TailPlan(mark, standing)
            if mark.rng.switches != rng().switches:
                yield TailPlan(mark, standing, differentiates_as_then=True)
    if len(found) > 1 and marks[-1].moving:
        yield TailPlan(*found[0], carried=marks[-1])
    if found and (beneath := found[0][0].beneath()):
        yield TailPlan(*found[0], beneath=tuple(beneath))


def _build_tail(way: TailPlan, is_over: Callable[[], bool]) -> Callable[[], object]:
    """The code of a way, with the values that it begins with; raises ``ValueError`` where it cannot be made.

    That of a module gives the names that it leaves.
    """
    standing = way.standing
    frame = standing.frame
    statements = guard_while_loops(call_where_entered(standing.tail.statements))
    tail = dataclasses.replace(standing.tail, statements=statements)
    code = frame.f_code
    values = {**frame.f_locals, **standing.values}
    loops = ((k, loop) for k, loop in enumerate(tail.loops) if loop.items is not None)
    items: dict[str, Any] = {str(loop.items): _until(is_over, _items(way, k)) for k, loop in loops}
    items[GOES_ON] = lambda: not is_over()
    items[AS_THEN] = functools.partial(_assign_again, way)
    if code.co_name == "<module>":
        made = compile_tail(tail)

        def run_module() -> dict[str, Any]:
            namespace = frame.f_globals
            saved = dict(namespace)
            namespace.update(values, **items)
            try:
                exec(made, namespace)
                return dict(namespace)
            except Exception:
                # what it holds is looked at first: its names are put back with those of the other modules
                saved = dict(namespace)
                raise
            finally:
                namespace.clear()
                namespace.update(saved)

        return run_module
    free = {name: values[name] for name in code.co_freevars if name in values}
    own = [n for n in (*code.co_varnames, *code.co_cellvars) if n in values and n not in free]
    # the first argument comes first: `super()` takes it
    names = [*dict.fromkeys(own), *items]
    made = compile_tail(tail, parameters=names, free=list(free))
    closure = tuple(types.CellType(free[name]) for name in made.co_freevars)
    function = types.FunctionType(made, frame.f_globals, code.co_name, None, closure)
    given = {**values, **items}
    return lambda: function(*(given[name] for name in made.co_varnames[: made.co_argcount]))


def _assign_again(way: TailPlan) -> None:
    """What moves from step to step is as it was where the way begins: entering a ``with`` again may have moved it."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        assign(way.moving)


def _until(is_over: Callable[[], bool], items: Iterator[Any]) -> Iterator[Any]:
    for item in items:
        if is_over():
            return
        yield item


def _items(way: TailPlan, k: int) -> Iterator[Any]:
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
    known = _load_again(way, rows) if way.loads_again else rows
    return itertools.chain(known, _repeat_last(rows) if rows else _unseen(way.standing, k))


def _load_again(way: TailPlan, rows: list[Any]) -> Iterator[Any]:
    """The items of a loop over a loader, their batches made again as the loop comes to them."""
    for number, row in enumerate(rows):
        rows[number] = _with_batch_again(row, way.loaded)
        yield rows[number]


def _with_batch_again(row: Any, loaded: Sequence[tuple[Any, Fetch]]) -> Any:
    """An item that is a batch, or holds one beside its number, with that batch made again by its dataset."""
    parts = [part for _, part in parts_of(row, "")]
    for batch, fetch in loaded:
        known = [part for _, part in parts_of(batch, "")]
        if len(parts) != len(known) or not all(map(operator.is_, parts, known)):
            continue
        # a batch may itself begin with a number
        is_pair = type(row) is tuple and len(row) == 2 and type(row[0]) is int
        is_batch = isinstance(batch, list | tuple) and len(batch) == 2 and is_pair and row[0] is batch[0]
        is_numbered = is_pair and row is not batch and not is_batch
        again = load_again(fetch)
        return (row[0], again) if is_numbered else again
    return row


def _repeat_last(rows: list[Any]) -> Iterator[Any]:
    for _ in range(_MOST_TURNS):
        yield rows[-1]
    raise TooLong


def _unseen(standing: FrameCheckpoint, k: int) -> Iterator[Any]:
    """The next turn of a loop that was in its first one still: it has not ended, as far as anybody knows."""
    if standing.stands_in(k):
        raise UnseenTurn
    yield from ()
