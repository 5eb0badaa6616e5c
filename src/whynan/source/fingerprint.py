"""What a source file was during the run: its SHA-256."""

# pyright: strict

from __future__ import annotations

import hashlib
import os


def sha256_of(file: str | os.PathLike[str]) -> str | None:
    """The SHA-256 of a file in hexadecimal; None where there is no such regular file, or none that may be read."""
    if not os.path.isfile(file):
        return None
    try:
        with open(file, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError:
        return None
