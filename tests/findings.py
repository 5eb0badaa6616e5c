"""Findings of ONNX models as a run gives them."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

import onnx

from whynan.config import Options
from whynan.models.onnx.inputs import case_of
from whynan.models.onnx.opening import open_model
from whynan.records import Element, Finding
from whynan.run.onnx.engines import Settings
from whynan.run.onnx.inference import infer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.records import Report


def report_of(model: onnx.ModelProto, feeds: Mapping[str, Any], engine: str = "onnxruntime") -> Report:
    """What a run of a model reports."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(model, path)
        opened = open_model(path)
        return infer(opened, [case_of(opened, dict(feeds))], Settings(engine=engine), Options(quiet=True))


def finding(op: str, node: str, value: str, dtype: str = "float32", **more: Any) -> Finding:
    """A birth at a node."""
    known: dict[str, Any] = {
        "severity": "error",
        "fate": "escaped",
        "birth": "invalid",
        "phase": "inference",
        "op": op,
        "site": None,
        "node": node,
        "value": value,
        "element": Element(index=(0,), shape=(2,), dtype=dtype, value=None, count=1, total=2),
    }
    return Finding.model_validate({**known, **more})
