"""Promise 4 for reports: a document from a stranger is refused with one line, or shown without harm.

Nothing of it is run, no file that it names is read unless its content is the one that the document was made from, and
nothing that it holds takes more room on the screen than a reader has.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.cells import cell_len

from tests.unit.report.programs import REPORTS
from whynan.errors import UsageError
from whynan.records import Report
from whynan.report.json import parse_report, to_json
from whynan.report.redaction import redacted
from whynan.report.terminal import render

GOOD: dict[str, Any] = json.loads(to_json(REPORTS["backward"]))
RAN: list[str] = []


class Evil:
    """What runs something when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return RAN.append, ("ran",)


def changed(*changes: tuple[str, Any], document: dict[str, Any] = GOOD) -> bytes:
    """The good document with other values at some paths, such as ``findings.0.site.line``."""
    made = json.loads(json.dumps(document))
    for path, value in changes:
        *parents, last = (int(part) if part.isdecimal() else part for part in path.split("."))
        held = made
        for part in parents:
            held = held[part]
        held[last] = value
    return json.dumps(made).encode()


def of_torch(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def in_notes(depth: int) -> dict[str, Any]:
    """A note within so many others."""
    return {"kind": "no_second_run", "values": {"why": in_notes(depth - 1) if depth else None}}


def nested(depth: int) -> bytes:
    return b'{"schema": "whynan.report/2", "run": ' + b'{"a": ' * depth + b"1" + b"}" * depth + b"}"


MOST = 2**63 - 1
MANY = 5_000
FINDING, ELEMENT, SITE = "findings.0", "findings.0.element", "findings.0.site"

REFUSED: dict[str, bytes] = {
    "a pickle": pickle.dumps(Evil()),
    "a pickle of another protocol": pickle.dumps(Evil(), protocol=0),
    "a checkpoint of torch": of_torch({"a": torch.ones(2)}),
    "something compressed": gzip.compress(changed()),
    "yaml": b"!!python/object/apply:os.system ['true']",
    "a script": b"#!/bin/sh\ntrue\n",
    "half a document": changed()[:-40],
    "a document and more": changed() + b"{}",
    "depth in an object": nested(100_000),
    "depth in a list": changed()[:-1] + b', "x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a number too long to be one": changed().replace(b"312", b"9" * 5_000),
    "a count of very many digits": changed((f"{ELEMENT}.count", 10**4200)),
    "a value of very many digits": changed((f"{ELEMENT}.value", 10**400)),
    "a bare NaN": changed().replace(b"312", b"NaN"),
    "a step of text": changed((f"{FINDING}.step", "three")),
    "a step that is a half": changed((f"{FINDING}.step", 0.5)),
    "a line of nothing": changed((f"{SITE}.line", None)),
    "a line that is a list": changed((f"{SITE}.line", [1])),
    "a file that is an object": changed((f"{SITE}.file", {"path": "/etc/passwd"})),
    "a file that is a number": changed((f"{SITE}.file", 0)),
    "an unknown field": changed((f"{SITE}.__class__", "os.system")),
    "a field of another's": changed((f"{FINDING}.__proto__", {"verdict": "clean"})),
    "a reference": changed((f"{FINDING}.site", {"$ref": "file:///etc/passwd"})),
    "findings of text": changed(("findings", "none")),
    "findings of nothing": changed(("findings", [None])),
    "an unknown fate": changed((f"{FINDING}.fate", "harmless")),
    "an unknown severity": changed((f"{FINDING}.severity", "\x1b[2J")),
    "flags that are a list": changed(("run.flags", ["a"])),
    "a flag that is an object": changed(("run.flags", {"a": {"b": 1}})),
    "versions of numbers": changed(("run.versions", {"torch": 2})),
    "notes of numbers": changed(("coverage.notes", [1])),
    "an unknown note": changed(("coverage.typed_notes", [{"kind": "\x1b[2J", "values": {}}])),
    "a note of other values": changed(("coverage.typed_notes", [{"kind": "never_reached", "values": {"step": "x"}}])),
    "notes in notes": changed(("coverage.typed_notes", [in_notes(50)])),
    "another schema": changed(("schema", "whynan.report/3")),
    "a schema that is a list": changed(("schema", ["whynan.report/2"])),
    "a name twice": changed()[:-1] + b', "verdict": "clean"}',
    "a shape of text": changed((f"{ELEMENT}.shape", "[8]")),
    "UTF-16": changed().decode().encode("utf-16"),
    "no text at all": bytes(range(256)),
}

SHOWN: dict[str, bytes] = {
    "numbers beyond all counts": changed(
        (f"{ELEMENT}.count", MOST), (f"{ELEMENT}.total", MOST), (f"{FINDING}.step", MOST), (f"{SITE}.line", MOST),
        (f"{FINDING}.occurrences", MOST), ("coverage.events", MOST), ("absorbed_count", MOST),
    ),
    "a sum beyond all counts": changed(
        (f"{FINDING}.reaches", [{"kind": "gradient", "name": "w", "bad": MOST, "total": MOST}] * 40)
    ),
    "numbers below all counts": changed(
        (f"{ELEMENT}.count", -5), (f"{ELEMENT}.total", -1), (f"{FINDING}.step", -1), (f"{SITE}.line", -3),
        (f"{SITE}.column", -7), (f"{SITE}.end_line", -9), (f"{FINDING}.occurrences", -2), ("absorbed_count", -1),
    ),
    "columns beyond the line": changed((f"{SITE}.column", 10**18), (f"{SITE}.end_column", 10**18)),
    "lines without end": changed((f"{SITE}.line", 1), (f"{SITE}.end_line", 10**18)),
    "an end before the start": changed((f"{SITE}.end_line", 1), (f"{SITE}.end_column", 1)),
    "very many dimensions": changed((f"{ELEMENT}.shape", [9] * MANY), (f"{ELEMENT}.index", [8] * MANY)),
    "very many notes": changed(
        ("coverage.typed_notes", [{"kind": "never_reached", "values": {"step": n}} for n in range(MANY)])
    ),
    "a note that was written down": changed(("coverage", {"notes": ["\x1b[2J as it was"] * 3})),
    "very many allowances": changed(("unused_allows", ["WN5"] * MANY)),
    "very many operands": changed(
        (f"{ELEMENT}.operands", [{"name": f"x{n}", "value": n} for n in range(MANY)]),
        (f"{FINDING}.forward_operands", [{"name": f"y{n}", "origin": "gone"} for n in range(MANY)]),
    ),
    "very many sinks": changed(
        (f"{FINDING}.reaches", [{"kind": k, "name": f"{k}{n}", "bad": 1, "total": 2} for n in range(MANY // 10)
                                for k in ("loss", "gradient", "parameter", "buffer", "output", "observed")])
    ),
    "very many causes": changed(
        (f"{FINDING}.chain", [{"role": "cause", "op": None, "summary": f"cause {n}"} for n in range(MANY)])
    ),
    "very many modules": changed((f"{FINDING}.modules", [f"m{n}" for n in range(MANY)])),
    "very many fixes": changed((f"{FINDING}.fixes", GOOD["findings"][0]["fixes"] * 2_000)),
    "very many ranks and files": changed(("run.sources", [{"file": f"f{n}", "sha256": "0" * 64} for n in range(MANY)])),
    "a very long patch": changed((f"{FINDING}.fixes.0.patch", "@@\n" + "+ x\n" * MANY)),
    "a very long line of a patch": changed((f"{FINDING}.fixes.0.patch", "@@\n+" + " " * 500_000 + "x\n")),
    "a very long explanation": changed((f"{FINDING}.explanation", "why " * 100_000)),
    "very long versions": changed(("run.versions", {"whynan": "1" * 100_000, "torch": "2" * 100_000})),
    "a very long operator": changed((f"{FINDING}.op", "aten." + "x" * 100_000)),
    "numbers that are text": changed(
        (f"{ELEMENT}.operands", [{"name": "x", "value": v} for v in ("1e400", "٣", "nanj", "1_0", "-nan", "inf" * 99)])
    ),
    "infinities by another name": changed().replace(b'"value": "Infinity"', b'"value": 1e999'),
    "an unknown dtype": changed((f"{ELEMENT}.dtype", "float32\x1b]0;x\x07"), (f"{ELEMENT}.dtype", "complex" * 999)),
    "a rule that there is not": changed((f"{FINDING}.rule", "WN999"), (f"{FINDING}.name", "../../etc/passwd")),
    "numbers as text that pydantic takes": changed((f"{FINDING}.step", "3"), (f"{SITE}.line", 3.0)),
}  # fmt: skip


def shown(report: Report) -> str:
    """What is seen of a report, in every way of showing it."""
    pages = [
        render(held, width=width, show_all=True, color=color)
        for held in (report, redacted(report))
        for width in (40, 120)
        for color in (False, True)
    ]
    assert all(len(page) < 60_000 for page in pages)
    assert all(page.replace("\n", "").isprintable() for page in pages[::2])
    assert all(cell_len(line) <= 120 for page in pages[::2] for line in page.split("\n"))
    assert to_json(parse_report(to_json(report))) == to_json(report)
    return "\n".join(pages)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_report_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_report(REFUSED[name])
    line = str(refused.value)
    assert line.isprintable()
    assert len(line) < 600
    assert RAN == []


@pytest.mark.parametrize("name", SHOWN)
def test_what_could_be_a_report_is_shown_without_harm(name: str) -> None:
    assert "whynan" in shown(parse_report(SHOWN[name]))


def test_the_kinds_are_many() -> None:
    assert len(REFUSED) + len(SHOWN) >= 50


SECRET = "the-password-is-swordfish"


def pointing_at(file: str, code: str | None = None, **more: Any) -> bytes:
    """A report whose birth stands in a file, at its first line."""
    site = {"file": file, "line": 1, "column": None, "end_line": 1, "end_column": None, "code": code, **more}
    return changed((SITE, site), (f"{FINDING}.library_site", site), (f"{FINDING}.chain.0.site", site))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n" * 9)
    return path


@pytest.mark.parametrize("code", [None, "", "the-password-is-", SECRET])
def test_a_file_that_a_report_names_is_not_read(secret: Path, code: str | None) -> None:
    text = shown(parse_report(pointing_at(str(secret), code)))
    assert text.count(SECRET) == text.count(code or SECRET) * (code == SECRET)


@pytest.mark.parametrize("columns", [(1, 2), (1, 17), (1, 999), (None, None), (3, None)])
def test_nor_is_a_part_of_it(secret: Path, columns: tuple[int | None, int | None]) -> None:
    site = pointing_at(str(secret), "t", column=columns[0], end_column=columns[1], end_line=9)
    assert SECRET not in shown(parse_report(site))


def test_nor_by_a_way_around(secret: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (inside / "link").symlink_to(secret)
    monkeypatch.chdir(inside)
    for way in ("../../secret", "../" * 40 + str(secret).lstrip("/"), "link", f"file://{secret}", f"~/../{secret}"):
        assert SECRET not in shown(parse_report(pointing_at(way)))


def test_nor_with_the_hash_of_another_content(secret: Path) -> None:
    document = json.loads(pointing_at(str(secret)))
    for digest in ("0" * 64, hashlib.sha256(b"guess").hexdigest(), "", "*"):
        document["run"]["sources"] = [{"file": str(secret), "sha256": digest}]
        assert SECRET not in shown(parse_report(json.dumps(document)))


def test_whoever_knows_its_content_is_shown_it(secret: Path) -> None:
    document = json.loads(pointing_at(str(secret)))
    document["run"]["sources"] = [{"file": str(secret), "sha256": hashlib.sha256(secret.read_bytes()).hexdigest()}]
    assert SECRET in shown(parse_report(json.dumps(document)))


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize(
    "file",
    [
        "/dev/zero", "/dev/stdin", "/dev/tty", "/proc/self/environ", "/proc/self/mem", "/proc/kmsg", "/proc/kcore", "/",
        "", ".", "-", "loop", "pipe", "socket", "x" * 5_000, "a\0b", "http://localhost:1/x", "\\\\host\\share\\x",
        "<stdin>", "CON", "file 1",
    ],
)  # fmt: skip
def test_what_is_no_common_file_is_not_opened(
    file: str, hashed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHYNAN_TEST_SECRET", SECRET)
    os.symlink("loop", "loop")
    os.mkfifo("pipe")
    os.mknod("socket", 0o140600)
    document = json.loads(pointing_at(file))
    if hashed:
        document["run"]["sources"] = [{"file": file, "sha256": hashlib.sha256(b"").hexdigest()}]
    assert SECRET not in shown(parse_report(json.dumps(document)))


def test_a_file_of_any_size_is_not_read_whole(tmp_path: Path) -> None:
    vast = tmp_path / "vast.py"
    with vast.open("wb") as file:
        file.truncate(1 << 40)
    document = json.loads(pointing_at(str(vast)))
    document["run"]["sources"] = [{"file": str(vast), "sha256": "0" * 64}]
    shown(parse_report(json.dumps(document)))
