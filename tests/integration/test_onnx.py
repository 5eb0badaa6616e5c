"""``whynan onnx`` and ``explain`` of a model, from the command to the report, on ONNX Runtime itself."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from syrupy.assertion import SnapshotAssertion

import whynan
from tests.integration.onnx_command import WHYNAN, Ran, model, run, run_apart
from whynan.errors import UsageError
from whynan.run.onnx.engines import EngineProcess
from whynan.run.onnx.job import JOB, MEND
from whynan.run.output.delivery import Display

pytestmark = pytest.mark.process

OPENVINO = "OpenVINOExecutionProvider"
RATIO = '''"""A network whose weights divide by the sum of a mask."""

import torch


class Ratio(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)

    def forward(self, x, mask):
        hidden = self.first(x).relu()
        weight = hidden / mask.sum(-1, keepdim=True)
        return weight.softmax(-1)
'''


@pytest.fixture(scope="module")
def ratio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model that torch has exported, as ``ratio.onnx``, and its source."""
    folder = tmp_path_factory.mktemp("ratio")
    (folder / "ratio.py").write_text(RATIO, encoding="utf-8")
    export = (
        "import torch, ratio; torch.manual_seed(0); torch.onnx.export(ratio.Ratio().eval(), "
        "(torch.randn(2, 4), torch.ones(2, 3)), 'ratio.onnx', dynamo=True, verbose=False)"
    )
    subprocess.run([sys.executable, "-c", export], cwd=folder, check=True, capture_output=True)
    return folder


def masked(folder: Path) -> str:
    """0/0 whose NaN is caught."""
    return model(
        folder,
        [
            helper.make_node("Div", ["x", "y"], ["ratio"], "/Div"),
            helper.make_node("IsNaN", ["ratio"], ["bad"], "/IsNaN"),
            helper.make_node("Where", ["bad", "zero", "ratio"], ["out"], "/Where"),
        ],
        "x y",
        "out",
        ("zero", np.float32(0)),
    )


def test_a_birth_is_told_at_the_line_of_the_program(ratio: Path, snapshot: SnapshotAssertion) -> None:
    ran = run_apart(ratio, "ratio.onnx", "-i", "x=ones", "-i", "mask=zeros")
    assert ran.status == 1, ran.err
    assert ran.report is not None
    finding, other = ran.report["findings"]
    assert (finding["op"], finding["phase"], finding["birth"]) == ("Div", "inference", "invalid")
    assert (finding["rule"], other["rule"]) == ("WN101", "WN102")
    assert finding["site"]["line"] == 1 + RATIO[: RATIO.index("hidden / mask")].count("\n")
    assert finding["site"]["code"] == "hidden / mask.sum(-1, keepdim=True)"
    assert Path(finding["site"]["file"]).name == "ratio.py"
    assert finding["element"]["index"] == [0, 0]
    assert [r["kind"] for r in finding["reaches"]] == ["output"]
    inference = ran.report["run"]["inference"]
    assert (inference["bit_equal"], inference["graph"], inference["engine"]) == (True, "optimized", "onnxruntime")
    assert ran.out.replace(str(ratio), "FOLDER") == snapshot


def test_what_is_healthy_is_clean(ratio: Path, snapshot: SnapshotAssertion) -> None:
    ran = run(ratio, "ratio.onnx", "--random", "3", "-i", "mask=ones")
    assert (ran.status, ran.report and ran.report["verdict"]) == (0, "clean")
    assert ran.out == snapshot


@pytest.mark.parametrize(
    "engine", [["--graph", "original"], ["--engine", "reference"], ["--level", "disabled"]], ids=str
)
def test_each_way_to_run_it_finds_the_same(ratio: Path, engine: list[str]) -> None:
    ran = run(ratio, "ratio.onnx", "-i", "x=ones", "-i", "mask=zeros", *engine)
    assert ran.report is not None, ran.err
    told = [(f["op"], f["rule"], f["element"]["index"], f["site"]["line"]) for f in ran.report["findings"]]
    assert told == [("Div", "WN101", [0, 0], 13), ("Div", "WN102", [0, 1], 13)]


def test_a_masked_birth_is_absorbed(tmp_path: Path) -> None:
    ran = run(tmp_path, masked(tmp_path), "-i", "x=zeros", "-i", "y=zeros", "--all")
    assert ran.status == 0, ran.out
    assert ran.report is not None
    assert (ran.report["verdict"], ran.report["absorbed_count"]) == ("clean", 1)
    (absorbed,) = ran.report["absorbed"]
    assert (absorbed["op"], absorbed["node"], absorbed["fate"]) == ("Div", "/Div", "absorbed")
    assert "did no harm" in ran.out


def test_without_its_mask_it_is_an_error(tmp_path: Path) -> None:
    name = model(tmp_path, [helper.make_node("Div", ["x", "y"], ["out"], "/Div")], "x y", "out")
    ran = run(tmp_path, name, "-i", "x=zeros", "-i", "y=zeros", "--quiet")
    assert (ran.status, ran.out, ran.err) == (1, "", "")


