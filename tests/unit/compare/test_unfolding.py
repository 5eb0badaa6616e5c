"""Where one operation of a program stands for several nodes, the one at fault is named; early and late ones as well."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

import whynan
from tests.unit.compare.models import model, numbers

WEIGHT = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)


class Program(nn.Module):
    """A product with weights, and what a test makes of it."""

    def __init__(self, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(WEIGHT.copy()))
        self.then = then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(x @ self.weight)


def export(*nodes: onnx.NodeProto, weight: np.ndarray = WEIGHT) -> onnx.ModelProto:
    """The product, and some nodes behind it that read ``h`` and write ``y``."""
    product = helper.make_node("MatMul", ["x", "w"], ["h"], name="product")
    weights = {"w": weight, "scale": np.float32(0.5), "unit": np.ones(4, np.float32), "none": np.zeros(4, np.float32)}
    return model([product, *nodes], weights, [4, 16])


def silu(gate: str) -> onnx.ModelProto:
    return export(
        helper.make_node(gate, ["h"], ["g"], name="gate"), helper.make_node("Mul", ["h", "g"], ["y"], name="gated")
    )


def attention(axis: int) -> onnx.ModelProto:
    return export(
        helper.make_node("Transpose", ["h"], ["t"], name="turned"),
        helper.make_node("Mul", ["t", "scale"], ["k"], name="scaled"),
        helper.make_node("MatMul", ["h", "k"], ["s"], name="scores"),
        helper.make_node("Softmax", ["s"], ["p"], name="softmax", axis=axis),
        helper.make_node("MatMul", ["p", "h"], ["y"], name="mixed"),
    )


def attend(h: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(h[None], h[None], h[None])[0]


def narrowed(*middle: str) -> onnx.ModelProto:
    """A result in float16 and back, at the end or before what follows."""
    there = helper.make_node("Cast", ["log_softmax"], ["low"], name="narrowing", to=TensorProto.FLOAT16)
    back = helper.make_node("Cast", ["low"], ["z" if middle else "y"], name="back", to=TensorProto.FLOAT)
    rest = [helper.make_node(op, ["z"], ["y"], name="rest") for op in middle]
    return export(helper.make_node("LogSoftmax", ["h"], ["log_softmax"], name="scores"), there, back, *rest)


def products(weight: np.ndarray) -> onnx.ModelProto:
    """All products of two columns; no value but the first has the shape that it has in the program."""
    columns = helper.make_node("Split", ["h"], [f"c{n}" for n in range(4)], axis=1, num_outputs=4)
    pairs = list(itertools.combinations_with_replacement(range(4), 2))
    nodes = [helper.make_node("Mul", [f"c{i}", f"c{j}"], [f"m{i}{j}"]) for i, j in pairs]
    joined = helper.make_node("Concat", [f"m{i}{j}" for i, j in pairs], ["y"], axis=1)
    return export(columns, *nodes, joined, weight=weight)


def multiply(h: Tensor) -> Tensor:
    columns = h.unbind(-1)
    return torch.stack([a * b for a, b in itertools.combinations_with_replacement(columns, 2)], -1)


OFF = WEIGHT.copy()
OFF[3, 1] += 0.05


@pytest.mark.parametrize(
    ("then", "made", "node"),
    [
        (nn.functional.silu, silu("Tanh"), "gate"),
        (attend, attention(0), "softmax"),
        (lambda h: h.log_softmax(-1), narrowed(), "narrowing"),
        (lambda h: h.log_softmax(-1).exp(), narrowed("Exp"), "narrowing"),
        (multiply, products(OFF), "product"),
    ],
)
def test_the_node_at_fault_is_named(
    then: Callable[[Tensor], Tensor], made: onnx.ModelProto, node: str, tmp_path: Path
) -> None:
    onnx.save(made, tmp_path / "net.onnx")
    report = whynan.diff(Program(then), tmp_path / "net.onnx", {"x": numbers(4, 16)})
    (finding,) = report.findings
    assert finding.node == node


@pytest.mark.parametrize(
    ("then", "made"),
    [(nn.functional.silu, silu("Sigmoid")), (attend, attention(-1)), (multiply, products(WEIGHT))],
)
def test_formulas_of_one_operation_agree_with_it(
    then: Callable[[Tensor], Tensor], made: onnx.ModelProto, tmp_path: Path
) -> None:
    onnx.save(made, tmp_path / "net.onnx")
    assert whynan.diff(Program(then), tmp_path / "net.onnx", {"x": numbers(4, 16)}).verdict == "clean"
