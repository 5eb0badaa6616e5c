"""What is kept at a step's end so that what follows can be run again: where the program stands, by reference.

A mark is taken where nothing has been looked at yet: after a step (before the first one, as an optimizer is made), and
as the first module is called after it. It holds of each of the user's frames the names that the code after it reads and
changes; every other name still is what it was.
"""

from __future__ import annotations

import importlib
import itertools
import sys
import threading
import time
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import torch

from whynan.capture.torch.names import tensors_of
from whynan.replay.carried_state import CarriedState, Slot, attributes_of
from whynan.replay.continuation.code import Tail, tail_after, tail_from, tail_inside
from whynan.replay.continuation.code import owner_of as function_of
from whynan.replay.snapshot import Rng, ScalerState, rng
from whynan.source.ownership import Owner, owner_of
from whynan.source.syntax import Span, syntax_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from torch import Tensor

    from whynan.capture.torch.interposition.data_loading import BatchOrigin

_FRAMES: Final = 24
"""So many frames are looked at, the innermost first."""
SHORT: Final = 5.0
"""Seconds of processor time from its first operation in which a program has to be over for a replay of all of it."""
SOON: Final = 60.0
"""The same in seconds of the clock."""
Kind = Literal["begin", "step", "model", "program"]
"""Where a mark is taken: at the head of a watch's block, after a step, as a module is called, at a program's start."""
_MOST_ITEMS: Final = 256
_MOST_BATCHES: Final = 32
"""So many batches are held from one step to the next."""
_MOST_CODES: Final = 4096
"""So many places of the program are remembered, and all forgotten beyond that."""

_spans: dict[tuple[int, int], Span | None] = {}
_codes: dict[tuple[int, int], CodeType] = {}
_tails: dict[tuple[int, int, str], tuple[CodeType, Tail | None, tuple[str, ...]]] = {}


_loading = 0.0
"""The processor time in which the compiler was loaded, which no replay does again."""


def load_compiler(*_: object) -> None:
    """Load what torch loads as the first optimizer is made; it takes longer than the steps of a small program."""
    global _loading
    if "torch._dynamo" not in sys.modules:
        began = time.process_time()
        importlib.import_module("torch._dynamo")
        _loading += time.process_time() - began


def used_time() -> float:
    """The processor time of the process, without that."""
    return time.process_time() - _loading


@dataclass(frozen=True)
class Turn:
    """One turn of a loop: the values of its targets, and which of them the program has given another value since."""

    values: dict[str, Any]
    stale: frozenset[str]


@dataclass
class FrameCheckpoint:
    """One of the user's frames at a mark: what comes after it, and the values that will have changed."""

    frame: FrameType
    tail: Tail
    values: dict[str, Any]
    turns: list[list[Turn]]
    """Of each loop around it, the innermost first, what its further turns began with."""

    def goes_round(self) -> int | None:
        """The loop that has turned though its targets are the objects that they were: the innermost ``for``.

        None where one of the loops was seen to turn, where the frame has left it, or where the program gives a target
        another value, so that what the loop was given is not known.
        """
        inner = next((k for k, loop in enumerate(self.tail.loops) if loop.kind == "for"), None)
        if inner is None or any(self.turns) or not self.stands_in(inner):
            return None
        loop = self.tail.loops[inner]
        return None if loop.stored_before((loop.body[-1].end_lineno or 0) + 1, 0) & {*loop.targets} else inner

    def stands_in(self, number: int) -> bool:
        """Whether the frame is in the body of a loop still."""
        span, body = span_at(self.frame), self.tail.loops[number].body
        if span is None or (span.line, span.column) < (body[0].lineno, body[0].col_offset):
            return False
        return (span.end_line, span.end_column) <= (body[-1].end_lineno or 0, body[-1].end_col_offset or 0)


