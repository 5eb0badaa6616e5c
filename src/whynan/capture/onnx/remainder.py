"""What no provider has compiled of a graph: ONNX Runtime optimises these nodes further, with the others taken out."""

# pyright: strict

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import onnx

from whynan.capture.onnx.executable import bodies_of, without_weights
from whynan.capture.onnx.execution import COMPILED, RunError
from whynan.capture.onnx.partitions import in_order, provider_of, reads
from whynan.capture.onnx.sessions import CPU, EngineSettings, as_user

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_FILES: Final[Any] = onnx
_FIRST: Final = ("disabled", "basic")
"""Levels at which nothing comes after the providers have taken their parts."""


def remainder_optimised(settings: EngineSettings, model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """The model with all nodes but partitions as production executes them; as it is where that cannot be had."""
    graph = model.graph
    calls = [node for node in graph.node if node.domain == COMPILED]
    rest = [node for node in graph.node if node.domain != COMPILED]
    early = settings.graph == "original" or settings.level in _FIRST
    if early or not calls or not rest or graph.sparse_initializer or any(_has_calls(node) for node in rest):
        return model
    apart = _apart(model, calls, rest)
    if apart is None:
        return model
    source, target = folder / "remainder.onnx", folder / "remainder-executed.onnx"
    _FILES.save(apart, source)
    compiling = {provider_of(node) for node in calls}
    others = tuple(p for p in settings.providers if (p if isinstance(p, str) else p[0]) not in compiling)
    try:
        as_user(replace(settings, path=str(source), providers=others or (CPU,)), target, None)
    except RunError:
        return model
    return _joined(model, without_weights(target), calls)


def _apart(
    model: onnx.ModelProto, calls: Iterable[onnx.NodeProto], rest: Iterable[onnx.NodeProto]
) -> onnx.ModelProto | None:
    """The rest as a model that is given what partitions write, and gives what they read; None without their types."""
    graph = model.graph
    types = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    read = {name for node in rest for name in reads(node)}
    written = {name for node in rest for name in node.output if name}
    given = [value.name for value in graph.input] + [n for call in calls for n in call.output if n and n in read]
    wanted = [value.name for value in graph.output] + [name for call in calls for name in call.input]
    left = [name for name in dict.fromkeys(wanted) if name in written]
    if any(name not in types for name in (*given, *left)):
        return None
    made = onnx.ModelProto(ir_version=model.ir_version)
    made.opset_import.extend(entry for entry in model.opset_import if entry.domain != COMPILED)
    made.graph.name = graph.name or "graph"
    made.graph.node.extend(rest)
    made.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in read)
    made.graph.input.extend(types[name] for name in dict.fromkeys(given))
    made.graph.output.extend(types[name] for name in left)
    return made


def _joined(model: onnx.ModelProto, rest: onnx.ModelProto, calls: Iterable[onnx.NodeProto]) -> onnx.ModelProto:
    made = onnx.ModelProto(ir_version=max(model.ir_version, rest.ir_version))
    domains = {entry.domain for entry in model.opset_import}
    made.opset_import.extend(model.opset_import)
    made.opset_import.extend(entry for entry in rest.opset_import if entry.domain not in domains)
    made.functions.extend(model.functions)
    made.graph.name = model.graph.name or "graph"
    made.graph.node.extend(in_order([*rest.graph.node, *calls]))
    kept = {tensor.name for tensor in rest.graph.initializer}
    needed = {name for call in calls for name in call.input} | {value.name for value in model.graph.output}
    made.graph.initializer.extend(rest.graph.initializer)
    made.graph.initializer.extend(t for t in model.graph.initializer if t.name in needed and t.name not in kept)
    made.graph.input.extend(model.graph.input)
    made.graph.output.extend(model.graph.output)
    return made


def _has_calls(node: onnx.NodeProto) -> bool:
    return any(inner.domain == COMPILED or _has_calls(inner) for _, body in bodies_of(node) for inner in body.node)
