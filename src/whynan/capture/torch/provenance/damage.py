"""Births that end in finite numbers: whether what was computed from them is wrong, and where it goes.

From a birth to the first finite value, events are evaluated again in float64 (the shadow). A finite value that differs
from its shadow is tainted, and so is an index, a boolean or an integer that float64 decides otherwise, or that is made
of a NaN; taint follows every value that depends on it until it reaches a sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.arrays import bad_mask, is_strided, nan_mask, new_plane, put, readable, rescale, strided
from whynan.capture.torch.event_log import single
from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.provenance.labels import PLANE_DTYPE
from whynan.capture.torch.sites import PHASES
from whynan.records import ChainLink, Note, shown
from whynan.records.notes import Value

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import Before, LiveEvent, Row
    from whynan.capture.torch.operators import Operator

RELATIVE = 1e-3
LARGEST = 1 << 22
EXPERIMENTS = 4000
ADDING = frozenset("add_ sub_ addcmul_ addcdiv_".split())
RISING = "rising"
"""Stands among the numbers to change elements to for a different one in each place, which ties none of them."""
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


class Damage:
    """Follows finite values computed from a birth."""

    def __init__(self, context: TraceContext) -> None:
        self.context = context
        self.left = EXPERIMENTS

    def carry(self, operator: Operator, old: Before, output: Tensor, index: int, carried: Tensor) -> None:
        """An event carried a birth on: evaluate it in float64 as well."""
        labels = self.context.labels
        if not labels.labels_in(carried) - labels.literals or not self._affordable(operator, output):
            return
        one = single(operator, old.arguments, index)
        exact = None if one is None else self._shadow(operator, *one, old)
        state = self.context.state_of(output)
        if exact is None or state is None or exact.shape != output.shape or exact.dtype is not torch.float64:
            return
        if state.shadow is None:
            n = output.untyped_storage().nbytes() // output.element_size()
            state.shadow = torch.full((n,), float("nan"), dtype=torch.float64, device=output.device)
        put(state.shadow, output, exact)

    def _affordable(self, operator: Operator, output: Tensor) -> bool:
        if operator.random or output.numel() > LARGEST or output.dtype.is_complex:
            return False
        if self.left <= 0:
            self.context.notes[Note.of("damage_not_followed", of="events")] = None
            return False
        self.left -= 1
        return True

    def _shadow(
        self, operator: Operator, arguments: interventions.Arguments, index: int, old: Before, *, known: bool = True
    ) -> Tensor | None:
        """One output of the event in float64, its operands taken from their shadows where they have one (`known`).

        What the event has added to is gone: where it holds a bad sum now, the sum is taken for what was added.
        """

        def widened(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                return tensor
            wide = tensor.to(torch.float64)
            kept = self._exact_of(tensor, old) if known else None
            if kept is not None:
                wide = torch.where(bad_mask(tensor) & ~torch.isnan(kept), kept, wide)
            if id(tensor) in old.gone and operator.base in ADDING:
                wide = torch.where(bad_mask(wide), 0, wide)
            return wide

        args, kwargs = arguments
        wide_args = tuple(_wide(a) for a in args)
        wide_kwargs = {k: _wide(v) for k, v in kwargs.items()}
        if operator.base in ("_softmax", "_log_softmax"):
            wide_args = (*wide_args[:2], False)
        if operator.base.startswith("nan_to_num"):
            wide_args, wide_kwargs = _replacements(args, kwargs), {}
        try:
            with interventions.unseen():
                outputs = interventions.run(operator, (wide_args, wide_kwargs), widened)
        except interventions.ANSWERLESS:  # no float64 kernel, or a dtype argument in the way: nothing is known
            return None
        return outputs[index] if index < len(outputs) else None

    def absorbed(self, live: LiveEvent, old: Before, bad: list[int]) -> None:
        """An event read a birth or a tainted value, and wrote something finite."""
        row, operator, arguments = live.row, live.row.operator, old.arguments
        if operator.value_free or operator.view or _asks(operator, arguments):
            return
        everything = self._sources(arguments)
        if not everything:
            return
        for i, output in enumerate(live.written):
            if i in bad or not is_strided(output):
                continue
            if not self._affordable(operator, output):
                return
            one = single(operator, arguments, i)
            if one is None:
                continue
            of_one, number = one
            read = {id(t) for t in interventions.tensors_in([*of_one[0], *of_one[1].values()])}
            sources = {key: source for key, source in everything.items() if key in read}
            if not sources:
                continue
            plane = self._depends(operator, of_one, sources, output, number)
            if plane is None:
                continue
            if output.is_floating_point() and not any(tainted for _, _, tainted in sources.values()):
                exact = self._shadow(operator, of_one, number, old)
                wrong = _wrong(exact, output)
                plane = torch.where(wrong, plane, 0)
                if exact is not None and bool((plane != 0).any()):
                    self._turned(row, operator, output, exact, plane)
            elif not output.is_floating_point() and not any(tainted for _, _, tainted in sources.values()):
                plane = self._decided(row, operator, of_one, number, output, plane, old, sources)
            self._store(output, plane.to(PLANE_DTYPE))

    def _sources(self, arguments: interventions.Arguments) -> dict[int, tuple[Tensor, Tensor, bool]]:
        """The operands that hold births or taint: tensor, label plane, and whether it is taint."""
        labels = self.context.labels
        found: dict[int, tuple[Tensor, Tensor, bool]] = {}
        args, kwargs = arguments
        for tensor in interventions.tensors_in([*args, *kwargs.values()]):
            state = self.context.state_of(tensor)
            if state is None or not is_strided(tensor):
                continue
            if state.taint is None and state.only and labels.is_literal(state.only):
                continue
            plane = None
            tainted = False
            if state.taint is not None:
                plane = strided(state.taint, state.itemsize, tensor)
                tainted = bool((plane != 0).any())
            if not tainted and state.plane is not None and readable(tensor):
                plane = torch.where(bad_mask(tensor), strided(state.plane, state.itemsize, tensor), 0)
            if plane is None:
                continue
            born = [s for s in labels.present(plane) if not labels.is_literal(s)]
            if born:
                found[id(tensor)] = (tensor, labels.select(plane, born), tainted)
        return found

    def _depends(
        self,
        operator: Operator,
        arguments: interventions.Arguments,
        sources: dict[int, tuple[Tensor, Tensor, bool]],
        output: Tensor,
        index: int,
        others: tuple[float | str, ...] = (0, 1),
    ) -> Tensor | None:
        """Which output elements depend on the sources: by position, or by changing the sources to some others."""
        labels = self.context.labels
        everything = labels.intern(labels.of(s for _, plane, _ in sources.values() for s in labels.present(plane)))
        if operator.pointwise:
            return self._pointwise(operator, arguments, sources, output)
        if operator.mutable or operator.random:
            return None

        differs: Tensor | None = None
        # an index may happen to be the value that it is changed to: several are tried
        for other in others:
            try:
                with interventions.unseen():
                    again = interventions.run(
                        operator, arguments, lambda t, o=other: _changed(sources.get(id(t)), t, o)
                    )
                    again = again[index]
            except interventions.ANSWERLESS:  # nothing is known
                return None
            if again.shape != output.shape:
                return torch.full(output.shape, everything, dtype=PLANE_DTYPE, device=output.device)
            differs = again != output if differs is None else differs | (again != output)
        assert differs is not None
        return torch.where(differs, everything, 0)

    def _pointwise(
        self,
        operator: Operator,
        arguments: interventions.Arguments,
        sources: dict[int, tuple[Tensor, Tensor, bool]],
        output: Tensor,
    ) -> Tensor | None:
        labels = self.context.labels
        plane = torch.zeros(output.shape, dtype=PLANE_DTYPE, device=output.device)
        args: list[Any] = [a[0] if operator.foreach and isinstance(a, list) and a else a for a in arguments[0]]
        for position, tensor in enumerate(args):
            source = sources.get(id(tensor)) if isinstance(tensor, torch.Tensor) else None
            if source is None:
                continue
            own = source[1]
            try:
                own = own.expand(output.shape)
            except RuntimeError:
                return None
            if operator.selects and position in (1, 2) and isinstance(args[0], torch.Tensor):
                own = torch.where(args[0] if position == 1 else ~args[0], own, 0)
            if operator.base in ("masked_fill", "masked_fill_") and position == 0:
                own = torch.where(args[1], 0, own)
            plane = labels.union(plane, own.to(PLANE_DTYPE))
        return plane

    def _turned(self, row: Row, operator: Operator, output: Tensor, exact: Tensor, plane: Tensor) -> None:
        """Note on the path of a birth where its bad numbers turned into finite ones, and what they should be."""
        if not bool((plane != 0).any()):
            return
        place = tuple(int(i) for i in (plane != 0).nonzero()[0].tolist())
        found, meant = shown(output[place].item()), shown(exact[place].item())
        self._tell(row, operator, plane, "float64_differs", result=found, meant=meant)

    def _made(self, row: Row, operator: Operator, output: Tensor, plane: Tensor, of: str) -> None:
        """Note where a bad number became an index, a boolean or an integer."""
        if bool((plane != 0).any()):
            found = shown(output[tuple(int(i) for i in (plane != 0).nonzero()[0].tolist())].item())
            self._tell(row, operator, plane, "made_of_bad", result=found, bad=of)

    def _tell(self, row: Row, operator: Operator, plane: Tensor, kind: str, **values: Value) -> None:
        """Note what an event did on the path of births that have no step yet of this kind."""
        labels = self.context.labels
        said = Note.of(kind, operator=operator.base.removesuffix("_"), **values)
        for label in labels.labels_in(plane):
            birth = labels.birth(label)
            if any(link.typed_summary.is_like(said, "bad") for link in birth.steps):
                continue
            site, _ = self.context.sites.resolve(row.site, self.context.names.module_path(row.module))
            birth.steps.append(
                ChainLink(role="step", op=operator.name, phase=PHASES[row.phase], site=site, typed_summary=said)
            )

    def _decided(
        self,
        row: Row,
        operator: Operator,
        arguments: interventions.Arguments,
        index: int,
        output: Tensor,
        plane: Tensor,
        old: Before,
        sources: dict[int, tuple[Tensor, Tensor, bool]],
    ) -> Tensor:
        """An index, boolean or integer: made of a NaN it is tainted, else where float64 decides otherwise."""
        args = arguments[0]
        if operator.base in ("ne", "eq") and len(args) == 2 and args[0] is args[1]:
            return torch.zeros_like(plane)
        lost = self._from_nan(operator, arguments, sources, output, index, old)
        self._made(row, operator, output, lost, "NaN")
        plane = torch.where(lost != 0, 0, plane)
        if not bool((plane != 0).any()):
            return lost
        exact = None if operator.base in _CASTS else self._shadow(operator, arguments, index, old)
        if exact is None or exact.shape != output.shape or exact.dtype is not output.dtype:
            # a boolean is what it is whatever the size of an infinity
            if output.dtype is torch.bool:
                return lost
            self._made(row, operator, output, plane, "Inf")
            return self.context.labels.union(lost, plane.to(PLANE_DTYPE))
        # equals may have another order in float64, where nothing is wrong with them
        plain = self._shadow(operator, arguments, index, old, known=False)
        differs = exact != output if plain is None else (exact != output) & (plain == output)
        wrong = torch.where(differs, plane, 0).to(PLANE_DTYPE)
        self._turned(row, operator, output, exact, wrong)
        return self.context.labels.union(lost, wrong)

    def _from_nan(
        self,
        operator: Operator,
        arguments: interventions.Arguments,
        sources: dict[int, tuple[Tensor, Tensor, bool]],
        output: Tensor,
        index: int,
        old: Before,
    ) -> Tensor:
        """The elements that were made of a NaN which float64 has too, whatever it might have been."""
        left: dict[int, tuple[Tensor, Tensor, bool]] = {}
        most = 1.0
        for key, (tensor, plane, _) in sources.items():
            if not tensor.is_floating_point():
                continue
            exact = self._exact_of(tensor, old)
            nan = nan_mask(tensor) if exact is None else nan_mask(tensor) & torch.isnan(exact)
            kept = torch.where(nan, plane, 0)
            if bool((kept != 0).any()):
                left[key] = (tensor, kept, False)
                most = torch.finfo(tensor.dtype).max
        others = (0, 1, most, -most, RISING)
        found = self._depends(operator, arguments, left, output, index, others) if left else None
        empty = torch.zeros(output.shape, dtype=PLANE_DTYPE, device=output.device)
        return empty if found is None else found.to(PLANE_DTYPE)

    def _exact_of(self, tensor: Tensor, old: Before) -> Tensor | None:
        """The shadow of an operand, where it has one."""
        holder = old.changed.get(id(tensor), tensor)
        state = self.context.state_of(holder)
        if state is None or state.shadow is None or state.itemsize != tensor.element_size():
            return None
        return strided(state.shadow, state.itemsize, holder)

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
        put(state.taint, output, plane)
        state.shape = tuple(output.shape)


def _changed(source: tuple[Tensor, Tensor, bool] | None, tensor: Tensor, other: float | str) -> Tensor:
    if source is None:
        return tensor
    chosen = source[1] != 0
    if tensor.dtype is torch.bool:
        return torch.where(chosen, ~tensor, tensor)
    if isinstance(other, str):
        rising = torch.linspace(0, 1, tensor.numel(), device=tensor.device).reshape(tensor.shape)
        return torch.where(chosen, rising.to(tensor.dtype), tensor)
    return torch.where(chosen, torch.full((), other, dtype=tensor.dtype, device=tensor.device), tensor)


def _wrong(exact: Tensor | None, output: Tensor) -> Tensor:
    """Where a finite value differs from its shadow by more than rounding."""
    if exact is None or exact.shape != output.shape or exact.dtype is not torch.float64:
        return torch.zeros(output.shape, dtype=torch.bool, device=output.device)
    difference = (exact - output.to(torch.float64)).abs()
    least = torch.finfo(output.dtype).tiny
    return (difference > RELATIVE * exact.abs()) & (difference > least) & torch.isfinite(exact)


def _asks(operator: Operator, arguments: interventions.Arguments) -> bool:
    """Whether an event only asks if its operand is finite, whichever way that is written."""
    if operator.predicate:
        return True
    if not operator.compares:
        return False
    first, other = arguments[0][:2]
    return first is other or (isinstance(other, float) and other - other != 0)
