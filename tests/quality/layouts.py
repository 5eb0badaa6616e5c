"""Torch's own operator samples with operands of every layout and kind of tensor, healthy and with a bad number.

A *form* makes a tensor of another kind that holds the same numbers, where torch has one.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_leaves, tree_map

from tests.quality.identity import bits as strided_bits
from tests.quality.planted import Nothing
from whynan.faults import InternalError

Form = Callable[[Tensor], Tensor]
Told = list[tuple["Case", str]]


class Plain(Tensor):
    """A subclass without a dispatch of its own."""


class Wrapper(Tensor):
    """A subclass that holds another tensor and has no storage, as a distributed one does."""

    held: Tensor

    @staticmethod
    def __new__(cls: type[Wrapper], held: Tensor) -> Wrapper:
        made: Wrapper = Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, requires_grad=held.requires_grad
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(lambda v: v.held if isinstance(v, Wrapper) else v, (args, kwargs or {}))
        out = func(*args, **kwargs)
        # what is written in place is handed back as it came in
        return tree_map(lambda v: cls(v) if isinstance(v, Tensor) else v, out)


def _two_blocks(tensor: Tensor) -> list[int]:
    if tensor.dim() < 2 or 0 in tensor.shape[-2:]:
        raise ValueError("no matrix")
    return [size // 2 if size % 2 == 0 else 1 for size in tensor.shape[-2:]]


def _rows(tensor: Tensor) -> list[Tensor]:
    if tensor.dim() < 2 or not tensor.shape[0]:
        raise ValueError("no rows")
    return [row.detach().clone() for row in tensor.unbind()]


def _ragged(tensor: Tensor) -> list[Tensor]:
    return [row[: max(1, len(row) - n % 2)] for n, row in enumerate(_rows(tensor))]


def _quantised(tensor: Tensor) -> Tensor:
    return torch.quantize_per_tensor(tensor, 0.1, 10, torch.quint8)


def _quantised_by_channel(tensor: Tensor) -> Tensor:
    n = tensor.shape[0]
    return torch.quantize_per_channel(tensor, torch.full((n,), 0.1), torch.zeros(n, dtype=torch.int64), 0, torch.qint8)


def _hybrid(tensor: Tensor) -> Tensor:
    if tensor.dim() < 2:
        raise ValueError("no matrix")
    return tensor.to_sparse(1)


def _uncoalesced(tensor: Tensor) -> Tensor:
    once = tensor.to_sparse()
    indices, values = once._indices(), once._values()
    return torch.sparse_coo_tensor(torch.cat([indices, indices], 1), torch.cat([values, values]), tensor.shape)


def _conjugate(tensor: Tensor) -> Tensor:
    return torch.complex(tensor, -tensor).conj()


def _negative(tensor: Tensor) -> Tensor:
    return torch.complex(tensor, -tensor).conj().imag


def _wide(tensor: Tensor) -> Tensor:
    """Every second element of memory."""
    whole = torch.empty(*tensor.shape, 2)
    whole[..., 0] = tensor
    return whole[..., 0]


def _expanded(tensor: Tensor) -> Tensor:
    if not tensor.dim() or not tensor.shape[0]:
        raise ValueError("nothing to expand")
    return tensor[:1].expand_as(tensor)


def _empty(tensor: Tensor) -> Tensor:
    return tensor[:0] if tensor.dim() else tensor.reshape(1)[:0]


FORMS: dict[str, Form] = {
    "strided": lambda t: t,
    "coo": lambda t: t.to_sparse(),
    "coo uncoalesced": _uncoalesced,
    "coo hybrid": _hybrid,
    "csr": lambda t: t.to_sparse_csr(),
    "csc": lambda t: t.to_sparse_csc(),
    "bsr": lambda t: t.to_sparse_bsr(_two_blocks(t)),
    "bsc": lambda t: t.to_sparse_bsc(_two_blocks(t)),
    "mkldnn": lambda t: t.to_mkldnn(),
    "nested strided": lambda t: torch.nested.nested_tensor(_ragged(t)),
    "nested jagged": lambda t: torch.nested.nested_tensor(_ragged(t), layout=torch.jagged),
    "quantised": _quantised,
    "quantised by channel": _quantised_by_channel,
    "plain subclass": lambda t: t.as_subclass(Plain),
    "wrapper": Wrapper,
    "two tensors": lambda t: TwoTensor(t, t.clone()),
    "meta": lambda t: t.to("meta"),
    "empty": _empty,
    "complex": lambda t: torch.complex(t, -t),
    "conjugate": _conjugate,
    "negative": _negative,
    "float8": lambda t: t.to(torch.float8_e4m3fn),
    "float8 e5m2": lambda t: t.to(torch.float8_e5m2),
    "half": lambda t: t.half(),
    "bool": lambda t: t > 0,
    "integer": lambda t: t.nan_to_num(0, 0, 0).int(),
    "wide": _wide,
    "expanded": _expanded,
}
"""Forms by name. A zero tensor is none: under any dispatch mode its sum with a number ends the process (torch 2.13)."""
BAD = {"healthy": None, "NaN": float("nan"), "Inf": float("inf")}
WHERE = ("all", "first", "last")
"""Which of the floating operands are given the form."""
DIES: dict[str, frozenset[str]] = {
    "nested jagged": frozenset("split_with_sizes split_list_args reshape_as".split()),
    "mkldnn": frozenset("linalg_pinv_singular".split()),
    "empty": frozenset("nn_functional_pdist lu_unpack _segment_reduce_lengths _segment_reduce_offsets".split()),
}
"""The operators, by form, of which torch 2.13 itself ends the process by a signal."""


class Case(NamedTuple):
    """One sample of an operator, its operands in a form."""

    operator: Any
    sample: Any
    form: str
    where: str
    bad: str

    def __str__(self) -> str:
        return f"{self.operator.formatted_name}, {self.where} {self.form}, {self.bad}"


def _is_open(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32 and value.layout is torch.strided


def _formed(case: Case) -> Any:
    """The sample with fresh operands: those chosen in the form, and a bad number in the first of them."""
    sample = case.sample
    if case.operator.formatted_name in DIES.get(case.form, ()):
        raise ValueError("torch dies of it")
    if case.form == "meta" and case.where != "all":
        # what has no memory beside what has some gives whatever lies there, or a crash
        raise ValueError("no operation reads both")
    found = [t for t in tree_leaves([sample.input, sample.args, sample.kwargs]) if _is_open(t)]
    chosen = {"all": found, "first": found[:1], "last": found[1:][-1:]}[case.where]
    if not chosen:
        raise ValueError("no operand")
    ids = [id(t) for t in chosen]

    def make(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        copy = value.detach().clone()
        if id(value) not in ids:
            return copy.requires_grad_(value.requires_grad)
        if BAD[case.bad] is not None and copy.numel():
            copy.reshape(-1)[0] = BAD[case.bad]
        made = FORMS[case.form](copy).detach()
        floats = made.is_floating_point() or made.is_complex()
        return made.requires_grad_() if value.requires_grad and floats and made.dtype.itemsize > 1 else made

    return sample.transform(lambda v: make(v) if isinstance(v, Tensor) else v)


def bits(value: Any) -> Any:
    """A value by its bits, whatever its layout."""
    if isinstance(value, dict):
        return tuple((k, bits(v)) for k, v in value.items())
    if not isinstance(value, Tensor):
        return tuple(map(bits, value)) if isinstance(value, (list, tuple)) else strided_bits(value)
    value = value.detach()
    if isinstance(value, Wrapper):
        return "wrapper", bits(value.held)
    if isinstance(value, TwoTensor):
        return "two", bits(value.a), bits(value.b)
    if value.is_meta:
        return "meta", tuple(value.shape) if not value.is_nested else "", str(value.dtype)
    if value.is_nested:
        return "nested", str(value.layout), tuple(map(bits, value.unbind()))
    if value.layout is torch.sparse_coo:
        return "coo", tuple(value.shape), bits(value._indices()), bits(value._values())
    if value.layout in (torch.sparse_csr, torch.sparse_bsr):
        return str(value.layout), bits(value.crow_indices()), bits(value.col_indices()), bits(value.values())
    if value.layout in (torch.sparse_csc, torch.sparse_bsc):
        return str(value.layout), bits(value.ccol_indices()), bits(value.row_indices()), bits(value.values())
    if value.dtype.is_floating_point and value.dtype.itemsize == 1:
        return str(value.dtype), bits(value.view(torch.uint8))
    return strided_bits(value)


def _roots(out: Any) -> list[Tensor]:
    return [t for t in tree_leaves(out) if isinstance(t, Tensor) and t.requires_grad]


def outcome(case: Case) -> Any:
    """Result and gradients of a case and the generator's state, by their bits, or the error that it raises."""
    torch.manual_seed(1)
    sample = _formed(case)
    leaves = _roots([sample.input, sample.args, sample.kwargs])
    out: Any = None
    gradients: Any = ()
    try:
        out = case.operator(sample.input, *sample.args, **sample.kwargs)
        if leaves and (roots := _roots(out)):
            gradients = torch.autograd.grad(roots, leaves, [torch.ones_like(r) for r in roots], allow_unused=True)
    except InternalError:
        raise
    except Exception as error:
        gradients = f"raises {type(error).__name__}"
    return out, gradients, torch.get_rng_state()


