"""The tensors and arrays in what a loader or a file gives and the way to each; no method of the program's is called."""

from __future__ import annotations

import itertools
import sys
import types
from collections import UserDict, deque
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.planes import readable

if TYPE_CHECKING:
    from collections.abc import Generator

Way = tuple["Way | None", str, Any]
"""The way to a part: to what holds it, how it is written (``.``, ``[``) and the key; text is made of it when asked."""

MOST: Final = 1 << 13
"""So many parts of a batch are looked through, tensors or not."""
_PLAIN: Final = frozenset((str, bytes, int, float, bool, complex, type(None)))
_KEYS: Final = frozenset((str, int, float, bool, type(None)))
_OPAQUE: Final = (type, types.ModuleType, types.FunctionType, types.MethodType, types.CodeType, types.FrameType)
_HELD_BY_MODULES: Final = ("_parameters", "_buffers", "_modules")


def parts_of(value: Any, prefix: str, most: int = MOST) -> Generator[tuple[Way, Any]]:
    """Tensors that can hold a NaN, and arrays of floating point, nearest first."""
    array: Any = getattr(sys.modules.get("numpy"), "ndarray", ())
    seen: set[int] = set()
    waiting: deque[tuple[Way, Any]] = deque([((None, "", prefix), value)])
    left = most
    while waiting:
        way, part = waiting.popleft()
        if isinstance(part, torch.Tensor):
            if readable(part):
                yield way, part
        elif isinstance(part, array):
            if part.dtype.kind in "fc":
                yield way, part
        elif id(part) not in seen and left > 0:
            seen.add(id(part))
            inner = _inside(part, left)
            left -= len(inner)
            waiting.extend(((way, form, key), v) for form, key, v in inner if type(v) not in _PLAIN)


def spelled(way: Way) -> str:
    """A way as a person writes it: ``batch[1].mask``, ``model['0.weight']``; ``0.weight`` in what has no name."""
    holder, form, key = way
    if holder is None:
        return str(key)
    start = spelled(holder)
    if not start:
        return str(key)
    return f"{start}[{key!r}]" if form == "[" else f"{start}.{key}"


def _inside(value: Any, most: int) -> list[tuple[str, Any, Any]]:
    """What a container or an object holds, read below every method that its class may have of its own."""
    if isinstance(value, _OPAQUE):
        return []
    if isinstance(value, list):
        return [("[", i, v) for i, v in enumerate(list.__getitem__(value, slice(0, most)))]
    if isinstance(value, tuple):
        inner = tuple.__getitem__(value, slice(0, most))
        names = getattr(type(value), "_fields", None)
        if isinstance(names, tuple) and len(names) >= len(inner):
            return [(".", name, v) for name, v in zip(names, inner, strict=False)]
        return [("[", i, v) for i, v in enumerate(inner)]
    if isinstance(value, dict):
        return [(*_key(k), v) for k, v in list(itertools.islice(dict.items(value), most))]
    held = _attributes(value)
    if isinstance(value, UserDict):
        data = held.get("data")
        return _inside(data, most) if isinstance(data, dict) else []
    if isinstance(value, torch.nn.Module):
        homes = [held.get(name) for name in _HELD_BY_MODULES]
        return [(".", k, v) for home in homes if isinstance(home, dict) for k, v in list(home.items())[:most]]
    return [(".", k, v) for k, v in itertools.islice(held.items(), most)]


def _attributes(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        found.update(object.__getattribute__(value, "__dict__"))
    except (AttributeError, TypeError):
        # slots, of which a dataclass names its own
        for name in getattr(type(value), "__dataclass_fields__", ()):
            try:
                found[name] = object.__getattribute__(value, name)
            except AttributeError:
                continue
    return found


def _key(key: Any) -> tuple[str, Any]:
    """How an entry of a dictionary is written; of a key that is no plain one only its type is kept."""
    if type(key) is str and key.isidentifier():
        return ".", key
    return "[", key if type(key) in _KEYS else type(key)
