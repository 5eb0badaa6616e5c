"""Where a finding's node stands in a model: in its graph, in a body, or in a local function."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from whynan.records import Finding

_TOKEN: Final = re.compile(r"_token_\d+|InsertedPrecisionFreeCast_")
_MADE: Final = re.compile(r"(?:^|,| and | of | from )\s*([A-Z]\w*) ([^\s,]+)")


def anchors(model: ir.Model, finding: Finding) -> list[ir.Node]:
    """The nodes of the file that a finding is about, the likeliest first; none where they cannot be found.

    A value or node of a body or a function is called with the way to it; what was fused by what it was made of.
    """
    nodes = list(all_nodes(model))
    wanted = [name for told in (finding.node, finding.value) if told for name in _tails(_TOKEN.sub("", told))]
    made = [name for _, name in _MADE.findall(finding.made_of or "")]
    found: dict[int, ir.Node] = {}
    names = {id(node): _names(model, node) for node in nodes}
    for name in (*wanted, *(tail for one in made for tail in _tails(one))):
        for node in nodes:
            if name in names[id(node)]:
                found.setdefault(id(node), node)
    exact = [node for node in found.values() if node.op_type == finding.op]
    return exact or list(found.values())


def _names(model: ir.Model, node: ir.Node) -> set[str]:
    """What a node may be called, and each value that it writes; in a function as once its call is opened up."""
    names = {name for name in (node.name, *(value.name for value in node.outputs)) if name}
    if isinstance(node.graph, ir.Function) or any(
        node.graph is function.graph for function in model.functions.values()
    ):
        holders = [one for one in model.functions.values() if any(node is held for held in one)]
        names |= {f"_inlfunc_{one.name}_{_TOKEN.sub('', name)}" for one in holders for name in set(names)}
    return names


def _tails(name: str) -> Iterator[str]:
    """A name, and what is left of it without the way to it."""
    name = re.sub(r"\[\d+\]/", "/", name)
    yield name
    while "/" in name:
        name = name.partition("/")[2]
        if name:
            yield name


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node: of the graph, of its bodies, of the functions."""
    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)


def opset_at(model: ir.Model, node: ir.Node) -> int:
    """The version of ONNX's own operators where a node stands."""
    for function in model.functions.values():
        if any(one is node for one in ir.traversal.RecursiveGraphIterator(function)):
            return _version(function.opset_imports) or _version(model.opset_imports) or 1
    return _version(model.opset_imports) or 1


def _version(imports: Mapping[str, int]) -> int | None:
    return imports.get("", imports.get("ai.onnx"))


def downstream(node: ir.Node, hops: int) -> Iterator[ir.Node]:
    """A node and those that read it, nearest first, in the same graph."""
    seen, front = {id(node)}, [node]
    yield node
    for _ in range(hops):
        following: list[ir.Node] = []
        for reader in (use.node for one in front for value in one.outputs for use in value.uses()):
            if id(reader) not in seen and reader.graph is node.graph:
                seen.add(id(reader))
                following.append(reader)
                yield reader
        front = following
