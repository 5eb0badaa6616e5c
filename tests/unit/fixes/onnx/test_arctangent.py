"""The exporters' chain for ``atan2`` is known in what they really write, and the angle that stands for it is right."""

from __future__ import annotations

import logging
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from tests.findings import finding
from whynan.fixes.onnx import GraphCandidate, candidates

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e-38, -1e-38, 3e38, -3e38, 1e-42, math.inf, -math.inf, 0.3, -7.0]


class Angle(torch.nn.Module):
    """Nothing but the angle."""

    def forward(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.atan2(y, x)


def _exported(folder: Path, dynamo: bool) -> onnx.ModelProto:
    path = folder / "angle.onnx"
    given = (torch.ones(4), torch.ones(4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        names = {"input_names": ["y", "x"], "output_names": ["a"]}
        shapes: dict[str, Any] = {"dynamic_axes": {"y": [0], "x": [0]}} if not dynamo else {}
        if dynamo:
            size = torch.export.Dim("n")
            shapes = {"dynamic_shapes": ({0: size}, {0: size})}
        torch.onnx.export(Angle(), given, str(path), dynamo=dynamo, verbose=False, **names, **shapes)
        logging.disable(logging.NOTSET)
    return onnx.load(path)


@pytest.mark.parametrize("dynamo", [False, True])
def test_the_angle_is_right_at_every_special_point_of_both_exporters(tmp_path: Path, dynamo: bool) -> None:
    model = _exported(tmp_path, dynamo)
    quotient = next(node for node in model.graph.node if node.op_type == "Div")
    found = candidates(model, finding("Div", quotient.name, quotient.output[0]), ())
    (made,) = found
    assert isinstance(made, GraphCandidate)
    y, x = (np.array(part, np.float32).ravel() for part in np.meshgrid(SPECIAL, SPECIAL))
    session = onnxruntime.InferenceSession(made.model.SerializeToString())
    (angle,) = session.run(None, {"y": y, "x": x})
    truth = np.arctan2(y, x, dtype=np.float64)
    assert angle == pytest.approx(truth, rel=3e-7, abs=1e-37)
    wrong = np.signbit(angle) != np.signbit(truth)
    assert list(zip(y[wrong], x[wrong], strict=True)) == []
    assert candidates(made.model, finding("Div", quotient.name, quotient.output[0]), ()) == []


def test_another_chain_of_the_same_operators_is_not_taken_for_it(tmp_path: Path) -> None:
    model = _exported(tmp_path, dynamo=False)
    quotient = next(node for node in model.graph.node if node.op_type == "Div")
    for node in model.graph.node:
        if node.op_type == "Greater":
            node.op_type = "Less"
    assert candidates(model, finding("Div", quotient.name, quotient.output[0]), ()) == []
