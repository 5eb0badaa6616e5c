"""What happens at an event with a bad element: carriers, attribution, the birth record, the planes of what it wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.provenance.arrays import Carrier
from whynan.capture.provenance.attribution import Verdict, attribute
from whynan.capture.provenance.births import SEPARATE, add_step
from whynan.capture.torch.event_log import entry_of, number_of_output, original_arguments, split_births
from whynan.capture.torch.events import Events
from whynan.capture.torch.interposition.collectives import CollectiveLog
from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.provenance.attribution import Question, has_bad_scalar, passed_literal
from whynan.capture.torch.provenance.causes import Causes
from whynan.capture.torch.provenance.damage import Damage
from whynan.capture.torch.provenance.entries import Entries, determinant_of, limit_masks, treat_constants_as_born
from whynan.capture.torch.provenance.neighbourhood import EventNeighbourhoods
from whynan.capture.torch.provenance.operands import (
    element_of,
    element_operands,
    first_index,
    in_whole,
    kind_of,
    place_in_forward,
)
from whynan.capture.torch.shadow_memory import bad_mask, is_bad, is_readable, nan_mask, strided
from whynan.capture.torch.sinks.sinks import Sinks
from whynan.capture.torch.sparse import StandIns, carry_all, is_opaque, is_sparse, is_too_large
from whynan.records import ChainLink, ForwardOperand, Note
from whynan.traces import Birth

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import LiveEvent, OriginalArguments, Row
    from whynan.capture.torch.kept_operations import OperationKeeper
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.provenance.origins import Origins
    from whynan.capture.torch.sites import Lane
    from whynan.traces import Event


class BadEvents:
    """The part of a context that works only when something is bad."""

    def __init__(self, context: TraceContext, origins: Origins, keeper: OperationKeeper | None) -> None:
        self.context = context
        self.keeper = keeper
        self.exchanges = CollectiveLog(context)
        self.entries = Entries(context, origins, self.exchanges)
        self.sinks = Sinks(context, self.entries)
        self.causes = Causes(context)
        self.nearby = EventNeighbourhoods(context)
        self.damage = Damage(context)
        self.groups: dict[Any, list[int]] = {}
        self.events = Events(context)

    # -- what is noted while all is well ------------------------------------------------------------------------

    def record_gradient(self, node: Any, operator: Operator, lane: Lane) -> None:
        """An event under AccumulateGrad: the leaf's gradient changes."""
        self.sinks.record_gradient(node.variable, operator, lane)

    def seeds_backward(self, seed: Tensor) -> None:
        """A gradient that torch made for the engine to begin with: what was born in it was born in the backward."""
        context = self.context
        row = context.rows.get(context.rows.writer_of(seed))
        if row is None or row.operator.base != "ones_like":
            return
        for birth in context.labels.births[-4:]:
            if birth.event.ordinal == row.ordinal - context.first:
                birth.event = replace(birth.event, phase="backward", micro=context.log.steps.micro + 1)

    # -- the slow path -------------------------------------------------------------------------------------------

    def explain_event(self, live: LiveEvent, bad: list[int], marked: bool) -> None:
        """Explain an event of whose outputs some are bad, or that read something bad (`marked`)."""
        operator = live.row.operator
        with torch._C._DisableTorchDispatch():
            self.nearby.record_bad_reader(live.row)
            known, original = len(self.context.labels.births), live
            explained: list[Tensor] = []
            given = (live.args, live.written, list(live.kwargs.values()))
            stand_ins = StandIns(self.context) if is_sparse(given) else None
            opaque = is_opaque(given)
            if opaque or is_too_large(given) or not (stand_ins is None or stand_ins.fit(given)):
                carry_all(self.context, live.args, [live.written[i] for i in bad], opaque=opaque)
                return
            if stand_ins is not None:
                live = stand_ins.event(live)
                bad = [i for i in bad if not stand_ins.labelled(live.written[i])]
                passed_on = [i for i in bad if not operator.mutable and stand_ins.passes_on(live.written[i], live.args)]
                explained, bad = [live.written[i] for i in bad], [i for i in bad if i not in passed_on]
            if bad:
                self._explain(live, bad)
                self._keep(original, known)
            if marked and len(bad) < max(1, len(live.written)):
                self.damage.taint_outputs(live, original_arguments(live), bad)
            if stand_ins is not None:
                stand_ins.restore_labels(explained)
            if marked and self.context.log.returned:
                self.sinks.record_mending(original)
            if "non_finite_check" in operator.name:
                # after the gradients were written: what is bad in them will be skipped
                self.sinks.scaler.record_unscale(live.args)

    def _keep(self, live: LiveEvent, known: int) -> None:
        """Keep an event of which births have come to those that were known, where that is asked for."""
        context = self.context
        here = live.row.ordinal - context.first
        born = [b for b in context.labels.births[known:] if b.event.op is not None and b.event.ordinal == here]
        if self.keeper is not None and (born := [b for b in born if b.label_kind == "birth"]):
            self.keeper.keep(born, live)

    def _explain(self, live: LiveEvent, bad: list[int]) -> None:
        row, _, kwargs, written = live[:4]
        operator = row.operator
        context = self.context
        simple = passed_literal(context, operator, live.args, kwargs, written)
        if simple is not None:
            self._write(written[0], simple[0], row, simple[1])
            return
        event = self.events.event(row, live.node, live.lane, live.args)
        old = original_arguments(live)
        arguments = old.arguments
        entries = self.entries
        carriers = self._carriers(live, old, event)
        scalar = 0
        if has_bad_scalar(arguments):
            scalar = entries.returned_nan(arguments) or self._of_formula(event, live)
            scalar = scalar or entries.add_literal(row, event, operator, written[bad[0]])
        question = Question(
            operator, arguments, carriers, scalar, context.labels, written, old.gone, context=context, row=row
        )
        determinant = determinant_of(context, row, arguments[0])
        for i in bad:
            output = written[i]
            if not is_readable(output):
                continue
            if i in operator.workspaces and not carriers:
                literal = entries.add_literal(row, event, operator, output, Note.create("kept_for_derivative"))
                self._write(output, torch.where(bad_mask(output), literal, 0).to(torch.int32), row)
                continue
            verdict = attribute(question, i, output)
            if determinant is not None:
                verdict = treat_constants_as_born(verdict, output, context.labels)
            carried = verdict.carried
            born = verdict.born
            if bool(born.any()):
                if (masks := limit_masks(question, born, output)) is not None:
                    literal = entries.add_literal(row, event, operator, output, Note.create("mask_of_finfo"))
                    carried = torch.where(masks, literal, carried)
                    born = born & ~masks
                for part, count in split_births(born, output):
                    made_from = verdict.causes_of(part, question)
                    birth = self._born(live, event, question, i, part, count, made_from, old.copied)
                    carried = torch.where(part, birth, carried)
                carried = carried.to(torch.int32)
            if operator.reduces or (not operator.copying and bool(nan_mask(output).any())):
                carried = entries.name_literals(carried, question, event, output)
            self._write(output, carried, row)
            self.damage.carry(row, old, output, i, carried)
            self._steps(verdict, event, operator, product_kind(question, output) if event.phase == "forward" else None)

    def _of_formula(self, event: Event, live: LiveEvent) -> int:
        """What an operation bore whose derivative has a constant in its formula: 2 / 0 in that of a `var` of one."""
        forward = self.events.forward_row(event, live)
        if forward is None or self.entries.is_literal(forward):
            return 0
        here = forward.ordinal - self.context.first
        births = (b for b in self.context.labels.births if b.event.ordinal == here and b.label_kind == "birth")
        return self.context.labels.intern(frozenset(b.label for b in births))

    # -- operands ------------------------------------------------------------------------------------------------

    def _carriers(self, live: LiveEvent, old: OriginalArguments, event: Event) -> dict[int, Carrier]:
        operator, arguments = live.row.operator, old.arguments
        found: dict[int, Carrier] = {}
        if operator.value_free:
            return found
        # the `out=` of an operation is not read
        args, kwargs = arguments[0], {name: v for name, v in arguments[1].items() if name not in operator.mutable}
        skip = 0 if operator.overwrites and args and isinstance(args[0], torch.Tensor) else -1
        for position, value in enumerate((*args, *kwargs.values())):
            if position == skip:
                continue
            if position == 0 and operator.overwrites and isinstance(value, (list, tuple)):
                continue
            for tensor in interventions.tensors_in(value):
                if id(tensor) in found or not interventions.is_floating(tensor):
                    continue
                carrier = self._carrier(tensor, old.changed.get(id(tensor)), live, event)
                if carrier is not None:
                    found[id(tensor)] = carrier
        return found

    def _carrier(self, tensor: Tensor, written: Tensor | None, live: LiveEvent, event: Event) -> Carrier | None:
        """The labels of an operand; `written` is the tensor that an in-place event changed, of which this is a copy."""
        context = self.context
        holder = tensor if written is None else written
        state = context.state_of(holder)
        if not is_readable(tensor):
            return None
        overwritten = written is tensor
        only = 0
        if overwritten:
            # the old content is gone: what the plane says of it is all that is known
            if state is None or state.plane is None:
                return None
            plane = strided(state.plane, state.itemsize, holder).clone()
        else:
            if not is_bad(tensor):
                return None
            mask = bad_mask(tensor)
            plane = torch.zeros(tensor.shape, dtype=torch.int32, device=tensor.device)
            if state is not None and state.plane is not None:
                plane = torch.where(mask, strided(state.plane, state.itemsize, holder), plane)
            unknown = mask & (plane == 0)
            only = state.only if state is not None and holder is tensor else 0
            if bool(unknown.any()):
                only = 0
                plane = self.entries.enter(tensor, holder, unknown, plane, live.row.site, event)
        saved = live.row.phase in (1, 2) and event.phase == "backward" and not (state is not None and state.backward)
        return self._split(tensor, plane, saved, live.lane, overwritten, only)

    def _split(
        self, tensor: Tensor, plane: Tensor, saved: bool, lane: Lane, overwritten: bool, only: int
    ) -> Carrier | None:
        labels = self.context.labels
        present = [only] if only else labels.present(plane)
        if not present:
            return None
        literal = [s for s in present if labels.is_literal(s)]
        others = [s for s in present if s not in literal]
        kept: list[int] = []
        if saved:
            # a NaN that the program writes is no copy any more where a derivative is computed from it
            copies = overwritten or not bool(nan_mask(tensor).any())
            kept = [s for s in (others if copies else present) if not labels.sets[s] <= lane.loss_labels]
            others = [s for s in others if s not in kept]
            literal = [s for s in literal if s not in kept]
        carrier = Carrier(tensor)
        single = len(present) == 1
        for name, sets in (("literal", literal), ("explains", others), ("saved", kept)):
            if sets:
                setattr(carrier, name, plane if single else labels.select(plane, sets))
        if carrier.literal is not None and not overwritten:
            carrier.literal_nan = bool((nan_mask(tensor) & (carrier.literal != 0)).any())
        return carrier

    # -- births --------------------------------------------------------------------------------------------------

    def _born(
        self,
        live: LiveEvent,
        event: Event,
        question: Question,
        index: int,
        born: Tensor,
        count: int,
        made_from: frozenset[int],
        copied: frozenset[int],
    ) -> int:
        context, row, operator = self.context, live.row, live.row.operator
        output = question.outputs[index]
        place = first_index(born)
        entry = entry_of(operator, question, index)
        args, kwargs = question.arguments
        determinant = determinant_of(context, row, args)
        if determinant is not None and place is not None:
            row_of_operands, operands = determinant.row, determinant.operands(place)
        else:
            row_of_operands = row
            operands = element_operands(operator, args, kwargs, place, entry, question.gone, copied)
        in_own_step = event.phase == "optimizer" and live.lane.optimizer_own
        if row.phase == 0 or in_own_step or (event.phase == "backward" and event.forward_op is None):
            operands = self._spelled(row, row_of_operands.operator, operands, args)
        name, held, whole = context.names.describe_with_base(output)
        name = name if held in ("parameter", "buffer") else None
        if name is None and operator.mutable and event.phase == "optimizer" and output.is_leaf and output.requires_grad:
            name = context.names.leaf_name(output)
        element = element_of(output, born, number_of_output(operator, question, index), entry, operands, name, count)
        element = in_whole(element, output, whole)
        kind = kind_of(operator, element.value, operands)
        ahead = place_in_forward(operator, args, place)
        key = (context.sites.key(row.site), operator.name, event.phase, kind, event.grad_fn, context.scope)
        group = self.groups.setdefault(key, [])
        if event.recomputed:
            for set_id in group:
                known = context.labels.only(set_id)
                if known.element.index == element.index and known.element.count == element.count:
                    return set_id
        if len(group) >= SEPARATE:
            context.labels.only(group[-1]).occurrences += 1
            return group[-1]
        forward = self.events.forward_row(event, live)
        birth = Birth(
            label=0,
            label_kind="birth",
            event=event,
            kind=kind,
            element=element,
            causes=made_from,
            forward_operands=self._forward_operands(forward, ahead, output),
            cause_links=self.causes.links(row, forward, question, operands, ahead, kind),
            scope=context.scope,
        )
        if event.site is not None and event.site.module:
            birth.modules[event.site.module] = None
        self.nearby.begin(birth, row, forward)
        if event.phase == "backward":
            self.nearby.record_exclusions(birth, made_from, forward)
        set_id = context.labels.add(birth)
        group.append(set_id)
        return set_id

    def _forward_operands(
        self, row: Row | None, place: tuple[int, ...] | None, output: Tensor
    ) -> tuple[ForwardOperand, ...]:
        """The operands of the forward operation at the same element, from what the window still holds."""
        if row is None:
            return ()
        found = self.causes.forward_operands(row, place, tuple(output.shape))
        return self._spelled(row, row.operator, found, ())

    def _spelled(self, row: Row, operator: Operator, operands: Any, args: Any) -> Any:
        """Operands with the source text that they were given as."""
        names = operator.arg_names
        numbers = {n for n, a in zip(names, args, strict=False) if isinstance(a, (int, float))}
        numbers |= {o.name for o in operands if o.dtype is None and isinstance(o.value, (int, float))}
        written = self.context.sites.expressions(row.site, operator.name, names, numbers)
        return tuple(o.model_copy(update={"expression": written.get(o.name)}) for o in operands)

    # -- planes --------------------------------------------------------------------------------------------------

    def _write(self, output: Tensor, carried: Tensor, row: Row, only: int = 0) -> None:
        self.context.label(output, carried, backward=row.phase in (1, 2), only=only)

    def _steps(self, verdict: Verdict, event: Event, operator: Operator, kind: str | None) -> None:
        """Note this event on the path of every birth that it carries on; `kind`: how, if it multiplies by 0."""
        said = Note.create(kind or "carries_on", operator=operator.base)
        link = ChainLink(role="step", op=event.op, phase=event.phase, site=event.site, typed_summary=said)
        add_step(
            self.context.labels,
            self.context.labels.labels_in(verdict.carried),
            lambda: link,
            literals=kind == "times_zero",
        )


