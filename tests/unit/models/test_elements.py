"""The elements of tensors of every kind are counted, in pieces as well as at once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.selection import examples
from whynan.models.counting import UncountableError, count_elements, counters, layout_of

NAN, INF = math.nan, math.inf
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def told(tensor: Tensor, **arguments: Any) -> tuple[Any, ...]:
    """The counters in their order: all, NaN, Inf, -Inf, zero, subnormal, and the finite range."""
    counts, low, high = count_elements(tensor, **arguments)
    return (*counts.values(), low, high)


@pytest.mark.parametrize("dtype", FLOATS)
def test_each_kind_of_number_is_counted_apart(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).tiny
    values = [NAN, NAN, INF, -INF, -INF, -INF, 0.0, -0.0, tiny / 2, 1.5, -2.0]
    assert told(torch.tensor(values, dtype=dtype)) == (11, 2, 1, 3, 2, 1, -2.0, 1.5)


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (torch.float8_e4m3fn, [NAN, 448.0, 0.0, 2**-9], (4, 1, 0, 0, 1, 1, 0.0, 448.0)),
        (torch.float8_e5m2, [NAN, INF, -INF, 2**-16], (4, 1, 1, 1, 0, 1, 2**-16, 2**-16)),
        (torch.float8_e4m3fnuz, [NAN, -240.0], (2, 1, 0, 0, 0, 0, -240.0, -240.0)),
        (torch.float8_e5m2fnuz, [NAN, 1.0], (2, 1, 0, 0, 0, 0, 1.0, 1.0)),
        (torch.float8_e8m0fnu, [NAN, 2**-127, 1.0], (3, 1, 0, 0, 0, 0, 2**-127, 1.0)),
    ],
)
def test_eight_bits_have_their_own_limits(dtype: torch.dtype, values: list[float], expected: tuple[Any, ...]) -> None:
    assert told(torch.tensor(values).to(dtype)) == expected


def test_four_bits_are_packed_in_pairs_and_never_bad() -> None:
    packed = torch.tensor([0x10, 0x7F], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    # 0 and 0.5, which is subnormal; -6 and 6
    assert told(packed) == (4, 0, 0, 0, 1, 1, -6.0, 6.0)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_a_complex_number_counts_as_its_two_parts(dtype: torch.dtype) -> None:
    assert told(torch.tensor([complex(NAN, 1), complex(2, INF)], dtype=dtype)) == (4, 1, 1, 0, 0, 0, 1.0, 2.0)
    assert told(torch.tensor([complex(1, INF)], dtype=dtype).conj()) == (2, 0, 0, 1, 0, 0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.tensor([True, False, True]), (3, 0, 0, 0, 1, 0, 0, 1)),
        (torch.tensor([-3, 0, 9], dtype=torch.int8), (3, 0, 0, 0, 1, 0, -3, 9)),
        (torch.tensor([-(2**63), 2**63 - 1]), (2, 0, 0, 0, 0, 0, -(2**63), 2**63 - 1)),
        (torch.tensor([0, 2**64 - 1], dtype=torch.uint64), (2, 0, 0, 0, 1, 0, 0, 2**64 - 1)),
        (torch.tensor([7], dtype=torch.uint16), (1, 0, 0, 0, 0, 0, 7, 7)),
    ],
    ids=["bool", "int8", "int64", "uint64", "uint16"],
)
def test_whole_numbers_are_never_bad_and_exact(tensor: Tensor, expected: tuple[Any, ...]) -> None:
    assert told(tensor) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64, torch.uint16])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_nothing_is_counted_as_nothing(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    assert told(torch.empty(shape, dtype=dtype)) == (0, 0, 0, 0, 0, 0, None, None)


def test_where_nothing_is_finite_there_is_no_range() -> None:
    assert told(torch.tensor([NAN, INF]))[-2:] == (None, None)


def test_the_range_of_float64_is_exact() -> None:
    assert told(torch.tensor([-1e300, 1.0 / 3], dtype=torch.float64))[-2:] == (-1e300, 1.0 / 3)


def _coo() -> Tensor:
    # two values at one place: they are added only where somebody coalesces
    return torch.sparse_coo_tensor(torch.tensor([[0, 0]]), torch.tensor([INF, -INF]), (4,))


def _nested() -> Tensor:
    return torch.nested.nested_tensor([torch.tensor([1.0, NAN]), torch.tensor([2.0, 3.0, INF])])


def _jagged() -> Tensor:
    return torch.nested.nested_tensor([torch.tensor([1.0, NAN]), torch.tensor([2.0])], layout=torch.jagged)


def _quantized() -> Tensor:
    return torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 0, torch.qint8)


def _of_a_bad_scale() -> Tensor:
    return torch._make_per_channel_quantized_tensor(
        torch.ones(2, 2, dtype=torch.int8), torch.tensor([1.0, NAN]), torch.zeros(2), 0
    )


@pytest.mark.parametrize(
    ("make", "layout", "expected"),
    [
        (_coo, "sparse_coo", (2, 0, 1, 1, 0, 0, None, None)),
        (lambda: torch.eye(3).to_sparse_csr() * NAN, "sparse_csr", (3, 3, 0, 0, 0, 0, None, None)),
        (lambda: torch.eye(4).to_sparse_bsr((2, 2)), "sparse_bsr", (8, 0, 0, 0, 4, 0, 0.0, 1.0)),
        (_nested, "nested", (5, 1, 1, 0, 0, 0, 1.0, 3.0)),
        (_jagged, "nested", (3, 1, 0, 0, 0, 0, 1.0, 2.0)),
        (_quantized, "quantized", (2, 0, 0, 0, 0, 0, 1.0, 2.0)),
        (_of_a_bad_scale, "quantized", (4, 2, 0, 0, 0, 0, 1.0, 1.0)),
        (lambda: torch.ones(2, requires_grad=True), "strided", (2, 0, 0, 0, 0, 0, 1.0, 1.0)),
    ],
    ids=["coo", "csr", "bsr", "nested", "jagged", "quantized", "bad scale", "requires grad"],
)
def test_every_layout_is_counted(make: Callable[[], Tensor], layout: str, expected: tuple[Any, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = make()
        assert layout_of(tensor) == layout
        assert told(tensor) == expected


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: torch.ones(2, device="meta"), "it is on the meta device and has no values"),
        (lambda: torch.zeros(2, dtype=torch.uint8).view(torch.bits8), "values of strided torch.bits8 cannot be read"),
        (lambda: torch.zeros(2, dtype=torch.uint8).view(torch.uint4), "values of strided torch.uint4 cannot be read"),
    ],
    ids=["meta", "bits8", "uint4"],
)
def test_what_has_no_elements_to_read_says_so(make: Callable[[], Tensor], why: str) -> None:
    with pytest.raises(UncountableError, match=why):
        count_elements(make())


VALUES = st.sampled_from([0.0, 1.0, -2.5, NAN, INF, -INF, 1e-40])


@st.composite
def views(draw: st.DrawFn) -> Tensor:
    """A view of a tensor with planted bad numbers: permuted, sliced, expanded, of any memory order."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    size = math.prod(shape)
    tensor = torch.tensor(draw(st.lists(VALUES, min_size=size, max_size=size))).view(shape)
    tensor = tensor.permute(draw(st.permutations(range(len(shape)))))
    for dim in range(tensor.dim()):
        first = draw(st.integers(0, tensor.shape[dim] - 1))
        tensor = tensor.narrow(dim, first, tensor.shape[dim] - first)
    step = draw(st.integers(1, 3))
    tensor = tensor[::step]
    return tensor.unsqueeze(0).expand(3, *tensor.shape) if draw(st.booleans()) else tensor


@given(views(), st.integers(1, 7))
@settings(max_examples=examples(300), deadline=None)
def test_pieces_of_any_view_add_up_to_the_whole(tensor: Tensor, chunk: int) -> None:
    counts, low, high = counters(tensor.contiguous())
    assert told(tensor, chunk=chunk) == (*counts.values(), low, high)


def test_no_piece_is_larger_than_it_may_be_and_all_are_told() -> None:
    sizes: list[int] = []
    count_elements(torch.ones(1000).view(10, 100).t()[::3], sizes.append, chunk=64)
    assert sum(sizes) == 34 * 10 * 4
    assert max(sizes) <= 64 * 4


def test_a_tensor_that_shows_one_element_often_is_looked_at_once() -> None:
    sizes: list[int] = []
    assert told(torch.tensor([NAN]).expand(10**12), tick=sizes.append)[:2] == (10**12, 10**12)
    assert sizes == [4]
