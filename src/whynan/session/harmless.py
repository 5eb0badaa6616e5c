"""What reaches the outside of a process and alters nothing there that a second run of the program would meet.

Bytecode that Python keeps; whynan's own files; workers that multiprocessing forks, and the sockets among them; a folder
that is there already; and temporary files that the process has made for itself, under names that nobody else has.
Nothing is loaded here that Python has not loaded itself.
"""

# pyright: strict

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, Final

# before the program can put others in their place
_absolute, _decoded, _is_folder, _join = os.path.abspath, os.fsdecode, os.path.isdir, os.path.join
_name, _folder = os.path.basename, os.path.dirname
_WHYNAN: Final = _join(_folder(_folder(__file__)), "")
_STDLIB: Final = _join(_folder(getattr(os, "__file__", __file__)), "")
_INSTALLED: Final = "site-packages", "dist-packages"
_TEMPORARY: Final = _join(_STDLIB, "tempfile.py")
_WORKERS: Final = _join(_STDLIB, "multiprocessing", "")
_STREAMS: Final = "/dev/stdout", "/dev/stderr"
_OF_ONE_PATH: Final[dict[str, int]] = {
    "open": -1,
    "os.remove": 1,
    "os.rmdir": 1,
    "os.truncate": -1,
    "os.chmod": 2,
    "os.utime": 3,
}
"""By event, which of its arguments is the folder that its path is seen from, if one can be."""


class Harmless:
    """Judges events of one process, and keeps in mind which temporary files are its own."""

    def __init__(self) -> None:
        self._made: list[str] = []

    def __call__(self, event: str, args: tuple[Any, ...], frame: FrameType | None) -> bool:
        """Whether an event that comes from a frame is one of those."""
        if frame is None or frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        by = _by(frame)
        judge = _JUDGES.get(event)
        # tried: whether a folder can be written to, in a file that is gone at once
        if by.whynan or by.trying or (judge is not None and judge(args, by)):
            return True
        return self._is_temporary(event, args, by)

    def _is_temporary(self, event: str, args: tuple[Any, ...], by: _By) -> bool:
        if event == "os.rename":
            return all(at == -1 for at in args[2:4]) and self._is_own(args[0]) and self._is_own(args[1])
        if event == "os.mkdir":
            return args[2] == -1 and (self._is_own(args[0]) or self._is_made(args[0], by))
        at = _OF_ONE_PATH.get(event)
        if at is None:
            return False
        if at != -1 and args[at] != -1:
            # cleared away folder by folder
            return by.tempfile
        return self._is_own(args[0]) or (event == "open" and self._is_made(args[0], by))

    def _is_made(self, path: Any, by: _By) -> bool:
        """Whether `tempfile` makes it, under a new name in the temporary folder; it is kept in mind then."""
        if not by.tempfile:
            return False
        place = _absolute(_decoded(path))
        if not place.startswith(_join(_temporary(), "")):
            return False
        self._made.append(place)
        return True

    def _is_own(self, path: Any) -> bool:
        if isinstance(path, int) or not self._made:
            return False
        place = _absolute(_decoded(path))
        return any(place == made or place.startswith(_join(made, "")) for made in self._made)


class _By:
    """By whom it is done: what stands between the event and the first frame that is not the standard library's."""

    whynan = tempfile = trying = workers = False


def _by(frame: FrameType | None) -> _By:
    by = _By()
    while frame is not None and _is_python(frame.f_code.co_filename):
        name = frame.f_code.co_filename
        by.tempfile = by.tempfile or name == _TEMPORARY
        by.trying = by.trying or (name == _TEMPORARY and frame.f_code.co_name == "_get_default_tempdir")
        by.workers = by.workers or name.startswith(_WORKERS)
        frame = frame.f_back
    by.whynan = frame is not None and frame.f_code.co_filename.startswith(_WHYNAN)
    return by


def _is_python(name: str) -> bool:
    return name.startswith("<frozen ") or (name.startswith(_STDLIB) and not any(part in name for part in _INSTALLED))


def _temporary() -> str:
    module: Any = sys.modules.get("tempfile")
    folder = getattr(module, "tempdir", None)
    return _absolute(_decoded(folder)) if isinstance(folder, str | bytes) else os.sep


def place_of(frame: FrameType | None) -> tuple[str, int]:
    """File and line of the innermost frame of the user's code; of the innermost of all where there is none."""
    if frame is None:
        return "?", 0
    first = frame.f_code.co_filename, frame.f_lineno
    while frame is not None:
        name = frame.f_code.co_filename
        if not _is_python(name) and not name.startswith(_WHYNAN) and not any(part in name for part in _INSTALLED):
            return name, frame.f_lineno
        frame = frame.f_back
    return first


def _a_folder(args: tuple[Any, ...], by: _By) -> bool:
    del by
    path, at = _decoded(args[0]), args[2]
    if at != -1:
        return False
    # of the compiler, made as torch's optimizers are loaded
    compilers = _name(path).startswith("torchinductor_") and _absolute(path).startswith(_join(_temporary(), ""))
    return _is_folder(path) or compilers


def _an_open(args: tuple[Any, ...], by: _By) -> bool:
    del by
    # a descriptor is of what has been opened before: what was inherited, a second run does not have
    return isinstance(args[0], int) or args[0] in _STREAMS


def _among_workers(args: tuple[Any, ...], by: _By) -> bool:
    del args
    return by.workers


def _a_local_socket(args: tuple[Any, ...], by: _By) -> bool:
    return by.workers and isinstance(args[1], str | bytes)


def _an_answer(args: tuple[Any, ...], by: _By) -> bool:
    # by a socket that is connected
    return by.workers or args[1] is None


_JUDGES: Final[dict[str, Callable[[tuple[Any, ...], _By], bool]]] = {
    "open": _an_open,
    "os.mkdir": _a_folder,
    "os.fork": _among_workers,
    "os.kill": _among_workers,
    "socket.bind": _a_local_socket,
    "socket.connect": _a_local_socket,
    "socket.sendto": _an_answer,
    "socket.sendmsg": _an_answer,
}
