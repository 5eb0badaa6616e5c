"""A patch is one that git applies, and gives the text that it was made for."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.unit.fixes.python.mended import LOG_SOFTMAX, function, mended
from whynan.fixes.python import patch

if TYPE_CHECKING:
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

TEXT = function("p = x.softmax(-1)\n\n\n\n\n\n\nreturn p.log()")
CHANGES = {
    "plain": (TEXT, TEXT.replace("p.log()", "x.log_softmax(-1)")),
    "CRLF": (TEXT.replace("\n", "\r\n"), TEXT.replace("p.log()", "x.log_softmax(-1)").replace("\n", "\r\n")),
    "no end of the last line": (TEXT.rstrip("\n"), TEXT.replace("p.log()", "x.log_softmax(-1)").rstrip("\n")),
    "an end of the last line, new": (TEXT.rstrip("\n"), TEXT),
    "two places": (TEXT, TEXT.replace("p.log()", "y").replace("import torch\n", "import torch\nimport math\n")),
    "bytes of several letters": (f"# ÄÖÜ😀\n{TEXT}", f"# ÄÖÜ\n{TEXT}"),
    "a form feed and a separator": (f"\x0c\n'\x1c\u2028'\n{TEXT}", f"\x0c\n'\x1c\u2028!'\n{TEXT}"),
    "from nothing": ("", TEXT),
}
NAMES = ["m.py", "a folder/m.py", "größe/m.py", 'with"quote.py']


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", CHANGES)
def test_git_applies_it(change: str, name: str, tmp_path: Path) -> None:
    before, after = CHANGES[change]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(before.encode())
    (tmp_path / "my.diff").write_bytes(patch(name, before, after).encode())
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for arguments in (["--check"], []):
        subprocess.run(["git", "apply", *arguments, "my.diff"], cwd=tmp_path, check=True, capture_output=True)
    assert path.read_bytes() == after.encode()


def test_no_change_is_no_patch() -> None:
    assert patch("m.py", TEXT, TEXT) == ""


def test_a_patch_reads_as_diffs_do(snapshot: SnapshotAssertion) -> None:
    assert patch("m.py", TEXT, mended(TEXT, "p.log()", LOG_SOFTMAX).edited) == snapshot
