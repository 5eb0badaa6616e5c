"""The tracer: what happens after every operation, and what is kept of it."""

from __future__ import annotations

import sys
import threading
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.failure import report_internal_error
from whynan.capture.interruptions import theirs
from whynan.capture.torch import experiments
from whynan.capture.torch.births import BadEvents
from whynan.capture.torch.deferred import Deferred
from whynan.capture.torch.detectors import Detectors
from whynan.capture.torch.formulas import CHANGED_FORMULAS, formula_note
from whynan.capture.torch.labels import Labels
from whynan.capture.torch.lanes import ACCUMULATION, BACKWARD, FORWARD, NODES_MASK, OPTIMIZER, Lane
from whynan.capture.torch.names import Names
from whynan.capture.torch.origins import Origins
from whynan.capture.torch.planes import (
    ATTRIBUTE,
    FLOATS,
    HALVES,
    PLAIN,
    State,
    bad_mask,
    elements,
    is_bad,
    is_plain,
    readable,
    unproved,
)
from whynan.capture.torch.ranges import Counted, Ranges, counters
from whynan.capture.torch.rows import ACCUMULATE_GRAD, Row, Rows, forward_number, is_leaf
from whynan.capture.torch.rows import MASK as RING_MASK
from whynan.capture.torch.sites import Sites, in_a_hook
from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from whynan.capture.torch.keeping import Keeper
    from whynan.capture.torch.narrowing import Only
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.recording import Recording

FEW = 3

_current_node = torch._C._current_autograd_node
_sequence_nr = torch.autograd._get_sequence_nr
_grad_enabled = torch.is_grad_enabled
_next_ordinal = [1]


