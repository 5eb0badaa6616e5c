"""Pickles, told from their instructions without running them, with stand-ins for the classes that they name."""

from __future__ import annotations

import pickle
import re
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import IO, Any, ClassVar, Final, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

# -- A pickle scanner: an unpickler to which every class and function is a recorder of how its objects are filled ------


# what Python 3 calls the modules that a pickle of protocol 2 names as Python 2 did

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


# -- Stand-ins for the classes that a checkpoint names: they take what a pickle gives them, and do nothing -------------


class StandIn:
    """An object of a class that is not loaded: what it would have been made from, and its state."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name = name
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def as_subclass(self, _: type) -> StandIn:
        """What torch asks of a tensor, where a function that is not loaded would have made one."""
        return self


ARGUMENTS: Final = "(arguments)"
"""Under this name a mapping keeps what it was made from, beside its items."""


class Wrapper(torch.Tensor):
    """A tensor of a class that is not loaded; it holds its elements in other tensors, its attributes."""

    # a parameter's is the one that leaves every function as it is
    __torch_function__ = cast("Any", torch.nn.Parameter).__torch_function__

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The engine asks for this; nothing is ever computed with one."""
        raise NotImplementedError(f"{function} of a class that is not loaded")


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without its attributes, which may hide its methods."""
    vars(tensor).clear()
    return tensor


class Cast:
    """The stand-ins for one file, and which of the classes had to be stood in for."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self._used: dict[str, None] = {}

    @property
    def used(self) -> tuple[str, ...]:
        """The names of the classes and functions whose objects the file holds."""
        return tuple(self._used)

    def globals(self) -> list[Any]:
        """What `torch.serialization.safe_globals` is to allow: each stand-in under the name that the file knows."""
        made = [(self._class(name, kind), name) for name, kind in self._kinds.items()]
        # the state of an object is set only if its own type is allowed too
        return [*made, (StandIn, "whynan.StandIn")]

    def _class(self, name: str, kind: Kind) -> type:
        if kind == "tensor":
            return torch.Tensor
        if kind == "wrapper":
            return Wrapper

        def make(_: type, *arguments: Any) -> Any:
            self._used[name] = None
            return _object(name, kind, arguments)

        return type("NotLoaded", (), {"__new__": make})


def _object(name: str, kind: Kind, arguments: tuple[Any, ...]) -> Any:
    # torch fills exactly these types, and no others
    if kind == "mapping":
        return OrderedDict({ARGUMENTS: arguments} if arguments else {})
    return [] if kind == "sequence" else StandIn(name, arguments)


# -- NumPy arrays and scalars in a pickle, read from what they would have been made from -------------------------------


_ARRAY: Final = re.compile(r"numpy\.(_?core)\.(multiarray|numeric)\.(_reconstruct|_frombuffer)")
_SCALAR: Final = re.compile(r"numpy\.(_?core)\.multiarray\.scalar")
_PLAIN: Final = re.compile(r"[biufc]\d{1,2}")


def tensor_of(held: StandIn) -> Tensor | None:
    """The tensor of an array's or scalar's stand-in; None where it is neither, or holds no plain numbers."""
    try:
        array = _array(held) if _ARRAY.fullmatch(held.name) else _scalar(held) if _SCALAR.fullmatch(held.name) else None
        return None if array is None else cast("Any", torch).from_numpy(array)
    except (TypeError, ValueError, IndexError, AttributeError):
        return None


def _array(held: StandIn) -> Any:
    _, shape, dtype, fortran, data = held.state
    read = np.frombuffer(cast("bytes", data), _dtype(dtype)).reshape(shape, order="F" if fortran else "C")
    return _native(read)


def _scalar(held: StandIn) -> Any:
    dtype, data = held.arguments
    return _native(np.frombuffer(cast("bytes", data), _dtype(dtype)).reshape(()))


def _native(array: Any) -> Any:
    """A copy that may be written to, in the byte order of this machine."""
    return array.astype(array.dtype.newbyteorder("="), order="K", copy=True)


def _dtype(held: Any) -> np.dtype[Any]:
    name, order = held.arguments[0], held.state[1]
    if not _PLAIN.fullmatch(name) or order not in ("<", ">", "|", "="):
        raise ValueError(name)
    return np.dtype(name).newbyteorder(order)
