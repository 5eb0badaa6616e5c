"""Tensors of other layouts: a sparse one's elements are those of its values, whose storage carries the labels.

An event that is explained sees such an operand as the dense tensor that it stands for. What stands for none (a nested
tensor, one on meta) is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.provenance.labels import PLANE_DTYPE
from whynan.capture.torch.shadow_memory import bad_mask, elements, is_bad, is_readable, is_strided, nan_mask, strided
from whynan.records import Note

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.event_log import LiveEvent

MOST_ELEMENTS: Final = 1 << 26
"""A sparse tensor that stands for more is not looked at element by element."""

OPAQUE: Final = Note.create("nested_tensors")


def is_sparse(value: Any) -> bool:
    """Whether a value is a tensor that stands for a dense one, or holds such."""
    return any(map(interventions.has_dense, interventions.tensors_in(value)))


def is_too_large(value: Any) -> bool:
    """Whether a sparse tensor among some values stands for more than can be looked at."""
    tensors = interventions.tensors_in(value)
    return any(interventions.has_dense(t) and t.numel() > MOST_ELEMENTS for t in tensors)


def is_opaque(value: Any) -> bool:
    """Whether a tensor among some values has no elements that can be told apart, and stands for none that has."""
    return any(not is_strided(t) and not interventions.has_dense(t) for t in interventions.tensors_in(value))


def _is_on_meta(value: Any) -> bool:
    """Whether whatever has no elements to look at is one that has no numbers, as torch makes them of a zero tensor."""
    found = (t for t in interventions.tensors_in(value) if not is_strided(t) and not interventions.has_dense(t))
    return all(t.device.type == "meta" for t in found)


class StandIns:
    """The operands and results of one event, each sparse one as a dense tensor with the labels of its values."""

    def __init__(self, context: TraceContext) -> None:
        self._context = context
        self._made: dict[int, tuple[Tensor, Tensor]] = {}

    def fit(self, value: Any) -> bool:
        """Whether each of some values can be replaced; torch makes sparse tensors that it cannot read itself."""
        try:
            self.replace_sparse(value)
        except (RuntimeError, NotImplementedError):
            return False
        return True

    def replace_sparse(self, value: Any) -> Any:
        """A value with its sparse tensors replaced, the same one always by the same."""
        return interventions.map_tensors(value, self._dense) if is_sparse(value) else value

    def event(self, live: LiveEvent) -> LiveEvent:
        """An event with its sparse tensors replaced."""
        kept = live.before or {}
        held = [t for t in interventions.tensors_in(live.args) if id(t) in kept]
        return live._replace(
            args=self.replace_sparse(live.args),
            written=self.replace_sparse(live.written),
            kwargs={name: self.replace_sparse(value) for name, value in live.kwargs.items()},
            before={id(self.replace_sparse(t)): self.replace_sparse(kept[id(t)]) for t in held},
        )

    def labelled(self, tensor: Tensor) -> bool:
        """Whether each bad element of a tensor that stands for another has its labels already."""
        state = self._context.state_of(tensor)
        if state is None or state.plane is None or not any(tensor is dense for _, dense in self._made.values()):
            return False
        return not bool((bad_mask(tensor) & (strided(state.plane, state.itemsize, tensor) == 0)).any())

    def passes_on(self, output: Tensor, value: Any) -> bool:
        """Whether a result is one of its operands in another layout; its elements then carry the same labels."""
        context = self._context
        for tensor in interventions.tensors_in(value):
            state = context.state_of(tensor)
            if tensor is output or state is None or state.plane is None or tensor.shape != output.shape:
                continue
            if tensor.layout is output.layout and _is_same(tensor, output):
                self._context.label(
                    output, strided(state.plane, state.itemsize, tensor).clone(), backward=state.backward
                )
                return True
        return False

    def restore_labels(self, explained: list[Tensor]) -> None:
        """What was found of the dense tensors holds for the sparse ones: results, and operands not known before."""
        context = self._context
        for tensor, dense in self._made.values():
            state, values = context.state_of(dense), elements(tensor)
            known = context.state_of(values)
            fresh = known is None or known.plane is None
            # what has no values of its own keeps no labels
            if values is tensor or state is None or state.plane is None:
                continue
            if fresh or any(dense is t for t in explained):
                plane = _taken(tensor, strided(state.plane, state.itemsize, dense))
                context.label(*_once(values, plane), backward=state.backward)

    def _dense(self, tensor: Tensor) -> Tensor:
        if not interventions.has_dense(tensor):
            return tensor
        known = self._made.get(id(tensor))
        if known is not None:
            return known[1]
        context = self._context
        dense, values = interventions.dense(tensor.detach()), elements(tensor)
        self._made[id(tensor)] = tensor, dense
        context.rows.note(dense, context.rows.writer_of(values))
        state = context.state_of(values)
        if state is not None and state.plane is not None:
            plane = _spread(tensor, strided(state.plane, state.itemsize, values))
            self._context.label(dense, plane, backward=state.backward)
        return dense


def _taken(tensor: Tensor, dense: Tensor) -> Tensor:
    """What a dense plane holds at the places of a sparse tensor's values."""
    if tensor.layout is torch.sparse_coo:
        return dense[None][_places(tensor)]
    numbers = _numbers(tensor)
    taken = torch.zeros(tensor.values().numel() + 1, dtype=dense.dtype, device=dense.device)
    taken[numbers] = dense
    return taken[1:].view(tensor.values().shape)


