"""Whether optimisation is to blame: only where an output turns bad, or finite, by it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.capture.onnx.written_models import parsed
from whynan.capture.onnx import engine
from whynan.capture.onnx.engine import EngineSettings
from whynan.records import Note
from whynan.report.notes import sentence
from whynan.run.onnx.explaining import badness, difference

if TYPE_CHECKING:
    from collections.abc import Mapping

NAN = float("nan")
FINITE, FIRST, LAST, BOTH = [1.0, 1.0], [NAN, 1.0], [1.0, NAN], [NAN, NAN]


def values(**outputs: list[float]) -> dict[str, Any]:
    return {name: np.array(each, np.float32) for name, each in outputs.items()}


@pytest.mark.parametrize(
    ("here", "written"),
    [
        (values(y=FIRST), values(y=FINITE)),
        (values(y=FINITE), values(y=FIRST)),
        (values(y=FIRST), values(y=LAST)),
        (values(y=BOTH), values(y=LAST)),
        (values(y=FIRST), values(y=FIRST)),
        (values(y=FIRST, z=FIRST), values(y=LAST, z=FINITE)),
    ],
    ids=["comes", "goes", "elsewhere", "spreads", "same", "one of two"],
)
def test_optimisation_is_to_blame_only_where_an_output_turns_by_it(
    here: dict[str, Any], written: dict[str, Any], monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    def bare(settings: EngineSettings, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        del feeds
        return written if settings.level == "disabled" else here

    monkeypatch.setattr(engine, "run_unobserved", bare)
    note = difference(EngineSettings("model.onnx"), {}, here)
    assert (note and sentence(note)) == snapshot


SCALED = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[1, 1, 2, 2] x) => (float[1, 1, 2, 2] y)
<float[1, 1, 1, 1] w = {1e20}, float[1, 1, 1] s = {1e-20}> {
  c = Conv(x, w)
  y = Mul(c, s)
}
"""
"""The convolution overflows where it is by itself; with the factor folded into its weight it does not."""


def test_an_overflow_that_a_fusion_takes_away_is_noted(tmp_path: Path) -> None:
    onnx.save(parsed(SCALED), tmp_path / "model.onnx")
    settings, x = EngineSettings(str(tmp_path / "model.onnx")), {"x": np.full((1, 1, 2, 2), 1e20, np.float32)}
    found = engine.run_unobserved(settings, x)
    assert np.isfinite(np.asarray(found["y"])).all()
    note = difference(settings, x, found)
    assert note == Note.create("optimisation_cures")


def test_which_elements_are_bad_is_told_of_what_can_be() -> None:
    outputs = {**values(y=FIRST, z=FINITE), "i": np.array([1]), "s": np.array(["a"], object)}
    assert badness(outputs) == {"y": b"\x80", "z": b""}
