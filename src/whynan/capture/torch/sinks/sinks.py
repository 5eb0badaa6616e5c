"""Sinks: losses, gradients, parameters, buffers, outputs, and what is only observed."""

from __future__ import annotations

import math
import weakref
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.event_log import address
from whynan.capture.torch.names import Identities, tensors_of
from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.shadow_memory import State, bad_mask, is_bad, is_readable, is_strided, local, one_of, strided
from whynan.capture.torch.sinks.decisions import decision_sinks, exception_link
from whynan.capture.torch.sinks.gradients import differentiated_in
from whynan.capture.torch.sinks.loss_scaling import Scaler
from whynan.capture.torch.sinks.sink_log import MOST_CALLS, Backward, Leaf, Returned, distinct, incurable, was_reset
from whynan.capture.torch.sinks.values_read import held_tensors, is_nonfinite_error, raised_at
from whynan.capture.torch.sparse import as_dense
from whynan.traces import Sink
from whynan.traces.facts import STILL_HELD

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import LiveEvent
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.provenance.entries import Entries
    from whynan.capture.torch.sites import Lane
    from whynan.records import SinkKind


# -- Where values leave: losses, gradients, parameters, buffers, outputs, and what is only observed --------------------


class Sinks:
    """All sinks of a trace; a gradient is one only when something consumes it, or when it is left at the end."""

    def __init__(self, context: TraceContext, entries: Entries) -> None:
        self.context = context
        self.log = context.log
        self.entries = entries
        self.backwards: list[Backward] = []
        self.scaler = Scaler(context, self.consume)
        self._written = Identities[frozenset[int]]()
        """By parameter, the infinities of the program's own that it held before its first step."""
        self.at_once = False
        """Whether what a module gives without a backward is not waited with: the program may not mend it."""
        self.in_closure: list[Backward] = []
        """The engine calls of the closure that the optimizer's step is evaluating."""

    # -- what is read off a tensor -------------------------------------------------------------------------------

    def sink(
        self, tensor: Tensor, kind: SinkKind, name: str | None, fatal: bool, *, part: Tensor | None = None
    ) -> list[Sink]:
        """The sinks that a tensor, or that ``part`` of it, makes: one of its bad elements, one of damage in others."""
        context = self.context
        tensor = as_dense(tensor, context)
        state = context.state_of(tensor)
        made: list[Sink] = []
        if not is_readable(tensor) or (state is None and not is_bad(tensor)):
            return self._integers(tensor, state, kind, name, fatal)
        labels = context.labels
        with torch._C._DisableTorchDispatch():
            bad = bad_mask(tensor)
            if part is not None and part.shape == bad.shape:
                bad = bad & part
            count = int(bad.sum())
            if count:
                counts: dict[frozenset[int], int] = {}
                if state is not None and state.plane is not None:
                    plane = torch.where(bad, strided(state.plane, state.itemsize, tensor), 0)
                    counts = labels.counts(plane)
                elif (entered := self._unread(tensor, bad)) is not None:
                    counts = labels.counts(entered)
                found = frozenset(label for carried in counts for label in carried)
                seen = Sink(kind, name, count, tensor.numel(), found, fatal, counts=counts, owner=self.log.steps.owner)
                made.append(replace(seen, value=one_of(tensor, bad)))
        return made + self._integers(tensor, state, kind, name, fatal)

    def _unread(self, tensor: Tensor, bad: Tensor) -> Tensor | None:
        """Labels of bad elements that no event has read and none of this trace has computed."""
        context = self.context
        if context.narrowed:
            # what was computed out of sight has not come in
            return None
        made = context.rows.get(context.rows.writer_of(tensor))
        if made is not None and made.operator.base != "lift_fresh" and not made.operator.collective:
            return None
        return self.entries.enter_unread(tensor, bad, 0 if made is None else made.site)

    def _integers(
        self, tensor: Tensor, state: State | None, kind: SinkKind, name: str | None, fatal: bool
    ) -> list[Sink]:
        if state is None or state.taint is None or not is_strided(tensor):
            return []
        with torch._C._DisableTorchDispatch():
            plane = strided(state.taint, state.itemsize, tensor)
            count = int((plane != 0).sum())
            if not count:
                return []
            found = self.context.labels.labels_in(plane)
        return [Sink(kind, name, count, tensor.numel(), found, fatal, damage=True, owner=self.log.steps.owner)]

    # -- backward ------------------------------------------------------------------------------------------------

    def begin_backward(
        self, lane: Lane, roots: Sequence[Tensor], gradients: Sequence[Any], *, into_leaves: bool
    ) -> None:
        """The engine is called: its roots are a loss, where the gradients given for them are not 0.

        `autograd.grad` returns gradients and uses none of them.
        """
        self.log.last_backward = self.context.ordinal
        self.scaler.begin_backward(lane)
        self.log.steps.begin_backward(self.context.ordinal - self.context.first)
        self.log.fatal_seen = self.log.fatal_seen or into_leaves
        loss: list[Sink] = []
        for root, gradient in zip_longest(roots, gradients) if into_leaves else ():
            loss += self.sink(root, "loss", None, True, part=differentiated_in(root, gradient))
        record = Backward(len(self.backwards), loss, self.context.ordinal - self.context.first, lane=lane)
        last = {self.context.rows.writer_of(r) - self.context.first for r in roots} if loss else set()
        record.incurable = incurable(loss, self.context.labels, last)
        if loss:
            self.backwards.append(record)
        if lane.closure and into_leaves:
            self.in_closure.append(record)
        lane.backward = record
        lane.loss_labels = frozenset(label for s in loss for label in s.labels)

    def record_gradient(self, leaf: Tensor, operator: Operator, lane: Lane) -> None:
        """An event under AccumulateGrad for a leaf."""
        known = self.log.leaves.get(id(leaf))
        if known is None or known.reference() is not leaf:
            if known is not None:
                self._record_gone_leaf(known)
            known = self.log.leaves[id(leaf)] = Leaf(weakref.ref(leaf), {})
        record: Backward | None = lane.backward
        known.record_gradient(lane if record is None or record.lane is None else record.lane)
        if (operator.base != "add" and operator.base != "add_") or (
            known.pending and leaf.grad is not None and was_reset(self.context.rows, leaf.grad)
        ):
            known.pending.clear()
        if record is not None:
            record.leaves[id(leaf)] = None
            if record.loss:
                known.pending[record.number] = record

    def end_backward(self, record: Backward | None) -> None:
        """The engine is done: what is bad in the gradients that it left."""
        if record is None or not self.context.marked:
            return
        for number in record.leaves:
            known = self.log.leaves.get(number)
            leaf = known.reference() if known is not None else None
            if known is None or leaf is None or leaf.grad is None:
                continue
            if known.pending:
                self.log.unused[address(leaf)] = known
            state = self.context.state_of(leaf.grad)
            bad = state is not None and not state.skipped
            known.state = weakref.ref(state) if state is not None and bad else None
            known.left = self.sink(leaf.grad, "gradient", self.context.names.leaf_name(leaf), True) if bad else []

    def record_in_place_change(self, written: Sequence[Tensor]) -> None:
        """Tensors were changed in place outside of an optimizer: by hand, a leaf uses its gradient so."""
        for tensor in written:
            known = self.log.unused.pop(address(tensor), None)
            if known is not None and known.reference() is not None:
                self._use(known)

    def record_interrupted(self, record: Backward | None) -> None:
        """An exception has left the engine: what its backward had born was on its way to a gradient."""
        if record is None:
            return
        born = [b for b in self.context.labels.births if b.label_kind == "birth" and b.event.ordinal >= record.start]
        self.log.found += [
            Sink("gradient", None, b.element.count, b.element.total, frozenset((b.label,)), True) for b in born
        ]

    def _record_gone_leaf(self, leaf: Leaf) -> None:
        """A leaf was let go of with the gradient that a backward had left: nobody discarded it."""
        self._use(leaf)
        self.log.found += leaf.left
        leaf.left = []

    def _use(self, leaf: Leaf) -> None:
        """The gradients of a leaf are used, and so are the losses that they came from."""
        for record in leaf.pending.values():
            if not record.used:
                record.used = True
                self.log.found += record.loss
        leaf.pending.clear()

    # -- optimizer -----------------------------------------------------------------------------------------------

    def begin_step(self, optimizer: Any, closure: bool) -> None:
        """An optimizer is about to consume gradients; one that a scaler told to skip does not."""
        self.scaler.waits = False
        fresh = self.log.steps.begin(optimizer)
        parameters = [p for g in optimizer.param_groups for p in g["params"] if isinstance(p, torch.Tensor)]
        if fresh:
            self._enter_parameters(parameters)
        found_inf = getattr(optimizer, "found_inf", None)
        if isinstance(found_inf, torch.Tensor) and bool(found_inf.any()):
            self.log.skipped_steps += 1
            self.scaler.begin_skip([p.grad for p in parameters if p.grad is not None])
            return
        self.scaler.record_step()
        if closure:
            self.in_closure = []
            return
        self._consume_all(parameters)

    def _consume_all(self, parameters: list[Tensor]) -> None:
        for p in parameters:
            if p.grad is not None:
                self.consume(p, "gradient")

    def end_closure(self, optimizer: Any) -> None:
        """A step with a closure has ended: one that asked once used that loss; a search only probed."""
        records, self.in_closure = self.in_closure, []
        if len(records) == 1:
            self._consume_all([p for g in optimizer.param_groups for p in g["params"] if isinstance(p, torch.Tensor)])
        for leaf in self.log.leaves.values():
            for record in records:
                leaf.pending.pop(record.number, None)

    def _enter_parameters(self, parameters: list[Tensor]) -> None:
        """Parameters that are bad before their first step are so from outside, not by the optimizer."""
        for whole, p in ((p, here) for p in parameters if (here := local(p)) is not None):
            state = self.context.state_of(p)
            if state is None and is_readable(p) and is_bad(p.detach()):
                self.entries.enter_parameter(p, self.context.lane().optimizer_site)
                state = self.context.state_of(p)
            # in a replay they may be what a step before has left
            plane = None if state is None or self.log.steps.offset else state.plane
            found = frozenset[int]() if plane is None else self.context.labels.labels_in(plane)
            self._written.set(whole, found & self.context.labels.literals)

    def consume(self, leaf: Tensor, kind: SinkKind) -> None:
        """A leaf's gradient is used: it is a sink, and so are the losses it came from."""
        grad = None if leaf.grad is None else local(leaf.grad)
        state = self.context.state_of(grad) if grad is not None else None
        if state is not None and state.skipped:
            return
        known = self.log.leaves.get(id(leaf))
        if known is not None:
            self._use(known)
            known.left = []
        if grad is not None and (state is not None or not self._seen(grad)):
            self.log.found += self.sink(grad, kind, self.context.names.leaf_name(leaf), True)

    def _seen(self, tensor: Tensor) -> bool:
        """Whether this trace saw what the tensor's last write gave, so that no state means finite."""
        rows = self.context.rows
        try:
            made = rows.writer_of(tensor)
        except (RuntimeError, NotImplementedError):
            return True
        return made >= self.context.first and not self.entries.exchanges.collective_of(rows.get(made))

    def end_step(self, optimizer: Any) -> None:
        """What a step left in parameters."""
        self.log.steps.end(optimizer, self.context.ordinal - self.context.first)
        # a fused optimizer is recorded as writing the gradients that it skipped
        self.scaler.end_skip()
        for group in optimizer.param_groups if self.context.marked else ():
            for p in group["params"]:
                here = local(p) if isinstance(p, torch.Tensor) else None
                if here is not None and self.context.state_of(here) is not None:
                    self._stored(here, "parameter", self.context.names.leaf_name(p), p)
        self.log.steps.owner = None

    def _stored(self, tensor: Tensor, kind: SinkKind, name: str | None, whole: Tensor) -> None:
        """A parameter or buffer with bad elements that were finite before; a mask may be either."""
        labels = self.context.labels
        is_trained = kind == "parameter" and whole.requires_grad
        # what other processes have put there was not there before
        came = is_trained and self._came(tensor)
        for sink in self.sink(tensor, kind, name, True):
            own = frozenset(
                label
                for label in sink.labels
                if came or not ((b := labels.birth(label)).kind == "entered" and b.element.tensor == name)
            )
            written = self._written.get(whole) if is_trained else None
            if written is None and not (is_trained and isinstance(whole, torch.nn.Parameter)):
                # a leaf that no optimizer has may be what another part of a model has given
                written = self.context.labels.literals
            own -= written or frozenset()
            if own:
                self.log.found.append(replace(sink, labels=own))

    # -- outputs and observation -----------------------------------------------------------------------------------

    def record_module_output(self, given: Any, out: Any) -> None:
        """An outermost module call has ended; ``given``: its arguments.

        What it makes of memory that it was given and that nobody has written is asked for its shape.
        """
        self.log.fatal_seen = True
        if not self.context.marked:
            return
        empty: frozenset[int] | None = None
        for name, tensor in tensors_of(out, "output"):
            if self.context.state_of(tensor) is not None:
                made = self.sink(tensor, "output", name, True)
                if made:
                    empty = self._unwritten(given) if empty is None else empty
                    made = [sink for sink in made if not sink.labels or not sink.labels <= empty]
                if tensor.requires_grad:
                    # whether a backward follows is known only later
                    self.log.outputs += [(sink, self.context.ordinal) for sink in made]
                else:
                    self._await(tensor, made)

    def await_outputs(self, out: Any) -> None:
        """What a module gave before this trace, and is bad: it is mended, or a sink."""
        for name, tensor in tensors_of(out, "output"):
            self._await(tensor, self.sink(tensor, "output", name, True))

    def _await(self, tensor: Tensor, made: list[Sink]) -> None:
        """What a module gave is a sink, unless the program mends it before it goes on: `settle_outputs`."""
        self.log.found += [sink for sink in made if sink.damage]
        made = [sink for sink in made if not sink.damage]
        labels = frozenset(label for sink in made for label in sink.labels)
        if not labels or self.at_once or not is_readable(tensor):
            self.log.found += made
        else:
            storage = weakref.ref(tensor.untyped_storage())
            self.log.returned.append(Returned(made, labels, storage, len(self.log.found)))

    def record_mending(self, live: LiveEvent) -> None:
        """An event read something bad: whether it made a finite number of what a module gave.

        To ask whether something is bad, or which elements are, makes none, nor does what reads the shape alone.
        """
        operator = live.row.operator
        waiting = [one for one in self.log.returned if not one.mended]
        made = [tensor for tensor in live.written if tensor.dtype is not torch.bool]
        if not waiting or not made or operator.view or operator.collective or operator.value_free:
            return
        given = interventions.tensors_in([*live.args, *live.kwargs.values()])
        read = self._with_causes(self._labels_in(given, wrong=False))
        left = self._with_causes(self._labels_in(made))
        # another that was given has the same labels where it was made of this one
        storages = [tensor.untyped_storage() for tensor in given if is_strided(tensor)]
        itself = [one for one in waiting if any(one.storage() is storage for storage in storages)]
        for one in itself or waiting:
            one.mended = bool(one.labels & read) and not one.labels & left

    def _labels_in(self, tensors: Sequence[Tensor], *, wrong: bool = True) -> frozenset[int]:
        """The labels of what is bad in some tensors, or ``wrong`` by it."""
        found: set[int] = set()
        for tensor in tensors:
            state = self.context.state_of(tensor)
            if state is not None and is_strided(tensor):
                planes = [plane for plane in (state.plane, state.taint if wrong else None) if plane is not None]
                found.update(*(self.context.labels.labels_in(strided(p, state.itemsize, tensor)) for p in planes))
        return frozenset(found)

    def _with_causes(self, labels: Iterable[int]) -> set[int]:
        """Some labels, and those that they were made from."""
        found, waiting = set[int](), list(labels)
        while waiting:
            label = waiting.pop()
            if label not in found:
                found.add(label)
                waiting += self.context.labels.birth(label).causes
        return found

    def settle_outputs(self, *, waits: bool = False) -> None:
        """The program goes on: what modules gave without a backward is a sink now, but where it was mended.

        What has left as it was is one all the same. `waits`: as long as the program holds it still, or what it has made
        of it, and has not let it out, it may mend it, or let it out yet.
        """
        waiting, self.log.returned = self.log.returned, []
        for one in waiting:
            one.calls += 1
            out = self._has_left(one)
            if not out and waits and one.calls <= MOST_CALLS and self._is_held(one.labels):
                self.log.returned.append(one)
            elif out or not one.is_harmless(self.context.labels):
                self.log.found += one.sinks
                self.log.has_left = True

    def _has_left(self, one: Returned) -> bool:
        """Whether what is bad of what a module gave has left the program."""
        after = (sink for sink in self.log.found[one.place :] if not sink.damage)
        return bool(one.labels & self._with_causes(label for sink in after for label in sink.labels))

    def _is_held(self, labels: frozenset[int]) -> bool:
        """Whether the program holds something that is bad by some labels."""
        planes = (state.plane for state in list(self.context.marked))
        found = (self.context.labels.labels_in(plane) for plane in planes if plane is not None)
        return any(labels & self._with_causes(held) for held in found)

    def _unwritten(self, given: Any) -> frozenset[int]:
        """The labels of what some values hold of memory that nobody has written."""
        labels = self.context.labels
        states = (self.context.state_of(tensor) for _, tensor in tensors_of(given, ""))
        held = (labels.labels_in(s.plane) for s in states if s is not None and s.plane is not None)
        births = {label: labels.birth(label) for found in held for label in found}
        return frozenset(
            label for label, birth in births.items() if birth.note is not None and birth.note.kind == "uninitialised"
        )

    def release_outputs(self) -> None:
        """No backward follows any more: the outputs that one was waited for are sinks."""
        self.settle_outputs()
        self.log.found += self.log.awaited(self.context.labels)
        self.log.outputs = []

    def record_target_return(self, out: Any) -> None:
        """The target of `explain` has returned: all of it is a fatal sink."""
        for name, tensor in tensors_of(out, "output"):
            self.log.fatal_seen = True
            self.log.found += self.sink(tensor, "output", name, True)

    def record_conversion(self, tensor: Tensor) -> None:
        """`tolist`, `numpy`, DLPack, `save`: nothing is dispatched, the value leaves."""
        if self.context.lane().closure:
            return
        if self.context.state_of(tensor) is not None:
            one = tensor.item() if tensor.numel() == 1 and tensor.is_floating_point() else None
            if not self._decides(tensor, one):
                self._observe(tensor)

    def _decides(self, tensor: Tensor, value: Any) -> bool:
        """Whether the program decides on what it has read of a tensor."""
        made = decision_sinks(self.context, tensor, value, self.sink)
        self.log.found += made
        return bool(made)

    def python_value(self, args: Any, out: Any) -> None:
        """An event that gave a Python number."""
        if isinstance(out, float) and out != out:
            state = self.context.state_of(args[0])
            if state is not None and state.plane is not None:
                found = self.context.labels.labels_in(strided(state.plane, state.itemsize, args[0]))
                self.entries.record_python_nan(self.context.labels.intern(found) if found else 0)
        if self.context.lane().closure:
            return
        tensors = interventions.tensors_in(args)
        if len(tensors) == 1 and self._decides(tensors[0], out):
            return
        for tensor in tensors:
            if self.context.state_of(tensor) is not None:
                self._observe(tensor)

    def _observe(self, tensor: Tensor) -> None:
        """The program reads a tensor that has a state."""
        seen = self.sink(tensor, "observed", None, False)
        self.log.found += [s for s in seen if not self.scaler.is_discardable_read(s)]

    def record_refusal(self, error: Exception, args: Any, kwargs: Any) -> None:
        """An operation has raised: kept, where it was given a whole number that was computed of what is bad."""
        tensors = interventions.tensors_in([*args, *kwargs.values()])
        states = [(tensor, self.context.state_of(tensor)) for tensor in tensors if not tensor.is_floating_point()]
        given = [tensor for tensor, state in states if state is not None and state.taint is not None]
        self.context.refused = (error, given) if given else None

    def record_exception(self, error: BaseException) -> None:
        """An exception left the region with what its frames held.

        A fatal sink where it was raised for that, or by an operation for a whole number that came of it.
        """
        refused, given = self.context.refused or (None, [])
        self.context.refused = None
        if refused is error and (place := raised_at(error)) is not None:
            made = exception_link(place, of="given")
            wrong = [sink for tensor in given for sink in self.sink(tensor, "observed", None, True) if sink.damage]
            self.log.found += [replace(sink, damage=False, decision=made) for sink in wrong]
            return
        place = raised_at(error) if is_nonfinite_error(error) else None
        made = None if place is None else exception_link(place)
        held: list[Sink] = []
        for name, tensor in held_tensors(error):
            if self.context.state_of(tensor) is not None:
                held += self.sink(tensor, "observed", name, made is not None)
        if made is not None and not held and self.log.found and self.log.found[-1].kind == "observed":
            # an array that NumPy has: its tensor was read, and is gone
            held.append(replace(self.log.found.pop(), fatal=True))
        self.log.found += [replace(sink, decision=made) for sink in held]

    def finish(self) -> list[Sink]:
        """The run has ended: what is still in `.grad`, in parameters and buffers, and held unread."""
        context, here = self.context, self.context.lane()
        self.scaler.finish(here)
        for leaf in list(self.log.leaves.values()):
            tensor = leaf.reference()
            if tensor is None:
                self._record_gone_leaf(leaf)
                continue
            if not leaf.readable(here):
                # a thread trains on: what its last backward left, where that is there still
                left = leaf.state_left()
                if left is not None and not left.skipped:
                    self._record_gone_leaf(leaf)
            elif (
                tensor.grad is not None
                and not ((state := context.state_of(tensor.grad)) is not None and state.skipped)
                and not was_reset(self.context.rows, tensor.grad)
            ):
                self.consume(tensor, "gradient")
            if context.state_of(tensor) is not None:
                self._stored(tensor, "parameter", context.names.leaf_name(tensor), tensor)
        for reference, _, lane in list(self.log.leaf_sites.values()):
            tensor = None if lane is not here and lane.running else reference()
            if tensor is not None and tensor.grad is not None and id(tensor) not in self.log.leaves:
                state = context.state_of(tensor.grad)
                if state is not None and not state.skipped:
                    # put there by hand
                    self.consume(tensor, "gradient")
        self.look_at_modules()
        stepped: list[Tensor] = self._written.keys()
        for parameter in stepped:
            # one of an optimizer's that no backward of this trace has come to
            self._stored_at_end(parameter, "parameter", context.names.leaf_name(parameter))
        self.release_outputs()
        named: set[int] = set()
        for leaf in self.log.leaves.values():
            tensor = leaf.reference()
            if tensor is not None:
                named.add(id(context.state_of(tensor)))
                if leaf.readable(here) and tensor.grad is not None:
                    named.add(id(context.state_of(tensor.grad)))
        # what only the window holds, the program does not
        context.rows.let_go()
        for state in list(context.marked):
            if state.reads == 0 and id(state) not in named and state.plane is not None and not state.skipped:
                self._held(state)
        return distinct(self.log.found)

    def look_at_modules(self) -> None:
        """What is bad in the parameters and buffers of the modules that ran."""
        is_any = bool(self.context.marked) or self.entries.exchanges.is_any
        for root in list(self.context.names.roots) if is_any else ():
            held: tuple[tuple[SinkKind, Any], ...] = ("parameter", root.parameters()), ("buffer", root.buffers())
            for kind, tensors in held:
                for tensor in tensors:
                    self._stored_at_end(tensor, kind, self.context.names.describe(tensor)[0])

    def _stored_at_end(self, whole: Tensor, kind: SinkKind, name: str | None) -> None:
        """A parameter or buffer with what has come to it by a collective, too, and nobody has read."""
        here = local(whole)
        if here is not None and (self.context.state_of(here) is not None or (kind == "parameter" and self._came(here))):
            self._stored(here, kind, name, whole)

    def _came(self, tensor: Tensor) -> bool:
        """Whether a collective has written a tensor last, which is not looked at until somebody reads it."""
        exchanges = self.entries.exchanges
        try:
            made = self.context.rows.get(self.context.rows.writer_of(tensor)) if exchanges.is_any else None
        except (RuntimeError, NotImplementedError):
            return False
        return bool(exchanges.collective_of(made))

    def _held(self, state: State) -> None:
        assert state.plane is not None
        with torch._C._DisableTorchDispatch():
            found = self.context.labels.labels_in(state.plane)
            count = int((state.plane != 0).sum())
        if found:
            total = max(math.prod(state.shape), count)
            self.log.found.append(Sink("observed", STILL_HELD, count, total, found, False))


