"""Arrays of a program that is judged: tensors of PyTorch and arrays of NumPy, told and made alike."""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from whynan.floats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_tensor(value: Any) -> bool:
    """Whether a value is an array whose elements are judged."""
    torch = sys.modules.get("torch")
    return isinstance(value, np.ndarray) or (torch is not None and isinstance(value, torch.Tensor))


def dtype_name(tensor: Any) -> str:
    """``float32``, ``int64``: a dtype without torch before it."""
    return str(tensor.dtype).removeprefix("torch.")


def is_float(tensor: Any) -> bool:
    """Whether the elements are floating-point numbers."""
    return dtype_name(tensor) in FORMATS if isinstance(tensor, np.ndarray) else tensor.is_floating_point()


def is_complex(tensor: Any) -> bool:
    """Whether the elements are complex numbers."""
    return dtype_name(tensor).startswith("complex")


def size_of(tensor: Any) -> int:
    """The number of elements."""
    return math.prod(tensor.shape)


def array_of(tensor: Any) -> Any:
    """The elements as a NumPy array of their own memory; every floating-point format as float64, which holds it."""
    if isinstance(tensor, np.ndarray):
        return np.array(tensor, np.float64 if is_float(tensor) else None)
    bare = tensor.detach()
    bare = bare.double() if bare.is_floating_point() else bare
    return bare.cpu().resolve_conj().resolve_neg().numpy().copy()


def tensor_of(values: Any, like: Any, dtype: str | None = None) -> Any:
    """An array in the framework, on the device and in the dtype of another one."""
    own: Any = like.dtype
    if isinstance(like, np.ndarray):
        with np.errstate(all="ignore"):
            return np.asarray(values).astype(own)
    import torch

    made: Any = torch.as_tensor(np.array(values, order="C"), device="cpu")
    return made.to(device=like.device, dtype=own if dtype is None else getattr(torch, dtype))


def tensors_in(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """All tensors among arguments by name; those in tuples and lists by ``xs[0]``."""
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if is_tensor(value):
            found[name] = value
        elif isinstance(value, (tuple, list)):
            found |= tensors_in({f"{name}[{i}]": v for i, v in enumerate(value)})
    return found


def with_tensors(arguments: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with other tensors in their places."""

    def changed(name: str, value: Any) -> Any:
        if is_tensor(value):
            return tensors[name]
        if isinstance(value, (tuple, list)):
            parts = [changed(f"{name}[{i}]", v) for i, v in enumerate(value)]
            return tuple(parts) if isinstance(value, tuple) else parts
        return value

    return {name: changed(name, value) for name, value in arguments.items()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program returned, and the gradients of its inputs; zero where none came to one."""

    outputs: tuple[Any, ...]
    gradients: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def arrays(self) -> dict[str, tuple[Any, str]]:
        """Each array with its dtype: outputs as ``0``, ``1``, gradients as ``d x``; floating point alone."""
        named = {str(i): o for i, o in enumerate(self.outputs)} | {f"d {n}": g for n, g in self.gradients.items()}
        return {n: (array_of(t), dtype_name(t)) for n, t in named.items() if is_float(t)}

    @property
    def whole(self) -> dict[str, tuple[Any, str]]:
        """Each output of whole numbers or of truth values with its dtype, named alike."""
        named = {str(i): o for i, o in enumerate(self.outputs) if not (is_float(o) or is_complex(o))}
        return {n: (array_of(t), dtype_name(t)) for n, t in named.items()}


class OtherKindError(Exception):
    """What was returned has another shape or dtype than the original's, or is not as much; the text says which."""


def kind_of(dtype: str, shape: tuple[int, ...]) -> str:
    """``float32[8, 4]``."""
    return f"{dtype}[{', '.join(str(n) for n in shape)}]"
