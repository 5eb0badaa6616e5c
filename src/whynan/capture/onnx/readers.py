"""Which node reads a value last, the bodies of If, Loop and Scan included."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whynan.capture.onnx.execution import Node


def last_readers(nodes: Sequence[Node]) -> dict[str, int]:
    """The index of the last node of the main graph that reads a value, itself or in a body."""
    found: dict[str, int] = {}
    for node in nodes:
        for name in (*node.inputs, *_read_within(node.proto)):
            if name:
                found[name] = max(node.index, found.get(name, -1))
    return found


def _read_within(proto: Any) -> Iterator[str]:
    for attribute in proto.attribute:
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            for node in graph.node:
                yield from node.input
                yield from _read_within(node)
            for output in graph.output:
                yield output.name
