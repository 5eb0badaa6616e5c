"""Tensors as arrays and back, and a function run on them with its gradients."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import random
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from torch import Tensor


def dtype_name(tensor: Tensor) -> str:
    """``float32``, ``int64``: a dtype without torch before it."""
    return str(tensor.dtype).removeprefix("torch.")


def array_of(tensor: Tensor) -> Any:
    """The elements as a NumPy array of their own memory; every floating-point format as float64, which holds it."""
    bare = tensor.detach()
    if bare.is_floating_point():
        bare = bare.to(torch.float64)
    return bare.cpu().resolve_conj().resolve_neg().numpy().copy()


def tensor_of(values: Any, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """An array as a tensor of the device and dtype of another one."""
    return torch.from_numpy(np.array(values, order="C")).to(device=like.device, dtype=dtype or like.dtype)


def tensors_in(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """All tensors among arguments by name; those in tuples and lists by ``xs[0]``."""
    found: dict[str, Tensor] = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, (tuple, list)):
            found |= tensors_in({f"{name}[{i}]": v for i, v in enumerate(value)})
    return found


def with_tensors(arguments: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The same arguments with other tensors in their places."""

    def changed(name: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return tensors[name]
        if isinstance(value, (tuple, list)):
            parts = [changed(f"{name}[{i}]", v) for i, v in enumerate(value)]
            return tuple(parts) if isinstance(value, tuple) else parts
        return value

    return {name: changed(name, value) for name, value in arguments.items()}


def attached(arguments: Mapping[str, Any], needs_grad: frozenset[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Arguments with tensors of their own, which may be written to in place, and these tensors by name."""
    fresh = {
        name: tensor.detach().clone().requires_grad_().clone() if name in needs_grad else tensor.detach().clone()
        for name, tensor in tensors_in(arguments).items()
    }
    return with_tensors(arguments, fresh), fresh


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a function returned, and the gradients of its inputs; zero where none came to one."""

    outputs: tuple[Tensor, ...]
    gradients: Mapping[str, Tensor]

    @property
    def arrays(self) -> dict[str, tuple[Any, str]]:
        """Each array with its dtype: outputs as ``0``, ``1``, gradients as ``d x``; floating point alone."""
        named = {str(i): o for i, o in enumerate(self.outputs)} | {f"d {n}": g for n, g in self.gradients.items()}
        return {n: (array_of(t), dtype_name(t)) for n, t in named.items() if t.is_floating_point()}

    @property
    def whole(self) -> dict[str, tuple[Any, str]]:
        """Each output of whole numbers or of truth values with its dtype, named alike."""
        named = {str(i): o for i, o in enumerate(self.outputs) if not (o.is_floating_point() or o.is_complex())}
        return {n: (array_of(t), dtype_name(t)) for n, t in named.items()}


class OtherKindError(Exception):
    """What was returned has another shape or dtype than the original's, or is not as much; the text says which."""


def kind_of(dtype: str, shape: tuple[int, ...]) -> str:
    """``float32[8, 4]``."""
    return f"{dtype}[{', '.join(str(n) for n in shape)}]"


def outcome(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    needs_grad: frozenset[str] = frozenset(),
    cotangents: Sequence[Tensor | None] | None = None,
) -> Outcome:
    """Run a function forward and, with ``cotangents`` (one for each output), backward; it may write to its inputs.

    What the function draws at random is the same each time, and no random state of the program moves. Raises
    ``OtherKindError`` where an output is not of the shape of its cotangent, and what the function raises.
    """
    leaves = {
        name: tensor.detach().clone().requires_grad_(name in needs_grad)
        for name, tensor in tensors_in(arguments).items()
    }
    with undisturbed(), torch.enable_grad():
        # a function may write to its inputs, which autograd refuses of leaves
        fresh = {n: t.clone() if t.requires_grad else t for n, t in leaves.items()}
        returned = function(**with_tensors(arguments, fresh))
        outputs = tuple(
            o for o in (returned if isinstance(returned, (tuple, list)) else (returned,)) if isinstance(o, torch.Tensor)
        )
        wanted = {n: t for n, t in leaves.items() if t.requires_grad}
        gradients: dict[str, Any] = {}
        if cotangents is not None and wanted:
            gradients = _gradients(outputs, wanted, cotangents)
    return Outcome(tuple(o.detach() for o in outputs), gradients)


def _gradients(
    outputs: tuple[Tensor, ...], wanted: dict[str, Tensor], cotangents: Sequence[Tensor | None]
) -> dict[str, Tensor]:
    pairs: list[tuple[Tensor, Tensor]] = []
    for output, cotangent in zip(outputs, cotangents, strict=False):
        if cotangent is None:
            continue
        if output.shape != cotangent.shape:
            was = kind_of(dtype_name(cotangent), tuple(cotangent.shape))
            raise OtherKindError(f"{kind_of(dtype_name(output), tuple(output.shape))} where the original gives {was}")
        if output.requires_grad and output.is_floating_point():
            pairs.append((output, cotangent))
    found: Sequence[Tensor | None] = [None] * len(wanted)
    if pairs:
        found = torch.autograd.grad(
            [o for o, _ in pairs], list(wanted.values()), [c.to(o.dtype) for o, c in pairs], allow_unused=True
        )
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient.detach()
        for (name, leaf), gradient in zip(wanted.items(), found, strict=True)
    }


@contextmanager
def undisturbed() -> Generator[None]:
    """Random states put back after, and begun anew; what a function warns of on made inputs is not the user's."""
    # where the program has not begun CUDA, nothing of it does
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # ``torch.manual_seed`` would leave a seed for when CUDA begins
        torch.default_generator.manual_seed(0)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def bad_kinds(tensors: Iterable[Tensor]) -> frozenset[str]:
    """Which of NaN, Inf and -Inf are in tensors."""
    found: set[str] = set()
    for tensor in tensors:
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            asked = {"NaN": torch.isnan, "Inf": torch.isposinf, "-Inf": torch.isneginf}
            found |= {kind for kind, is_so in asked.items() if bool(is_so(tensor).any())}
    return frozenset(found)
