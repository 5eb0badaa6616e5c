"""What a source file was, as its hash."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from whynan.source import sha256_of


def test_the_hash_is_of_the_bytes(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_bytes(b"x = 1\r\n")
    assert sha256_of(file) == hashlib.sha256(b"x = 1\r\n").hexdigest()
    before = sha256_of(str(file))
    file.write_bytes(b"x = 1\n")
    assert sha256_of(str(file)) != before


@pytest.mark.parametrize("name", ["<string>", "missing.py", "", "."])
def test_what_is_no_file_has_no_hash(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sha256_of(name) is None


def test_an_unreadable_file_has_no_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "program.py"
    file.write_bytes(b"x = 1\n")

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert sha256_of(file) is None
