"""Asking an operator again: which bad operand elements make which output elements bad.

The user's operation has run, once, and its result has been kept; what runs here works on copies, below the user's
dispatch modes, and leaves the random number generators as they were.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.provenance.dependence import Refused
from whynan.capture.torch.shadow_memory import COMPRESSED, FLOATS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from torch import Tensor

    from whynan.capture.torch.operators import Operator

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


ANSWERLESS = (Refused, RuntimeError, IndexError)
"""What an experiment may end in: the operator refused, or gave a result of another shape."""
WITH_DENSE = frozenset((torch.sparse_coo, *COMPRESSED, torch._mkldnn))  # pyright: ignore[reportAttributeAccessIssue]
"""The layouts of tensors that stand for a dense one."""


def has_dense(tensor: Tensor) -> bool:
    """Whether a tensor that is not dense stands for one that is."""
    return tensor.layout in WITH_DENSE or tensor.is_quantized


def dense(tensor: Tensor) -> Tensor:
    """The dense tensor that another stands for; any other as it is."""
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor.to_dense() if tensor.layout in WITH_DENSE else tensor


def map_tensors(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """Apply a function to every tensor of an argument, through lists and tuples."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return [map_tensors(v, function) for v in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor of a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_in(v)]  # pyright: ignore[reportUnknownVariableType]
    return []


def stored_values(tensor: Tensor) -> Tensor:
    """The numbers that a tensor of any layout holds, each once, as a dense tensor of some shape."""
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
    if tensor.is_nested or tensor.is_sparse or tensor.layout in COMPRESSED:
        return tensor.values()
    return dense(tensor)


@contextmanager
def no_trace() -> Generator[None]:
    """Run below every dispatch mode, without recording a graph, and with the generators put back after."""
    state = torch.get_rng_state()
    device_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    guard = torch._C._DisableTorchDispatch()
    try:
        with torch._C._AutoDispatchBelowAutograd():
            yield
    finally:
        del guard
        torch.set_rng_state(state)
        if device_states is not None:
            torch.cuda.set_rng_state_all(device_states)


def run(operator: Operator, arguments: Arguments, replace: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """The outputs of the operator on replaced operands, mutated arguments included, in the order of `outputs_of`."""
    if operator.in_python:
        raise Refused("what the user wrote in Python runs once")
    if operator.collective:
        raise Refused("what several processes do together none of them does alone")
    args, kwargs = arguments
    new_args = [map_tensors(a, replace) for a in args]
    new_kwargs = {k: map_tensors(v, replace) for k, v in kwargs.items()}
    for key in operator.mutable:
        holder: Any = new_kwargs if isinstance(key, str) else new_args
        if isinstance(key, str) and key not in new_kwargs:
            continue
        if not isinstance(key, str) and key >= len(new_args):
            continue
        holder[key] = map_tensors(holder[key], torch.clone)
    try:
        result = operator.func(*new_args, **new_kwargs)
    except Exception as error:
        raise Refused from error
    # as the sparse results of the event itself are seen
    return [dense(t) for t in outputs_of(operator, new_args, new_kwargs, result)]


def outputs_of(operator: Operator, args: Any, kwargs: dict[str, Any], result: Any) -> list[Tensor]:
    """What an event wrote: the arguments that it changed, then the fresh tensors that it returned."""
    written: list[Tensor] = []
    for key in operator.mutable:
        if isinstance(key, str):
            written += tensors_in(kwargs.get(key))
        elif key < len(args):
            written += tensors_in(args[key])
    if operator.mutable and operator.alias_returns:
        return written
    if not operator.view:
        written += tensors_in(result)
    return written


def is_floating(tensor: Tensor) -> bool:
    """Whether a tensor can hold a bad number."""
    return tensor.dtype in FLOATS
