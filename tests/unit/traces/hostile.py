"""What can be wrong with the folder of a trace: each kind does its harm to a good one."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from tests.unit.traces.folders import change, events
from whynan.traces import format as layout

FIRST = Path("events") / "00000000.npy"
SECOND = Path("events") / "00000001.npy"


def changed(name: str, *place: str | int, to: Any) -> Callable[[Path], None]:
    """One thing of a JSON document is another."""
    return lambda folder: change(folder / name, *place, to=to)


def text(name: str | Path, content: str | bytes) -> Callable[[Path], None]:
    """A file has another content."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: _put(folder / name, data)


def _put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def added(name: str, line: str) -> Callable[[Path], None]:
    """A table has something behind its lines."""
    return lambda folder: _put(folder / name, (folder / name).read_bytes() + line.encode())


def cut(name: str | Path, size: int) -> Callable[[Path], None]:
    """A file ends early."""
    return lambda folder: _put(folder / name, (folder / name).read_bytes()[:size])


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    """A JSON document holds other text."""

    def harm(folder: Path) -> None:
        before = (folder / name).read_text(encoding="utf-8")
        assert old in before
        (folder / name).write_text(before.replace(old, new, 1), encoding="utf-8")

    return harm


def array(made: Any, *, pickled: bool = False) -> Callable[[Path], None]:
    """The second segment is another array."""

    def harm(folder: Path) -> None:
        with (folder / SECOND).open("wb") as file:
            np.save(file, made, allow_pickle=pickled)

    return harm


def header(descr: Any, *, shape: Any, fortran: bool = False) -> Callable[[Path], None]:
    """The second segment claims something about the 99 bytes that it holds."""

    def harm(folder: Path) -> None:
        file = io.BytesIO()
        npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": fortran, "shape": shape})
        (folder / SECOND).write_bytes(file.getvalue() + bytes(99))

    return harm


def raw_header(content: str) -> Callable[[Path], None]:
    """The second segment has a header of any text."""
    data = b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content.encode()
    return lambda folder: _put(folder / SECOND, data + bytes(99))


def moved(old: str | Path, new: str | Path) -> Callable[[Path], None]:
    """A file has another name."""
    return lambda folder: os.rename(folder / old, folder / new)


def linked(name: str | Path) -> Callable[[Path], None]:
    """A file, or the folder of the events, is a link to what it was."""

    def harm(folder: Path) -> None:
        elsewhere = folder.parent / "elsewhere"
        os.rename(folder / name, elsewhere)
        (folder / name).symlink_to(elsewhere)

    return harm


