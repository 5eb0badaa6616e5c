"""A pickle scanner: an unpickler to which every class and function is a recorder of how its objects are filled."""

# pyright: strict

from __future__ import annotations

import pickle

# what Python 3 calls the modules that a pickle of protocol 2 names as Python 2 did
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import IO, Any, ClassVar, Final, Literal, TypeAlias, cast

Kind: TypeAlias = Literal["object", "mapping", "sequence", "tensor", "wrapper"]
"""What the objects of a class are used as; a ``wrapper`` is a tensor that holds its elements in other tensors."""

# its memory follows the file's size; that of the one in C follows the numbers in the file
_Unpickler = pickle._Unpickler  # pyright: ignore[reportPrivateUsage]


# an extension may be a function that this process has loaded; a bytearray takes its memory before it is read
_REFUSED: Final = b"".join((pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.BYTEARRAY8))


def kinds(file: IO[bytes]) -> dict[str, Kind]:
    """What each class or function that one pickle names is used for; the file is left behind the pickle.

    A pickle that is broken gives what was seen before its fault.
    """
    scanner = _Scanner(cast("IO[bytes]", SimpleNamespace(read=file.read, readline=partial(_line, file))))
    # a file that was altered can make the unpickler fail anywhere
    with suppress(Exception):
        scanner.load()
    return scanner.kinds


def _line(file: IO[bytes]) -> bytes:
    """A whole line; what is cut off is no name."""
    line = file.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line


class _Recorder:
    """An object of a class that is not loaded, or what a function would have returned."""

    name: ClassVar[str] = ""
    kinds: ClassVar[dict[str, Kind]] = {}
    WRAPPED: Final = "torch._utils._rebuild_wrapper_subclass"
    TYPED: Final = "torch._tensor._rebuild_from_type_v2"

    def __new__(cls, *arguments: Any) -> _Recorder:
        match cls.name, arguments:
            case _Recorder.WRAPPED, (made, *_):
                cls.kinds[made.name] = "wrapper"
            case _Recorder.TYPED, (function, made, *_):
                cls.kinds[made.name] = "wrapper" if function.name == cls.WRAPPED else "tensor"
            case _:
                pass
        return super().__new__(cls)

    def __call__(self, *_: Any) -> _Recorder:
        """What is called may have been made, too."""
        return _Recorder()

    def __setstate__(self, _: Any) -> None:
        """The state is of no interest."""

    def __setitem__(self, key: Any, value: Any) -> None:
        self._filled("mapping")

    def extend(self, _: Any) -> None:
        """Items are appended."""
        self._filled("sequence")

    append = extend

    def _filled(self, kind: Kind) -> None:
        if self.kinds.get(self.name) == "object":
            self.kinds[self.name] = kind


class _Scanner(_Unpickler):
    """An unpickler that hands out recorders only."""

    dispatch: ClassVar[dict[int, Any]] = {
        code: load for code, load in cast("Any", _Unpickler).dispatch.items() if code not in _REFUSED
    }

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, encoding="latin1")
        self.kinds: dict[str, Kind] = {}
        self._recorders: dict[str, type[_Recorder]] = {}

    def find_class(self, module: str, name: str) -> type[_Recorder]:
        """A recorder under the name that Python 3 knows."""
        # torch knows some of the old names only
        self.kinds.setdefault(f"{module}.{name}", "object")
        known = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        full = ".".join(known)
        self.kinds.setdefault(full, "object")
        if full not in self._recorders:
            self._recorders[full] = type("Recorder", (_Recorder,), {"name": full, "kinds": self.kinds})
        return self._recorders[full]

    def persistent_load(self, pid: Any) -> _Recorder:
        """A storage of a tensor; old files keep classes so, too."""
        return _Recorder(pid)