def _spread(tensor: Tensor, plane: Tensor) -> Tensor:
    """The dense plane of the plane of a sparse tensor's values."""
    if tensor.layout is not torch.sparse_coo:
        return torch.cat([plane.new_zeros(1), plane.reshape(-1)])[_numbers(tensor)]
    spread = torch.zeros(tensor.shape, dtype=plane.dtype, device=plane.device)
    spread[None][_places(tensor)] = plane
    return spread


def _places(tensor: Tensor) -> tuple[Tensor, ...]:
    """The indices of a sparse tensor's values, below one more dimension, which a tensor without any needs."""
    indices = tensor._indices()
    return indices.new_zeros(indices.shape[1]), *indices


def _numbers(tensor: Tensor) -> Tensor:
    """By place, the number of the value that a sparse tensor of a compressed layout has there, from 1; else 0."""
    by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    outer = tensor.crow_indices() if by_row else tensor.ccol_indices()
    inner = tensor.col_indices() if by_row else tensor.row_indices()
    values = tensor.values()
    numbers = torch.arange(1, values.numel() + 1, device=values.device).view(values.shape)
    counted = torch.sparse_compressed_tensor(outer, inner, numbers, tensor.shape, layout=tensor.layout)
    return counted.to_dense()


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of a shape hold the same, NaN at the same places."""
    return bool(((one == other) | (nan_mask(one) & nan_mask(other))).all())


def as_dense(tensor: Tensor, context: TraceContext) -> Tensor:
    """A sparse tensor as the dense one, with its labels; its values where none is bad, any other as it is."""
    values = elements(tensor)
    if values is tensor:
        return interventions.dense(tensor)
    return (
        values
        if is_opaque(tensor) or is_too_large(tensor) or not is_bad(values)
        else StandIns(context).replace_sparse(tensor)
    )


def carry_all(context: TraceContext, value: Any, written: list[Tensor], *, opaque: bool) -> None:
    """All bad elements of what cannot be told apart carry whatever the operands do."""
    if not opaque:
        context.notes[Note.create("large_sparse", elements=MOST_ELEMENTS)] = None
    elif not _is_on_meta((value, written)):
        context.notes[OPAQUE] = None
    states = [context.state_of(t) for t in interventions.tensors_in(value)]
    labels = context.labels.labels_of(
        s
        for state in states
        if state is not None and state.plane is not None
        for s in context.labels.present(state.plane)
    )
    whole = context.labels.intern(labels) if labels else 0
    for tensor in filter(is_readable, map(elements, written if whole else ())):
        plane = torch.where(bad_mask(tensor), whole, 0).to(PLANE_DTYPE)
        context.label(*_once(tensor, plane), backward=any(s is not None and s.backward for s in states))


def _once(values: Tensor, plane: Tensor) -> tuple[Tensor, Tensor]:
    """A gradient that was expanded has one place in memory for many elements."""
    for dim in range(values.dim()):
        if values.stride(dim) == 0 and values.shape[dim] > 1:
            values, plane = values.narrow(dim, 0, 1), plane.amax(dim, keepdim=True)
    return values, plane
