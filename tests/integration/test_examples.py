"""Each example shows its symptom, is explained by its report, and is healthy with its mend."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.integration.examples import NAMES, ROOT, Run, plain, shown, watched
from tests.made_anew import check
from whynan.report.json import parse_report

pytestmark = pytest.mark.process

ANEW = "run: python -m tests.integration.examples"
SAMPLES = ("gem_pooling", "underflow_cosine")
"""The examples that are run plainly and mended each time; under whynan each of them is."""


def without_versions(report: str) -> str:
    """The report with the versions of its first line taken out, whose padding depends on their length."""
    return re.sub(r"\s+whynan \S+ · torch \S+ · ", "  whynan · torch · ", without_count(report), count=1)


def without_count(report: str) -> str:
    """The report without the count of operations, which depends on how far ahead the workers of a loader are."""
    return re.sub(r"[\d,]+ operations looked at", "operations looked at", report)


def losses(run: Run) -> list[float]:
    """The losses that a program printed."""
    return [float(value) for value in re.findall(r"loss ([\w.]+)", run.out)]


def explained(name: str, snapshot: SnapshotAssertion) -> tuple[Run, dict[str, Any]]:
    """The run under whynan and its first finding; the report is the README's and the snapshot's."""
    run = watched(name)
    assert without_versions(run.err) == snapshot
    assert without_count(run.err) == without_count(shown(name)["report"]), ANEW
    check(parse_report(json.dumps(run.document).encode()), ROOT)
    finding = [*run.document["findings"], *run.document["damaging"]][0]
    line = (ROOT / finding["site"]["file"]).read_text(encoding="utf-8").splitlines()[finding["site"]["line"] - 1]
    assert finding["site"]["file"] == f"examples/{name}/train.py"
    assert line[finding["site"]["column"] - 1 :].startswith(finding["site"]["code"])
    return run, finding


def sampled() -> list[Any]:
    """All examples as parameters, of which two are no part of the full check alone."""
    return [pytest.param(n, marks=[] if n in SAMPLES else [pytest.mark.full]) for n in NAMES]


def causes(finding: dict[str, Any]) -> list[str]:
    return [link["summary"] for link in finding["chain"] if link["role"] == "cause"]


@pytest.mark.full
@pytest.mark.parametrize("name", sampled())
def test_the_readme_shows_what_the_program_prints(name: str) -> None:
    run = plain(name)
    assert run.status == 0
    assert run.out == shown(name)["plain"], ANEW


@pytest.mark.full
@pytest.mark.parametrize("name", sampled())
def test_the_mend_is_clean_and_works(name: str) -> None:
    run = watched(name, "--fixed")
    assert run.status == 0
    assert run.err.startswith("clean: ")
    assert run.document["verdict"] == "clean"
    if name == "rmsnorm_fp16":
        assert all(float(share) > 95 for share in re.findall(r"([\d.]+)% right", run.out))
        return
    told = losses(run)
    assert len(told) >= 5
    assert all(math.isfinite(loss) for loss in told)
    assert told[-1] < 0.8 * told[0]
    assert "skipped" not in run.out


@pytest.mark.parametrize("name", NAMES)
def test_no_example_knows_of_whynan(name: str) -> None:
    assert "whynan" not in (ROOT / "examples" / name / "train.py").read_text(encoding="utf-8")


@pytest.mark.full
def test_one_finite_loss_is_followed_by_nan() -> None:
    first, *later = losses(plain("gem_pooling"))
    assert math.isfinite(first)
    assert len(later) == 7
    assert all(math.isnan(loss) for loss in later)


def test_a_finite_loss_with_nan_gradients_is_explained_and_mended(snapshot: SnapshotAssertion) -> None:
    run, finding = explained("gem_pooling", snapshot)
    assert run.status == 1
    assert run.out == ""
    assert (finding["rule"], finding["phase"], finding["fate"]) == ("WN309", "backward", "escaped")
    assert finding["site"]["code"] == "pooled.pow(1.0 / self.p)"
    assert [(reach["kind"], reach["name"]) for reach in finding["reaches"]] == [("gradient", "pool.p")]
    assert causes(finding)[0].startswith("constant_pad_nd gives 0")
    assert finding["fixes"][0]["verdict"]["status"] == "verified"


@pytest.mark.full
def test_an_epsilon_for_zeros_does_not_help_beside_the_origin(snapshot: SnapshotAssertion) -> None:
    run, finding = explained("phase_head", snapshot)
    assert run.status == 1
    assert all(math.isfinite(loss) for loss in losses(run))
    assert finding["rule"] == "WN401"
    assert (finding["phase"], finding["fate"], finding["birth"]) == ("backward", "escaped", "overflow")
    assert (finding["op"], finding["forward_op"]) == ("aten.reciprocal.default", "aten.atan2.default")
    assert finding["site"]["code"] == "torch.atan2(imag, real)"
    assert finding["site"]["module"] == "head"
    forward = {o["expression"]: o["value"] for o in finding["forward_operands"]}
    assert set(forward) == {"imag", "real"}
    assert all(0 < abs(value) < 1e-19 for value in forward.values())
    (squares,) = [o["value"] for o in finding["element"]["operands"] if o["dtype"]]
    assert 0 < squares < 2.94e-39
    # the epsilon, added to what is not exactly 0
    assert causes(finding)[-1] == "{0} plus 0 is {0}".format(causes(finding)[-1].split(" ")[0])
    gradients = {reach["name"] for reach in finding["reaches"] if reach["kind"] == "gradient"}
    assert gradients == {"gain.0.weight", "gain.0.bias", "gain.2.weight", "gain.2.bias"}


@pytest.mark.full
def test_the_dirty_sample_is_named(snapshot: SnapshotAssertion) -> None:
    run, finding = explained("dirty_masks", snapshot)
    assert run.status == 1
    assert "nan" not in run.out
    assert (finding["rule"], finding["birth"], finding["op"]) == ("WN001", "entered", None)
    assert "model(images), masks" in finding["site"]["code"]
    assert finding["data"]["indices"] == [137]
    assert finding["data"]["worker"] in (0, 1)
    assert finding["data"]["rows"] == [finding["element"]["index"][0]]
    assert finding["data"]["batch"] == finding["step"] - 1
    assert (finding["element"]["count"], finding["element"]["shape"]) == (32 * 32, [16, 1, 32, 32])
    assert {reach["kind"] for reach in finding["reaches"]} == {"loss", "gradient"}


@pytest.mark.full
def test_a_wrong_finite_output_is_a_warning(snapshot: SnapshotAssertion) -> None:
    run, finding = explained("rmsnorm_fp16", snapshot)
    assert run.status == 0
    assert run.document["verdict"] == "damaged"
    assert run.document["findings"] == []
    assert (finding["rule"], finding["fate"], finding["severity"]) == ("WN701", "damaging", "warning")
    assert finding["site"]["code"] == "wide.pow(2)"
    (squared,) = [o["value"] for o in finding["element"]["operands"] if o["expression"] == "wide"]
    assert squared > 65504**0.5
    assert finding["element"]["dtype"] == "float16"
    assert [(reach["kind"], reach["total"]) for reach in finding["reaches"]] == [("output", 512 * 6)]


@pytest.mark.full
def test_a_warning_counts_where_it_is_asked_for() -> None:
    run = watched("rmsnorm_fp16", strict=True)
    assert run.status == 1
    assert run.document["run"]["exit_status"] == {"script": 0, "whynan": 1}


@pytest.mark.full
def test_squares_that_underflow_are_named_as_the_cause(snapshot: SnapshotAssertion) -> None:
    run, finding = explained("underflow_cosine", snapshot)
    assert run.status == 1
    assert (finding["rule"], finding["birth"], finding["phase"]) == ("WN110", "invalid", "forward")
    assert finding["op"] == "aten.div.Tensor"
    assert finding["site"]["function"] == "cosine"
    assert [o["value"] for o in finding["element"]["operands"]] == [0, 0]
    assert finding["element"]["dtype"] == "float16"
    assert any(re.match(r"-?[\d.]+e-0?5 times -?[\d.]+e-0?5 is 0 ", f"{cause} ") for cause in causes(finding))
    assert "underflow of float16" in finding["explanation"]
    assert finding["reaches"][0]["kind"] == "loss"