def pipe(name: str) -> Callable[[Path], None]:
    """A file is a pipe that nobody writes to."""

    def harm(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return harm


def directory(name: str) -> Callable[[Path], None]:
    """A file is a folder."""

    def harm(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return harm


def large(name: str, size: int) -> Callable[[Path], None]:
    """A file is very long, and takes no room on the disk."""

    def harm(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.truncate(size)

    return harm


def gone(name: str | Path) -> Callable[[Path], None]:
    """A file is not there."""
    return lambda folder: (folder / name).unlink()


DTYPE = layout.event_dtype()
BIRTH = ("facts.json", "births", 0)
SINK = ("facts.json", "sinks", 0)

HARMS: dict[str, Callable[[Path], None]] = {
    "no run": gone("run.json"),
    "an empty run": text("run.json", ""),
    "a run that is no JSON": text("run.json", "why is it NaN?"),
    "a run cut off": cut("run.json", 20),
    "a run that is a list": text("run.json", "[]"),
    "a run that is null": text("run.json", "null"),
    "a run in depth": text("run.json", "[" * 100_000),
    "a run in depth that is closed": text("run.json", '{"a":' * 5000 + "1" + "}" * 5000),
    "a run of another schema": changed("run.json", "schema", to="whynan.trace/9"),
    "a run of no schema": changed("run.json", "schema", to=None),
    "a run of a schema in depth": changed("run.json", "schema", to={"a": ["b" * 500]}),
    "a run that is a report": changed("run.json", "schema", to="whynan.report/1"),
    "a run with a name twice": replaced("run.json", '"pid":', '"pid": 1, "pid":'),
    "a run with an unknown field": changed("run.json", "colour", to="red"),
    "a run with a hostile field": changed("run.json", "\x1b[2J\n" + "x" * 500, to=1),
    "a pid of text": changed("run.json", "pid", to="7"),
    "a pid that is true": changed("run.json", "pid", to=True),
    "a pid below zero": changed("run.json", "pid", to=-1),
    "a pid of 400 digits": replaced("run.json", '"pid":', '"pid": 1' + "0" * 400 + ', "pid2":'),
    "a pid of 65 bits": changed("run.json", "pid", to=2**64),
    "a time beyond floats": replaced("run.json", '"memory":null', '"memory":1e999'),
    "a bare NaN": replaced("run.json", '"memory":null', '"memory":NaN'),
    "another encoding": text("run.json", '{"größe": 1}'.encode("latin-1")),
    "half a character": replaced("run.json", '"train.py"', '"\\ud800"'),
    "half a character in a list": replaced("run.json", '"typed_notes":[]', '"typed_notes":["\\udfff"]'),
    "half a character in a name": replaced("run.json", '"memory":null', '"\\ud800":null'),
    "a run that is a link": linked("run.json"),
    "a run that is a pipe": pipe("run.json"),
    "a run that is a folder": directory("run.json"),
    "a run too long": large("run.json", layout.MOST_DOCUMENT_BYTES + 1),
    "a count of text": changed(*BIRTH, "occurrences", to="7"),
    "a count that is a fraction": changed(*BIRTH, "occurrences", to=1.5),
    "a line of text": changed(*BIRTH, "event", "site", "line", to="twelve"),
    "a value that is a list": changed(*BIRTH, "element", "value", to=[1.0]),
    "a value of text": changed(*BIRTH, "element", "value", to="large"),
    "a shape of text": changed(*BIRTH, "element", "shape", to="8x4"),
    "a phase that is none": changed(*BIRTH, "event", "phase", to="twilight"),
    "a label of zero": changed(*BIRTH, "label", to=0),
    "two births of one label": changed(*BIRTH, "label", to=2),
    "a cause that is not there": changed(*BIRTH, "causes", to=[77]),
    "a scope that is not there": changed(*BIRTH, "scope", to=[5]),
    "a sink of a birth that is not there": changed(*SINK, "labels", to=[77]),
    "a count of a birth that is not there": changed(*SINK, "counts", to=[{"labels": [77], "elements": 1}]),
    "a sink of a kind that is none": changed(*SINK, "kind", to="drain"),
    "births in an object": changed("facts.json", "births", to={"0": 1}),
    "facts with a field missing": replaced("facts.json", '"fatal_seen":', '"fatal_scene":'),
    "facts cut off": cut("facts.json", 300),
    "facts that are a link": linked("facts.json"),
    "ranges that are missing": changed("facts.json", "ranges", to=1 << 60),
    "events in a file": lambda folder: _put(_emptied(folder / "events"), b""),
    "events behind a link": linked("events"),
    "a segment behind a link": linked(SECOND),
    "a segment that is missing": gone(FIRST),
    "a segment of another name": moved(SECOND, Path("events") / "one.npy"),
    "a segment of a number too long": moved(SECOND, Path("events") / "000000001.npy"),
    "a segment of nothing": text(SECOND, b""),
    "a segment that is no npy file": text(SECOND, b"\x93NUMPZ" + bytes(500)),
    "a segment of 2**60 events": header(npy.dtype_to_descr(DTYPE), shape=(2**60,)),
    "a segment of fewer events than it has": header(npy.dtype_to_descr(DTYPE), shape=(2,)),
    "a segment of no events": array(events(0, 0)),
    "a segment of minus one event": header(npy.dtype_to_descr(DTYPE), shape=(-1,)),
    "a segment of too many events": array(events(3, 4 + layout.SEGMENT)),
    "a segment in two dimensions": array(events(3, 6).reshape(1, 3)),
    "a segment in Fortran's order": header(npy.dtype_to_descr(DTYPE), shape=(3,), fortran=True),
    "a segment of floats": array(np.zeros(3)),
    "a segment of objects": array(np.array([{"a": 1}], dtype=object), pickled=True),
    "a segment of another byte order": array(events(3, 6).astype(DTYPE.newbyteorder(">"))),
    "a segment with a field renamed": array(events(3, 6).astype([(f"{n}_", DTYPE[n]) for n in DTYPE.names or ()])),
    "a segment cut off": cut(SECOND, -1),
    "a segment with a header that calls": raw_header("{'descr': __import__('os').getcwd(), 'shape': (3,)}\n"),
    "a segment with a header in depth": raw_header("(" * 900),
    "a segment with a header of signs": raw_header("-" * 900 + "1"),
    "a segment with a header too long": raw_header(" " * 60_000),
    "a segment with a header that is none": raw_header("17\n"),
    "a segment too long": large(str(SECOND), 1 << 40),
    "ordinals that go back": array(events(1, 4)),
    "ordinals that stand still": array(np.repeat(events(3, 4), 3)),
    "a phase of 9": array(events(3, 6, phase=9)),
    "an operator that is not there": array(events(3, 6, operator=1)),
    "a node that is not there": array(events(3, 6, node=2)),
    "a module that is not there": array(events(3, 6, module=2**32 - 1)),
    "a site that is not there": array(events(3, 6, site=2)),
    "a table that is gone": gone("operators.jsonl"),
    "a table with a torn line": added("operators.jsonl", '"aten.exp'),
    "a table of numbers": added("operators.jsonl", "7\n"),
    "a table that is no JSON": added("modules.jsonl", "net.head\n"),
    "a table with an empty line": added("nodes.jsonl", "\n"),
    "a table with a line too long": added("nodes.jsonl", json.dumps("x" * (1 << 20)) + "\n"),
    "a table that is too long": large("nodes.jsonl", layout.MOST_TABLE_BYTES + 1),
    "a table that is a link": linked("sites.jsonl"),
    "a site without a file": added("sites.jsonl", '{"site": {"line": 1}, "library_site": null}\n'),
    "a site that is text": added("sites.jsonl", '"net.py:1"\n'),
}  # fmt: skip


def _emptied(folder: Path) -> Path:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return folder
