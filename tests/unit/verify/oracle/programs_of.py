"""Programs for the oracle: of a function of tensors as it ran, and of one ONNX node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from whynan.verify.oracle.calls import Program, Ref, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class _Steps(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.names: dict[int, str] = {}
        self.constants: dict[str, Any] = {}
        self.kept: list[Any] = []

    def argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.names:
                self.name(value, f"c{len(self.constants)}")
                self.constants[self.names[id(value)]] = value.detach().numpy()
            return Ref(self.names[id(value)])
        return [self.argument(v) for v in value] if isinstance(value, (list, tuple)) else value

    def name(self, value: Any, name: str) -> None:
        self.kept.append(value)
        self.names[id(value)] = name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        formals = [a.name for a in func._schema.arguments]
        given = {**dict(zip(formals, args, strict=False)), **(kwargs or {})}
        arguments = {k: self.argument(v) for k, v in given.items()}
        out = func(*args, **(kwargs or {}))
        if out is None:
            return out
        outs = out if isinstance(out, (tuple, list)) else (out,)
        for o in outs:
            self.name(o, f"v{len(self.kept)}")
        floating = [o.is_floating_point() for o in outs]
        result = None if all(floating) else tuple(None if f else o.numpy() for f, o in zip(floating, outs, strict=True))
        names = tuple(self.names[id(o)] for o in outs)
        dtypes, shapes = tuple(str(o.dtype)[6:] for o in outs), tuple(tuple(o.shape) for o in outs)
        self.steps.append(Step(str(func), arguments, names, dtypes, shapes, result))
        return out


def program_of(function: Callable[..., Any], **inputs: Any) -> Program:
    """A function of tensors without in-place operations, as it runs on these."""
    tensors = {name: value.detach().clone() for name, value in inputs.items()}
    recorder = _Steps()
    for name, tensor in tensors.items():
        recorder.name(tensor, name)
    with recorder:
        out = function(*tensors.values())
    outs = out if isinstance(out, tuple) else (out,)
    return Program(
        "aten",
        tuple(inputs),
        tuple(recorder.steps),
        tuple(recorder.names[id(o)] for o in outs),
        {name: str(tensor.dtype)[6:] for name, tensor in tensors.items()},
        {name: tuple(tensor.shape) for name, tensor in tensors.items()},
        recorder.constants,
        frozenset(name for name, tensor in tensors.items() if tensor.is_floating_point()),
    )


def node(
    op: str, shape: tuple[int, ...], dtype: str = "float32", /, **arguments: Any
) -> tuple[Program, dict[str, Any]]:
    """A program of one ONNX node, whose operands are the arguments that are arrays."""
    inputs: dict[str, Any] = {}

    def named(name: str, value: Any) -> Any:
        if hasattr(value, "shape"):
            inputs[name] = value
            return Ref(name)
        many = isinstance(value, list) and any(hasattr(v, "shape") for v in value)
        return [named(f"{name}{i}", v) for i, v in enumerate(value)] if many else value

    known: Mapping[str, Any] = {name: named(name, value) for name, value in arguments.items()}
    step = Step(op, known, ("y",), (dtype,), (shape,))
    dtypes = {name: str(value.dtype) for name, value in inputs.items()}
    wanted = frozenset(name for name, dtype in dtypes.items() if "float" in dtype)
    return Program("onnx", tuple(inputs), (step,), ("y",), dtypes, {}, {}, wanted), inputs
