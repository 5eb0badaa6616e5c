"""What the options of ``whynan onnx`` ask for is done, or refused in a line with nothing written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from syrupy.assertion import SnapshotAssertion

from tests.integration.onnx_command import model
from whynan.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, and what was written to both streams, of `whynan onnx` with arguments."""
    status = main(["onnx", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Names are relative, so that messages are the same everywhere."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def weighted(folder: Path) -> str:
    """A model whose weights lie in a file beside it."""
    name = model(folder, [helper.make_node("Mul", ["x", "w"], ["out"], "/Mul")], "x", "out")
    made = onnx.load(folder / name)
    made.graph.initializer.append(numpy_helper.from_array(np.ones((2, 3), np.float32), "w"))
    onnx.save(made, folder / name, save_as_external_data=True, location="small.data", size_threshold=0)
    return name


def filled(folder: Path) -> list[str]:
    """A folder with all that a run may read; the names of the files."""
    weighted(folder)
    sets = folder / "sets" / "test_data_set_0"
    sets.mkdir(parents=True)
    x = np.ones((2, 3), np.float32)
    (sets / "input_0.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
    np.save(folder / "x.npy", x)
    np.savez(folder / "x.npz", x=x)
    (folder / "map.json").write_text("{}", encoding="utf-8")
    os.symlink("small.data", folder / "link")
    os.link(folder / "x.npy", folder / "second")
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


LOST = {
    "the model": ["--random", "0", "--csv", "small.onnx"],
    "weights": ["--random", "0", "--csv", "small.data"],
    "weights, through a link": ["--random", "0", "--csv", "link"],
    "weights, to a report": ["--random", "0", "--json", "small.data"],
    "an input": ["-i", "x=x.npy", "--csv", "x.npy"],
    "an input by a second name": ["-i", "x=x.npy", "--csv", "second"],
    "an archive": ["-i", "x.npz", "--csv", "x.npz"],
    "a test data set": ["-i", "sets", "--csv", "sets/test_data_set_0/input_0.pb"],
    "a baseline": ["--random", "0", "--baseline", "map.json", "--csv", "map.json"],
    "another output": ["--random", "0", "--json", "new", "--csv", "./new"],
}


@pytest.mark.process
@pytest.mark.parametrize("name", LOST)
def test_no_output_takes_the_place_of_what_is_needed(
    name: str, here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    names = filled(here)
    before = {held: (here / held).read_bytes() for held in names if (here / held).is_file()}
    status, out, err = run(capsys, "small.onnx", *LOST[name])
    assert (status, out) == (2, "")
    assert err == snapshot
    assert sorted(str(path.relative_to(here)) for path in here.rglob("*")) == names
    assert {held: (here / held).read_bytes() for held in before} == before


@pytest.mark.process
def test_outputs_beside_what_is_read_are_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(here)
    table = here / "sets" / "test_data_set_0" / "ranges.csv"
    table.write_text("of a run before", encoding="utf-8")
    assert run(capsys, "small.onnx", "-i", "sets", "--csv", str(table), "--quiet") == (0, "", "")
    assert table.read_text(encoding="utf-8").startswith("event,node")


@pytest.mark.parametrize("option", ["--sidecar", "--map"])
def test_an_option_that_is_gone_says_so(
    option: str, here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    status, out, err = run(capsys, weighted(here), "--random", "0", option, "map.json")
    assert (status, out) == (2, "")
    assert err == snapshot
    assert not (here / "map.json").exists()


ONNX_RUNTIME = {
    "a level": ["--level", "basic"],
    "a provider": ["--provider", "CPU"],
    "the optimized graph": ["--graph", "optimized"],
    "several": ["--level", "all", "--threads", "2", "--session-config", "a=b"],
}


@pytest.mark.process
@pytest.mark.parametrize("name", ONNX_RUNTIME)
def test_the_reference_evaluator_takes_no_option_of_onnx_runtime(
    name: str, here: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    arguments = [weighted(here), "--random", "0", "--engine", "reference", *ONNX_RUNTIME[name]]
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err == snapshot


@pytest.mark.process
def test_the_reference_evaluator_takes_the_graph_as_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-i", "x=ones", "--engine", "reference", "--graph", "original", "--quiet"]
    assert run(capsys, weighted(here), *arguments) == (0, "", "")


@pytest.mark.process
def test_memory_that_was_not_enough_is_noted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = weighted(here)
    notes: list[list[str]] = []
    for memory in ("10KB", "100GB"):
        status, _, _ = run(capsys, name, "-i", "x=ones", "--memory", memory, "--json", "r.json", "--quiet")
        assert status == 0
        told = json.loads((here / "r.json").read_text(encoding="utf-8"))["coverage"]["notes"]
        notes.append([note for note in told if "--memory could not be kept" in note])
    assert [len(found) for found in notes] == [1, 0]
    assert notes[0][0].endswith("MB, and was to stay within 0.01 MB")
