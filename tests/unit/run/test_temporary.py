"""Temporary folders: what a process that was killed has left is cleared away by the next one, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from whynan.run.onnx.engines import OWNED, Folder, clear_away

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="locks as POSIX has them")
HOLDER = """
import sys
from whynan.run.onnx.engines import Folder
held = Folder()
open(held.name + "/large.bin", "w").close()
print(held.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for what is temporary, of this test alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def holder() -> tuple[subprocess.Popen[str], Path]:
    """A process that has a folder, until it is killed or its input ends."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_is_its_owners_and_goes_with_all_that_it_holds(place: Path) -> None:
    with Folder() as name:
        assert Path(name).parent == place
        assert Path(name).stat().st_mode & 0o777 == 0o700
        assert (Path(name) / OWNED).stat().st_mode & 0o777 == 0o600
        (Path(name) / "sub").mkdir()
    assert list(place.iterdir()) == []


@pytest.mark.process
def test_what_a_killed_process_has_left_goes_with_the_next(place: Path) -> None:
    process, left = holder()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert sorted(p.name for p in left.iterdir()) == ["large.bin", OWNED]
    with Folder():
        assert not left.exists()
    assert list(place.iterdir()) == []


@pytest.mark.process
def test_the_folder_of_a_living_process_stays() -> None:
    process, kept = holder()
    with Folder():
        assert (kept / "large.bin").exists()
    process.communicate()
    assert not kept.exists()


def test_nothing_else_is_cleared_away(place: Path) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir(0o700)
    (elsewhere / OWNED).touch()
    (place / "whynan-link").symlink_to(elsewhere)
    for name, mode in (("whynan-open", 0o755), ("other", 0o700)):
        (place / name).mkdir(mode)
        (place / name / OWNED).touch()
    (place / "whynan-bare").mkdir(0o700)
    (place / "whynan-file").touch()
    lured = place / "whynan-lured"
    lured.mkdir(0o700)
    (lured / OWNED).symlink_to(elsewhere / OWNED)
    before = set(place.rglob("*"))
    clear_away()
    assert set(place.rglob("*")) == before


def test_a_folder_that_nobody_cleans_up_goes_with_its_object(place: Path) -> None:
    held = Folder()
    assert os.listdir(place) != []
    del held
    assert list(place.iterdir()) == []
