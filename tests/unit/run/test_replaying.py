"""A capsule run again: the bad number is there, with the same bits and the same explanation; or it is said that not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

import whynan
from tests.unit.capsule.packed import RUNS, backward, in_place, packed
from whynan.capsule import open_capsule
from whynan.cli.main import main
from whynan.errors import UsageError
from whynan.report.json import parse_report
from whynan.run.capsule import replay as replaying
from whynan.run.capsule.replay import SAME_BITS, replay_capsule


def change(folder: Path, edit: object) -> None:
    """Edit the document of a capsule."""
    assert callable(edit)
    path = folder / "capsule.json"
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("name", RUNS)
def test_it_is_reproduced_bit_by_bit_and_explained_as_before(name: str, tmp_path: Path) -> None:
    first = packed(RUNS[name], tmp_path / "c").findings[0]
    report = replay_capsule(str(tmp_path / "c"))
    assert report.verdict == "nonfinite"
    assert report.run.exit_status.whynan == 1
    assert SAME_BITS in report.coverage.typed_notes
    (found,) = report.findings
    assert (found.rule, found.op, found.site) == (first.rule, first.op, first.site)
    assert (found.message, found.explanation) == (first.message, first.explanation)
    for told in ("index", "output", "list_index", "shape", "dtype", "count", "total"):
        assert getattr(found.element, told) == getattr(first.element, told), told
    assert [o.value for o in found.element.operands] == [
        a.value if b.value is not None else None
        for a, b in zip(first.element.operands, found.element.operands, strict=True)
    ]


def healed(folder: Path) -> None:
    """Make the bad operand of `in_place` a good one."""
    tensors = folder / "operands.safetensors"
    data = bytearray(tensors.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    first = begin + json.loads(data[8:begin])["0"]["data_offsets"][0]
    data[first : first + 12] = torch.tensor([1.0, 0.0, 4.0]).numpy().tobytes()
    tensors.write_bytes(data)


def test_what_is_not_reproduced_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    packed(in_place, tmp_path / "c")
    healed(tmp_path / "c")
    capsys.readouterr()
    assert main(["replay", str(tmp_path / "c")]) == 0
    assert capsys.readouterr().out == snapshot


def test_the_report_of_a_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    packed(backward, tmp_path / "c")
    capsys.readouterr()
    assert main(["replay", str(tmp_path / "c")]) == 1
    shown = re.sub(r"\S*packed\.py", "packed.py", capsys.readouterr().out)
    shown = re.sub(r"whynan \d\S+ · torch \d\S+", "whynan · torch", shown)
    assert shown == snapshot


def test_the_document_of_a_replay_is_a_report(tmp_path: Path) -> None:
    packed(backward, tmp_path / "c")
    out = tmp_path / "again.json"
    assert main(["replay", str(tmp_path / "c"), "--quiet", "--json", str(out)]) == 1
    assert parse_report(out.read_bytes()).findings[0].rule == "WN301"


def test_another_version_and_another_device_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    packed(in_place, tmp_path / "c")
    change(tmp_path / "c", lambda d: [layout.update(device="cuda:1") for layout in d["layouts"].values()])
    monkeypatch.setattr(replaying, "versions", lambda: {"torch": "9.9"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    notes = replay_capsule(str(tmp_path / "c")).coverage.notes
    assert [re.sub(r"was \d\S*", "was V", note) for note in notes] == snapshot


def test_what_decides_of_numbers_is_put_back(tmp_path: Path) -> None:
    packed(RUNS["drawn"], tmp_path / "c")
    change(tmp_path / "c", lambda d: d["operation"]["state"].update(threads=3, default_dtype="float64"))
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    assert replay_capsule(str(tmp_path / "c")).verdict == "nonfinite"
    assert torch.get_num_threads() == threads
    assert torch.get_default_dtype() is torch.float32
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.process
def test_the_script_runs_only_where_it_is_asked_for(tmp_path: Path) -> None:
    packed(in_place, tmp_path / "c")
    sign = tmp_path / "ran"
    (tmp_path / "c" / "repro.py").write_text(f"open({str(sign)!r}, 'w').close()")
    assert main(["replay", str(tmp_path / "c"), "--quiet"]) == 1
    assert not sign.exists()
    assert main(["replay", str(tmp_path / "c"), "--quiet", "--run-script"]) == 1
    assert sign.exists()


@pytest.mark.process
def test_a_script_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    packed(in_place, Path("c"))
    Path("c", "repro.py").write_text("raise SystemExit(5)")
    assert main(["replay", "c", "--quiet", "--run-script"]) == 2


def test_a_capsule_without_an_operation_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(tmp_path)
    x = torch.full((64, 64), 3e38)
    whynan.explain(lambda: x @ x, capsule="c", memory=1000)
    capsys.readouterr()
    assert main(["replay", "c"]) == 2
    assert capsys.readouterr().err == snapshot


LIBRARY = """
import torch