def test_the_table_of_ranges(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    np.savez(tmp_path / "in.npz", x=np.arange(6, dtype=np.float32).reshape(2, 3), y=np.float32([[1, 0, 2], [4, 5, 0]]))
    table = tmp_path / "table.csv"
    ran = run(tmp_path, masked(tmp_path), "-i", "in.npz", "--ranges", "--csv", str(table))
    assert ran.out == snapshot
    assert ran.report is not None
    told = {row["value"]: row for row in ran.report["ranges"]}
    assert (told["ratio"]["n_posinf"], told["ratio"]["n_nan"], told["ratio"]["finite_max"]) == (2, 0, 1.0)
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert {row["value"]: row["n_posinf"] for row in rows}["ratio"] == "2"
    ran = run(tmp_path, masked(tmp_path), "-i", "in.npz", "--ranges", "--op", "Where", "--sort", "max", "--quiet")
    assert ran.report is not None
    assert [row["op"] for row in ran.report["ranges"]] == ["Where"]


@pytest.mark.smoke("onnx")
def test_a_document_or_a_table_on_the_output_has_it_for_itself(tmp_path: Path) -> None:
    name = model(tmp_path, [helper.make_node("Log", ["x"], ["out"], "/Log")], "x", "out")
    ran = run_apart(tmp_path, name, "-i", "x=zeros", "--json", "-")
    assert (ran.status, json.loads(ran.out)["verdict"]) == (1, "nonfinite")
    assert "-Inf in the output" in ran.err
    ran = run_apart(tmp_path, name, "-i", "x=zeros", "--csv", "-", "--ranges")
    assert [row["op"] for row in csv.DictReader(ran.out.splitlines())] == ["Log"]
    assert "node  value  op" in ran.err
    ran = run_apart(tmp_path, name, "-i", "x=zeros", "--csv", "-", "--json", "-")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == "whynan: --json - is where --csv writes too: name a file for one of them\n"
    assert not (tmp_path / "-").exists()


def test_the_worst_of_several_cases_is_told(tmp_path: Path) -> None:
    name = model(tmp_path, [helper.make_node("Log", ["x"], ["out"], "/Log")], "x", "out")
    ran = run(tmp_path, name, "-i", "x=uniform(-0.05,1)", "--random", "0", "--cases", "6")
    assert ran.report is not None, ran.err
    assert ran.report["verdict"] == "nonfinite"
    assert (ran.report["run"]["inference"]["cases"], ran.report["run"]["inference"]["case"] is not None) == (6, True)
    assert "of 6 cases" in ran.out


@pytest.mark.full
def test_a_stripped_model_is_told_of_by_names(ratio: Path, tmp_path: Path) -> None:
    stripped = onnx.load(ratio / "ratio.onnx")
    for node in stripped.graph.node:
        del node.metadata_props[:]
    onnx.save(stripped, tmp_path / "stripped.onnx")
    inputs = ("-i", "x=ones", "-i", "mask=zeros")
    bare, whole = run(tmp_path, "stripped.onnx", *inputs).report, run(ratio, "ratio.onnx", *inputs).report
    assert bare is not None
    assert whole is not None
    found, located = bare["findings"][0], whole["findings"][0]
    assert (found["site"], located["site"]["line"]) == (None, 13)
    for known in ("node", "value", "op", "rule", "element"):
        assert found[known] == located[known]


def test_what_a_trace_keeps_is_told_again(tmp_path: Path) -> None:
    name = model(tmp_path, [helper.make_node("Log", ["x"], ["out"], "/Log")], "x", "out")
    ran = run(tmp_path, name, "-i", "x=zeros", "--trace", "kept")
    assert ran.status == 1, ran.err
    done = subprocess.run([*WHYNAN, "report", "kept"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "Log /Log" in done.stdout) == (1, True), done.stderr


def test_explain_takes_a_path(tmp_path: Path) -> None:
    path = tmp_path / model(tmp_path, [helper.make_node("Div", ["x", "y"], ["out"], "/Div")], "x y", "out")
    report = whynan.explain(path, np.ones((2, 3), np.float32), y=np.zeros((2, 3), np.float32))
    (finding,) = report.findings
    assert (finding.node, finding.value, finding.birth, finding.element.value) == ("/Div", "out", "pole", float("inf"))
    assert whynan.explain(str(path), {n: np.ones((2, 3), np.float32) for n in "xy"}).verdict == "clean"
    with pytest.raises(UsageError, match="was given"):
        whynan.explain(path, np.ones((2, 3), np.float32))


def test_nothing_private_is_left_in_a_redacted_report(ratio: Path) -> None:
    ran = run(ratio, "ratio.onnx", "-i", "x=ones", "-i", "mask=zeros", "--redact", "--ranges")
    assert ran.report is not None, ran.err
    text = json.dumps(ran.report) + ran.out
    for secret in ("ratio.", "mask", "hidden", "softmax(-1)", "node_", str(ratio)):
        assert secret not in text, secret


def test_the_engine_crashes_and_that_is_told(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    # an empty name among the outputs of Split takes ONNX Runtime down
    name = model(tmp_path, [helper.make_node("Split", ["x"], ["", "out"], "/Split", axis=0, num_outputs=2)], "x", "out")
    ran = run_apart(tmp_path, name, "-i", "x=ones")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == snapshot


@pytest.mark.skipif(OPENVINO not in ort.get_available_providers(), reason="needs onnxruntime-openvino")
def test_what_a_provider_compiles_is_looked_at_on_the_cpu(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["m"], "/Mul"),
        helper.make_node("Sub", ["m", "m"], ["s"], "/Sub"),
        helper.make_node("Div", ["s", "s"], ["d"], "/Div"),
        helper.make_node("Relu", ["m"], ["r"], "/Relu"),
        helper.make_node("Add", ["d", "r"], ["out"], "/Add"),
    ]
    name = model(tmp_path, nodes, "x", "out", ("two", np.float32(2)))
    ran = run(tmp_path, name, "-i", "x=ones", "--provider", "OpenVINO", "--provider", "CPU")
    assert (ran.status, ran.err) == (1, "")
    assert ran.report is not None
    (finding,) = ran.report["findings"]
    assert (finding["op"], finding["node"], finding["value"]) == ("Div", "/Div", "d")
    assert ran.report["coverage"]["notes"][0] == (
        "a provider compiles parts of the model, and nothing in them can be looked at: the outputs are those of"
        f" {OPENVINO}, CPUExecutionProvider, and all other values those of CPUExecutionProvider"
    )


REFUSED = {
    "no file": (["none.onnx"], None),
    "a directory": (["."], None),
    "no model": (["text.onnx"], b"not a model"),
    "nothing given": (["small.onnx"], None),
    "an unknown input": (["small.onnx", "-i", "z=ones"], None),
    "a wrong shape": (["small.onnx", "-i", "x=ones[4,5]"], None),
    "no such provider": (["small.onnx", "-i", "x=ones", "--provider", "Abacus"], None),
    "sorted without a table": (["small.onnx", "-i", "x=ones", "--sort", "max"], None),
    "cases without a seed": (["small.onnx", "--cases", "3"], None),
    "no library": (["small.onnx", "-i", "x=ones", "--custom-ops", "none.so"], None),
    "a folder to write to": (["small.onnx", "-i", "x=ones", "--json", "."], None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_in_a_line(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    arguments, content = REFUSED[name]
    model(tmp_path, [helper.make_node("Log", ["x"], ["out"], "/Log")], "x", "out")
    if content is not None:
        (tmp_path / arguments[0]).write_bytes(content)
    ran = run(tmp_path, *arguments)
    assert (ran.status, ran.out, ran.report) == (2, "", None)
    assert len(ran.err.splitlines()) == 1
    assert ran.err.replace(str(tmp_path), "FOLDER") == snapshot


# -- the report at once ----------------------------------------------------------------------------------------------


class Proof:
    """The process of the engine, with what stood on the output before it was asked to prove fixes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, interrupted: bool = False) -> None:
        self.before: str | None = None
        do = EngineProcess.do

        def noted(process: EngineProcess, place: Path) -> tuple[int, str]:
            if MEND in json.loads((place / JOB).read_text("utf-8")):
                self.before = cast("Any", sys.stdout).buffer.getvalue().decode()
                if interrupted:
                    raise KeyboardInterrupt
            return do(process, place)

        monkeypatch.setattr(EngineProcess, "do", noted)


def divided(folder: Path) -> Ran:
    """The run of a quotient of zeros."""
    name = model(folder, [helper.make_node("Div", ["x", "y"], ["out"], "/Div")], "x y", "out")
    return run(folder, name, "-i", "x=zeros", "-i", "y=zeros")


@pytest.mark.proof
@pytest.mark.parametrize("waits", [False, True])
def test_the_finding_is_there_before_a_proof_begins(
    waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if waits:
        # the twin: the delivery waits
        monkeypatch.setattr(Display, "explained", lambda *_, **__: None)
    proof = Proof(monkeypatch)
    ran = divided(tmp_path)
    assert ran.status == 1
    assert proof.before is not None
    assert ("  born " in proof.before) is not waits
    assert "nonfinite" not in proof.before
    assert ran.out.startswith(proof.before)
    assert ran.out.count("  born ") == 1


def test_an_interrupt_ends_the_proof_and_the_report_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Proof(monkeypatch, interrupted=True)
    ran = divided(tmp_path)
    assert ran.status == 1
    assert ran.report is not None
    assert ran.out.count("  born ") == 1
    assert "note: the proof of fixes was interrupted" in ran.out
