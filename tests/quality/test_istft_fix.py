"""The istft example's model of the TorchScript exporter, repaired, gives what PyTorch gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import torch

from examples.istft_export import export
from whynan.config import Options
from whynan.models.onnx.inputs import case_of
from whynan.models.onnx.opening import open_model
from whynan.run.fix.onnx import mended_model
from whynan.run.onnx.engines import Settings
from whynan.run.onnx.inference import infer

if TYPE_CHECKING:
    from pathlib import Path


def test_the_repaired_export_gives_what_pytorch_gives(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = export.Denoiser().eval()
    waves = torch.nn.functional.pad(export.recordings()[:1], (0, export.SAMPLES - 800))
    path = tmp_path / "model.onnx"
    torch.onnx.export(network, (waves,), str(path), input_names=["wave"], output_names=["clean"], dynamo=False)
    model = open_model(path)
    report = infer(model, [case_of(model, {"wave": waves.numpy()})], Settings(), Options(quiet=True))
    (fix,) = mended_model(report, tmp_path / "fixed.onnx")
    assert fix.verdict.status == "verified"
    (clean,) = onnxruntime.InferenceSession(tmp_path / "fixed.onnx").run(None, {"wave": waves.numpy()})
    with torch.no_grad():
        eager = network(waves).numpy()
    assert np.isfinite(clean).all()
    assert np.abs(clean - eager).max() < 1e-4
