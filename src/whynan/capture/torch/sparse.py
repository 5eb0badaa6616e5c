"""Sparse tensors: their elements are those of their values, whose storage carries the labels.

An event that is explained sees a sparse operand as the dense tensor that it stands for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch import experiments
from whynan.capture.torch.labels import PLANE_DTYPE
from whynan.capture.torch.planes import bad_mask, elements, is_bad, strided

if TYPE_CHECKING:
    from torch import Tensor

    from whynan.capture.torch.births import BadEvents

MOST_ELEMENTS: Final = 1 << 26
"""A sparse tensor that stands for more is not looked at element by element."""
TOO_LARGE: Final = "a sparse tensor of more than {:,} elements was looked at as a whole"


def is_sparse(value: Any) -> bool:
    """Whether a value is a sparse tensor, or holds one."""
    return any(t.layout is torch.sparse_coo for t in experiments.tensors_in(value))


def is_too_large(value: Any) -> bool:
    """Whether a sparse tensor among some values stands for more than can be looked at."""
    return any(t.layout is torch.sparse_coo and t.numel() > MOST_ELEMENTS for t in experiments.tensors_in(value))


class StandIns:
    """The operands and results of one event, each sparse one as a dense tensor with the labels of its values."""

    def __init__(self, bad: BadEvents) -> None:
        self._bad = bad
        self._made: dict[int, tuple[Tensor, Tensor]] = {}

    def of(self, value: Any) -> Any:
        """A value with its sparse tensors replaced, the same one always by the same."""
        return experiments.map_tensors(value, self._dense) if is_sparse(value) else value

    def labelled(self, tensor: Tensor) -> bool:
        """Whether each bad element of a tensor that stands for another has its labels already."""
        state = self._bad.tracer.state_of(tensor)
        if state is None or state.plane is None or not any(tensor is dense for _, dense in self._made.values()):
            return False
        return not bool((bad_mask(tensor) & (strided(state.plane, state.itemsize, tensor) == 0)).any())

    def passes_on(self, output: Tensor, value: Any) -> bool:
        """Whether a result is one of its operands in another layout; its elements then carry the same labels."""
        tracer = self._bad.tracer
        for tensor in experiments.tensors_in(value):
            state = tracer.state_of(tensor)
            if tensor is output or state is None or state.plane is None or tensor.shape != output.shape:
                continue
            if tensor.layout is output.layout and torch.equal(_comparable(tensor), _comparable(output)):
                self._bad.label(output, strided(state.plane, state.itemsize, tensor).clone(), backward=state.backward)
                return True
        return False

    def put_back(self, explained: list[Tensor]) -> None:
        """What was found of the dense tensors holds for the sparse ones: results, and operands not known before."""
        tracer = self._bad.tracer
        for tensor, dense in self._made.values():
            state, values = tracer.state_of(dense), tensor._values()
            known = tracer.state_of(values)
            fresh = known is None or known.plane is None
            if state is not None and state.plane is not None and (fresh or any(dense is t for t in explained)):
                plane = strided(state.plane, state.itemsize, dense)[tuple(tensor._indices())]
                self._bad.label(*_once(values, plane), backward=state.backward)

    def _dense(self, tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.sparse_coo:
            return tensor
        known = self._made.get(id(tensor))
        if known is not None:
            return known[1]
        tracer = self._bad.tracer
        dense, values = tensor.detach().to_dense(), tensor._values()
        self._made[id(tensor)] = tensor, dense
        tracer.rows.note(dense, tracer.rows.writer_of(values))
        state = tracer.state_of(values)
        if state is not None and state.plane is not None:
            plane = torch.zeros(dense.shape, dtype=state.plane.dtype, device=dense.device)
            plane[tuple(tensor._indices())] = strided(state.plane, state.itemsize, values)
            self._bad.label(dense, plane, backward=state.backward)
        return dense


def _comparable(tensor: Tensor) -> Tensor:
    return torch.where(torch.isnan(tensor), 0, tensor) if bool(torch.isnan(tensor).any()) else tensor


def as_dense(tensor: Tensor, bad: BadEvents) -> Tensor:
    """A sparse tensor as the dense one, with its labels; its values where none is bad, any other as it is."""
    if tensor.layout is not torch.sparse_coo:
        return tensor
    values = elements(tensor)
    return values if is_too_large(tensor) or not is_bad(values) else StandIns(bad).of(tensor)


def carry_all(bad: BadEvents, value: Any, written: list[Tensor]) -> None:
    """All bad elements of what is too large to be looked at carry whatever the operands do."""
    tracer = bad.tracer
    tracer.notes[TOO_LARGE.format(MOST_ELEMENTS)] = None
    states = [tracer.state_of(t) for t in experiments.tensors_in(value)]
    labels = tracer.labels.of(
        s
        for state in states
        if state is not None and state.plane is not None
        for s in tracer.labels.present(state.plane)
    )
    whole = tracer.labels.intern(labels) if labels else 0
    for tensor in map(elements, written if whole else ()):
        plane = torch.where(bad_mask(tensor), whole, 0).to(PLANE_DTYPE)
        bad.label(*_once(tensor, plane), backward=any(s is not None and s.backward for s in states))


def _once(values: Tensor, plane: Tensor) -> tuple[Tensor, Tensor]:
    """A gradient that was expanded has one place in memory for many elements."""
    for dim in range(values.dim()):
        if values.stride(dim) == 0 and values.shape[dim] > 1:
            values, plane = values.narrow(dim, 0, 1), plane.amax(dim, keepdim=True)
    return values, plane
