"""Births in nodes that ONNX Runtime has fused: what the node was made of is said, and its operands have names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from syrupy.assertion import SnapshotAssertion

from tests.integration.test_onnx import run

pytestmark = pytest.mark.process


@dataclass(frozen=True)
class Fused:
    """Nodes in onnx's text form, their weights, and the node that the engine makes of them."""

    level: str
    input: str
    text: str
    weights: dict[str, Any]
    op: str
    operands: tuple[str, ...]
    made_of: str

    def saved(self, folder: Path) -> None:
        """Write the model into a folder, as ``fused.onnx``."""
        body = f'<ir_version: 8, opset_import: ["" : 17]> g (float{self.input} x) => (float y) {{ {self.text} }}'
        model = onnx.parser.parse_model(body)
        del model.graph.output[0].type.tensor_type.shape.dim[:]
        model.graph.output[0].type.tensor_type.ClearField("shape")
        for node in model.graph.node:
            node.name = f"n_{node.output[0]}"
        model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in self.weights.items())
        onnx.save(model, folder / "fused.onnx")


def full(value: float, *shape: int) -> Any:
    return np.full(shape, value, np.float32)


CONV = "c = Conv <kernel_shape = [1, 1]> (x, w, b) y = Relu (c)"
CONV_WEIGHTS = {"w": full(1e8, 32, 32, 1, 1), "b": full(0, 32)}
GELU = """
    a = Add (x, b) d = Div (a, r) e = Erf (d) o = Add (e, one) g = Mul (a, o) y = Mul (g, half)
"""
GELU_WEIGHTS = {"b": full(3e38, 8), "r": full(2**0.5), "one": full(1), "half": full(0.5)}
CASES = {
    "FusedConv": Fused(
        "extended",
        "[1, 32, 4, 4]",
        CONV,
        CONV_WEIGHTS,
        "FusedConv",
        ("X", "W", "B"),
        "FusedConv was made of Conv n_c and Relu n_y",
    ),
    "Conv in blocks": Fused(
        "all",
        "[1, 32, 4, 4]",
        CONV,
        CONV_WEIGHTS,
        "FusedConv",
        ("X", "W", "B"),
        "FusedConv was made of Conv n_c and Relu n_y",
    ),
    "FusedMatMul": Fused(
        "all",
        "[2, 8]",
        "m = MatMul (x, w) y = Mul (m, s)",
        {"w": full(1e8, 8, 8), "s": full(2)},
        "FusedMatMul",
        ("A", "B", "alpha"),
        "FusedMatMul was made of MatMul n_m and Mul n_y",
    ),
    "BiasGelu": Fused(
        "all",
        "[1, 2, 8]",
        GELU,
        GELU_WEIGHTS,
        "BiasGelu",
        ("A", "B"),
        "BiasGelu was made of Add n_a, Div n_d, 3 others and Mul n_y",
    ),
    "SkipLayerNormalization": Fused(
        "all",
        "[1, 2, 8]",
        "s = Add (x, b) y = LayerNormalization <axis = -1> (s, g, h)",
        {"b": full(3e38, 1, 2, 8), "g": full(1, 8), "h": full(0, 8)},
        "SkipLayerNormalization",
        ("input", "skip", "gamma", "beta", "epsilon"),
        "SkipLayerNormalization was made of Add n_s and LayerNormalization n_y",
    ),
    "MatMulIntegerToFloat": Fused(
        "all",
        "[2, 8]",
        """
        q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) v = DequantizeLinear (w, t, z)
        m = MatMul (d, v) y = Mul (m, k)
        """,
        {"w": np.full((8, 8), 200, np.uint8), "s": full(1e36), "t": full(1), "z": np.uint8(0), "k": full(2)},
        "MatMulIntegerToFloat",
        ("A", "B", "a_scale", "b_scale", "a_zero_point", "b_zero_point"),
        "MatMulIntegerToFloat was made of DequantizeLinear n_d and MatMul n_m",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_node_was_made_of_is_said(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    case = CASES[name]
    case.saved(tmp_path)
    ran = run(tmp_path, "fused.onnx", "-i", "x=2e38", "--level", case.level)
    assert ran.report is not None, ran.err
    finding = ran.report["findings"][0]
    assert finding["op"] == case.op
    assert finding["rule"] != "WN000"
    assert tuple(o["name"] for o in finding["element"]["operands"]) == case.operands
    assert finding["made_of"] == case.made_of
    assert ran.out.replace(str(tmp_path), "FOLDER") == snapshot


def test_as_written_it_is_made_of_nothing_else(tmp_path: Path) -> None:
    CASES["FusedConv"].saved(tmp_path)
    ran = run(tmp_path, "fused.onnx", "-i", "x=2e38", "--graph", "original")
    assert ran.report is not None, ran.err
    assert [finding["made_of"] for finding in ran.report["findings"]][:1] == [None]


def test_weights_in_blocks_are_those_of_the_file(tmp_path: Path) -> None:
    case = Fused(
        "all",
        "[1, 32, 4, 4]",
        "c = Conv <kernel_shape = [1, 1]> (x, w) y = Sin (c)",
        {"w": np.concatenate([full(1e30, 16, 32, 1, 1), full(-1, 16, 32, 1, 1)])},
        "Conv",
        ("X", "W"),
        "",
    )
    case.saved(tmp_path)
    told = []
    for graph in ("optimized", "original"):
        ran = run(tmp_path, "fused.onnx", "-i", "x=1e9", "--level", "all", "--graph", graph)
        assert ran.report is not None, ran.err
        finding = ran.report["findings"][0]
        weight = finding["element"]["operands"][1]
        told.append(
            (weight["shape"], round(weight["min"] / 1e30), round(weight["max"] / 1e30), finding["chain"][0]["summary"])
        )
    assert told[0] == told[1]
    assert told[0] == ([32, 32, 1, 1], 1, 1, "initializer w")