def product_kind(question: Question, output: Tensor) -> str | None:
    """The kind of note on a product that is NaN by a factor of 0; None where it is none."""
    if question.name != "mul" or len(question.arguments[0]) < 2:
        return None
    if is_masked_by_product(question, output):
        return "times_zero"
    if output.dtype.is_complex or not bool(nan_mask(output).any()):
        return None
    first, second = question.arguments[0][:2]
    weighed = any(
        _is_zero(weight) and isinstance(term, torch.Tensor) and bool(term.isinf().any())
        for weight, term in ((first, second), (second, first))
    )
    return "infinity_times_zero" if weighed else None


def _is_zero(weight: Any) -> bool:
    """Whether a factor is a single 0 that is given."""
    if isinstance(weight, torch.Tensor):
        return weight.dim() == 0 and not weight.requires_grad and bool(weight == 0)
    return isinstance(weight, (int, float)) and weight == 0


def is_masked_by_product(question: Question, output: Tensor) -> bool:
    """Whether all that is NaN in a product was NaN where a mask of 0 and 1 has a 0."""
    factors = question.arguments[0][:2]
    if question.name != "mul" or len(factors) != 2 or not all(isinstance(f, torch.Tensor) for f in factors):
        return False
    bad = nan_mask(output)
    if not bool(bad.any()) or any(f.dtype.is_complex for f in factors):
        return False
    for mask, other in (factors, factors[::-1]):
        is_mask = not mask.requires_grad and bool((mask == 1).any()) and bool(((mask == 0) | (mask == 1)).all())
        if is_mask and bool(nan_mask(other.expand(output.shape)[bad]).all()):
            return bool((mask.expand(output.shape)[bad] == 0).all())
    return False
