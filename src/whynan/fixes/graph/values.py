"""What is known of a value of a graph: its number if it is a constant, its dtype, whether it is another's twin."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
import onnx_ir as ir

_LARGEST: Final = 4096
"""Elements of a constant that is read."""
_DEEP: Final = 6


def seen_through(value: ir.Value) -> ir.Value:
    """The value that it is a copy of."""
    node = value.producer()
    while node is not None and node.inputs and node.inputs[0] is not None:
        within = node.inputs[0]
        if node.op_type != "Identity" and not (node.op_type == "Cast" and _keeps(node, within)):
            break
        value, node = within, within.producer()
    return value


def _keeps(node: ir.Node, value: ir.Value) -> bool:
    to = node.attributes.get("to")
    return to is not None and value.dtype is not None and to.as_int() == value.dtype.value


def constant(value: ir.Value) -> Any | None:
    """The elements of a small constant; None for anything else, and for what lies in another file."""
    value = seen_through(value)
    tensor = value.const_value
    node = value.producer()
    if tensor is None and node is not None and node.op_type == "Constant":
        tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or isinstance(tensor, ir.ExternalTensor) or tensor.size > _LARGEST:
        return None
    if value.is_graph_input() and node is None:
        # an initializer that may be given otherwise
        return None
    try:
        return tensor.numpy()
    except (TypeError, ValueError):
        return None


def number_of(value: ir.Value) -> float | None:
    """The number that a constant is everywhere."""
    held = constant(value)
    if held is None or held.size == 0 or held.dtype.kind in "OSU":
        return None
    numbers = np.asarray(held, np.float64).ravel()
    return float(numbers[0]) if (numbers == numbers[0]).all() else None


def axes_of(node: ir.Node, *, as_input: bool) -> tuple[int, ...] | Literal[False] | None:
    """The axes of a reduction, None for all of them; False where they are not known."""
    if as_input:
        given = node.inputs[1] if len(node.inputs) > 1 else None
        if given is None:
            nothing = node.attributes.get("noop_with_empty_axes")
            return False if nothing is not None and nothing.as_int() else None
        held = constant(given)
        return False if held is None else tuple(int(axis) for axis in np.atleast_1d(held))
    attribute = node.attributes.get("axes")
    return None if attribute is None else tuple(attribute.as_ints())


def same(one: ir.Value, other: ir.Value, depth: int = _DEEP) -> bool:
    """Whether two values are the same, or computed in the same way from the same ones."""
    one, other = seen_through(one), seen_through(other)
    if one is other:
        return True
    held, beside = constant(one), constant(other)
    if held is not None and beside is not None:
        return held.dtype == beside.dtype and held.shape == beside.shape and held.tobytes() == beside.tobytes()
    mine, its = one.producer(), other.producer()
    if mine is None or its is None or not depth or mine.op_identifier() != its.op_identifier():
        return False
    if one.index() != other.index() or len(mine.inputs) != len(its.inputs) or _stated(mine) != _stated(its):
        return False
    return all(
        (a is None and b is None) or (a is not None and b is not None and same(a, b, depth - 1))
        for a, b in zip(mine.inputs, its.inputs, strict=True)
    )


def _stated(node: ir.Node) -> dict[str, str]:
    return {name: str(attribute.value) for name, attribute in node.attributes.items()}
