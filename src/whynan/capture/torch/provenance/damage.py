"""Damage in a trace: events evaluated again in float64, and the finite values that are wrong."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.provenance.damage import LARGEST, Source, taint_plane
from whynan.capture.torch.event_log import single
from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.provenance.attribution import Question
from whynan.capture.torch.shadow_memory import (
    bad_mask,
    is_readable,
    is_strided,
    new_plane,
    rescale,
    strided,
    write_plane,
)
from whynan.records import Note, Site

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import LiveEvent, OriginalArguments, Row
    from whynan.capture.torch.operators import Operator

EXPERIMENTS = 4000
ADDING = frozenset("add_ sub_ addcmul_ addcdiv_".split())
_CASTS = frozenset("_to_copy copy_ to".split())


def _wide(value: Any) -> Any:
    """A dtype argument of lower precision asks for float64 in the shadow."""
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _replacements(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of `nan_to_num` with its defaults spelled out, which are the limits of the dtype."""
    given = dict(zip(("nan", "posinf", "neginf"), args[1:], strict=False)) | kwargs
    largest = torch.finfo(args[0].dtype).max
    usual = {"nan": 0.0, "posinf": largest, "neginf": -largest}
    return (args[0], *(usual[n] if given.get(n) is None else given[n] for n in usual))