library = torch.library.Library("{name}", "DEF")
library.define("half_log(Tensor x) -> Tensor")
library.impl("half_log", lambda x: 0.5 * x.log(), "CompositeExplicitAutograd")
"""


def test_an_operator_of_a_library_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("kernels_for_replay.py").write_text(LIBRARY.format(name="whynan_replay"))
    import importlib

    kernels = importlib.import_module("kernels_for_replay")
    op = torch.ops.whynan_replay.half_log
    packed(lambda: op(torch.zeros(2)), Path("c"))
    assert open_capsule("c").document.why is None
    capsys.readouterr()
    assert main(["replay", "c", "--import", "kernels_for_replay"]) == 1
    assert "whynan_replay.half_log.default" in capsys.readouterr().out
    assert "# first import what registers the operators of whynan_replay" in Path("c", "repro.py").read_text()
    assert len(Path("c", "repro.py").read_text().splitlines()) <= 30
    kernels.library._destroy()
    assert main(["replay", "c"]) == 2
    assert capsys.readouterr().err == snapshot
    assert main(["replay", "c", "--import", "no_such_module"]) == 2
    assert capsys.readouterr().err == snapshot(name="module")


def test_the_report_is_not_written_into_the_capsule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    packed(in_place, Path("c"))
    before = Path("c", "report.json").read_bytes()
    assert main(["replay", "c", "--json", "c/report.json"]) == 2
    assert Path("c", "report.json").read_bytes() == before


def test_redacted_it_shows_no_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed(in_place, tmp_path / "c")
    capsys.readouterr()
    assert main(["replay", str(tmp_path / "c"), "--redact"]) == 1
    shown = capsys.readouterr().out
    assert "in_place" not in shown
    assert str(tmp_path) not in shown


BROADCAST = [
    {"kind": "tensor", "name": "0"},
    *({"kind": "list", "values": [{"kind": "int", "value": value}]} for value in (300, 5)),
]
HOSTILE = {
    "from_file": lambda d: d["operation"].update(op="aten.from_file.default", args=[]),
    "not_an_operator": lambda d: d["operation"].update(op="os.system.default"),
    "dunder": lambda d: d["operation"].update(op="aten.__class__.__init__"),
    "dots": lambda d: d["operation"].update(op="aten.log"),
    "unknown": lambda d: d["operation"].update(op="aten.no_such_operator.default"),
    "other_arguments": lambda d: d["operation"].update(args=[]),
    "a_dtype_that_is_none": lambda d: d["operation"].update(kwargs={"dtype": {"kind": "dtype", "value": "load"}}),
    "strides": lambda d: d["layouts"]["0"].update(stride=[1 << 60]),
    "negative_strides": lambda d: d["layouts"]["0"].update(stride=[-1]),
    "rank": lambda d: d["layouts"]["0"].update(stride=[1, 1]),
    "size": lambda d: d["layouts"]["0"].update(shape=[300]),
    "huge_by_repetition": lambda d: d["layouts"]["0"].update(shape=[3, 1 << 39], stride=[1, 0]),
    "a_type_of_numbers": lambda d: d["layouts"]["0"].update(dtype="load"),
    "a_missing_tensor": lambda d: d["layouts"].update(more=d["layouts"]["0"]),
    "a_missing_result": lambda d: d["operation"].update(results=["9"]),
    "a_result_that_is_none": lambda d: d["operation"].update(bad=7),
    "finding": lambda d: d.update(finding=3),
    "schema": lambda d: d.update(schema="whynan.capsule/2"),
    "more": lambda d: d.update(run="rm -rf /"),
    "threads": lambda d: d["operation"]["state"].update(threads=0),
    "a_precision": lambda d: d["operation"]["state"].update(matmul_precision="\x1b[31mhigh"),
    "what_an_operator_asserts": lambda d: d["operation"].update(op="prims.broadcast_in_dim.default", args=BROADCAST),
    "a_default_type": lambda d: d["operation"]["state"].update(default_dtype="nn"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_refused_in_one_line(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.chdir(tmp_path)
    packed(in_place, Path("c"))
    change(Path("c"), HOSTILE[name])
    capsys.readouterr()
    assert main(["replay", "c"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert re.sub(r"PyTorch \d\S+", "PyTorch V", shown.err) == snapshot


def link(folder: Path) -> None:
    (folder / "operands.safetensors").rename(folder.parent / "elsewhere")
    (folder / "operands.safetensors").symlink_to(folder.parent / "elsewhere")


def long_header(folder: Path) -> None:
    (folder / "operands.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")


def cut_short(folder: Path) -> None:
    data = (folder / "operands.safetensors").read_bytes()
    (folder / "operands.safetensors").write_bytes(data[:-1])


def no_json(folder: Path) -> None:
    (folder / "capsule.json").write_text('{"schema": "whynan.capsule/1", "schema": "x"}')


def no_report(folder: Path) -> None:
    (folder / "report.json").unlink()


def another_report(folder: Path) -> None:
    (folder / "report.json").write_text("{}")


def a_script_by_link(folder: Path) -> None:
    (folder / "repro.py").unlink()
    (folder / "repro.py").symlink_to("/etc/passwd")


def visits_by_link(folder: Path) -> None:
    (folder / "visits").symlink_to(folder.parent)


FOLDERS = {
    f.__name__: f
    for f in (link, long_header, cut_short, no_json, no_report, another_report, a_script_by_link, visits_by_link)
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_hostile_folder_is_refused_in_one_line(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.chdir(tmp_path)
    packed(in_place, Path("c"))
    FOLDERS[name](Path("c"))
    capsys.readouterr()
    assert main(["replay", "c"]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert shown.err == snapshot


@pytest.mark.parametrize("name", ["nowhere", "a_file", "a_link"])
def test_what_is_no_folder_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    packed(in_place, Path("c"))
    Path("a_file").write_text("x")
    Path("a_link").symlink_to("c")
    with pytest.raises(UsageError):
        replay_capsule(name)
