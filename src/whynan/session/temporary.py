"""Temporary folders that go with the process that made them, if it is killed by the next that makes one."""

# pyright: strict

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType

PREFIX: Final = "whynan-"
OWNED: Final = "owner.lock"
"""Locked for as long as the process lives that made a folder: the system lets go of it, however the process ends."""


class Folder:
    """A temporary folder, for its owner only; those that processes of the same user have left are cleared away first.

    Raises ``OSError`` where none can be made.
    """

    def __init__(self) -> None:
        clear_away()
        self.name = tempfile.mkdtemp(prefix=PREFIX)
        self._remove = weakref.finalize(self, _removed, self.name, _owned(self.name))

    def cleanup(self) -> None:
        """Remove it, with all that it holds."""
        self._remove()

    def __enter__(self) -> str:
        return self.name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cleanup()


def clear_away() -> None:
    """Remove the folders of processes that are gone."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        for entry in list(os.scandir(tempfile.gettempdir())):
            if entry.name.startswith(PREFIX):
                with suppress(OSError):
                    _clear(entry)


def _clear(entry: os.DirEntry[str]) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    known = entry.stat(follow_symlinks=False)
    private = known.st_uid == os.geteuid() and not known.st_mode & 0o077
    if not stat.S_ISDIR(known.st_mode) or not private:
        return
    lock = os.open(os.path.join(entry.path, OWNED), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # refused where somebody has it
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(lock)


def _owned(folder: str) -> int | None:
    """Lock a folder; None where that cannot be done, and nobody will clear it away."""
    if sys.platform == "win32":
        return None
    import fcntl

    # under another name until it is locked: what is called so and is not locked has no owner any more
    made = Path(folder, f".{OWNED}")
    try:
        lock = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        made.rename(Path(folder, OWNED))
    except OSError:
        os.close(lock)
        return None
    return lock


def _removed(folder: str, lock: int | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        os.close(lock)
