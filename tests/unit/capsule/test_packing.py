"""What a capsule holds: the failing operation alone, and a script that shows the bad number without whynan."""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

import whynan
from tests.selection import sampled
from tests.unit.capsule.packed import RUNS, backward, foreach_step, in_place, packed, softmax_of_a_masked_row
from whynan.capsule import open_capsule
from whynan.capsule.document import SCHEMA_FILE, Packed, make_capsule_schema
from whynan.capture.torch import kept_operations
from whynan.report.json import schema

OTHER_FOLDER = "import sys; sys.modules['whynan'] = None; import runpy; runpy.run_path(sys.argv[1])"


def shown(folder: Path) -> str:
    """What the script of a capsule prints, in a Python to which whynan is denied."""
    script = folder / "repro.py"
    result = subprocess.run(
        [sys.executable, "-c", OTHER_FOLDER, str(script)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.process
@pytest.mark.parametrize("name", sampled(RUNS, 4))
def test_the_script_alone_shows_the_bad_number(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    report = packed(RUNS[name], folder)
    held = open_capsule(folder)
    assert held.document.why is None
    assert held.finding.op == report.findings[0].op
    said = shown(folder)
    value = held.finding.element.value
    if value is None or not math.isinf(value):
        assert " nan" in said or "inf" in said
    else:
        assert f" is {value} " in said or "inf" in said
    lines = (folder / "repro.py").read_text().splitlines()
    assert len(lines) <= 30
    assert not [line for line in lines if line.startswith(("import ", "from ")) and "whynan" in line]


@pytest.mark.process
def test_a_script_without_its_bad_operand_shows_none(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    packed(in_place, folder)
    tensors = folder / "operands.safetensors"
    data = bytearray(tensors.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    first = begin + header["0"]["data_offsets"][0]
    data[first : first + 12] = torch.tensor([1.0, 0.0, 1.0]).numpy().tobytes()
    tensors.write_bytes(data)
    assert "0 of 3 are NaN or Inf" in shown(folder)


@pytest.mark.parametrize("name", RUNS)
def test_its_document_is_what_the_schema_says(name: str, tmp_path: Path) -> None:
    packed(RUNS[name], tmp_path / "c")
    Draft202012Validator(make_capsule_schema()).validate(json.loads((tmp_path / "c" / "capsule.json").read_text()))
    assert schema(SCHEMA_FILE) == make_capsule_schema()


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    packed(backward, tmp_path / "c")
    assert stat.S_IMODE(os.stat(tmp_path / "c").st_mode) == 0o700
    names = sorted(os.listdir(tmp_path / "c"))
    assert names == ["capsule.json", "operands.safetensors", "report.json", "repro.py", "source.txt"]
    assert {stat.S_IMODE(os.stat(tmp_path / "c" / name).st_mode) for name in names} == {0o600}


def test_operands_are_those_of_before_the_write(tmp_path: Path) -> None:
    packed(in_place, tmp_path / "c")
    held = open_capsule(tmp_path / "c")
    assert held.tensors["0"].data == torch.tensor([1.0, 0.0, -1.0]).numpy().tobytes()


def test_strides_are_kept(tmp_path: Path) -> None:
    packed(RUNS["transposed"], tmp_path / "c")
    layout = open_capsule(tmp_path / "c").document.layouts["0"]
    assert (layout.shape, layout.stride) == ((2, 2), (1, 2))


def test_what_is_repeated_is_stored_once(tmp_path: Path) -> None:
    packed(RUNS["repeated"], tmp_path / "c")
    held = open_capsule(tmp_path / "c")
    assert held.document.layouts["0"].shape == (3, 4)
    assert len(held.tensors["0"].data) == 4 * 4


@pytest.mark.process
def test_of_operands_that_are_too_large_the_bad_element_is_packed(tmp_path: Path) -> None:
    x = torch.ones(300, 300)
    x[17, 5] = 0
    whynan.explain(lambda: x.log(), capsule=tmp_path / "c", memory=4096)
    operation = open_capsule(tmp_path / "c").document.operation
    assert isinstance(operation, Packed)
    assert operation.cut == (17, 5)
    assert "element [0, 0] of result 0 is -inf and 1 of 1" in shown(tmp_path / "c")


@pytest.mark.process
def test_of_lists_that_are_too_large_the_bad_entry_is_packed(tmp_path: Path) -> None:
    def step() -> list[torch.Tensor]:
        parameters = [torch.nn.Parameter(torch.ones(n)) for n in (4000, 5)]
        optimizer = torch.optim.Adam(parameters, eps=0.0, foreach=True)
        parameters[0].grad, parameters[1].grad = torch.ones(4000), torch.zeros(5)
        optimizer.step()
        return [p.detach() for p in parameters]

    packed(step, tmp_path / "c", memory=2048)
    operation = open_capsule(tmp_path / "c").document.operation
    assert isinstance(operation, Packed)
    assert operation.entry == 1
    assert "5 of 5 are NaN or Inf" in shown(tmp_path / "c")


def test_what_cannot_be_made_smaller_is_said(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    x = torch.full((64, 64), 3e38)
    report = whynan.explain(lambda: x @ x, capsule=tmp_path / "c", memory=1000)
    assert open_capsule(tmp_path / "c").document.operation is None
    assert [n for n in report.coverage.notes if "capsule" in n] == snapshot


def test_an_absorbed_birth_is_passed_over(tmp_path: Path) -> None:
    def target() -> torch.Tensor:
        x = torch.tensor([1.0, 0.0])
        quotient = 1 / x
        return torch.where(x > 0, quotient, torch.zeros(2)).sum() + (x - 1).log().sum()

    report = packed(target, tmp_path / "c")
    assert [f.op for f in report.absorbed] == ["aten.reciprocal.default"]
    held = open_capsule(tmp_path / "c")
    assert held.finding.op == report.findings[0].op == "aten.log.default"
    assert isinstance(held.document.operation, Packed)
    assert held.document.operation.op == "aten.log.default"


def test_a_sparse_operand_is_said(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    def target() -> torch.Tensor:
        x = torch.sparse_coo_tensor([[0]], [-1.0], (2,), check_invariants=True)
        return x.sqrt()

    report = packed(target, tmp_path / "c")
    assert [n for n in report.coverage.notes if "capsule" in n] == snapshot


def test_a_clean_run_leaves_no_folder(tmp_path: Path) -> None:
    report = packed(lambda: torch.ones(2), tmp_path / "c")
    assert report.run.data is None
    assert not (tmp_path / "c").exists()


def test_a_bad_number_from_outside_has_no_operation(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    x = torch.tensor([torch.nan])
    report = whynan.explain(lambda: x * 2, capsule=tmp_path / "c")
    assert [n for n in report.coverage.notes if "capsule" in n] == snapshot
    assert open_capsule(tmp_path / "c").document.operation is None


@pytest.mark.parametrize("run", [backward, foreach_step], ids=["backward", "foreach"])
def test_keeping_changes_no_finding(run: object, tmp_path: Path) -> None:
    assert callable(run)
    kept, bare = packed(run, tmp_path / "c"), whynan.explain(run)
    assert [(f.rule, f.op, f.site, f.element.count) for f in kept.findings] == [
        (f.rule, f.op, f.site, f.element.count) for f in bare.findings
    ]


def test_a_number_written_by_the_program_is_a_cause_and_no_operation(tmp_path: Path) -> None:
    report = packed(softmax_of_a_masked_row, tmp_path / "c")
    assert report.findings[0].op == "aten._softmax.default"
    assert open_capsule(tmp_path / "c").document.why is None


def test_elements_that_share_memory_are_spread(tmp_path: Path) -> None:
    x = torch.arange(5.0).unfold(0, 3, 1)
    held = kept_operations.copy_tensor(x)
    assert (held.shape, held.stride) == ((3, 3), (3, 1))
    assert torch.equal(held.data, x)


@pytest.mark.process
def test_redacted_there_is_no_text_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHYNAN_REDACT", "1")
    report = packed(in_place, tmp_path / "c")
    assert "source.txt" not in os.listdir(tmp_path / "c")
    for name in ("capsule.json", "report.json", "repro.py"):
        text = (tmp_path / "c" / name).read_text()
        assert "in_place" not in text
        assert str(tmp_path) not in text
        assert "packed.py" not in text
    assert "NaN or Inf" in shown(tmp_path / "c")
    assert report.run.data is None
    assert any("values of the operation's operands" in note for note in report.coverage.notes)
