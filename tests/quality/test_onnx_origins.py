"""Whatever ONNX Runtime makes of the models that onnx tests its backends with, is led back to their nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import onnx.backend.test
import onnxruntime as ort
import pytest
from onnx.backend.test.case.node import collect_testcases

from tests.unit.capture.onnx.written_models import NoLines, nodes, optimised
from whynan.capture.onnx.graph.model import Graph, graph_and_bodies, inline_functions, live_operations
from whynan.capture.onnx.graph.origins import covers
from whynan.capture.onnx.graph.pairing import pair_graphs
from whynan.capture.onnx.graph.sites import Sites

DATA = Path(onnx.backend.test.__file__).parent / "data"
NEWEST_IR, NEWEST_OPSET = 13, 26
"""The newest that ONNX Runtime 1.31 takes."""


def written() -> Iterator[tuple[str, onnx.ModelProto]]:
    """All models, by name, of a version that ONNX Runtime takes where that is all that it lacks."""
    for case in collect_testcases(None):
        if case.model is not None:
            yield case.name, lowered(case.model)
    for file in sorted(DATA.rglob("*.onnx")):
        yield str(file.relative_to(DATA)), lowered(onnx.load(file))


def lowered(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = min(copy.ir_version, NEWEST_IR)
    for opset in copy.opset_import:
        if opset.domain in ("", "ai.onnx"):
            opset.version = min(opset.version, NEWEST_OPSET)
    return copy


def lost(model: onnx.ModelProto, executed: onnx.ModelProto) -> list[str]:
    """The live nodes that no executed node covers, and the executed ones that lead nowhere."""
    main = inline_functions(executed)
    pairing = pair_graphs(main, inline_functions(model))
    found = covers(main, pairing)
    missing: list[str] = []
    for graph in graph_and_bodies(main):
        wanted = pairing.graphs.get(graph)
        behind = {node for op in graph.operations for node in found[op].nodes}
        if wanted is not None and not folded(graph):
            missing += [f"{op.op} is behind no node" for op in live_operations(wanted) - behind]
        missing += [f"{op.op} {op.name} leads nowhere" for op in graph.operations if found[op].chief is None]
    sites = Sites(model, executed, reading=NoLines())
    for node in nodes(executed.graph):
        assert all(sites.site(node, output).op == node.op for output in node.outputs)
        sites.fusion_note(node)
    return missing


def folded(graph: Graph) -> bool:
    """Whether an output was computed beforehand, so that nothing executed leads to it."""
    return any(value is not None and value.constant for value in graph.outputs)


def check(models: Sequence[tuple[str, onnx.ModelProto]], folder: Path) -> Counter[str]:
    count = Counter[str]()
    wrong: dict[str, list[str]] = {}
    ort.set_default_logger_severity(4)
    for name, model in models:
        for level in ("DISABLED", "ALL"):
            try:
                executed = optimised(model, folder, level)
            except Exception:  # not every model is for this engine
                count["not for this engine"] += 1
                continue
            count["graphs"] += 1
            count["nodes"] += sum(1 for _ in nodes(executed.graph))
            if missing := lost(model, executed):
                wrong[f"{name} {level}"] = missing
    assert wrong == {}
    return count


def test_some_models_are_led_back_node_by_node(tmp_path: Path) -> None:
    every = list(written())
    controls = [(name, model) for name, model in every if "expanded" in name or "loop" in name or "if_" in name]
    assert check([*every[::40], *controls[::15]], tmp_path)["graphs"] >= 80


@pytest.mark.full
def test_all_models_are_led_back_node_by_node(tmp_path: Path) -> None:
    every = list(written())
    count = check(every, tmp_path)
    print(f"\n{len(every):,} models: {count['graphs']:,} graphs, {count['nodes']:,} executed nodes, none lost")
    assert len(every) > 1_900
    assert count["graphs"] > 3_000
