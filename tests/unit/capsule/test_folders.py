"""The place of a capsule: refused before the run where it is taken, and never half written."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

import whynan
from tests.unit.capsule.packed import in_place, packed
from whynan.capsule import folder as folders
from whynan.capsule import open_capsule, packing
from whynan.config import Options
from whynan.errors import UsageError
from whynan.run.options import check


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["full", "file", "link", "below"])
def test_a_place_that_is_taken_is_refused_before_the_run(kind: str, here: Path, snapshot: SnapshotAssertion) -> None:
    Path("full").mkdir()
    Path("full", "notes.txt").write_text("mine")
    Path("file").write_text("mine")
    Path("empty").mkdir()
    Path("link").symlink_to("empty")
    place = {"below": "nowhere/c"}.get(kind, kind)
    called: list[int] = []
    with pytest.raises(UsageError) as caught:
        whynan.explain(lambda: called.append(1), capsule=place)
    assert str(caught.value).replace(str(here), "HERE") == snapshot
    assert not called
    with pytest.raises(UsageError):
        check(Options(capsule=place))
    assert sorted(os.listdir()) == ["empty", "file", "full", "link"]


def test_it_is_not_the_folder_of_the_trace(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UsageError) as caught:
        check(Options(capsule="c", trace="./c"))
    assert str(caught.value) == snapshot
    assert os.listdir() == []


def test_an_empty_folder_is_taken() -> None:
    Path("c").mkdir()
    packed(in_place, Path("c"))
    assert open_capsule("c").finding.rule == "WN302"


def test_what_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    def full(folder: str, name: str, data: bytes) -> None:
        if name == folders.TENSORS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        folders.write_private(folder, name, data)

    monkeypatch.setattr(packing, "write_private", full)
    report = packed(in_place, Path("c"))
    assert os.listdir() == []
    assert report.run.data is None
    assert [note for note in report.coverage.notes if "capsule" in note] == snapshot


@pytest.fixture
def tiny(here: Path) -> Iterator[Path]:
    """A file system of 16 KiB; skipped where none can be mounted."""
    place = here / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_takes_the_capsule_and_not_the_report(tiny: Path, snapshot: SnapshotAssertion) -> None:
    x = torch.zeros(100, 100)
    report = whynan.explain(lambda: x.log(), capsule=Path("disk", "c"))
    assert report.findings[0].rule == "WN201"
    assert os.listdir(tiny) == []
    assert [note for note in report.coverage.notes if "capsule" in note] == snapshot


def test_a_configuration_that_is_found_names_no_folder(here: Path) -> None:
    Path("pyproject.toml").write_text('[tool.whynan]\ncapsule = "c"\n')
    with pytest.raises(UsageError, match="capsule is no option there"):
        Options.load(directory=here, environment={})
    assert Options.load(environment={"WHYNAN_CAPSULE": "c"}, directory=Path("/")).capsule == "c"


def test_an_error_of_ours_leaves_the_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("ours")

    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    monkeypatch.setattr("whynan.capsule.content_of", fail)
    with pytest.warns(RuntimeWarning, match="whynan met an error of its own"):
        report = packed(in_place, Path("c"))
    assert report.findings[0].rule == "WN302"
    assert os.listdir() == []
