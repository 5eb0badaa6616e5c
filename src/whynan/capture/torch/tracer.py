"""The tracer: what happens after every operation, and what is kept of it."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch import experiments
from whynan.capture.torch.births import BadEvents
from whynan.capture.torch.failure import report_internal_error
from whynan.capture.torch.labels import Labels
from whynan.capture.torch.names import Names
from whynan.capture.torch.planes import ATTRIBUTE, FLOATS, State, bad_mask, is_bad, readable, strided
from whynan.capture.torch.ranges import range_of
from whynan.capture.torch.rows import Held, Row, Rows
from whynan.capture.torch.sites import Sites

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.operators import Operator
    from whynan.records import Range

FORWARD, BACKWARD, ACCUMULATION, OPTIMIZER = range(4)
PHASES = ("forward", "backward", "accumulation", "optimizer")
NODES = 1 << 17
ACCUMULATE_GRAD = 2**64 - 1
SMALL = 1 << 16
COPY_LIMIT = 1 << 24
DEFAULT_WINDOW = 64 << 20
RANGE_LIMIT = 200_000

_current_node = torch._C._current_autograd_node
_sequence_nr = torch.autograd._get_sequence_nr
_grad_enabled = torch.is_grad_enabled
_next_ordinal = [1]
_PLAIN_VALUES = frozenset((float, int, bool, list, tuple))


class Lane:
    """What one thread is in the midst of: its autograd nodes' sites, module calls, backward and optimizer step."""

    def __init__(self) -> None:
        self.sequence = _sequence_nr()
        self.nodes: dict[int, tuple[int, int, Operator, int, int]] = {}
        self.modules: list[int] = []
        self.module = 0
        self.create_graph = False
        self.engine_depth = 0
        self.backward: Any = None
        self.optimizer: Any = None
        self.optimizer_site = 0
        self.closure = False
        self.loss_labels: frozenset[int] = frozenset()


