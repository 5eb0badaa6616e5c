"""The tracer: what happens after every operation, and what is kept of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.accelerator import DeferredChecks
from whynan.capture.torch.event_log import ACCUMULATE_GRAD, LiveEvent, Row, is_leaf
from whynan.capture.torch.event_log import MASK as RING_MASK
from whynan.capture.torch.interposition.wrappers import StopCondition
from whynan.capture.torch.operators import CHANGED_FORMULAS, DEVICE_NOTE, formula_note
from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.provenance.births import BadEvents
from whynan.capture.torch.provenance.origins import Origins
from whynan.capture.torch.shadow_memory import (
    HALVES,
    PLAIN,
    WIDE,
    Counted,
    bad_mask,
    counters,
    elements,
    is_bad,
    is_plain,
    is_readable,
    unproved,
)
from whynan.capture.torch.silent.detectors import Detectors
from whynan.capture.torch.sites import ACCUMULATION, BACKWARD, FORWARD, NODES_MASK, OPTIMIZER, Lane, is_in_hook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.kept_operations import OperationKeeper
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.trace_segments import Recording

FEW = 3

_current_node = torch._C._current_autograd_node
_sequence_nr = torch.autograd._get_sequence_nr
_grad_enabled = torch.is_grad_enabled


class Tracer:
    """One trace over one stretch of a program, on every thread that enters it."""

    defers = False
    """Whether events on the CPU wait for a sink too, as those on an accelerator do."""

    def __init__(
        self,
        context: TraceContext,
        *,
        ranges: bool = False,
        keeper: OperationKeeper | None = None,
        reads: frozenset[str] = frozenset(),
    ) -> None:
        self.context = context
        self.keeper = keeper
        self.origins = Origins(context)
        self.bad = BadEvents(context, self.origins, keeper)
        self.deferred = DeferredChecks(lambda: context.any_marked or ranges, self._explain)
        self.detectors = Detectors(context, self.bad.events, reads)
        self.want_ranges = ranges
        self._counted: dict[int, Counted] = {}
        self.ending = StopCondition(context, self.deferred.run_checks)
        self.recording: Recording | None = None

    def record_event(
        self, operator: Operator, args: Any, kwargs: Any, out: Any, before: dict[int, Tensor] | None
    ) -> None:
        """Record one event that has run: its site and operands, and whether what it wrote is finite."""
        context = self.context
        if operator.composite and operator.view:
            operator = operator.as_run(args, out)
        ordinal = context.ordinal
        context.ordinal = ordinal + 1
        if context.refused is not None:
            context.refused = None
        try:
            lane: Lane = context.local.lane
        except AttributeError:
            lane = context.lane()
        node = kind = None
        fleeting = False
        if lane.optimizer is not None and not lane.engine_depth and not _grad_enabled():
            # what PyTorch's own optimizers compute on the way to a parameter is not followed
            fleeting = not lane.optimizer_own
            phase, site = OPTIMIZER, (lane.optimizer_site if fleeting else context.sites.current_site(2))
        elif (node := _current_node()) is None:
            phase, site = FORWARD, context.sites.current_site(2)
        else:
            kind = type(node)
            if _grad_enabled() and not lane.create_graph:
                phase, site = FORWARD, context.sites.current_site(2)
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
                if lane.of_engine:
                    lane.note_node(out, (sequence - 1, *entry))
                lane.fresh = (lane.sequence, sequence, site) if operator.base == "clone" else None
                lane.sequence = sequence
            elif lane.fresh is not None:
                lane.saved_itself(operator, site, ordinal)
        rows = context.rows
        place = ordinal & RING_MASK
        rows.ordinals[place] = ordinal
        rows.operators[place] = operator
        rows.sites[place] = site
        rows.phases[place] = phase
        rows.nodes[place] = kind
        rows.modules[place] = lane.module
        held: list[Any] | None = None
        size = 0
        if phase == FORWARD or (phase == OPTIMIZER and not fleeting):
            if not operator.view and not operator.collective:
                held, size = rows.operands_of(args, site, ordinal, self.bad.events.first_used)
            elif args and type(args[0]) in PLAIN and args[0].requires_grad and is_leaf(args[0]):
                self.bad.events.first_used(args[0], site)
                # a view of a parameter is held at no cost: the program keeps it
                rows.uncounted(args[0], ordinal)
        written: Any
        if operator.exchanges and self.bad.exchanges.record_collective(operator, args, out, ordinal):
            written = ()
        elif operator.writes_first:
            written = args[:1]
        elif operator.view:
            written = ()
            if operator.base == "lift_fresh" and type(out) is torch.Tensor:
                rows.note(out, ordinal)
        elif type(out) is torch.Tensor and not operator.mutable:
            written = (out,)
        elif operator.leaves:
            written = ()
        else:
            written = [t for t in interventions.outputs_of(operator, args, kwargs, out) if is_plain(t)]
        first = written[0] if written else None
        if first is not None and first.is_meta:
            # below a dispatch mode what a tensor of zeros is computed with is first computed without memory
            written, first = (), None
        waits = first is not None and (self.defers or not first.is_cpu)
        if waits:
            self._note(written, operator, ordinal)
        elif self.deferred.events and ((operator.leaves and self.defers) or not _all_cpu(args)):
            self.deferred.run_checks()
        if held is not None:
            copy = before.get(id(args[0])) if before and args else None
            if first is not None and first.layout is torch.strided and not first.is_nested:
                layout = (first.shape, first.stride(), first.storage_offset())
                rows.hold(ordinal, held, layout, copy, size + first.numel() * first.element_size(), kwargs)
            else:
                rows.hold(ordinal, held, None, copy, size, kwargs)
        if ordinal & 1023 == 1023:
            context.any_marked = bool(context.marked) or bool(context.uninitialised)
            if self.recording is not None and place == RING_MASK:
                self.recording.full()
        if waits:
            if operator.base in self.detectors.asked:
                context.notes[DEVICE_NOTE] = None
            row = Row(ordinal, operator, site, phase, kind, lane.module)
            self.deferred.add(LiveEvent(row, args, kwargs, list(written), before, node, lane))
            return
        fleeting = fleeting and not operator.mutable and not operator.uninitialised
        bad = self._bad_among(written, operator, ordinal, fleeting) if written else None
        if phase == FORWARD:
            asked = operator.base in self.detectors.asked
            if operator.mutable and context.log.unused:
                self.bad.sinks.record_in_place_change(written)
        else:
            asked = phase == OPTIMIZER and operator.base in self.detectors.updates.asked
        marked = context.any_marked and self.reads_marked(args, kwargs) and not operator.collective
        if operator.leaves:
            if context.any_marked:
                with torch._C._DisableTorchDispatch():
                    self.bad.sinks.python_value(args, out)
        elif bad or marked or asked or self.want_ranges:
            row = Row(ordinal, operator, site, phase, kind, lane.module)
            live = LiveEvent(row, args, kwargs, list(written), before, node, lane)
            if bad or marked:
                self.bad.explain_event(live, bad or [], marked)
            if self.want_ranges:
                self.add_ranges(live)
            if asked:
                self.detectors.check_event(live)

    def _bad_among(self, written: Any, operator: Operator, ordinal: int, fleeting: bool) -> list[int] | None:
        """The places of the tensors with a bad element among those that an event wrote, each noted as written by it."""
        if len(written) == 1:
            bad = self._is_bad(written[0]) if fleeting else self._wrote(written[0], operator, ordinal, False)
            return [0] if bad else None
        look = unproved(written) if len(written) > FEW and not self.want_ranges else None
        places: list[int] = []
        for i, tensor in enumerate(written):
            clean = look is not None and not look[i]
            if (not clean and self._is_bad(tensor)) if fleeting else self._wrote(tensor, operator, ordinal, clean):
                places.append(i)
        return places

    def _in_backward(self, node: Any, operator: Operator, lane: Lane) -> tuple[int, int]:
        if node._sequence_nr() == ACCUMULATE_GRAD:
            self.bad.record_gradient(node, operator, lane)
            # what a hook of the program's exchanges, as one of DistributedDataParallel's buckets
            exchanges = operator.collective and is_in_hook(sys._getframe(2))
            return ACCUMULATION, self.context.sites.current_site(3) if exchanges else 0
        name = type(node).__name__
        if name in CHANGED_FORMULAS and node.next_functions[CHANGED_FORMULAS[name]][0] is not None:
            self.context.notes[formula_note(name)] = None
        known = lane.entry(node)
        site = known[1] if known is not None else 0
        # a device thread of the engine has no frame of Python beyond the dispatch
        if not site or is_in_hook(sys._getframe(2)):
            site = self.context.sites.current_site(3)
        return BACKWARD, site

    def reads_marked(self, args: Any, kwargs: Any) -> bool:
        found = False
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, torch.Tensor):
                state = self.context.state_of(value)
                if state is not None:
                    state.reads += 1
                    found = True
            elif isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
                found = self.reads_marked(value, None) or found
        return found

    def _explain(self, live: LiveEvent, doubtful: set[int]) -> None:
        """An event that has waited: look at its outputs now, of which some may be bad."""
        bad: list[int] = []
        operator = live.row.operator
        if not operator.uninitialised:
            bad = [i for i, t in enumerate(live.written) if self.has_bad_element(t, operator, i not in doubtful)]
        marked = self.context.any_marked and self.reads_marked(live.args, live.kwargs)
        if bad or marked:
            self.bad.explain_event(live, bad, marked)
        if self.want_ranges:
            self.add_ranges(live)

    def _is_bad(self, tensor: Tensor) -> bool:
        """Whether a tensor that an event wrote holds a bad element: one sum, and a second look only on doubt."""
        dtype = tensor.dtype
        if tensor._is_zerotensor():
            # zeros of forward-mode derivatives, which have no memory
            return False
        try:
            if dtype in WIDE:
                total = tensor.sum().item()
                return total - total != 0 and is_bad(tensor)
            return dtype in HALVES and is_bad(tensor)
        except (RuntimeError, NotImplementedError, TypeError):
            tensor = elements(tensor)
            return is_readable(tensor) and bool(bad_mask(tensor).any())

    def _note(self, written: Sequence[Tensor], operator: Operator, ordinal: int) -> None:
        """Note who wrote tensors that are looked at later."""
        for tensor in written:
            try:
                self.context.rows.note(tensor, ordinal)
                if operator.uninitialised:
                    self.context.leave_uninitialised(tensor)
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
            self.context.leave_uninitialised(tensor)
            return False
        if self.context.any_marked or self.want_ranges:
            return self.has_bad_element(tensor, operator, clean)
        return not clean and self._is_bad(tensor)

    def has_bad_element(self, tensor: Tensor, operator: Operator, clean: bool) -> bool:
        """Whether a tensor that an event wrote holds a bad element; labels of what it overwrote go."""
        if self.want_ranges and is_readable(tensor) and not tensor._is_zerotensor():
            found = self._counted[id(tensor)] = counters(tensor)
            bad = any(found[0][name] for name in ("n_nan", "n_posinf", "n_neginf"))
        else:
            bad = not clean and self._is_bad(tensor)
        if self.context.any_marked:
            self._rewrite(tensor, operator, bad)
        return bad

    def _rewrite(self, tensor: Tensor, operator: Operator, bad: bool) -> None:
        """A storage that had a state was written: what is finite now carries no label."""
        state = self.context.state_of(tensor)
        if state is not None and not bad:
            state.clear_overwritten(elements(tensor), overwrites=operator.overwrites)

    def add_ranges(self, live: LiveEvent) -> None:
        """Count what an event wrote."""
        row, ordinal = live.row, live.row.ordinal - self.context.first
        for i, tensor in enumerate(live.written):
            if is_readable(tensor) and not tensor._is_zerotensor():
                found = self._counted.get(id(tensor))
                self.context.ranges.add(tensor, found, ordinal, row.operator.name, row.phase, row.site, i)
        self._counted.clear()

    def end_stretch(self) -> None:
        """A step, a backward or an outermost call has ended."""
        if self.recording is not None:
            self.recording.write_new_facts()

    def close(self) -> None:
        """End the trace."""
        if self.recording is not None:
            self.recording.close()
        self.context.mode = None
        self.context.close()


def _all_cpu(args: Any) -> bool:
    return all(t.is_cpu for a in args for t in interventions.tensors_in(a))
