"""Experiments on a bad step: what a replay of it is run with, to tell what makes it bad.

Each is a context manager around the replay, whose writes are put back by the replay itself.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from whynan.capture.torch.dispatch_mode import _PASSING, _no_dispatch
from whynan.ops.table import TORCH

if TYPE_CHECKING:
    from collections.abc import Generator

_WIDE: Final = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
_tree_map: Any = pytree.tree_map
_RANDOM: Final = TORCH.having("random")
_UNWRITTEN: Final = TORCH.having("uninitialised")


class InFloat64(TorchDispatchMode):
    """Every operation in float64, whatever the formats of its operands; what is written in place keeps its own."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(dispatches(kind) for kind in types):
            return NotImplemented
        return _run_wide(func, args, kwargs or {})


def _run_wide(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if func._schema.name.partition("::")[2] in _RANDOM:
        # in another format it would draw other numbers
        return _tree_map(_widened, func(*_tree_map(_narrowed, args), **_tree_map(_narrowed, kwargs)))
    arguments: list[Any] = func._schema.arguments
    if any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
        # a view of a wider copy would not be one of what it is written through
        return func(*args, **kwargs)
    names = {a.name: (args[n] if n < len(args) else kwargs.get(a.name)) for n, a in enumerate(arguments)}
    written = [names[a.name] for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    target = next((t.dtype for t in pytree.tree_leaves(written) if isinstance(t, Tensor)), None)
    if target is not None:
        kept = {id(t) for t in pytree.tree_leaves(written)}
        args, kwargs = _tree_map(lambda value: _as(value, target, kept), (args, kwargs))
    elif any(isinstance(value, Tensor) for value in pytree.tree_leaves(args)):
        wanted = kwargs.get("dtype")
        args, kwargs = _tree_map(_widened, (args, kwargs))
        # the engine gives a leaf its gradient in the format of the leaf
        if "dtype" in kwargs and (torch._C._current_autograd_node() is None or wanted is not torch.float32):
            kwargs["dtype"] = _WIDE.get(kwargs["dtype"], wanted)
    return func(*args, **kwargs)


def dispatches(kind: Any) -> bool:
    """Whether a kind of tensor has a dispatch of its own, which is to come first."""
    return kind.__torch_dispatch__ is not _no_dispatch and kind is not Tensor and kind.__name__ not in _PASSING


def _widened(value: Any) -> Any:
    return value.to(_WIDE[value.dtype]) if isinstance(value, Tensor) and value.dtype in _WIDE else value


def _narrowed(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype is torch.float64 else value


def _as(value: Any, dtype: torch.dtype, kept: set[int]) -> Any:
    """A tensor in the format of what is written."""
    if not isinstance(value, Tensor) or id(value) in kept or value.dtype == dtype:
        return value
    return value.to(dtype) if value.is_floating_point() and dtype.is_floating_point else value


class ZeroedMemory(TorchDispatchMode):
    """What is allocated without a value holds zeros."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        out = func(*args, **(kwargs or {}))
        if func._schema.name.partition("::")[2] in _UNWRITTEN and isinstance(out, Tensor):
            out.zero_()
        return out


@contextmanager
def in_one_order() -> Generator[None]:
    """Every operation by its deterministic algorithm, where it has one."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    filled, memory.fill_uninitialized_memory = memory.fill_uninitialized_memory, False
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = filled


def is_exchangeable(batch: list[Tensor], other: list[Tensor]) -> bool:
    """Whether the numbers of another batch can stand in the tensors of one, and are others."""
    return (
        0 < len(batch) == len(other)
        and all(_takes(mine, theirs) for mine, theirs in zip(batch, other, strict=True))
        and not all(_same_numbers(mine, theirs) for mine, theirs in zip(batch, other, strict=True))
    )


def _takes(mine: Tensor, theirs: Tensor) -> bool:
    plain = mine.layout is torch.strided and mine.is_contiguous() and not mine.is_inference()
    alike = mine.dtype == theirs.dtype and mine.dim() == theirs.dim() > 0 and mine.shape[1:] == theirs.shape[1:]
    return plain and alike and len(theirs) >= len(mine)


def _same_numbers(mine: Tensor, theirs: Tensor) -> bool:
    """Whether two hold the same numbers, in whatever order."""
    return mine.shape == theirs.shape and torch.equal(mine.flatten().sort().values, theirs.flatten().sort().values)


@contextmanager
def with_batch(batch: list[Tensor], other: list[Tensor]) -> Generator[None]:
    """The numbers of another batch in the tensors of this one, of as many rows as it has."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        for mine, theirs in zip(batch, other, strict=True):
            mine.copy_(theirs[: len(mine)])
    yield
