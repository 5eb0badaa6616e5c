"""One executed operation as the attribution of bad elements asks it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.provenance.dependence import Refused
from whynan.capture.torch import event_log
from whynan.capture.torch.provenance import interventions, planes
from whynan.capture.torch.provenance.labels import PLANE_DTYPE
from whynan.capture.torch.shadow_memory import SEARCHED, computable, is_bad, is_readable, strided
from whynan.capture.torch.sites import PHASES
from whynan.records import ChainLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from whynan.capture.provenance.arrays import Arrays
    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import Row
    from whynan.capture.torch.operators import Operator
    from whynan.records import Note


@dataclass(slots=True)
class Question(event_log.Question):
    """One event to be explained: an operation on arguments, which its tensors' identities stand for."""

    context: TraceContext = field(kw_only=True)
    row: Row = field(kw_only=True)
    answers: dict[str, list[Tensor]] = field(default_factory=lambda: {})

    arrays: Arrays = planes
    is_deterministic: bool = False

    @property
    def name(self) -> str:
        """The operator without the mark of one in place."""
        return self.operator.base.removesuffix("_")

    @property
    def is_literal_nan(self) -> bool:
        """Whether a NaN is handed in by the program, or come back to it."""
        given = any(s != s for s in scalars(self.arguments))
        return given or not self.labels.is_literal(self.scalar_literal)

    @property
    def is_repeatable(self) -> bool:
        """Whether the operator gives the same again."""
        return not (self.operator.random or self.operator.mutable) and len(self.outputs) == 1

    @property
    def may_copy(self) -> bool:
        """Whether the operation is the user's, in Python; one of PyTorch's that refuses operands computes of them."""
        return self.operator.in_python

    def operands(self, index: int) -> list[Any]:
        """The arguments that meet in output `index`: of a foreach operator, the entries of that position."""
        args, kwargs = self.arguments
        values = [*args, *kwargs.values()]
        if not self.operator.foreach:
            return values
        lists = [v for v in values if isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.Tensor)]
        n = len(lists[0]) if lists else 0
        k = index % n if n else 0
        return [v[k] if isinstance(v, (list, tuple)) and len(v) == n else v for v in values]

    def pointwise_operands(self, index: int) -> list[int] | None:
        """The operands that meet element by element in one output; None where the operator is not pointwise."""
        if not self.operator.pointwise:
            return None
        return [id(v) for v in self.operands(index) if isinstance(v, torch.Tensor)]

    def selection_mask(self, key: int) -> Tensor | None:
        """For an operator that chooses: where this operand was chosen."""
        operands = self.operands(0)
        if self.name not in ("where", "masked_fill") or len(operands) < 3:
            return None
        mask, first, second = operands[:3] if self.name == "where" else (operands[1], operands[2], operands[0])
        if first is second or key not in (id(first), id(second)):
            return None
        return mask if key == id(first) else ~mask

    def keeps_signs(self, tensor: Tensor) -> bool:
        """Whether an infinity of an operand passes with its sign, so that one of the other sign is not its own."""
        keeps = self.operator.base in ("add", "_to_copy", "clone") and "alpha" not in self.arguments[1]
        return keeps and not tensor.is_complex()

    def run(self, replace: Callable[[int, Tensor], Tensor]) -> list[Tensor]:
        """The outputs of the operator on replaced operands; raises ``Refused`` where they cannot be had."""
        try:
            with interventions.no_trace():
                return interventions.run(self.operator, self.arguments, lambda tensor: replace(id(tensor), tensor))
        except interventions.ANSWERLESS as error:
            raise Refused from error

    def result(self, results: list[Tensor], index: int) -> Tensor | None:
        """One output of a run."""
        return results[index] if index < len(results) else None

    def chain_link(self, said: Note) -> ChainLink:
        """A step in the chain of a birth that this event carries on."""
        context, row = self.context, self.row
        site, _ = context.sites.resolve(row.site, context.names.module_path(row.module))
        return ChainLink(role="step", op=self.operator.name, phase=PHASES[row.phase], site=site, typed_summary=said)

    def moved_plane(self, kind: str, index: int) -> Tensor | None:
        """The plane of one kind of labels where the operator has moved it; None where that cannot be had."""
        if not self.operator.movement:
            return None
        args, kwargs = self.arguments

        def plane(tensor: Tensor) -> Tensor:
            if not interventions.is_floating(tensor):
                return tensor
            found: Tensor | None = getattr(self.carriers.get(id(tensor)), kind, None)
            return torch.zeros(tensor.shape, dtype=PLANE_DTYPE, device=tensor.device) if found is None else found

        kept = {k: interventions.map_tensors(v, plane) for k, v in kwargs.items() if k != "dtype"}
        try:
            with interventions.no_trace():
                if self.operator.base == "constant_pad_nd":
                    result = torch.constant_pad_nd(plane(args[0]), list(args[1]), 0)
                else:
                    result = self.operator.func(*[interventions.map_tensors(a, plane) for a in args], **kept)
                return interventions.tensors_in(result)[index].to(PLANE_DTYPE)
        except (RuntimeError, TypeError, IndexError, NotImplementedError):
            return None


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


# -- The fast path of a pointwise operation that passes one literal ----------------------------------------------------


SUMS = frozenset("add sub _to_copy clone".split())
"""What an infinity passes as it is: nothing else of these operations' operands can make one of the same sign."""


def passed_literal(
    context: TraceContext, operator: Operator, args: Any, kwargs: Any, written: list[Tensor]
) -> tuple[Tensor, int] | None:
    """The labels of an event's output, all of one literal, and that literal's set; None where it is less simple.

    Every infinity of the output lies where an operand has that literal's infinity, nothing is NaN, and no other operand
    is bad.
    """
    if not operator.pointwise or operator.mutable or operator.foreach or operator.value_free:
        return None
    if operator.reduces or len(written) != 1 or operator.base not in SUMS:
        return None
    if any(isinstance(v, float) and v - v != 0 for v in (*args, *kwargs.values())):
        return None
    output = written[0]
    if not is_readable(output) or output.dtype not in SEARCHED:
        return None
    ends = [float(v) for v in torch.aminmax(output)]
    if any(v != v for v in ends):
        return None
    only = 0
    signs: set[float] = set()
    known: Tensor | None = None
    for tensor in (*args, *kwargs.values()):
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
            continue
        state = context.state_of(tensor)
        if state is None or state.plane is None:
            if not is_readable(tensor) or is_bad(tensor):
                return None
            continue
        if not state.only or not context.labels.is_literal(state.only) or only not in (0, state.only):
            return None
        only = state.only
        signs |= {end for end in (float(v) for v in torch.aminmax(computable(tensor))) if math.isinf(end)}
        here = (computable(tensor).abs() == math.inf) & (strided(state.plane, state.itemsize, tensor) != 0)
        known = here if known is None else known | here
    # an infinity of a sign that no operand has is not theirs
    if known is None or (operator.base != "sub" and not {end for end in ends if math.isinf(end)} <= signs):
        return None
    bad = torch.zeros((), dtype=torch.bool, device=output.device)
    for end in ends:
        if math.isinf(end):
            bad = bad | (output == end)
    if bad.shape != output.shape or bool((bad > known).any()):
        return None
    return bad.to(PLANE_DTYPE).mul_(only), only
