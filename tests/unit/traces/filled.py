"""Records in which every field that can hold text holds a secret, whatever fields there are."""

from __future__ import annotations

import dataclasses
import itertools
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from whynan.records import KINDS, Note

SECRET = "Geheimnis"


class Fill:
    """Makes records; ``told`` is every text that was put into one, ``numbers`` every number that is no integer."""

    def __init__(self) -> None:
        self._serial: Iterator[int] = itertools.count(1)
        self.told: list[str] = []

    def record(self, kind: type) -> Any:
        """A record with a secret in every field that may hold text."""
        hints = get_type_hints(kind)
        names = kind.model_fields if issubclass(kind, BaseModel) else [f.name for f in dataclasses.fields(kind)]
        # a schema's name is no field of anybody's
        return kind(**{name: self.value(hints[name]) for name in names if name != "schema_"})

    def value(self, hint: Any) -> Any:
        """A value of an annotation; of several that it may be, text before others, and a record before nothing."""
        origin, arguments = get_origin(hint), get_args(hint)
        if hint is Note:
            return self.note("entered")
        if origin is tuple and arguments[0] is Note:
            return tuple(self.note(kind) for kind in KINDS)
        if hint is str:
            self.told.append(f"{SECRET} {next(self._serial)}")
            return self.told[-1]
        if origin in (Union, types.UnionType):
            return self.value(min(arguments, key=_preference))
        if origin is Literal:
            return arguments[0]
        if origin in (tuple, list):
            return origin([self.value(arguments[0]) for _ in range(2)])
        if origin is frozenset:
            return frozenset([1, 2])
        if origin is dict:
            return {self.value(arguments[0]): self.value(arguments[1]) for _ in range(2)}
        if isinstance(hint, type) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint)):
            return self.record(hint)
        return {int: 3, float: 0.4142, bool: True, type(None): None, None: None}[hint]

    def note(self, kind: str) -> Note:
        """A note of a kind, with a secret in every value that may be text."""
        return Note(kind=kind, values={name: self._held(name, what) for name, what in KINDS[kind].items()})

    def _held(self, name: str, what: str) -> Any:
        words = {
            "of": "events",
            "cause": "crash",
            "engine": "session",
            "does": "ends",
            "tests": "held",
            "bad": "NaN",
            "sink": "loss",
        }
        numbers = {"count": 3, "counts": (3,), "line": 3, "number": 3.0, "flag": True, "value": 0.4142, "shown": 0.4142}
        if what in numbers or name in words:
            return words.get(name) or numbers[what]
        return self.note("spoilt_during") if what == "note" else self.value(str)


def _preference(hint: Any) -> int:
    if hint is str:
        return 0
    return 2 if hint in (int, float, bool, type(None)) else 1
