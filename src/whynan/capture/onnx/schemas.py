"""What a node says of itself: its schema, the names of its operands, its attributes."""

# pyright: strict

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.ops.onnx import CONTRIBUTED

if TYPE_CHECKING:
    from whynan.capture.onnx.execution import Node

_OWN_DOMAINS: Final = ("com.microsoft", "com.ms.internal")
"""How the names of ONNX Runtime's domains begin."""


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
    """The formal names; that of a list ends in an asterisk.

    What ONNX Runtime has put in has the names that it says itself, else those of the operator that it stands for.
    """
    schema = schema_of(node) or _own(node)
    if schema is not None:
        return [f"{p.name}*" if "ariadic" in str(p.option) else str(p.name) for p in schema.inputs]
    if node.domain and not node.domain.startswith(_OWN_DOMAINS):
        return []
    if node.op in CONTRIBUTED:
        return list(CONTRIBUTED[node.op])
    return _names(replace(node, domain="", opset=None)) if node.domain else []


def _own(node: Node) -> Any:
    """ONNX Runtime's schema of an operator of its own; None for any other, and where it tells of none."""
    known = _contributed().get((node.domain, node.op), {})
    version = max((v for v in known if node.opset is None or v <= node.opset), default=None)
    return None if version is None else known[version]


@cache
def _contributed() -> dict[tuple[str, str], dict[int, Any]]:
    """The schemas that ONNX Runtime has, by domain, operator and version."""
    try:
        engine: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    except ImportError:
        return {}
    # what was built without it has no such function
    listed: Any = getattr(engine, "get_all_operator_schema", list)
    found: dict[tuple[str, str], dict[int, Any]] = {}
    for schema in listed():
        found.setdefault((schema.domain, schema.name), {})[schema.since_version] = schema
    return found


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
    schema = schema_of(node) or _own(node)
    known: Any = None if schema is None else schema.attributes.get("epsilon")
    if known is not None and "epsilon" not in found:
        found["epsilon"] = _plain(_default(known))
    return found


def _default(known: Any) -> float:
    """The default of an attribute: a message of onnx's, or as ONNX Runtime hands it over the bytes of one."""
    import onnx

    if hasattr(known, "default_value"):
        return known.default_value.f
    return onnx.AttributeProto.FromString(known._default_value).f


def _plain(number: float) -> float:
    """A number of float32 as it was written: 1e-05."""
    return float(str(np.float32(number)))
