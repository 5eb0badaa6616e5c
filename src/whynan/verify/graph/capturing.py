"""What the changed part of a graph read in the run: in the main graph, or in the iterations of a body."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx

from whynan.capture.onnx.engine import EngineSettings, opened
from whynan.capture.onnx.execution import RunError
from whynan.verify.graph.running import Engines, Unrunnable, with_outputs
from whynan.verify.graph.sampling import perturbed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.capture.onnx.execution import Alone, Node, Value
    from whynan.verify.graph.regions import Region

_MOST: Final = 8
"""Iterations of a body that are kept."""


def captured_in(
    model: onnx.ModelProto, region: Region, feeds: Sequence[Mapping[str, Any]], engines: Engines, seed: int
) -> list[dict[str, Any]]:
    """The values that a region reads, for each input, for some near it, and for each iteration of its body."""
    fed = [dict(feed) for feed in (*feeds, *perturbed(feeds, seed))]
    if region.way:
        return [values for feed in fed for values in _within(model, region, feed, engines)]
    session = engines.opened(with_outputs(model, region.inputs))
    found: list[dict[str, Any]] = []
    for i, feed in enumerate(fed):
        try:
            values = {**session.run(feed), **feed}
        except Unrunnable:
            if i < len(feeds):
                raise
            continue
        found.append({name: np.asarray(values[name]) for name in region.inputs})
    return found


def _within(model: onnx.ModelProto, region: Region, feed: Mapping[str, Any], engines: Engines) -> list[dict[str, Any]]:
    """The values in a body, which an observer is told of."""
    with tempfile.TemporaryDirectory(prefix="whynan-") as folder:
        path = Path(folder, "model.onnx")
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
        if engines.folder is not None:
            onnx.load_external_data_for_model(whole, engines.folder)
        path.write_bytes(whole.SerializeToString())
        seen = _Seen(region)
        settings = EngineSettings(
            path=str(path), graph="original", engine=engines.engine, custom_ops=engines.custom_ops, intra_threads=1
        )
        try:
            with opened(settings) as engine:
                engine.run(feed, seen, compare=False)
        except RunError as error:
            raise Unrunnable(error.what) from error
    return seen.found


class _Seen:
    """Keeps what is read by the nodes of a body, iteration by iteration."""

    def __init__(self, region: Region) -> None:
        self._names = frozenset(region.inputs)
        self._last = region.before[-1].output[0]
        self._held: dict[str, Any] = {}
        self.found: list[dict[str, Any]] = []

    def begins(self, nodes: Sequence[Node], alone: Alone) -> None:
        """Nothing is needed of them."""

    def wrote(self, values: Sequence[Value]) -> None:
        """Nothing is needed of them."""

    def enters(self, name: str, value: Value, kind: str) -> None:  # noqa: ARG002
        """An input or a constant."""
        self._keep(name, value)

    def enters_body(self, names: Sequence[str], values: Sequence[Value], carried: Sequence[str]) -> None:  # noqa: ARG002
        """The inputs of a body."""
        for name, value in zip(names, values, strict=False):
            self._keep(name, value)

    def executed(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """What a node read and wrote; with the last of the region one of its inputs is whole."""
        for name, value in (*zip(node.inputs, inputs, strict=False), *zip(node.outputs, outputs, strict=False)):
            self._keep(name, value)
        if self._last in node.outputs and self._names <= self._held.keys() and len(self.found) < _MOST:
            self.found.append(dict(self._held))

    def leaves_body(self, names: Sequence[str], values: Sequence[Value]) -> None:
        """Nothing is needed of them."""

    def leaves(self, name: str, value: Value) -> None:
        """Nothing is needed of it."""

    def _keep(self, name: str, value: Value) -> None:
        if name in self._names and isinstance(value, np.ndarray):
            self._held[name] = np.array(value)
