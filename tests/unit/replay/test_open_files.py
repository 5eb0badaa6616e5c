"""The files that a program writes to are found from its names."""

from __future__ import annotations

import csv
import functools
import gc
import io
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from whynan.replay import open_files as open_files_module
from whynan.replay.open_files import open_files


class Log:
    """Holds a file as programs do."""

    __slots__ = ("file",)

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, line: str) -> None:
        self.file.write(line)


class Shared:
    file: Any = None


def in_a_class(file: Any) -> Any:
    return type("Shared", (Shared,), {"file": file})


def in_a_module(file: Any) -> Any:
    module = ModuleType("a_library")
    module.file = file  # type: ignore[attr-defined]
    return module


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "a list": lambda file: [[file]],
    "a slot": Log,
    "a bound method": lambda file: Log(file).write,
    "a closure": lambda file: lambda line: file.write(line),
    "a default": lambda file: functools.partial(print, file=file),
    "a class": in_a_class,
    "a csv writer": csv.writer,
    "a buffer": lambda file: io.TextIOWrapper(file.buffer, write_through=True),
    "among much": lambda file: [[[[n] for n in range(300)] for _ in range(300)], Log(file)],
}


@pytest.mark.parametrize("holder", list(HOLDERS))
def test_a_file_is_found_with_what_it_writes_through(holder: str, tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as file:
        held = HOLDERS[holder](file)
        found = open_files([{"held": held}])
        assert any(f is file.buffer for f in found)
        assert any(f is file.buffer.raw for f in found)  # type: ignore[attr-defined]
        if holder == "a buffer":
            held.detach()


def test_a_file_is_found_in_a_module_of_the_programs_and_in_no_librarys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(tmp_path / "log", "w") as file:
        module = in_a_module(file)
        monkeypatch.setitem(sys.modules, "a_library", module)
        module.__file__ = str(tmp_path / "site-packages" / "a_library.py")
        assert not any(f is file for f in open_files([{"module": module}]))
        module.__file__ = str(tmp_path / "mine.py")
        assert any(f is file for f in open_files([]))


def test_what_a_logger_writes_to_is_found(tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "run.log")
    logger = logging.getLogger("of.this.test")
    logger.addHandler(handler)
    try:
        assert any(f is handler.stream for f in open_files([]))
    finally:
        logger.removeHandler(handler)
        handler.close()


def test_behind_the_last_file_of_the_process_none_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But where not all of them are known."""
    looked: list[object] = []

    class Looked(list[object]):
        pass

    def referents(*values: object) -> list[object]:
        looked.extend(value for value in values if type(value) is Looked)
        return get_referents(*values)

    get_referents = gc.get_referents
    monkeypatch.setattr(gc, "get_referents", referents)
    with open(tmp_path / "log", "w") as file:
        behind = [[[Looked()]]]
        parts = file, file.buffer, file.buffer.raw  # type: ignore[attr-defined]
        monkeypatch.setattr(open_files_module, "_all_files", lambda: set(map(id, parts)))
        assert any(f is file for f in open_files([[file], behind]))
        assert not looked
        monkeypatch.setattr(open_files_module, "_all_files", lambda: None)
        assert any(f is file for f in open_files([[file], behind]))
        assert looked


def test_all_files_are_listed_but_where_objects_are_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "log", "w") as file:
        listed = open_files_module._all_files()  # pyright: ignore[reportPrivateUsage]
        assert listed is not None
        assert id(file) in listed
        monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
        assert open_files_module._all_files() is None  # pyright: ignore[reportPrivateUsage]


def test_so_many_objects_are_looked_at_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "log", "w") as file:
        held = [[[file]]]
        assert any(f is file for f in open_files([held]))
        monkeypatch.setattr("whynan.replay.live_objects._OBJECTS", 1)
        assert not open_files([held])
