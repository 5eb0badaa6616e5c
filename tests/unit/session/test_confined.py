"""A confined process changes no file but in its folder, whatever code tries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whynan.session import confined

CODE = """
import ctypes, os, socket, sys
from whynan.session.confined import confine
own, other = sys.argv[1:]
confine(own)
open(os.path.join(own, "new"), "w").write("x")
os.rename(os.path.join(own, "new"), os.path.join(own, "newer"))
open(os.devnull, "w").write("x")
C = ctypes.CDLL(None)
kept = os.fsencode(os.path.join(other, "kept"))
for act in (
    lambda: os.remove(kept),
    lambda: os.truncate(kept, 0),
    lambda: os.mkdir(os.path.join(other, "folder")),
    lambda: os.rename(kept, kept + b"2"),
    lambda: os.symlink(kept, kept + b"2"),
    lambda: os.kill(os.getppid(), 0),
):
    try:
        act()
    except OSError:
        continue
    print("not refused")
print(C.open(kept, os.O_WRONLY | os.O_TRUNC), C.system(b"echo x 2>/dev/null >> " + kept) != 0, open(kept).read())
"""


@pytest.mark.process
@pytest.mark.skipif(confined.version() < 6, reason="of Linux's Landlock")
def test_nothing_outside_of_its_folder_is_changed(tmp_path: Path) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "kept").write_text("as it was")
    command = [sys.executable, "-c", CODE, str(tmp_path / "own"), str(tmp_path / "other")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("-1 True as it was\n", 0), done.stderr
    assert [p.name for p in (tmp_path / "other").iterdir()] == ["kept"]
    assert (tmp_path / "own" / "newer").exists()


def test_where_that_cannot_be_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert confined.version() == 0
    with pytest.raises(OSError, match="no Landlock"):
        confined.confine(str(tmp_path))