class Tracer:
    """One trace over one stretch of a program, on every thread that enters it."""

    def __init__(self, *, memory: int | None = None, ranges: bool = False) -> None:
        self.active = True
        self.first = _next_ordinal[0]
        self.ordinal = self.first
        self.labels = Labels()
        self.sites = Sites()
        self.names = Names()
        self.rows = Rows(DEFAULT_WINDOW if memory is None else memory)
        self.marked: weakref.WeakSet[State] = weakref.WeakSet()
        self.main = Lane()
        self.local = threading.local()
        self.local.lane = self.main
        self.bad = BadEvents(self)
        self.ranges: list[Range] = []
        self.want_ranges = ranges
        self.ranges_omitted = 0
        self.notes: dict[str, None] = {}
        self.compiled_regions = 0
        self.skipped_steps = 0
        self.failed = False
        self.target: Any = None

    def lane(self) -> Lane:
        """This thread's lane; a device thread of the engine has the main thread's autograd sites."""
        try:
            return self.local.lane
        except AttributeError:
            lane = self.local.lane = Lane()
            lane.nodes = self.main.nodes
            lane.backward = self.main.backward
            lane.create_graph = self.main.create_graph
            lane.loss_labels = self.main.loss_labels
            return lane

    def sinks_buffer(self, row: Row) -> bool:
        """Whether an event writes a module's buffer in place."""
        operator = row.operator
        if not operator.mutable or not row.held or operator.base.startswith("native_batch_norm"):
            return False
        first = row.held[0]
        return isinstance(first, Held) and self.names.describe(first.tensor())[1] == "buffer"

    @property
    def events(self) -> int:
        """Dispatcher calls seen so far."""
        return self.ordinal - self.first

    def fail(self) -> None:
        """An error of our own: warn once, keep the traceback in a file, and leave the run alone."""
        self.active = False
        self.failed = True
        report_internal_error()

    def before(self, operator: Operator, args: Any, kwargs: Any) -> list[Tensor | None] | None:
        """Copies of operands that the operation is about to overwrite, where they will be asked for."""
        if operator.overwrites or operator.foreach:
            return None
        lane = self.lane()
        position = operator.mutable[0]
        target: Any = kwargs.get(position) if isinstance(position, str) else args[position]
        if not isinstance(target, torch.Tensor) or target.dtype not in FLOATS or not readable(target):
            return None
        limit = SMALL if lane.optimizer is not None or _current_node() is not None else COPY_LIMIT
        if not operator.pointwise:
            limit = COPY_LIMIT
        if target.numel() * target.element_size() > limit:
            return None
        return [target.clone()]

    def after(self, operator: Operator, args: Any, kwargs: Any, out: Any, before: list[Tensor | None] | None) -> None:
        """Record one event that has run: its site and operands, and whether what it wrote is finite."""
        ordinal = self.ordinal
        self.ordinal = ordinal + 1
        try:
            lane: Lane = self.local.lane
        except AttributeError:
            lane = self.lane()
        node = _current_node()
        if node is None:
            if lane.optimizer is not None and not _grad_enabled():
                phase, site = OPTIMIZER, lane.optimizer_site
            else:
                phase, site = FORWARD, self.sites.here(3)
        elif _grad_enabled() and not lane.create_graph:
            phase, site = FORWARD, self.sites.here(3)
        else:
            number = node._sequence_nr()
            if number == ACCUMULATE_GRAD:
                phase = ACCUMULATION
                site = self.bad.accumulation_site(node, lane)
                self.bad.gradient_arrives(node, operator, lane)
            else:
                phase = BACKWARD
                known = lane.nodes.get(number & (NODES - 1))
                site = known[1] if known is not None and known[0] == number else 0
                if not site or isinstance(node, torch.autograd.function.BackwardCFunction):
                    site = self.sites.here(3)
        if phase != OPTIMIZER:
            sequence = _sequence_nr()
            if sequence != lane.sequence:
                # the node of this operation (and of what enclosed it) has its number already
                for number in range(max(lane.sequence, sequence - 64), sequence):
                    lane.nodes[number & (NODES - 1)] = (number, site, operator, ordinal, lane.module)
                lane.sequence = sequence
        row = Row(ordinal, operator, site, phase, type(node) if node is not None else None, lane.module)
        marked = False
        held: list[Any] = []
        for value in args:
            if isinstance(value, torch.Tensor):
                try:
                    storage = value.untyped_storage()
                except (RuntimeError, NotImplementedError):
                    held.append(None)
                    continue
                writer: Any = getattr(storage, ATTRIBUTE, -1)
                if type(writer) is not int:
                    if writer.trace == self.first:
                        marked = True
                        writer.reads += 1
                    writer = writer.writer
                held.append(
                    Held(storage, value.dtype, value.shape, value.stride(), value.storage_offset(), writer)
                )
            elif isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
                writers: list[int] = []
                for part in value:
                    if isinstance(part, torch.Tensor):
                        try:
                            writer = getattr(part.untyped_storage(), ATTRIBUTE, -1)
                        except (RuntimeError, NotImplementedError):
                            continue
                        if type(writer) is not int:
                            if writer.trace == self.first:
                                marked = True
                                writer.reads += 1
                            writer = writer.writer
                        writers.append(writer)
                held.append(writers)
            else:
                held.append(value if type(value) in _PLAIN_VALUES else None)
        for value in kwargs.values():
            for part in experiments.tensors_in(value):
                state = self.state_of(part)
                if state is not None:
                    marked = True
                    state.reads += 1
        if phase != OPTIMIZER:
            row.held = held
        if before is not None:
            row.before = before[0]
            row.bytes = before[0].numel() * before[0].element_size() if before[0] is not None else 0
        bad: list[int] = []
        written: list[Tensor] = []
        if operator.view:
            if operator.base == "lift_fresh" and isinstance(out, torch.Tensor):
                setattr(out.untyped_storage(), ATTRIBUTE, ordinal)
        elif type(out) is torch.Tensor and not operator.mutable:
            written = [out]
        else:
            written = experiments.outputs_of(operator, args, kwargs, out)
        for i, tensor in enumerate(written):
            if self._wrote(tensor, row, operator, ordinal):
                bad.append(i)
        self.rows.add(row)
        if bad or marked or operator.leaves:
            self.bad.look(row, operator, args, kwargs, out, written, bad, before, node, lane, marked)

    def _wrote(self, tensor: Tensor, row: Row, operator: Operator, ordinal: int) -> bool:
        """Note who wrote a tensor; whether it holds a bad element."""
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return False
        if row.out is None and row.held is not None:
            row.out = (tensor.shape, tensor.stride(), tensor.storage_offset())
            row.bytes += storage.nbytes()
        if operator.uninitialised:
            state = State(self.first, ordinal)
            state.uninitialised = True
            setattr(storage, ATTRIBUTE, state)
            return False
        previous: Any = getattr(storage, ATTRIBUTE, None)
        own = type(previous) is State and previous.trace == self.first
        bad = False
        if tensor.dtype in FLOATS:
            try:
                bad = is_bad(tensor)
            except (RuntimeError, NotImplementedError, TypeError):
                bad = readable(tensor) and bool(bad_mask(tensor).any())
        if self.want_ranges and readable(tensor):
            self._range(tensor, row)
        if not own:
            setattr(storage, ATTRIBUTE, ordinal)
        else:
            previous.writer = ordinal
            if not bad:
                whole = tensor.numel() * tensor.element_size() == storage.nbytes()
                if whole and (operator.overwrites or not previous.uninitialised) and previous.taint is None:
                    setattr(storage, ATTRIBUTE, ordinal)
                elif previous.plane is not None:
                    if previous.itemsize == tensor.element_size():
                        strided(previous.plane, previous.itemsize, tensor).zero_()
        return bad

    def _range(self, tensor: Tensor, row: Row) -> None:
        if len(self.ranges) >= RANGE_LIMIT:
            self.ranges_omitted += 1
            return
        self.ranges.append(range_of(tensor, row, PHASES[row.phase], self.first))

    def state_of(self, tensor: Tensor) -> State | None:
        """This trace's state of a tensor's storage, if it has one."""
        try:
            state: Any = getattr(tensor.untyped_storage(), ATTRIBUTE, None)
        except (RuntimeError, NotImplementedError):
            return None
        return state if type(state) is State and state.trace == self.first else None

    def mark(self, tensor: Tensor) -> State:
        """This trace's state of a tensor's storage, made if there is none."""
        state = self.state_of(tensor)
        if state is None:
            storage = tensor.untyped_storage()
            writer: Any = getattr(storage, ATTRIBUTE, -1)
            state = State(self.first, writer if type(writer) is int else -1)
            setattr(storage, ATTRIBUTE, state)
        self.marked.add(state)
        return state

    def close(self) -> None:
        """End the trace: let go of operands, and give the next trace its own ordinals."""
        _next_ordinal[0] = self.ordinal + 1
        self.rows.clear()
