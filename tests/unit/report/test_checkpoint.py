"""The post-mortem of checkpoints, word for word, as a document, and for other eyes."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from tests.unit.report.checkpoints import HOSTILE, WRITTEN, found
from whynan.errors import UsageError
from whynan.records.checkpoint import Checkpoints
from whynan.report.postmortem.text import SCHEMA_FILE, make_schema, parse_postmortem, redacted, render, schema, to_json

ROOT = Path(__file__).parents[3]
COLOR_CODE = re.compile(r"\x1b\[[0-9;]*m")
VALIDATOR = Draft202012Validator(schema())


@cache
def report(name: str) -> Checkpoints:
    with TemporaryDirectory() as folder:
        return found(name, Path(folder) / "run")


@pytest.mark.parametrize("name", WRITTEN)
def test_each_reads_well(name: str, snapshot: SnapshotAssertion) -> None:
    assert render(report(name), width=100) == snapshot


@pytest.mark.parametrize("width", [40, 72])
@pytest.mark.parametrize("name", ["bad", "folder", "several"])
def test_narrow_terminals(name: str, width: int, snapshot: SnapshotAssertion) -> None:
    assert render(report(name), width=width) == snapshot


@pytest.mark.parametrize("name", ["kinds", "notes", "several"])
def test_all_of_it(name: str, snapshot: SnapshotAssertion) -> None:
    assert render(report(name), width=100, show_all=True) == snapshot


@pytest.mark.parametrize("name", ["bad", "notes", "folder", "several", "by name", "many"])
def test_for_other_eyes(name: str, snapshot: SnapshotAssertion) -> None:
    assert render(redacted(report(name)), width=100) == snapshot


def test_it_is_about_twenty_lines() -> None:
    lengths = {name: len(render(report(name), width=120).splitlines()) for name in WRITTEN}
    assert max(lengths.values()) <= 28, lengths
    assert all(len(render(report(name), width=120).splitlines()) <= 20 for name in ("bad", "folder", "by name"))


@pytest.mark.parametrize("show_all", [False, True])
@pytest.mark.parametrize("width", [20, 32, 57, 100, 300])
@pytest.mark.parametrize("name", WRITTEN)
def test_no_line_is_longer_than_the_terminal_or_commands_it(name: str, width: int, show_all: bool) -> None:
    for encoding in ("utf-8", "ascii", "shift_jis"):
        text = render(report(name), width=width, encoding=encoding, show_all=show_all)
        assert max(cell_len(line) for line in text.split("\n")) <= max(width, 32)
        assert text.replace("\n", "").isprintable()
        text.encode(encoding)


@pytest.mark.parametrize("name", WRITTEN)
def test_colours_change_no_word(name: str) -> None:
    coloured = render(report(name), width=100, color=True)
    assert "\x1b[" in coloured
    assert COLOR_CODE.sub("", coloured) == render(report(name), width=100)


def strictly(text: str) -> Any:
    """A document as a parser reads it that knows no more than JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("name", WRITTEN)
def test_it_is_strict_json_of_its_schema_and_is_read_back(name: str) -> None:
    for made in (report(name), redacted(report(name))):
        text = to_json(made)
        VALIDATOR.validate(strictly(text))
        assert text.replace("\n", "").isprintable()
        assert repr(parse_postmortem(text)) == repr(made)
        assert render(parse_postmortem(text), width=100) == render(made, width=100)


def test_the_published_schema_is_that_of_the_record_types() -> None:
    assert schema() == make_schema()
    Draft202012Validator.check_schema(schema())
    assert schema()["$id"] == "whynan.checkpoint/1"
    published = ROOT / "src" / "whynan" / "report" / "schema" / SCHEMA_FILE
    assert published.read_text("utf-8") == json.dumps(make_schema(), indent=2) + "\n"


@pytest.mark.parametrize(
    "path",
    [("schema",), ("verdict",), ("surplus",), ("first_bad",), ("checkpoints", 0, "tensors", 0, "n_nan")],
)
def test_another_document_is_refused(path: tuple[str | int, ...]) -> None:
    document = json.loads(to_json(report("bad")))
    held = document
    for part in path[:-1]:
        held = held[part]
    held[path[-1]] = "nonsense"
    with pytest.raises(ValidationError):
        VALIDATOR.validate(document)
    with pytest.raises(UsageError):
        parse_postmortem(json.dumps(document))


def test_every_counter_of_every_tensor_is_in_the_document() -> None:
    (held,) = strictly(to_json(report("bad")))["checkpoints"]
    weight = held["tensors"][0]
    expected = {"n": 8192, "n_nan": 12, "n_posinf": 0, "n_neginf": 2, "n_zero": 0, "n_subnormal": 0, "bad": True}
    assert {name: weight[name] for name in expected} == expected
    assert len(held["tensors"]) == 8
    (logged,) = strictly(to_json(report("folder")))["checkpoints"][0]["logged"]
    assert logged == {"name": "loss", "n": 2, "n_bad": 2, "first": "NaN", "step": 350}


WORDS = (
    "weight",
    "momentum",
    "layers",
    "ckpt",
    "model",
    "optimizer",
    "Config",
    "cache",
    "0.25",
    "loss.pt",
    "x[/]",
)


@pytest.mark.parametrize("name", WRITTEN)
def test_other_eyes_see_no_name_path_or_value(name: str) -> None:
    left = redacted(report(name))
    for text in (to_json(left), render(left, width=100, show_all=True)):
        assert [word for word in WORDS if word in text] == []
    assert [(c.n_tensors, c.n_bad, c.verdict) for c in left.checkpoints] == [
        (c.n_tensors, c.n_bad, c.verdict) for c in report(name).checkpoints
    ]
    assert redacted(left).model_dump(exclude={"checkpoints"}) == left.model_dump(exclude={"checkpoints"})


def test_without_redaction_they_would() -> None:
    """The twin of the test above: each of the words is in some report."""
    told = "".join(to_json(report(name)) for name in WRITTEN) + HOSTILE
    assert [word for word in WORDS if word not in told] == []


def test_one_name_has_one_number_in_all_checkpoints() -> None:
    left = redacted(report("several"))
    names = [[stored.name for stored in held.tensors] for held in left.checkpoints if held.tensors]
    assert names == [[f"tensor {number}" for number in range(1, 9)]] * 12
