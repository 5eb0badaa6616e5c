"""What ONNX Runtime's profile of a run says: which provider ran each node, and how large its outputs were."""

# pyright: strict

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from whynan.capture.onnx.executable import Executable
    from whynan.capture.onnx.execution import Node

_SUFFIX: Final = "_kernel_time"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One execution of a node: its name as ONNX Runtime has it, made up where the node has none."""

    name: str
    op: str
    provider: str
    bytes: int
    """The bytes of its outputs."""
    began: float
    ended: float
    floats: tuple[int, ...] | None = None
    """The shape of its output, where it has one and that is of float32."""


@dataclass(frozen=True, slots=True)
class Profile:
    """``kernels`` of the nodes of the main graph by their index, as far as they could be told apart.

    ``placement`` counts the nodes of each provider, those of bodies included, once each.
    """

    kernels: dict[int, Kernel] = field(default_factory=lambda: {})
    inner: dict[str, Kernel] = field(default_factory=lambda: {})
    foreign: tuple[str, ...] = ()
    """Names of what was executed that no node of the graph is."""

    @property
    def placement(self) -> dict[str, int]:
        """How many nodes each provider ran."""
        counts: dict[str, int] = {}
        for kernel in (*self.kernels.values(), *self.inner.values()):
            counts[kernel.provider] = counts.get(kernel.provider, 0) + 1
        return counts


def read_profile(path: Path, graph: Executable | None) -> Profile:
    """The profile that a session wrote; an empty one where it cannot be read."""
    try:
        events: Any = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return Profile()
    kernels = sorted(_kernels(events), key=lambda kernel: (kernel.began, -kernel.ended))
    main: list[Kernel] = []
    inner: dict[str, Kernel] = {}
    until = -1.0
    for kernel in kernels:
        # what runs within the time of a node is of its body
        if kernel.began < until:
            inner.setdefault(kernel.name, kernel)
        else:
            main.append(kernel)
            until = kernel.ended
    if graph is None:
        return Profile({}, inner, tuple(k.name for k in main))
    matched = _in_order(main, graph) or _by_name(kernels, graph)
    ours = {id(kernel) for kernel in matched.values()}
    foreign = tuple(kernel.name for kernel in main if id(kernel) not in ours)
    return Profile(matched, inner, foreign)


def _kernels(events: Any) -> Iterator[Kernel]:
    for event in cast("list[dict[str, Any]]", events):
        name = str(event.get("name", ""))
        if event.get("cat") != "Node" or not name.endswith(_SUFFIX):
            continue
        said: dict[str, Any] = event.get("args", {})
        began = float(event.get("ts", 0))
        yield Kernel(
            name.removesuffix(_SUFFIX),
            str(said.get("op_name", "")),
            str(said.get("provider", "")),
            int(said.get("output_size", 0) or 0),
            began,
            began + float(event.get("dur", 0)),
            _floats(said.get("output_type_shape", [])),
        )


def _floats(said: Any) -> tuple[int, ...] | None:
    written = cast("list[dict[str, list[int]]]", said)
    shape = written[0].get("float") if len(written) == 1 else None
    return None if shape is None else tuple(shape)


def _in_order(kernels: list[Kernel], graph: Executable) -> dict[int, Kernel]:
    if len(kernels) != len(graph.nodes):
        return {}
    pairs = list(zip(graph.nodes, kernels, strict=True))
    same = all(_runs(kernel, node) for node, kernel in pairs)
    return {node.index: kernel for node, kernel in pairs} if same else {}


def _runs(kernel: Kernel, node: Node) -> bool:
    return node.op == kernel.op and node.name in ("", kernel.name)


def _by_name(kernels: list[Kernel], graph: Executable) -> dict[int, Kernel]:
    """By names that are the node's alone: nodes that run beside each other are in no order."""
    named: dict[str, list[int]] = {}
    for node in graph.nodes:
        named.setdefault(node.name, []).append(node.index)
    found: dict[int, Kernel] = {}
    for kernel in kernels:
        indices = named.get(kernel.name, [])
        if len(indices) == 1 and graph.nodes[indices[0]].op == kernel.op:
            found.setdefault(indices[0], kernel)
    return found
