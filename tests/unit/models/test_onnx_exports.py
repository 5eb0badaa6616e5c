"""Models as PyTorch's two exporters write them: what they take, and where their nodes come from."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from onnx import NodeProto
from torch import Tensor, nn
from torch.nn import functional as F

from whynan.models.onnx.inputs import read_inputs
from whynan.models.onnx.opening import OnnxModel, open_model
from whynan.source.exporter_metadata import Place, module_of, place_of

pytestmark = pytest.mark.filterwarnings("ignore")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(
            self.norm(self.fc(x)) / x.sum(-1, keepdim=True)
        )  # fmt: skip


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])
        self.head = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return F.softmax(self.head(x), -1)


def exported(folder: Path, **rest: Any) -> OnnxModel:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        torch.onnx.export(Net().eval(), (torch.randn(2, 4),), folder / "m.onnx", input_names=["x"], **rest)
    return open_model(folder / "m.onnx")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return exported(tmp_path_factory.mktemp("dynamo"), dynamo=True, dynamic_shapes=({0: "batch"},))


def place(node: NodeProto) -> Place:
    return place_of({entry.key: entry.value for entry in node.metadata_props})


@pytest.mark.breadth
def test_what_is_exported_is_opened_and_fed(model: OnnxModel) -> None:
    assert [str(held) for held in model.inputs] == ["x: float32[batch, 4]"]
    (case,) = read_inputs(model, ["x=uniform(1,2)[3,4]"])
    assert case.values["x"].shape == (3, 4)


def test_every_node_leads_to_its_expression(model: OnnxModel) -> None:
    found = {
        (node.op_type, site.module): (site.code, site.function)
        for node in model.proto.graph.node
        if (site := place(node).site) is not None
    }
    quotient = "self.norm(self.fc(x)) / x.sum(-1, keepdim=True)"
    for number in (0, 1):
        layer = f"layers.{number}"
        assert found["Gemm", f"{layer}.fc"] == ("self.fc(x)", "Block.forward")
        assert found["LayerNormalization", f"{layer}.norm"] == ("self.norm(self.fc(x))", "Block.forward")
        assert found["ReduceSum", layer] == ("x.sum(-1, keepdim=True)", "Block.forward")
        assert found["Div", layer] == (quotient, "Block.forward")
        assert found["Log", layer] == (f"torch.log( {quotient} )", "Block.forward")
    assert found["Sigmoid", "head.1"] == ("self.head(x)", "Net.forward")
    assert found["Softmax", None] == ("F.softmax(self.head(x), -1)", "Net.forward")


def test_a_scripted_export_leads_to_the_module(tmp_path: Path) -> None:
    model = exported(tmp_path, dynamo=False)
    found = {(node.op_type, module_of(node.name)) for node in model.proto.graph.node}
    assert {("Gemm", "layers.0.fc"), ("Div", "layers.1"), ("Gemm", "head.0"), ("Softmax", None)} <= found
    assert all(place(node) == (None, None, None) for node in model.proto.graph.node)


def test_a_scripted_export_that_is_verbose_leads_to_the_line(tmp_path: Path) -> None:
    model = exported(tmp_path, dynamo=False, verbose=True)
    line = Block.forward.__code__.co_firstlineno
    nodes = [node for node in model.proto.graph.node if node.op_type in ("Gemm", "Div")]
    places = [place_of({}, name=node.name, doc=node.doc_string) for node in nodes]
    assert {place.module for place in places} == {"layers.0", "layers.1", "layers.0.fc", "layers.1.fc", "head.0"}
    for place in places:
        assert place.site is not None
        assert place.site.file.endswith("test_onnx_exports.py")
        if place.module != "head.0":
            assert place.site.line == line + 2