@dataclass(slots=True)
class Exact(Question):
    """An event that can be evaluated in float64; of a foreach operation one entry."""

    old: OriginalArguments = field(kw_only=True)

    swallows: bool = False
    reshapes: bool = False

    def exact(self, index: int, *, known: bool = True) -> Tensor | None:
        """One output of the event in float64, its operands taken from their shadows where they have one (`known`).

        What the event has added to is gone: where it holds a bad sum now, the sum is taken for what was added.
        """
        operator = self.operator
        if operator.base in _CASTS and not self.outputs[index].is_floating_point():
            return None

        def widened(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                return tensor
            wide = tensor.to(torch.float64)
            kept = shadow_of(self.context, tensor, self.old) if known else None
            if kept is not None:
                wide = torch.where(bad_mask(tensor) & ~torch.isnan(kept), kept, wide)
            if id(tensor) in self.old.gone and operator.base in ADDING:
                wide = torch.where(bad_mask(wide), 0, wide)
            return wide

        args, kwargs = self.arguments
        wide_args = tuple(_wide(a) for a in args)
        wide_kwargs = {k: _wide(v) for k, v in kwargs.items()}
        if operator.base in ("_softmax", "_log_softmax"):
            wide_args = (*wide_args[:2], False)
        if operator.base.startswith("nan_to_num"):
            wide_args, wide_kwargs = _replacements(args, kwargs), {}
        try:
            with interventions.no_trace():
                outputs = interventions.run(operator, (wide_args, wide_kwargs), widened)
        except interventions.ANSWERLESS:  # no float64 kernel, or a dtype argument in the way: nothing is known
            return None
        return outputs[index] if index < len(outputs) else None


def shadow_of(context: TraceContext, tensor: Tensor, old: OriginalArguments) -> Tensor | None:
    """The shadow of an operand, where it has one."""
    holder = old.changed.get(id(tensor), tensor)
    state = context.state_of(holder)
    if state is None or state.shadow is None or state.itemsize != tensor.element_size():
        return None
    return strided(state.shadow, state.itemsize, holder)


class Damage:
    """Follows finite values computed from a birth."""

    def __init__(self, context: TraceContext) -> None:
        self.context = context
        self.left = EXPERIMENTS

    def carry(self, row: Row, old: OriginalArguments, output: Tensor, index: int, carried: Tensor) -> None:
        """An event carried a birth on: evaluate it in float64 as well."""
        labels = self.context.labels
        if not labels.labels_in(carried) - labels.literals or not self._affordable(row.operator, output):
            return
        one = self._single(row, old, output, index)
        exact = None if one is None else one[0].exact(one[1])
        state = self.context.state_of(output)
        if exact is None or state is None or exact.shape != output.shape or exact.dtype is not torch.float64:
            return
        if state.shadow is None:
            n = output.untyped_storage().nbytes() // output.element_size()
            state.shadow = torch.full((n,), float("nan"), dtype=torch.float64, device=output.device)
        write_plane(state.shadow, output, exact)

    def _single(self, row: Row, old: OriginalArguments, output: Tensor, index: int) -> tuple[Exact, int] | None:
        """The event, of a foreach operation the entry of an output, and the number of the output in it."""
        one = single(row.operator, old.arguments, index)
        if one is None:
            return None
        arguments, number = one
        outputs = [output] * (number + 1)
        labels = self.context.labels
        made = Exact(row.operator, arguments, {}, 0, labels, outputs, old.gone, context=self.context, row=row, old=old)
        return made, number

    def _affordable(self, operator: Operator, output: Tensor) -> bool:
        if operator.random or output.numel() > LARGEST or output.dtype.is_complex:
            return False
        if self.left <= 0:
            self.context.notes[Note.create("damage_not_followed", of="events")] = None
            return False
        self.left -= 1
        return True

    def taint_outputs(self, live: LiveEvent, old: OriginalArguments, bad: list[int]) -> None:
        """An event read a birth or a tainted value, and wrote something finite."""
        operator = live.row.operator
        if operator.value_free or operator.view or _asks(operator, old.arguments) or _is_skipped(old.arguments):
            return
        everything = self._sources(old)
        if everything and all(output.dtype is torch.bool for output in live.written):
            everything = self._from_elsewhere(everything, live.row)
        if not everything:
            return
        for i, output in enumerate(live.written):
            if i in bad or not is_strided(output):
                continue
            if not self._affordable(operator, output):
                return
            one = self._single(live.row, old, output, i)
            if one is None or (not operator.pointwise and (operator.mutable or operator.random)):
                continue
            event, number = one
            args, kwargs = event.arguments
            read = {id(t) for t in interventions.tensors_in([*args, *kwargs.values()])}
            sources = {key: source for key, source in everything.items() if key in read}
            plane = taint_plane(event, number, output, sources) if sources else None
            if plane is not None:
                self._store(output, plane)

    def _sources(self, old: OriginalArguments) -> dict[int, Source]:
        """The operands that hold births or taint."""
        labels = self.context.labels
        found: dict[int, Source] = {}
        args, kwargs = old.arguments
        for tensor in interventions.tensors_in([*args, *kwargs.values()]):
            state = self.context.state_of(tensor)
            if state is None or not is_strided(tensor):
                continue
            if state.taint is None and state.only and labels.is_literal(state.only):
                continue
            plane = None
            is_tainted = False
            if state.taint is not None:
                plane = strided(state.taint, state.itemsize, tensor)
                is_tainted = bool((plane != 0).any())
            if not is_tainted and state.plane is not None and is_readable(tensor):
                plane = torch.where(bad_mask(tensor), strided(state.plane, state.itemsize, tensor), 0)
            if plane is not None and (born := labels.born(plane)):
                shadow = shadow_of(self.context, tensor, old)
                found[id(tensor)] = Source(tensor, labels.select(plane, born), is_tainted, shadow)
        return found

    def _from_elsewhere(self, everything: dict[int, Source], row: Row) -> dict[int, Source]:
        """The sources of a question but for what was born in the same call of torch's.

        That is its own affair: ``isclose`` subtracts Inf from Inf, and knows.
        """
        labels, here = self.context.labels, [_place(site) for site in self.context.sites.resolve(row.site, None)]

        def is_own(label: int) -> bool:
            event = labels.birth(label).event
            return here[0] is not None and [_place(event.site), _place(event.library_site)] == here

        found: dict[int, Source] = {}
        for key, source in everything.items():
            kept = [n for n in labels.born(source.plane) if not all(map(is_own, labels.sets[n] - labels.literals))]
            if kept:
                found[key] = replace(source, plane=labels.select(source.plane, kept))
        return found

    def _store(self, output: Tensor, plane: Tensor) -> None:
        state = self.context.state_of(output)
        if not bool((plane != 0).any()):
            if state is not None and state.taint is not None and state.itemsize == output.element_size():
                strided(state.taint, state.itemsize, output).zero_()
            return
        state = self.context.mark(output)
        rescale(state, output)
        if state.taint is None:
            state.taint = new_plane(output)
        write_plane(state.taint, output, plane)
        state.shape = tuple(output.shape)


def _place(site: Site | None) -> tuple[object, ...] | None:
    return None if site is None else (site.file, site.line, site.column, site.end_line, site.end_column)


def _is_skipped(arguments: interventions.Arguments) -> bool:
    """Whether a fused optimizer is told by a loss scaler to change nothing."""
    found = arguments[1].get("found_inf")
    return isinstance(found, torch.Tensor) and found.device.type != "meta" and bool((found == 1).all())


def _asks(operator: Operator, arguments: interventions.Arguments) -> bool:
    """Whether an event only asks if its operand is finite, whichever way that is written."""
    if operator.predicate:
        return True
    if not operator.compares:
        return False
    first, other = arguments[0][:2]
    return first is other or (isinstance(other, float) and other - other != 0)
