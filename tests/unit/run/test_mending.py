"""The fixes of an ONNX model are in its report with their verdicts, and the repaired model can be written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tests.defects import N, masked_softmax, model_of
from whynan.config import Options
from whynan.errors import UsageError
from whynan.models.onnx.inputs import case_of
from whynan.models.onnx.opening import open_model
from whynan.run.fix.onnx import judged_model, mended_model
from whynan.run.onnx.engines import Settings
from whynan.run.onnx.inference import infer

if TYPE_CHECKING:
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

    from whynan.records import Report

pytestmark = pytest.mark.process

F32 = np.float32


def _report(path: Path, feeds: dict[str, Any]) -> Report:
    model = open_model(path)
    return infer(model, [case_of(model, feeds)], Settings(), Options(quiet=True))


@pytest.fixture
def masked(tmp_path: Path) -> tuple[Path, Report]:
    """A softmax of which a mask leaves nothing, and its report."""
    defect = masked_softmax()
    path = tmp_path / "masked.onnx"
    onnx.save(defect.model, path)
    return path, _report(path, defect.failing)


def test_an_escaped_finding_has_its_fixes_the_best_first(
    masked: tuple[Path, Report], snapshot: SnapshotAssertion
) -> None:
    (finding,) = masked[1].findings
    assert [(fix.kind, fix.verdict.status, fix.title, fix.patch) for fix in finding.fixes] == snapshot
    assert finding.fixes[0].verdict.status == "guarded"
    assert finding.fixes[0].verdict.backward_finite is None


def test_the_report_shows_them(masked: tuple[Path, Report]) -> None:
    text = " ".join(str(masked[1]).split())
    stated = r"fix guarded: there is no exact value in \d+ of \d+ elements: [\d.]+ is given; "
    kept = r"forward finite; none of [\d,]+ healthy elements moved "
    assert re.search(stated + kept + r"- Softmax\(m, axis=-1\) ", text)


def test_the_repaired_model_is_written_and_runs_finite(masked: tuple[Path, Report], tmp_path: Path) -> None:
    output = tmp_path / "fixed.onnx"
    (fix,) = mended_model(masked[1], output)
    assert fix.verdict.status == "guarded"
    (y,) = onnxruntime.InferenceSession(output).run(None, masked_softmax().failing)
    assert np.isfinite(y).all()
    assert _report(output, masked_softmax().failing).verdict == "clean"


def test_a_fix_can_be_chosen_by_its_number(masked: tuple[Path, Report], tmp_path: Path) -> None:
    (fix,) = mended_model(masked[1], tmp_path / "fixed.onnx", choose=2)
    assert fix == masked[1].findings[0].fixes[1]


def test_somebodys_own_repair_has_a_verdict(masked: tuple[Path, Report], tmp_path: Path) -> None:
    path, report = masked
    output = tmp_path / "fixed.onnx"
    mended_model(report, output)
    feeds = [masked_softmax().failing]
    assert judged_model(report, output, feeds, Settings()).status == "guarded"
    assert judged_model(report, path, feeds, Settings()).status == "rejected"


def test_what_cannot_be_written_says_why(
    masked: tuple[Path, Report], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    path, report = masked
    said: list[str] = []
    nothing = report.model_copy(update={"findings": ()})
    torch = report.model_copy(update={"run": report.run.model_copy(update={"inference": None})})
    (tmp_path / "there.onnx").write_bytes(b"")
    for asked, output, choose in (
        (nothing, "fixed.onnx", None),
        (torch, "fixed.onnx", None),
        (report, "fixed.onnx", 7),
        (report, "there.onnx", None),
        (report, "masked.onnx", None),
        (report, "no/folder/fixed.onnx", None),
    ):
        with pytest.raises(UsageError) as error:
            mended_model(asked, tmp_path / output, choose)
        said.append(f"{error.value.what}: {error.value.hint}".replace(str(tmp_path), "FOLDER"))
    path.write_bytes(path.read_bytes() + helper.make_model(helper.make_graph([], "", [], [])).SerializeToString())
    with pytest.raises(UsageError) as error:
        mended_model(report, tmp_path / "fixed.onnx")
    said.append(f"{error.value.what}: {error.value.hint}".replace(str(tmp_path), "FOLDER"))
    assert said == snapshot
    assert sorted(one.name for one in tmp_path.iterdir()) == ["masked.onnx", "there.onnx"]


def test_external_data_are_copied_beside_it(tmp_path: Path) -> None:
    defect = masked_softmax()
    model = model_of(
        [*defect.model.graph.node, N("Mul", ["y", "w"], ["z"], name="scale")],
        defect.failing,
        ["z"],
        {"low": numpy_helper.to_array(defect.model.graph.initializer[0]), "w": np.arange(3, dtype=F32)},
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=8)
    report = _report(path, defect.failing)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    mended_model(report, elsewhere / "fixed.onnx")
    (z,) = onnxruntime.InferenceSession(elsewhere / "fixed.onnx").run(None, defect.failing)
    assert z[1] == pytest.approx(np.arange(3) / 3)
    with pytest.raises(UsageError, match="exists already"):
        mended_model(report, elsewhere / "fixed.onnx")


def test_a_healthy_model_is_not_run_again_for_fixes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(masked_softmax().model, path)
    report = _report(path, masked_softmax().healthy)
    assert report.verdict == "clean"
    assert report.coverage.notes == ()
