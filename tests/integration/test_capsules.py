"""Capsules of whole programs and models: packed by a run, run again by ``whynan replay`` and by their scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from syrupy.assertion import SnapshotAssertion

from tests import forking
from tests.integration.running import WHYNAN
from tests.integration.test_second_run import TRAINING
from whynan.capsule import open_capsule
from whynan.cli.main import main

pytestmark = pytest.mark.process

TRAIN = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
for step in range(4):
    y = model(torch.randn(5, 4))
    if step == {step}:
        y = y * 1e30
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FORWARD = "torch.softmax(y, 1).log().mean()"
BACKWARD = "torch.sqrt((y - y.detach()) ** 2).mean()"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("WHYNAN_") and n != "WHYNAN_RAISE_INTERNAL"]:
        monkeypatch.delenv(name)
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What whynan does with arguments, in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return forking.run([WHYNAN, *arguments], env=environment)


def script() -> str:
    """What the script of the capsule prints."""
    result = forking.run([sys.executable, "c/repro.py"])
    assert result.returncode == 0, result.stderr
    assert len(Path("c/repro.py").read_text().splitlines()) <= 30
    return result.stdout


@pytest.mark.parametrize(
    ("mode", "loss"),
    [
        pytest.param("watch", FORWARD, id="watch-forward"),
        pytest.param("trace", BACKWARD, id="trace-backward"),
        pytest.param("watch", BACKWARD, id="watch-backward", marks=pytest.mark.full),
        pytest.param("trace", FORWARD, id="trace-forward", marks=pytest.mark.full),
    ],
)
def test_a_training_is_packed_where_it_fails(mode: str, loss: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(TRAIN.format(step=2, loss=loss))
    ran = run("run", "--mode", mode, "--capsule", "c", "--json", "report.json", "train.py")
    assert ran.returncode == 1, ran.stderr
    report = json.loads(Path("report.json").read_text())
    assert report["run"]["data"] == str(Path("c").resolve())
    assert "whynan replay" in ran.stderr
    held = open_capsule("c")
    first = report["findings"][0]
    assert held.finding.rule == first["rule"]
    assert held.source == Path("train.py").read_text()
    assert " are NaN or Inf" in script()
    assert main(["replay", "c"]) == 1
    shown = capsys.readouterr().out
    assert first["rule"] in shown
    assert "the result has the bits that it had in the run" in shown


def test_the_second_run_of_a_program_packs_it_too() -> None:
    Path("train.py").write_text(TRAINING)
    ran = run("run", "--rerun", "--capsule", "c", "--json", "report.json", "train.py")
    report = json.loads(Path("report.json").read_text())
    assert report["run"]["replay"]["kind"] == "rerun", ran.stderr
    assert open_capsule("c").finding.rule == report["findings"][0]["rule"]
    assert report["run"]["data"] == str(Path("c").resolve())
    assert main(["replay", "c", "--quiet"]) == 1


@pytest.mark.full
def test_a_clean_program_leaves_no_folder() -> None:
    Path("train.py").write_text(TRAIN.format(step=9, loss=FORWARD))
    assert run("run", "--capsule", "c", "train.py").returncode == 0
    assert not Path("c").exists()


@pytest.mark.full
def test_a_program_that_goes_elsewhere_leaves_it_where_it_was_wanted() -> None:
    Path("deep").mkdir()
    Path("train.py").write_text(f"import os\nos.chdir('deep')\n{TRAIN.format(step=0, loss=FORWARD)}")
    assert run("run", "--capsule", "c", "train.py").returncode == 1
    assert open_capsule("c").document.why is None


@pytest.mark.smoke("replay")
def test_redacted_it_holds_no_text_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    Path("secret_train.py").write_text(TRAIN.format(step=0, loss=FORWARD).replace("optimizer", "secret_optimizer"))
    assert run("run", "--redact", "--quiet", "--capsule", "c", "secret_train.py").returncode == 1
    assert sorted(os.listdir("c")) == ["capsule.json", "operands.safetensors", "report.json", "repro.py"]
    for name in ("capsule.json", "report.json", "repro.py"):
        assert "secret" not in Path("c", name).read_text()
    assert main(["replay", "c"]) == 1
    assert "secret" not in capsys.readouterr().out


def model(path: str, opset: int = 17) -> None:
    """A model whose Log bears -Inf."""

    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])

    graph = helper.make_graph(
        [
            helper.make_node("Softmax", ["x"], ["p"], name="secret/softmax", axis=-1),
            helper.make_node("Log", ["p"], ["l"], name="secret/log"),
            helper.make_node("Mul", ["l", "x"], ["o"]),
        ],
        "g",
        [value("x")],
        [value("o")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    np.savez("inputs.npz", x=np.array([[1, 200, 3], [1, 2, 3]], np.float32))


def test_a_node_of_a_model_is_packed(capsys: pytest.CaptureFixture[str]) -> None:
    model("net.onnx")
    assert main(["onnx", "net.onnx", "-i", "inputs.npz", "--capsule", "c"]) == 1
    assert "whynan replay" in capsys.readouterr().out
    assert sorted(os.listdir("c")) == [
        "capsule.json",
        "node.onnx",
        "operands.safetensors",
        "report.json",
        "repro.py",
    ]
    onnx.checker.check_model(onnx.load("c/node.onnx"), full_check=True)
    assert "is -inf and 2 of 6 are NaN or Inf" in script()
    assert main(["replay", "c"]) == 1
    shown = capsys.readouterr().out
    assert "WN206" in shown
    assert "the result has the bits that it had in the run" in shown


def test_a_node_of_the_reference_evaluator_is_run_by_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    sums = helper.make_node("ReduceMean", ["x"], ["m"], axes=[1], keepdims=0)
    graph = helper.make_graph(
        [sums],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1, 3])],
        [helper.make_tensor_value_info("m", TensorProto.FLOAT16, [1])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), "half.onnx")
    np.savez("inputs.npz", x=np.full((1, 3), 60000, np.float16))
    arguments = ["onnx", "half.onnx", "-i", "inputs.npz", "--engine", "reference", "--capsule", "c", "--quiet"]
    assert main(arguments) == 1
    assert "is inf and 1 of 1" in script()
    capsys.readouterr()
    assert main(["replay", "c"]) == 1
    assert "the result has the bits that it had in the run" in capsys.readouterr().out


def test_a_node_of_a_redacted_model_has_no_name() -> None:
    model("net.onnx")
    assert main(["onnx", "net.onnx", "-i", "inputs.npz", "--capsule", "c", "--redact", "--quiet"]) == 1
    for name in os.listdir("c"):
        assert b"secret" not in Path("c", name).read_bytes()
    assert main(["replay", "c", "--quiet"]) == 1


def external(folder: Path) -> None:
    made = onnx.load(folder / "node.onnx")
    tensor = helper.make_tensor("x0", TensorProto.FLOAT, [1], [0.0])
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    made.graph.initializer.append(tensor)
    (folder / "node.onnx").write_bytes(made.SerializeToString())


def another_operator(folder: Path) -> None:
    made = onnx.load(folder / "node.onnx")
    made.graph.node[0].op_type = "Exp"
    (folder / "node.onnx").write_bytes(made.SerializeToString())


def a_library(folder: Path) -> None:
    made = onnx.load(folder / "node.onnx")
    made.graph.node[0].domain = "ai.onnx.contrib"
    (folder / "node.onnx").write_bytes(made.SerializeToString())
    document = json.loads((folder / "capsule.json").read_text())
    document["operation"]["domain"] = "ai.onnx.contrib"
    (folder / "capsule.json").write_text(json.dumps(document))


def two_nodes(folder: Path) -> None:
    made = onnx.load(folder / "node.onnx")
    made.graph.node.append(made.graph.node[0])
    (folder / "node.onnx").write_bytes(made.SerializeToString())


def no_model(folder: Path) -> None:
    (folder / "node.onnx").write_bytes(b"\xff" * 40)


@pytest.mark.parametrize(
    "harm", [external, another_operator, a_library, two_nodes, no_model], ids=lambda harm: harm.__name__
)
def test_a_hostile_node_is_refused_in_one_line(
    harm: object, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    model("net.onnx")
    assert main(["onnx", "net.onnx", "-i", "inputs.npz", "--capsule", "c", "--quiet"]) == 1
    assert callable(harm)
    harm(Path("c"))
    capsys.readouterr()
    assert main(["replay", "c"]) == 2
    assert capsys.readouterr().err == snapshot