def compare(
    cases: Iterable[Case], region: Callable[[], AbstractContextManager[Any]]
) -> tuple[int, list[tuple[Case, str]]]:
    """How many cases torch has, and what a region did to some of them: an error of its own, or other bits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bare = [(case, found) for case in cases if (found := _bare(case)) is not None]
        told: Told = []
        left = list(bare)
        while left:
            found: list[tuple[Case, Any, Any]] = []
            with region() as entered:
                failed = _run(left, found)
            told += failed
            told += [
                (case, f"{case}: {part} differs") for case, bare, out in found if (part := _differing(bits(out), bare))
            ]
            if entered.report.verdict == "inconclusive" and not told:
                told.append((bare[0][0], f"{bare[0][0]}: inconclusive"))
    return len(bare), told


def of_an_empty_mode(case: Case) -> bool:
    """Whether a mode that does nothing gives a case other bits too: torch takes another formula then."""
    bare = _bare(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Nothing():
            found = outcome(case)
        return bits(found) != bare


def _bare(case: Case) -> Any:
    """What a case gives without whynan; None where torch refuses it or gives something else each time."""
    try:
        first, second = bits(outcome(case)), bits(outcome(case))
    except Exception:
        return None
    return first if first == second and first[0] != "None" else None


def _run(left: list[tuple[Case, Any]], found: list[tuple[Case, Any, Any]]) -> Told:
    """Run the cases, up to the first at which whynan fails; those that were run are taken away."""
    while left:
        case, bare = left.pop(0)
        try:
            found.append((case, bare, outcome(case)))
        except InternalError as error:
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            place = traceback.extract_tb(cause.__traceback__)[-1]
            return [(case, f"{case}: {cause!r} at {place.name} in {Path(place.filename).name}:{place.lineno}")]
    return []


def _differing(traced: Any, bare: Any) -> str | None:
    parts = "the value", "the gradient", "the state of the generator"
    return next((part for part, a, b in zip(parts, traced, bare, strict=True) if a != b), None)
