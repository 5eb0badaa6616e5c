"""Programs for the oracle: of a function of tensors as it ran, and of one ONNX node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whynan.verify.oracle.calls import Program, Ref, Step
from whynan.verify.recording import record_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def program_of(function: Callable[..., Any], **inputs: Any) -> Program:
    """A function of tensors as it runs on these."""
    wanted = frozenset(name for name, tensor in inputs.items() if tensor.is_floating_point())
    return record_program(lambda **given: function(*given.values()), inputs, needs_grad=wanted)


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
