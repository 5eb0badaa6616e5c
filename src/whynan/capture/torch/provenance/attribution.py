"""For every bad element of an event's output: which label it carries on, or that it was born here.

Three ways, cheapest first: pointwise operators join the labels at the same place; operators that only move elements
are run on the label planes; every other operator is asked by experiment, its bad operand elements replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.arrays import bad_mask, computable, nan_mask
from whynan.capture.torch.event_log import Carrier, Question
from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.provenance.labels import PLANE_DTYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from whynan.capture.torch.provenance.labels import Labels

MAX_SEPARATE = 8


@dataclass(slots=True)
class Verdict:
    """One output: the set ids that its bad elements carry on, what was born here, and what the born were made from.

    `sources`: by element the set id of what it was made from, where that is known so exactly.
    """

    carried: Tensor
    born: Tensor
    causes: frozenset[int] = field(default_factory=lambda: frozenset[int]())
    sources: Tensor | None = None

    def causes_of(self, part: Tensor, labels: Labels) -> frozenset[int]:
        """What some of the born elements were made from."""
        if self.sources is None or not self.causes:
            return self.causes
        return labels.labels_in(torch.where(part, self.sources, 0)) & self.causes


def attribute(question: Question, index: int) -> Verdict:
    """Explain the bad elements of output number `index`."""
    output = question.outputs[index]
    bad = bad_mask(output)
    carriers = question.carriers
    if not any(c.planes for c in carriers.values()):
        return _without_carriers(question, output, bad)
    operator = question.operator
    if operator.pointwise:
        verdict = _pointwise(question, index, output, bad)
        if verdict is not None:
            return verdict
    if operator.movement:
        verdict = _moved(question, index, output, bad)
        if verdict is not None:
            return verdict
    return _by_experiment(question, index, output, bad)


def _without_carriers(question: Question, output: Tensor, bad: Tensor) -> Verdict:
    carried = torch.zeros(output.shape, dtype=PLANE_DTYPE, device=output.device)
    if question.scalar_literal:
        copied = bad & _repeats(question, output)
        verdict = _with_literal(question, carried, copied, output)
        return Verdict(verdict.carried, verdict.born | (bad & ~copied), verdict.causes)
    return Verdict(carried, bad)


def _repeats(question: Question, output: Tensor) -> Tensor:
    """Where the operator gives the same value again: what a constant does not explain is no copy of it."""
    if question.operator.random or question.operator.mutable or len(question.outputs) != 1:
        return torch.ones(output.shape, dtype=torch.bool, device=output.device)
    try:
        with interventions.unseen():
            again = interventions.run(question.operator, question.arguments, lambda t: t)[0]
    except interventions.ANSWERLESS:
        return torch.ones(output.shape, dtype=torch.bool, device=output.device)
    return (again == output) | (nan_mask(again) & nan_mask(output))


def _with_literal(question: Question, carried: Tensor, rest: Tensor, output: Tensor) -> Verdict:
    """What is still unexplained comes from a non-finite scalar: Inf is its copy, NaN is made from it."""
    nan_scalar = any(s != s for s in scalars(question.arguments))
    returned = not question.labels.is_literal(question.scalar_literal)
    made = torch.zeros_like(rest) if nan_scalar or returned else rest & nan_mask(output)
    literal = rest & ~made
    carried = torch.where(literal, question.scalar_literal, carried)
    return Verdict(carried, made, question.labels.sets[question.scalar_literal] if bool(made.any()) else frozenset())


def scalars(arguments: interventions.Arguments) -> Iterable[float]:
    """The floating-point Python numbers among the arguments."""
    args, kwargs = arguments
    for value in (*args, *kwargs.values()):
        values = value if isinstance(value, (list, tuple)) else (value,)
        for v in values:
            if isinstance(v, float):
                yield v


def has_bad_scalar(arguments: interventions.Arguments) -> bool:
    """Whether a Python scalar argument is NaN or infinite."""
    return any(v - v != 0 for v in scalars(arguments))


def _operands_of(question: Question, index: int) -> list[Any]:
    """The operands that meet in output `index`: of a foreach operator, the entries of that position."""
    args, kwargs = question.arguments
    values = [*args, *kwargs.values()]
    if not question.operator.foreach:
        return values
    lists = [v for v in values if isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.Tensor)]
    n = len(lists[0]) if lists else 0
    k = index % n if n else 0
    return [v[k] if isinstance(v, (list, tuple)) and len(v) == n else v for v in values]


def _pointwise(question: Question, index: int, output: Tensor, bad: Tensor) -> Verdict | None:
    operands = _operands_of(question, index)
    tensors = [v for v in operands if isinstance(v, torch.Tensor)]
    selected = _selection(question, operands)
    labels = question.labels
    merged: dict[str, Tensor | None] = {"explains": None, "literal": None, "saved": None}
    literal_nan = torch.zeros_like(bad)
    decided = _nan_alone(question, index, tensors, output)
    for tensor in tensors:
        carrier = question.carriers.get(id(tensor))
        if carrier is None:
            continue
        chosen = selected.get(id(tensor)) if selected else None
        for name in merged:
            plane: Tensor | None = getattr(carrier, name)
            if plane is None:
                continue
            try:
                plane = plane.expand(output.shape)
            except RuntimeError:
                return None
            if chosen is not None:
                plane = torch.where(chosen, plane, 0)
            elif name == "literal" and _keeps_signs(question) and not tensor.is_complex():
                # an infinity of the other sign is not this one
                plane = torch.where((computable(tensor) == -computable(output)) & bad, 0, plane)
            elif decided is not None and name != "saved":
                plane = torch.where(decided & ~nan_mask(tensor), 0, plane)
            previous = merged[name]
            merged[name] = plane if previous is None else labels.union(previous, plane)
            if name == "literal" and carrier.literal_nan:
                literal_nan |= (nan_mask(tensor) & (carrier.literal != 0)).expand(output.shape)
    return _decide(question, output, bad, merged["explains"], merged["literal"], merged["saved"], literal_nan)


def _keeps_signs(question: Question) -> bool:
    return question.operator.base in ("add", "_to_copy", "clone") and "alpha" not in question.arguments[1]


def _selection(question: Question, operands: list[Any]) -> dict[int, Tensor]:
    """For an operator that chooses: where each operand was chosen."""
    base = question.operator.base.removesuffix("_")
    if base == "where" and len(operands) == 3:
        condition, first, second = operands
        if first is second:
            return {}
        chosen: dict[int, Tensor] = {}
        if isinstance(first, torch.Tensor):
            chosen[id(first)] = condition
        if isinstance(second, torch.Tensor):
            chosen[id(second)] = ~condition
        return chosen
    if base == "masked_fill" and len(operands) >= 3:
        own, mask, value = operands[:3]
        chosen = {id(own): ~mask}
        if isinstance(value, torch.Tensor):
            chosen[id(value)] = mask
        return chosen
    return {}


def _decide(
    question: Question,
    output: Tensor,
    bad: Tensor,
    explains: Tensor | None,
    literal: Tensor | None,
    saved: Tensor | None,
    literal_nan: Tensor,
) -> Verdict:
    carried = torch.zeros(output.shape, dtype=PLANE_DTYPE, device=output.device)
    rest = bad
    if explains is not None:
        carried = torch.where(rest, explains, carried)
        rest = rest & (carried == 0)
    born = torch.zeros_like(bad)
    sources = torch.zeros_like(carried)
    if saved is not None:
        from_saved = rest & (saved != 0)
        born |= from_saved
        rest = rest & ~from_saved
        sources = torch.where(from_saved, saved, sources)
    if literal is not None:
        from_literal = rest & (literal != 0)
        made = from_literal & nan_mask(output) & ~literal_nan
        carried = torch.where(from_literal & ~made, literal, carried)
        born |= made
        rest = rest & ~from_literal
        sources = torch.where(made, literal, sources)
    if question.scalar_literal:
        more = _with_literal(question, carried, rest, output)
        sources = torch.where(more.born, question.scalar_literal, sources)
        return Verdict(more.carried, born | more.born, question.labels.labels_in(sources), sources)
    return Verdict(carried, born | rest, question.labels.labels_in(sources), sources)


def _moved(question: Question, index: int, output: Tensor, bad: Tensor) -> Verdict | None:
    args, kwargs = question.arguments

    def planes_of(name: str) -> Tensor | None:
        def plane(tensor: Tensor) -> Tensor:
            if not interventions.floating(tensor):
                return tensor
            carrier = question.carriers.get(id(tensor))
            found: Tensor | None = getattr(carrier, name) if carrier is not None else None
            return torch.zeros(tensor.shape, dtype=PLANE_DTYPE, device=tensor.device) if found is None else found

        if not any(getattr(c, name) is not None for c in question.carriers.values()):
            return None
        kept = {k: interventions.map_tensors(v, plane) for k, v in kwargs.items() if k != "dtype"}
        if question.operator.base == "constant_pad_nd":
            result = torch.constant_pad_nd(plane(args[0]), list(args[1]), 0)
        else:
            result = question.operator.func(*[interventions.map_tensors(a, plane) for a in args], **kept)
        return interventions.tensors_in(result)[index].to(PLANE_DTYPE)

    try:
        with interventions.unseen():
            explains, literal, saved = planes_of("explains"), planes_of("literal"), planes_of("saved")
    except (RuntimeError, TypeError, IndexError, NotImplementedError):
        return None
    # a moved literal is a copy, whatever its value
    return _decide(question, output, bad, explains, literal, saved, torch.ones_like(bad))


def _by_experiment(question: Question, index: int, output: Tensor, bad: Tensor) -> Verdict:
    """Replace bad operand elements and look which output elements recover."""
    carriers, labels = question.carriers, question.labels

    def rerun(keep: Callable[[Carrier], Tensor | None]) -> Tensor:
        """Which output elements are bad when only the operand elements chosen by `keep` stay bad."""

        def replaced(tensor: Tensor) -> Tensor:
            carrier = carriers.get(id(tensor))
            one = torch.ones((), dtype=tensor.dtype, device=tensor.device)
            if id(tensor) in question.gone and interventions.floating(tensor):
                # the event has overwritten it: what it wrote there must not count as read
                fresh = bad_mask(tensor)
                if carrier is not None:
                    kept = keep(carrier)
                    fresh = fresh if kept is None else fresh & ~kept
                return torch.where(fresh, one, tensor)
            if carrier is None:
                return tensor
            gone = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
            kept = keep(carrier)
            for plane in carrier.planes:
                gone |= plane != 0
            if kept is not None:
                gone &= ~kept
            return torch.where(gone, one, tensor)

        with interventions.unseen():
            return bad_mask(interventions.run(question.operator, question.arguments, replaced)[index])

    sets: set[int] = set()
    for carrier in carriers.values():
        if carrier.explains is not None:
            sets.update(labels.present(carrier.explains))
    literal_sets: set[int] = set()
    for carrier in carriers.values():
        if carrier.literal is not None:
            literal_sets.update(labels.present(carrier.literal))
    saved_labels = labels.of(s for c in carriers.values() if c.saved is not None for s in labels.present(c.saved))
    whole = labels.intern(labels.of(sets)) if sets else 0
    carried = torch.zeros(output.shape, dtype=PLANE_DTYPE, device=output.device)
    try:
        reproduced = rerun(_every_known)
        still = rerun(lambda _c: None) & bad
        if sets and bool(still.any()):
            # bad without the bad operands too: theirs all the same where they alone suffice
            still &= ~_by_them_alone(question, index)
    except interventions.ANSWERLESS:  # replaced operands may make a singular matrix: all labels to all bad elements
        if whole:
            return Verdict(torch.where(bad, whole, 0).to(PLANE_DTYPE), torch.zeros_like(bad))
        return Verdict(carried, bad, labels.of(literal_sets) | saved_labels)
    rest = bad & ~still & reproduced
    born = (bad & ~reproduced) | still
    if question.scalar_literal:
        # a scalar argument stays in every rerun: its Inf is a copy, its NaN is made here
        literal_here = still & ~nan_mask(output)
        carried = torch.where(literal_here, question.scalar_literal, carried)
        born = born & ~literal_here
    if len(sets) == 1 and not literal_sets and not saved_labels:
        carried = torch.where(rest, whole, carried)
        return Verdict(carried, born)
    causes: set[int] = set()
    for set_id in sorted(sets)[:MAX_SEPARATE]:
        hit = rest & rerun(lambda c, s=set_id: None if c.explains is None else c.explains == s)
        here = torch.where(hit, set_id, 0).to(PLANE_DTYPE)
        carried = labels.union(carried, here)
    rest = rest & (carried == 0)
    if saved_labels and bool(rest.any()):
        hit = rest & rerun(lambda c: None if c.saved is None else c.saved != 0)
        born = born | hit
        rest = rest & ~hit
        if bool(hit.any()):
            causes |= saved_labels
    if literal_sets and bool(rest.any()):
        hit = rest & rerun(lambda c: None if c.literal is None else c.literal != 0)
        any_nan = any(c.literal_nan for c in carriers.values())
        made = torch.zeros_like(hit) if any_nan else hit & nan_mask(output)
        carried = torch.where(hit & ~made, labels.intern(labels.of(literal_sets)), carried)
        born = born | made
        rest = rest & ~hit
        if bool(made.any()):
            causes |= labels.of(literal_sets)
    if bool(rest.any()):
        # bad only together (or more sets than are asked apart)
        if whole:
            carried = torch.where(rest, whole, carried)
        else:
            born = born | rest
            causes |= labels.of(literal_sets) | saved_labels
    return Verdict(carried, born, frozenset(causes))


def _by_them_alone(question: Question, index: int) -> Tensor:
    """Which output elements the known bad operand elements make bad when every other element is 1."""

    def alone(tensor: Tensor) -> Tensor:
        if not interventions.floating(tensor):
            return tensor
        carrier = question.carriers.get(id(tensor))
        one = torch.ones((), dtype=tensor.dtype, device=tensor.device)
        if carrier is None or carrier.explains is None:
            return one.expand(tensor.shape).clone()
        return torch.where(carrier.explains != 0, tensor, one)

    with interventions.unseen():
        return bad_mask(interventions.run(question.operator, question.arguments, alone)[index])


def _every_known(carrier: Carrier) -> Tensor:
    known = torch.zeros(carrier.tensor.shape, dtype=torch.bool, device=carrier.tensor.device)
    for plane in carrier.planes:
        known |= plane != 0
    return known


def _nan_alone(question: Question, index: int, tensors: list[Tensor], output: Tensor) -> Tensor | None:
    """Where one of several bad operands is NaN, and so is output `index`, and the others alone would do no harm there.

    An infinity that the NaN only hides is none of these: with the NaN mended the result would be bad all the same.
    """
    if sum(id(t) in question.carriers for t in tensors) < 2:
        return None
    found = torch.zeros(output.shape, dtype=torch.bool, device=output.device)
    others = torch.zeros_like(found)
    for tensor in tensors:
        carrier = question.carriers.get(id(tensor))
        if carrier is None:
            continue
        nan = nan_mask(tensor)
        if carrier.explains is not None and id(tensor) not in question.gone:
            found |= nan & (carrier.explains != 0)
            others |= (carrier.explains != 0) & ~nan
    found &= nan_mask(output)
    hidden = found & others
    return found & ~(hidden & _bad_without_nan(question, index, output)) if bool(hidden.any()) else found


def _bad_without_nan(question: Question, index: int, output: Tensor) -> Tensor:
    """Which elements would be bad if what is NaN among the operands were a number."""

    def mended(tensor: Tensor) -> Tensor:
        carrier = question.carriers.get(id(tensor))
        if carrier is None or carrier.explains is None:
            return tensor
        one = torch.ones((), dtype=tensor.dtype, device=tensor.device)
        return torch.where(nan_mask(tensor) & (carrier.explains != 0), one, tensor)

    try:
        with interventions.unseen():
            return bad_mask(interventions.run(question.operator, question.arguments, mended)[index])
    except interventions.ANSWERLESS:
        return torch.zeros(output.shape, dtype=torch.bool, device=output.device)