class Tracer:
    """One trace over one stretch of a program, on every thread that enters it."""

    defers = False
    """Whether events on the CPU wait for a sink too, as those on an accelerator do."""

    def __init__(self, *, memory: int | None = None, ranges: bool = False, copy_all: bool = False) -> None:
        self.active = True
        self.thread = threading.get_ident()
        self.mode: Any = None
        """The mode that shows this tracer the operations of the threads that entered it."""
        self.first = _next_ordinal[0]
        self.ordinal = self.first
        self.labels = Labels()
        self.sites = Sites()
        self.names = Names()
        self.origins = Origins(self)
        self.rows = Rows(memory)
        self.marked: weakref.WeakSet[State] = weakref.WeakSet()
        self.uninitialised: weakref.WeakSet[State] = weakref.WeakSet()
        self.main = Lane()
        self.local = threading.local()
        self.local.lane = self.main
        # of the engine's own threads, one for each device
        self.engines: list[Lane] = []
        self.bad = BadEvents(self)
        self.deferred = Deferred(self)
        self.ranges = Ranges()
        self.want_ranges = ranges
        self._counted: dict[int, Counted] = {}
        self.detectors = Detectors(self)
        self.notes: dict[Note, None] = {}
        self.compiled_regions = 0
        self.regions_watched = False
        self.skipped_steps = 0
        self.copy_all = copy_all
        self.keeper: Keeper | None = None
        self.any_marked = False
        self.failed = False
        self.target: Any = None
        self.scope: tuple[int, ...] = ()
        self.recording: Recording | None = None
        self.on_sink: Callable[[], BaseException | None] | None = None
        self.asked = 0
        """How many of the sinks found so far `on_sink` has been asked about."""
        self.on_door: Callable[[], None] | None = None
        """Called at each door of the program's, before `on_sink` is asked."""
        self.only: Only | None = None
        self.last_step: int | None = None
        self.on_last_step: Callable[[], None] | None = None
        self.every_thread = False
        self.entered: dict[int, Any] = {}
        """The mode as each further thread has entered it, by the thread's number."""
        self.one_at_a_time = threading.RLock()
        self.lock: threading.RLock | None = None
        """The same, once there is a second thread."""

    def lane(self) -> Lane:
        """This thread's lane; a device thread of the engine has the autograd sites of the thread that called it."""
        try:
            return self.local.lane
        except AttributeError:
            lane = self.local.lane = Lane()
            lane.follow(self.main)
            self.engines.append(lane)
            return lane

    @property
    def stepping(self) -> bool:
        """Whether this thread is inside an optimizer's step that computes no loss of its own."""
        return self.lane().optimizer is not None and not self.lane().closure

    def alone(self) -> AbstractContextManager[object]:
        """A stretch in which no other thread's events are looked at."""
        return self.lock or nullcontext()

    @property
    def events(self) -> int:
        """Dispatcher calls seen so far."""
        return self.ordinal - self.first - self.compiled_regions

    def fail(self) -> bool:
        """An error of our own: warn once, keep the traceback in a file, and leave the run alone.

        True where it is none of ours but the program's, which is to be raised again.
        """
        if theirs():
            return True
        self.active = False
        self.failed = True
        self._forget_tensors()
        self.rows.let_go()
        report_internal_error()
        return False

    def after(self, operator: Operator, args: Any, kwargs: Any, out: Any, before: dict[int, Tensor] | None) -> None:
        """Record one event that has run: its site and operands, and whether what it wrote is finite."""
        ordinal = self.ordinal
        self.ordinal = ordinal + 1
        try:
            lane: Lane = self.local.lane
        except AttributeError:
            lane = self.lane()
        node = kind = None
        if lane.optimizer is not None and not lane.engine_depth and not _grad_enabled():
            phase, site = OPTIMIZER, (self.sites.here(3) if lane.optimizer_own else lane.optimizer_site)
        elif (node := _current_node()) is None:
            phase, site = FORWARD, self.sites.here(3)
        else:
            kind = type(node)
            if _grad_enabled() and not lane.create_graph:
                phase, site = FORWARD, self.sites.here(3)
            else:
                phase, site = self._in_backward(node, operator, lane)
        if phase != OPTIMIZER:
            sequence = _sequence_nr()
            if sequence != lane.sequence:
                # the node of this operation (and of what enclosed it) has its number already
                nodes = lane.nodes
                entry = (site, operator, ordinal, lane.module)
                for number in range(max(lane.sequence, sequence - 64), sequence):
                    nodes[number & NODES_MASK] = (number, *entry)
                lane.fresh = (lane.sequence, sequence, site) if operator.base == "clone" else None
                lane.sequence = sequence
            elif lane.fresh is not None:
                lane.saved_itself(operator, site, ordinal)
        rows = self.rows
        place = ordinal & RING_MASK
        rows.ordinals[place] = ordinal
        rows.operators[place] = operator
        rows.sites[place] = site
        rows.phases[place] = phase
        rows.nodes[place] = kind
        rows.modules[place] = lane.module
        held: list[Any] | None = None
        size = 0
        if phase == FORWARD:
            if not operator.view and not operator.collective:
                held, size = rows.operands_of(args, site, ordinal, self.bad.events.first_used)
            elif args and type(args[0]) in PLAIN and args[0].requires_grad and is_leaf(args[0]):
                self.bad.events.first_used(args[0], site)
                # a view of a parameter is held at no cost: the program keeps it
                rows.uncounted(args[0], ordinal)
        written: Any
        if (operator.collective or operator.base == "copy_") and self.bad.exchanges.take(operator, args, out, ordinal):
            written = ()
        elif operator.writes_first:
            written = args[:1]
        elif operator.view:
            written = ()
            if operator.base == "lift_fresh" and type(out) is torch.Tensor:
                rows.note(out, ordinal)
        elif type(out) is torch.Tensor and not operator.mutable:
            written = (out,)
        else:
            written = [t for t in experiments.outputs_of(operator, args, kwargs, out) if is_plain(t)]
        waits = bool(written) and (self.defers or not written[0].is_cpu) and not written[0].is_meta
        if waits:
            self._note(written, operator, ordinal)
        elif self.deferred.events and ((operator.leaves and self.defers) or not _all_cpu(args)):
            self.deferred.settle()
        if held is not None:
            first = written[0] if written else None
            copy = before.get(id(args[0])) if before and args else None
            if first is not None and first.layout is torch.strided and not first.is_nested:
                layout = (first.shape, first.stride(), first.storage_offset())
                rows.hold(ordinal, held, layout, copy, size + first.numel() * first.element_size(), kwargs)
            else:
                rows.hold(ordinal, held, None, copy, size, kwargs)
        if ordinal & 1023 == 1023:
            self.any_marked = bool(self.marked) or bool(self.uninitialised)
            if self.recording is not None and place == RING_MASK:
                self.recording.full()
        if waits:
            row = Row(ordinal, operator, site, phase, kind, lane.module)
            by_alias = phase in (BACKWARD, ACCUMULATION)
            self.deferred.add(row, operator, args, kwargs, list(written), before, node, lane, by_alias=by_alias)
            return
        bad: list[int] | None = None
        fleeting = phase == OPTIMIZER and not operator.mutable and not operator.uninitialised
        look = unproved(written) if len(written) > FEW and not self.want_ranges else None
        for i, tensor in enumerate(written):
            clean = look is not None and not look[i]
            if (not clean and self._is_bad(tensor)) if fleeting else self._wrote(tensor, operator, ordinal, clean):
                bad = [i] if bad is None else [*bad, i]
        if operator.mutable and phase == FORWARD and self.bad.sinks.unused:
            self.bad.sinks.changed(written)
        marked = self.any_marked and self.reads_marked(args, kwargs) and not operator.collective
        if bad or marked or operator.leaves:
            row = Row(ordinal, operator, site, phase, kind, lane.module)
            self.bad.look(row, operator, args, kwargs, out, list(written), bad or [], before, node, lane, marked)
        if self.want_ranges:
            self.add_ranges(Row(ordinal, operator, site, phase, kind, lane.module), operator, written)
        if operator.base in self.detectors.asked[phase]:
            row = Row(ordinal, operator, site, phase, kind, lane.module)
            self.detectors.look(row, operator, args, kwargs, written, before, node, lane)

    def _in_backward(self, node: Any, operator: Operator, lane: Lane) -> tuple[int, int]:
        number = forward_number(node)
        if number == ACCUMULATE_GRAD:
            self.bad.gradient_arrives(node, operator, lane)
            return ACCUMULATION, 0
        if type(node).__name__ in CHANGED_FORMULAS:
            self.notes[formula_note(type(node).__name__)] = None
        known = lane.entry(number)
        site = known[1] if known is not None else 0
        if not site or in_a_hook(sys._getframe(3)):
            site = self.sites.here(4)
        return BACKWARD, site

    def reads_marked(self, args: Any, kwargs: Any) -> bool:
        found = False
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, torch.Tensor):
                state = self.state_of(value)
                if state is not None:
                    state.reads += 1
                    found = True
            elif isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
                found = self.reads_marked(value, None) or found
        return found

    def _is_bad(self, tensor: Tensor) -> bool:
        """Whether a tensor that an event wrote holds a bad element: one sum, and a second look only on doubt."""
        dtype = tensor.dtype
        if dtype not in FLOATS:
            return False
        try:
            if dtype in HALVES:
                return is_bad(tensor)
            total = tensor.sum().item()
            return total - total != 0 and is_bad(tensor)
        except (RuntimeError, NotImplementedError, TypeError):
            tensor = elements(tensor)
            return readable(tensor) and bool(bad_mask(tensor).any())

    def _note(self, written: Sequence[Tensor], operator: Operator, ordinal: int) -> None:
        """Note who wrote tensors that are looked at later."""
        for tensor in written:
            try:
                self.rows.note(tensor, ordinal)
                if operator.uninitialised:
                    self._leave_uninitialised(tensor)
            except (RuntimeError, NotImplementedError):
                continue

    def _wrote(self, tensor: Tensor, operator: Operator, ordinal: int, clean: bool) -> bool:
        """Note who wrote a tensor; whether it holds a bad element."""
        try:
            tensor.untyped_storage()._whynan_writer = ordinal  # pyright: ignore[reportAttributeAccessIssue]
        except (RuntimeError, NotImplementedError):
            values = elements(tensor)
            return values is not tensor and self._wrote(values, operator, ordinal, clean)
        if operator.uninitialised:
            self._leave_uninitialised(tensor)
            return False
        if self.any_marked or self.want_ranges:
            return self.judged(tensor, operator, clean)
        return not clean and self._is_bad(tensor)

    def judged(self, tensor: Tensor, operator: Operator, clean: bool) -> bool:
        """Whether a tensor that an event wrote holds a bad element; labels of what it overwrote go."""
        if self.want_ranges and readable(tensor) and not tensor._is_zerotensor():
            found = self._counted[id(tensor)] = counters(tensor)
            bad = any(found[0][name] for name in ("n_nan", "n_posinf", "n_neginf"))
        else:
            bad = not clean and self._is_bad(tensor)
        if self.any_marked:
            self._rewrite(tensor, operator, bad)
        return bad

    def _leave_uninitialised(self, tensor: Tensor) -> None:
        state = State(self.first)
        state.uninitialised = True
        setattr(tensor.untyped_storage(), ATTRIBUTE, state)
        self.uninitialised.add(state)
        self.any_marked = True

    def _rewrite(self, tensor: Tensor, operator: Operator, bad: bool) -> None:
        """A storage that had a state was written: what is finite now carries no label."""
        state = self.state_of(tensor)
        if state is not None and not bad:
            state.rewritten(elements(tensor), overwrites=operator.overwrites)

    def add_ranges(self, row: Row, operator: Operator, written: Sequence[Tensor]) -> None:
        """Count what an event wrote, where ranges are asked for."""
        if not self.want_ranges:
            return
        for i, tensor in enumerate(written):
            if readable(tensor) and not tensor._is_zerotensor():
                found = self._counted.get(id(tensor))
                self.ranges.add(tensor, found, row.ordinal - self.first, operator.name, row.phase, row.site, i)
        self._counted.clear()

    def state_of(self, tensor: Tensor) -> State | None:
        """This trace's state of a tensor's storage, if it has one."""
        try:
            state: Any = getattr(tensor.untyped_storage(), ATTRIBUTE, None)
        except (RuntimeError, NotImplementedError):
            values = elements(tensor)
            return None if values is tensor else self.state_of(values)
        return state if type(state) is State and state.trace == self.first else None

    def mark(self, tensor: Tensor) -> State:
        """This trace's state of a tensor's storage, made if there is none."""
        state = self.state_of(tensor)
        if state is None:
            state = State(self.first)
            setattr(tensor.untyped_storage(), ATTRIBUTE, state)
        self.marked.add(state)
        self.any_marked = True
        return state

    def forget(self, *tensors: Tensor) -> None:
        """Keep no weak reference to these."""
        for tensor in tensors:
            self.bad.events.leaf_sites.pop(id(tensor), None)
            self.bad.sinks.leaves.pop(id(tensor), None)
            self.bad.sinks.unused = {k: v for k, v in self.bad.sinks.unused.items() if v.reference() is not tensor}
            self.names.forget(tensor)

    def close(self) -> None:
        """End the trace: let go of operands, and give the next trace its own ordinals."""
        self.mode = None
        if self.recording is not None:
            self.recording.close()
        _next_ordinal[0] = self.ordinal + 1
        self._forget_tensors()
        self.rows.clear()

    def _forget_tensors(self) -> None:
        """Keep no weak reference to a tensor: with one, ``swap_tensors`` refuses what is the program's."""
        for held in (self.bad.events.leaf_sites, self.bad.sinks.leaves, self.bad.sinks.unused, self.names.given):
            held.clear()
        self.names.leaves.clear()


def _all_cpu(args: Any) -> bool:
    return all(t.is_cpu for a in args for t in experiments.tensors_in(a))
