"""Rows of a tensor that elements seen through another tensor lie in, against a table of every place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.selection import examples
from whynan.capture.torch.provenance.origins import layout_of


@st.composite
def views(draw: st.DrawFn, base: Tensor) -> Tensor:
    """A tensor over the memory of another: cut, stepped, permuted, with places of one."""
    view = base
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["cut", "permuted", "unsqueezed", "reshaped"]))
        if kind == "cut":
            dim = draw(st.integers(0, view.dim() - 1))
            start = draw(st.integers(0, view.shape[dim] - 1))
            step = draw(st.integers(1, 3))
            cut: list[Any] = [slice(None)] * view.dim()
            cut[dim] = slice(start, None, step)
            view = view[tuple(cut)]
        elif kind == "permuted":
            view = view.permute(draw(st.permutations(range(view.dim()))))
        elif kind == "unsqueezed":
            view = view.unsqueeze(draw(st.integers(0, view.dim())))
        elif view.is_contiguous():
            view = view.reshape(-1)
    return view


def places(tensor: Tensor) -> Tensor:
    """The place of each element in the storage."""
    whole = torch.arange(tensor.untyped_storage().nbytes() // tensor.element_size())
    return whole.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset()))


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_rows_are_those_of_the_places(data: st.DataObject) -> None:
    base = torch.zeros(4, 3, 5)
    batch, seen = data.draw(views(base)), data.draw(views(base))
    mask = torch.zeros(seen.shape, dtype=torch.bool)
    for _ in range(data.draw(st.integers(1, 4))):
        mask[tuple(data.draw(st.integers(0, n - 1)) for n in seen.shape)] = True
    of_row = {int(p): row for row in range(batch.shape[0]) for p in places(batch)[row].flatten()}
    marked = {int(p) for p in places(seen)[mask]}
    expected = sorted({of_row[p] for p in marked}) if marked <= set(of_row) else None
    assert layout_of(batch).rows(seen, mask) == expected


@pytest.mark.parametrize("dtype", [torch.complex128, torch.float16])
def test_elements_of_another_size_lie_in_the_rows_of_their_bytes(dtype: torch.dtype) -> None:
    batch = torch.zeros(4, 2, dtype=torch.float64)
    seen = batch.view(dtype)
    mask = torch.zeros(seen.shape, dtype=torch.bool)
    mask[2, -1] = True
    assert layout_of(batch).rows(seen, mask) == [2]
    assert layout_of(batch[:2]).rows(seen, mask) is None


@pytest.mark.parametrize(
    "batch",
    [torch.zeros(3).expand(4, 3), torch.zeros(6).unfold(0, 3, 1), torch.zeros(())],
    ids=["expanded", "windows", "a number"],
)
def test_a_layout_that_does_not_tell_gives_no_rows(batch: Tensor) -> None:
    seen = batch.as_strided((1,), (1,))
    assert layout_of(batch).rows(seen, torch.ones(1, dtype=torch.bool)) == []


def test_memory_that_begins_elsewhere_is_counted_from_there() -> None:
    batch = torch.zeros(4, 3)
    inner = batch[1:]
    mask = torch.zeros(3, 3, dtype=torch.bool)
    mask[0, 2] = True
    # as a tensor that was made of an array's second row on
    apart = torch.from_numpy(inner.numpy())
    assert layout_of(batch).rows(apart, mask, shift=-3 * 4) == [1]
