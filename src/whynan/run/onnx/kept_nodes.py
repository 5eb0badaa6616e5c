"""The node of a finding on its way from the engine's process: a model of its own, its values, what it is told by."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from whynan.analysis import judge_births
from whynan.capsule.document import Layout, PackedNode
from whynan.capsule.folder import Stored
from whynan.capsule.packing import NOT_KEPT, Content
from whynan.capsule.script import onnx_script
from whynan.records import Neighbourhood

if TYPE_CHECKING:
    import onnx

    from whynan.capture.onnx.single_node import KeptNode, NodeKeeper
    from whynan.records import Finding
    from whynan.traces import Birth, Trace


_MODEL: Final = "node.onnx"
_VALUES: Final = "values"
_TOLD: Final = "kept.json"
_MOST: Final = 16
"""Findings whose nodes are handed over."""
_NATIVE: Final = "biuf"


def hand_over(keeper: NodeKeeper, trace: Trace, executed: onnx.ModelProto, folder: Path, engine: str) -> None:
    """Write the nodes of the escaped findings of a trace into a new folder; `engine`: what has run them."""
    folder.mkdir(mode=0o700)
    for number, finding in enumerate(judge_births(trace).escaped[:_MOST]):
        found = keeper.node_of_finding(finding)
        if found is not None:
            _write(*found, finding, executed, folder / str(number), engine)


def _write(kept: KeptNode, birth: Birth, finding: Finding, executed: onnx.ModelProto, place: Path, engine: str) -> None:
    from whynan.capture.onnx.single_node import single_node_model
    from whynan.models.onnx.binding import write_feeds

    place.mkdir(mode=0o700)
    told: dict[str, Any] = {"element": _key(finding), "why": kept.why}
    if kept.why is None:
        (place / _MODEL).write_bytes(single_node_model(kept, executed).SerializeToString())
        values = {f"x{n}": value for n, value in enumerate(kept.inputs) if value is not None}
        values |= {f"result.{n}": value for n, value in enumerate(kept.outputs) if value is not None}
        told["op"], told["domain"], told["engine"] = kept.node.op, kept.node.domain, engine
        told["inputs"] = [f"x{n}" if value is not None else "" for n, value in enumerate(kept.inputs)]
        told["values"] = write_feeds(values, place / _VALUES)
        told["around"] = None if birth.around is None else birth.around.model_dump_json()
    (place / _TOLD).write_text(json.dumps(told), encoding="utf-8")


def _key(finding: Finding) -> list[Any]:
    element = finding.element
    index = None if element.index is None else list(element.index)
    return [finding.op, index, element.output, list(element.shape), element.count, element.total]


def content_of(folder: Path, finding: Finding) -> Content:
    """What is to be packed of the node of a finding, from what the engine's process has left."""
    for name in sorted(os.listdir(folder), key=int) if folder.is_dir() else ():
        told: dict[str, Any] = json.loads((folder / name / _TOLD).read_text(encoding="utf-8"))
        if told["element"] == _key(finding):
            return Content(why=told["why"]) if told["why"] else _content(folder / name, told, finding)
    return Content(why=NOT_KEPT)


def _content(place: Path, told: dict[str, Any], finding: Finding) -> Content:
    from whynan.models.onnx.binding import read_feeds

    values: dict[str, Any] = read_feeds(place / _VALUES, told["values"])
    results = tuple(name for name in values if name.startswith("result."))
    bad = results.index(f"result.{finding.element.output}")
    packed = PackedNode(
        op=told["op"],
        domain=told["domain"],
        runner=told["engine"],
        inputs=tuple(told["inputs"]),
        results=results,
        bad=bad,
    )
    model = (place / _MODEL).read_bytes()
    native = all(value.dtype.kind in _NATIVE and value.dtype.isbuiltin for value in values.values())
    return Content(
        operation=packed,
        tensors={name: _stored(value) for name, value in values.items()},
        layouts={name: _layout(value) for name, value in values.items()},
        around=None if told["around"] is None else Neighbourhood.model_validate_json(told["around"]),
        script=onnx_script(packed, fed_to(model), bad, finding.element.index or ()) if native else None,
        node=model,
    )


def fed_to(model: bytes) -> list[str]:
    """The names of what is fed to a one-node model."""
    import onnx

    return [info.name for info in onnx.ModelProto.FromString(model).graph.input]


def _stored(value: Any) -> Stored:
    return Stored(_dtype(value), tuple(value.shape), value.tobytes())


def _layout(value: Any) -> Layout:
    strides = tuple(int(step) // max(value.itemsize, 1) for step in value.strides)
    return Layout(dtype=_dtype(value), shape=tuple(map(int, value.shape)), stride=strides)


def _dtype(value: Any) -> str:
    return cast("str", value.dtype.name)
