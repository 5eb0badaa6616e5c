"""What a node says of itself: its schema, the names of its operands, its attributes."""

# pyright: strict

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from whynan.ops.onnx import CONTRIBUTED

if TYPE_CHECKING:
    from whynan.capture.onnx.execution import Node


def schema_of(node: Node) -> Any:
    """The schema that a node is of, an ``onnx.defs.OpSchema``; None for an operator that onnx does not know.

    Where the node does not say of which version it is: the latest that has its attributes and room for its operands.
    """
    names = tuple(sorted(a.name for a in node.proto.attribute))
    return _schema(node.op, node.domain, node.opset, names, len(node.inputs))


@lru_cache(maxsize=4096)
def _schema(op: str, domain: str, opset: int | None, attributes: tuple[str, ...], operands: int) -> Any:
    import onnx

    domain = "" if domain == "ai.onnx" else domain
    version = opset or onnx.defs.onnx_opset_version()
    latest: Any = None
    while version > 0:
        try:
            found: Any = onnx.defs.get_schema(op, version, domain)
        except onnx.defs.SchemaError:
            return latest
        if opset is not None:
            return found
        latest = latest or found
        if set(attributes) <= set(found.attributes) and operands <= found.max_input:
            return found
        version = found.since_version - 1
    return latest


def operand_names(node: Node) -> tuple[str, ...]:
    """What the operands of a node are called by its schema; those of a list are numbered."""
    names = _names(node)
    found: list[str] = []
    for i in range(len(node.inputs)):
        if i < len(names) - 1 or (i < len(names) and not names[-1].endswith("*")):
            found.append(names[i])
        elif names and names[-1].endswith("*"):
            found.append(f"{names[-1][:-1]}[{i - len(names) + 1}]")
        else:
            found.append(f"input{i}")
    return tuple(found)


def _names(node: Node) -> list[str]:
    """The formal names; that of a list ends in an asterisk."""
    if node.domain not in ("", "ai.onnx") and node.op in CONTRIBUTED:
        return list(CONTRIBUTED[node.op])
    schema = schema_of(node)
    if schema is None:
        return list(CONTRIBUTED.get(node.op, ()))
    return [f"{p.name}*" if "ariadic" in str(p.option) else str(p.name) for p in schema.inputs]


def attribute(node: Node, name: str, default: Any = None) -> Any:
    """The value of an attribute: a number, text, a list of them, a ``TensorProto``."""
    import onnx

    for found in node.proto.attribute:
        if found.name == name:
            value: Any = onnx.helper.get_attribute_value(found)
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return default


def numbers_of(node: Node) -> dict[str, float]:
    """The floating-point attributes of a node; an epsilon also where it is left to its default."""
    found = {str(a.name): _plain(a.f) for a in node.proto.attribute if a.type == a.FLOAT}
    schema = schema_of(node)
    known: Any = None if schema is None else schema.attributes.get("epsilon")
    if known is not None and "epsilon" not in found:
        found["epsilon"] = _plain(known.default_value.f)
    return found


def _plain(number: float) -> float:
    """A number of float32 as it was written: 1e-05."""
    return float(str(np.float32(number)))
