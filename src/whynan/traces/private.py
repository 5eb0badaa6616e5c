"""Files that only their owner can read."""

# pyright: strict

from __future__ import annotations

import os


def private(path: str, flags: int) -> int:
    """An ``opener`` for ``open``: a new file is its owner's alone, and through a link nothing is opened."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