@dataclass
class Mark:
    """A point of the program from which it can be run again."""

    kind: Kind
    frames: tuple[FrameCheckpoint, ...]
    rng: Rng
    scaler: ScalerState | None = None
    moving: list[tuple[Slot, Any]] = field(default_factory=list)
    beneath: Callable[[], list[tuple[Slot, Any]]] = list
    """Gives what moves in libraries, as it was then."""
    batches: list[tuple[Any, BatchOrigin]] = field(default_factory=list)
    """What loaders have given since, and where that came from."""
    began: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=used_time)
    """The processor time of the process until then."""

    def prune(self, alive: list[FrameType]) -> None:
        """Let go of frames that have returned: they would hold their tensors."""
        self.frames = tuple(s for s in self.frames if s.frame in alive)

    def is_short(self) -> bool:
        """Whether the program has come here so soon that all of it may be replayed."""
        return used_time() - self.used < SHORT and time.monotonic() - self.began < SOON

    def turn(self) -> None:
        """Note what the loops around the mark have gone on to: the targets of those that have turned."""
        for standing in self.frames:
            span = None
            for loop, turns in zip(standing.tail.loops, standing.turns, strict=True):
                if not loop.targets or len(turns) >= _MOST_ITEMS:
                    continue
                values = standing.frame.f_locals
                found = {name: values[name] for name in loop.targets if name in values}
                before = turns[-1].values if turns else standing.values
                names = {*loop.targets}
                same = {name for name in names if before.get(name, _NOTHING) is found.get(name, _NOTHING)}
                if same == names:
                    continue
                span = span or span_at(standing.frame)
                stale = names if span is None else loop.stored_before(span.line, span.column) & names
                # what the program has given the others is no turn, which gives another tensor
                is_turn = not names - same <= stale or not any(torch.is_tensor(found.get(n)) for n in same - stale)
                if is_turn:
                    turns.append(Turn(found, frozenset(stale)))


_NOTHING: Final = object()


def stack(*, libraries: bool = False) -> list[FrameType]:
    """The user's frames, and with `libraries` theirs, the innermost first, as they are called now."""
    wanted = (Owner.USER, Owner.LIBRARY) if libraries else (Owner.USER,)
    found: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < _FRAMES:
        if owner_of(frame.f_code.co_filename) in wanted:
            found.append(frame)
        frame = frame.f_back
    return found


def mark(kind: Kind) -> Mark:
    """Take a mark here."""
    standing: list[FrameCheckpoint] = []
    # what a library does after a step, its logging and its saving, is not to be run again
    frames = stack(libraries=kind == "model")
    # the other frames of a program's start are to have returned, and would hold their tensors
    chosen = {"begin": frames[:1], "program": frames[-1:]}.get(kind, frames)
    for frame in chosen:
        tail, wanted = _tail(frame, kind)
        if tail is not None:
            values = frame.f_locals if wanted else {}
            kept = {name: values[name] for name in wanted if name in values}
            standing.append(FrameCheckpoint(frame, tail, kept, [[] for _ in tail.loops]))
    return Mark(kind, tuple(standing), rng())


def _tail(frame: FrameType, kind: Kind) -> tuple[Tail | None, tuple[str, ...]]:
    """What comes after, from or inside the statement that a frame stands at, and the names to be kept for it."""
    key = id(frame.f_code), frame.f_lasti, kind
    known = _tails.get(key)
    if known is None or known[0] is not frame.f_code:
        if len(_tails) >= _MOST_CODES:
            _tails.clear()
            _spans.clear()
            _codes.clear()
        span, tree = span_at(frame), syntax_of(frame.f_code.co_filename).tree
        owner = None if tree is None or span is None else function_of(tree, frame.f_code)
        cut = {"begin": tail_inside, "step": tail_after, "model": tail_from, "program": tail_from}[kind]
        tail = None if owner is None or span is None else cut(owner, span)
        known = _tails[key] = frame.f_code, tail, () if tail is None else _wanted(tail, after=cut is not tail_from)
    return known[1:]


def _wanted(tail: Tail, *, after: bool) -> tuple[str, ...]:
    """The names that the code reads and changes, and the targets of the loops around it."""
    # the statement after which it begins has not come to its end yet: what it stores is there later
    changed = tail.live & tail.stored - (tail.by_statement if after else frozenset[str]())
    return tuple({*changed, *(name for loop in tail.loops for name in loop.targets)})


