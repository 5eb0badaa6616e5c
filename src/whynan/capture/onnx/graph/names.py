"""Names of executed nodes and values, and branches of If that were decided before the run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from whynan.capture.onnx.graph.model import Graph, Operation, Value, refresh_constants
from whynan.ops.table import ONNX

# -- What the names that ONNX Runtime gives to nodes and values say of the nodes and values that they were made from


CAST: Final = "InsertedPrecisionFreeCast_"
"""Before the name of a value that is another one in a wider type."""
_TOKEN: Final = re.compile(r"_token_\d+")
_BRANCH: Final = re.compile(r"^_if_(?:then_branch|else_branch)_")
_BLOCKED: Final = re.compile(r"_(?:bn_|mul_)?nchwc$")
_FUSED: Final = re.compile(r"/[A-Z]\w*(?:Fusion|Optimizer|Transformer)\w*/?$|/duplicated$")
_REORDERED: Final = re.compile(r"^reorder(?:_token_\d+)?$")


def strip_numbers(name: str) -> str:
    """A name without the numbers that were put in to tell it from others."""
    return _TOKEN.sub("", name)


def in_function(function: str, name: str) -> str:
    """What a value of a function is called once its call is opened up, without numbers."""
    return f"_inlfunc_{strip_numbers(function.rpartition('::')[2])}_{strip_numbers(name)}"


def is_cast(name: str) -> bool:
    """Whether this is the name of a value that was put into a wider type for a kernel that has no other."""
    return name.startswith(CAST)


def is_reordered(name: str) -> bool:
    """Whether this is the name of a value in blocks of channels."""
    return _REORDERED.match(name) is not None


def value_name_candidates(name: str) -> Iterator[str]:
    """The names, without numbers, of the values that a value may be, the likeliest first."""
    last = ""
    name = strip_numbers(name)
    while name and name != last:
        yield name
        last = name
        name = name.removeprefix(CAST)
        name = _BRANCH.sub("", name)
        name = _FUSED.sub("", name)


def of_node(name: str) -> Iterator[str]:
    """The names, without numbers, of the nodes that a node was made from."""
    yield from value_name_candidates(name)


def blocked(name: str) -> str | None:
    """The value that a node on blocks of channels was made for, by the name of the node; None for another node."""
    name = strip_numbers(name)
    found = _BLOCKED.search(name)
    return name[: found.start()] if found else None


_PREFIXES: Final = (
    "QLinear",
    "Fused",
    "DynamicQuantize",
    "Nhwc",
    "SimplifiedSkip",
    "Skip",
    "Simplified",
    "Bias",
    "Fast",
)
_SUFFIXES: Final = ("IntegerToFloat", "Integer", "NBits")


def source_op_types(op: str) -> tuple[str, ...]:
    """The types of the nodes that a node of this type may have been made from, the one it computes most like first."""
    found = [op, *ONNX.lists("kin").get(op, ())]
    stem = op
    for prefix in _PREFIXES:
        stem = stem.removeprefix(prefix)
    for suffix in _SUFFIXES:
        stem = stem.removesuffix(suffix)
    found.append(stem)
    return tuple(dict.fromkeys(part for part in found if part))


# -- Branches of If that were decided before a model ran: their nodes stand in the graph around them -------------------


_BRANCHES = ("then_branch", "else_branch")


def inline_decided_ifs(written: Graph, executed: Graph) -> None:
    """Put the nodes of each If that is not executed as one into the graph as written, in front of it.

    Where it cannot be told which branch was taken, both are; the If itself then reads the outputs of its branches.
    """
    makers = {
        name: op for op in executed.operations for value in op.writes() for name in value_name_candidates(value.name)
    }
    if not any(op.op == "If" for op in written.operations):
        return
    seen = {name for op in executed.operations for name in _names(op)}
    changed = True
    while changed:
        changed = False
        operations: list[Operation] = []
        for op in written.operations:
            if op.op == "If" and not op.domain and op.bodies and not _executed(op, makers):
                taken = _taken_branches(op, seen)
                for branch in taken:
                    operations.extend(_moved(branch, written))
                operations.extend(_joined(op, taken))
                changed = True
            else:
                operations.append(op)
        written.operations[:] = operations
    for index, op in enumerate(written.operations):
        op.index = index
    refresh_constants(written)


def _executed(op: Operation, makers: dict[str, Operation]) -> bool:
    """Whether one executed If writes all of its outputs that are written at all."""
    found = {makers[name] for value in op.writes() for name in _called(value) if name in makers}
    if not any(True for _ in op.writes()):
        return True
    if len(found) != 1:
        return False
    (maker,) = found
    return maker.op == "If" and _titles(maker) == _titles(op)


def _titles(op: Operation) -> dict[str, str]:
    return {branch: body.name for branch, body in op.bodies.items()}


def _called(value: Value) -> tuple[str, ...]:
    own = strip_numbers(value.name)
    return (own,) if value.function is None else (in_function(value.function, value.name),)


def _names(op: Operation) -> list[str]:
    """What the values and the node are called, without what was put in front of them, if a branch was."""
    found: list[str] = []
    for name in (op.name, *(value.name for value in op.writes())):
        for branch in _BRANCHES:
            if name.startswith(f"_if_{branch}_"):
                found.append(f"{branch}:{list(value_name_candidates(name))[-1]}")
    return found


def _taken_branches(op: Operation, seen: set[str]) -> list[Graph]:
    """The branch whose values and nodes are executed; all branches where that does not tell."""
    hits: dict[str, int] = {}
    for branch, body in op.bodies.items():
        called = {name for inner in body.operations for v in inner.writes() for name in _called(v)}
        called |= {strip_numbers(name) for inner in body.operations for name in (inner.name, inner.op)}
        hits[branch] = sum(f"{branch}:{name}" in seen for name in called)
    best = max(hits.values(), default=0)
    found = [op.bodies[branch] for branch, count in hits.items() if count == best and best > 0]
    return found if len(found) == 1 else list(op.bodies.values())


def _moved(branch: Graph, written: Graph) -> list[Operation]:
    for value in (*branch.values.values(), *branch.hidden):
        value.graph = written
        if value.name in written.values:
            written.hidden.append(value)
        else:
            written.values[value.name] = value
    for op in branch.operations:
        op.graph = written
        for body in op.bodies.values():
            body.outer = written
    return branch.operations


def _joined(op: Operation, taken: list[Graph]) -> list[Operation]:
    """What an If is once its branches stand in front of it: copies of the outputs of the one that was taken."""
    read = tuple(dict.fromkeys(value for branch in taken for value in branch.outputs if value is not None))
    for value in dict.fromkeys(op.reads()):
        value.readers[:] = [reader for reader in value.readers if reader is not op]
    op.captured, op.bodies = (), {}
    joined = [op]
    if len(taken) == 1 and len(taken[0].outputs) == len(op.outputs):
        pairs = list(zip(taken[0].outputs, op.outputs, strict=True))
        joined = [_copy(op, source, target) for source, target in pairs]
    else:
        op.inputs = (*op.inputs[:1], *read)
    for one in joined:
        for value in dict.fromkeys(one.reads()):
            value.readers.append(one)
        for value in one.writes():
            value.maker = one
    return joined


def _copy(op: Operation, source: Value | None, target: Value | None) -> Operation:
    return replace(op, op="Identity", inputs=(source,), outputs=(target,), attributes=b"")