# -- Pending sinks, if the run ended now -------------------------------------------------------------------------------


class Pending:
    """Reads the sinks of a run that goes on, and changes none of them."""

    def __init__(self, context: TraceContext) -> None:
        self._context = context
        self._log = context.log
        self._read = 0
        self._found: set[Any] = set()

    def sinks(self) -> list[Sink]:
        """Gradients that nothing has used or discarded, the losses that they came from, outputs without a backward."""
        waiting, here = self._log.awaited(self._context.labels), self._context.lane()
        for leaf in self._log.leaves.values():
            if (leaf.left or leaf.pending) and leaf.readable(here) and self._held(leaf):
                waiting += leaf.left
                waiting += [sink for record in leaf.pending.values() for sink in record.loss]
        return waiting

    def places(self) -> tuple[int, frozenset[Any]]:
        """How many places the sinks have that were found, and which others wait: differs where one is new."""
        found = self._log.found
        self._found.update(map(_place, found[self._read :]))
        self._read = len(found)
        return len(self._found), frozenset(map(_place, self.sinks())) - self._found

    def _held(self, leaf: Leaf) -> bool:
        """Whether the program still has a leaf's gradient, or let the leaf go with it."""
        tensor = leaf.reference()
        if tensor is None:
            return True
        if tensor.grad is None or was_reset(self._context.rows, tensor.grad):
            return False
        state = self._context.state_of(tensor.grad)
        return state is None or not state.skipped


def _place(sink: Sink) -> tuple[Any, ...]:
    return sink.kind, sink.name, sink.labels, sink.damage