def span_at(frame: FrameType) -> Span | None:
    """Where a frame stands, as ``co_positions`` has it."""
    code, at = frame.f_code, frame.f_lasti
    key = id(code), at
    if key not in _spans or _codes.get(key) is not code:
        line, end_line, column, end_column = next(itertools.islice(code.co_positions(), at // 2, None))
        if line is None or end_line is None or column is None or end_column is None:
            _spans[key] = None
        else:
            _spans[key] = Span(line, end_line, column, end_column)
        _codes[key] = code
    return _spans[key]


def _names(made: Mark) -> Iterator[dict[str, Any]]:
    for standing in made.frames:
        yield standing.frame.f_locals
        if standing.frame.f_globals is not standing.frame.f_locals:
            yield standing.frame.f_globals


def _of_libraries(made: Mark) -> Iterator[tuple[Slot, Any]]:
    """What the objects hold whose methods of a library stand at a mark."""
    for standing in made.frames:
        code = standing.frame.f_code
        if code.co_argcount and owner_of(code.co_filename) is Owner.LIBRARY:
            yield from attributes_of(standing.frame.f_locals.get(code.co_varnames[0]))


class Marks(threading.local):
    """The marks of one training, kept from its last step; each thread has its own.

    ``keeps_batches``: what loaders gave for the step before is kept as well.
    """

    def __init__(self, *, keeps_batches: bool = False) -> None:
        self._keeps_batches = keeps_batches
        self.after_step: Mark | None = None
        self.at_optimizer: Mark | None = None
        """Where the first optimizer since that has been made: what is run again from before that makes another."""
        self.at_model: Mark | None = None
        self.at_program: Mark | None = None
        """At the program's first operation, for as long as it may be replayed from there."""
        self.at_import: Mark | None = None
        """Where it has loaded PyTorch, ahead of what it reads and prepares; for as long as the other."""
        self._given: list[Tensor] = []
        self._before: list[Tensor] = []
        self._scaler: Any = None
        self._has_stepped = False
        self._moving = CarriedState()

    def clear(self) -> None:
        """Keep none."""
        self.after_step = self.at_optimizer = self.at_model = self._scaler = None
        self._given, self._before = [], []

    def begin(self) -> None:
        """A watch begins, at the head of its block."""
        self.after_step = self._mark("begin")

    def record_optimizer(self) -> None:
        """An optimizer has been made: what follows leads to its first step."""
        if self.after_step is None:
            self.after_step = self._mark("step")
        elif self.at_optimizer is None and self.after_step.kind == "step" and self._has_stepped:
            self.at_optimizer = self._mark("step")

    def record_step(self, scaler: Any) -> None:
        """A step has been made, perhaps by a loss scaler: what came before it is done."""
        self._scaler = scaler
        self._has_stepped = True
        self.at_model = self.at_optimizer = None
        if self._given:
            self._before, self._given = self._given, []
        self.after_step = self._mark("step")

    def batches_before(self) -> list[Tensor]:
        """Copies of the tensors that loaders have given for the last step that was made."""
        return self._before

    def record_scaled_loss(self, scaler: Any) -> None:
        """A loss scaler has scaled a loss: the first does before any step, and knows what it knew at each mark."""
        if self._scaler is None:
            self._scaler = scaler
            for made in self.kept():
                if made.scaler is None:
                    made.scaler = ScalerState(scaler)

    def record_import(self) -> None:
        """The program has just loaded PyTorch."""
        if threading.current_thread() is threading.main_thread():
            self.at_import = mark("program")

    def record_program(self) -> None:
        """The program's first operation is about to run."""
        if threading.current_thread() is threading.main_thread():
            self.at_program = mark("program")

    def record_module_call(self) -> None:
        """A module is about to be called."""
        self._go_on()
        if self.at_model is None:
            self.at_model = self._mark("model")

    def record_backward(self) -> None:
        """A backward is about to begin."""
        self._go_on()

    def record_batch(self, batch: Any, came: BatchOrigin) -> None:
        """A loader has given a batch, and where that came from."""
        if not torch.is_grad_enabled():
            # of an evaluation, of which no step is made
            return
        if self._keeps_batches and len(self._given) < _MOST_BATCHES:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                self._given += [t.detach().clone() for _, t in tensors_of(batch, "")]
        for known in self.kept():
            if len(known.batches) < _MOST_BATCHES:
                known.batches.append((batch, came))

    def kept(self) -> list[Mark]:
        """The marks that there are, what runs the most first."""
        return [m for m in (self.after_step, self.at_optimizer, self.at_model) if m is not None]

    def _mark(self, kind: Kind) -> Mark:
        made = mark(kind)
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            if self._scaler is not None:
                made.scaler = ScalerState(self._scaler)
            moving = self._moving.now(lambda: _names(made), behind_step=kind != "model")
            made.moving = [*moving, *_of_libraries(made)]
            # it is not held for it
            reference = weakref.ref(made)
            made.beneath = self._moving.beneath(lambda: () if (held := reference()) is None else _names(held))
        return made

    def _go_on(self) -> None:
        alive = stack(libraries=True)
        for known in self.kept():
            known.prune(alive)
            known.turn()
        # they would hold what the program has let go of
        if self.at_program is not None and not self.at_program.is_short():
            self.at_program = None
        if self.at_import is not None and not self.at_import.is_short():
            self.at_import = None

    def forget_program(self) -> None:
        """Keep none of the program's start, which would hold its names beyond its end."""
        self.at_program = self.at_import = None
