"""A recorded program run again by torch itself, operator by operator: what recording has to agree with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from whynan.verify.oracle.calls import Program, Ref

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def replayed(program: Program, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """The outputs of a program on inputs by name; gradients flow."""
    values: dict[str, Any] = dict(inputs)
    for name, array in program.constants.items():
        values[name] = torch.as_tensor(array, dtype=getattr(torch, program.dtypes[name]))
    for step in program.steps:
        base, overload = step.op.removeprefix("aten.").rsplit(".", 1)
        function = getattr(getattr(torch.ops.aten, base), overload)
        known = {a.name: a.type for a in function._schema.arguments}
        given = {
            name: _dtype(value) if name == "dtype" else _filled(value, values)
            for name, value in step.arguments.items()
            if name in known
        }
        given |= {n: v for n, v in _device(known).items() if n in given}
        out = function(**given)
        for name, each in zip(step.outputs, out if isinstance(out, (tuple, list)) else (out,), strict=True):
            values[name] = each
    return tuple(values[name] for name in program.outputs)


def _device(known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None for name in ("device", "layout", "memory_format", "pin_memory", "generator") if name in known}


def _dtype(name: str | None) -> Any:
    return None if name is None else getattr(torch, name)


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, Ref):
        return values[value.name]
    return [_filled(v, values) for v in value] if isinstance(value, list) else value
