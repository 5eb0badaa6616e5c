"""An edit of a graph as two lines of text: the expression before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.fixes.graph.values import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

_LONGEST: Final = 240
_MOST: Final = 12
"""Nodes that are named of a long expression."""
_TELLING: Final = ("axis", "axes", "to", "keepdims")


def shown(before: ir.Value, old: Sequence[ir.Node], after: ir.Value, new: Sequence[ir.Node]) -> str:
    """``- Log(Softmax(x))`` and ``+ LogSoftmax(x)``; a long expression as the types of its nodes."""
    return f"{_lines('-', before, old)}\n{_lines('+', after, new)}\n"


def _lines(sign: str, value: ir.Value, nodes: Sequence[ir.Node]) -> str:
    whole = _text(value, nodes)
    if len(whole) <= _LONGEST:
        return f"{sign} {whole}"
    made = [node.op_type for node in nodes if node.op_type != "Constant"]
    more = f" and {len(made) - _MOST} more" if len(made) > _MOST else ""
    return f"{sign} {len(made)} nodes: {', '.join(made[:_MOST])}{more}"


def _text(value: ir.Value, nodes: Sequence[ir.Node]) -> str:
    held = number_of(value)
    if held is not None:
        return f"{held:.7g}"
    node = value.producer()
    if node is None or all(node is not one for one in nodes):
        return value.name or "?"
    inputs = [_text(one, nodes) if one is not None else "" for one in node.inputs]
    said = [f"{name}={attribute.value}" for name, attribute in node.attributes.items() if name in _TELLING]
    return f"{node.op_type}({', '.join([*inputs, *said])})"
