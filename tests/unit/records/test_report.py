"""The record types: frozen, exact about what they hold, and of no weight until they are shown."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, get_args

import pydantic
import pytest

import whynan.records
from tests.unit.report.programs import REPORTS, finding
from whynan.records import Element, ExitStatus, Finding, Operand, Report, Run, Site
from whynan.records.base import Record
from whynan.report.terminal import render

RUN = Run(command="train.py", exit_status=ExitStatus(script=None, whynan=1))


def records() -> list[type[Record]]:
    held = (getattr(whynan.records, name) for name in dir(whynan.records))
    return [kind for kind in held if isinstance(kind, type) and issubclass(kind, Record)]


@pytest.mark.parametrize("kind", records(), ids=lambda kind: kind.__name__)
def test_every_record_is_frozen_and_knows_its_fields(kind: type[Record]) -> None:
    assert kind.model_config.get("frozen") is True
    assert kind.model_config.get("extra") == "forbid"
    assert kind.model_config.get("ser_json_inf_nan") == "strings"
    assert kind.__doc__


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        REPORTS["forward"].verdict = "clean"  # type: ignore[misc]


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(pydantic.ValidationError, match="colour"):
        Site(file="net.py", line=1, colour="red")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("field", "held"),
    [("severity", "fatal"), ("fate", "lost"), ("birth", "born"), ("phase", "training"), ("site", "net.py:3")],
)
def test_a_word_outside_the_vocabulary_is_refused(field: str, held: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=field):
        finding(**{field: held})


def test_what_is_unknown_is_null() -> None:
    known = {"severity", "fate", "birth", "phase", "op", "site", "element"}
    element = Element(index=None, shape=(), dtype="float32", value=None, count=1, total=1)
    made = Finding(
        severity="error", fate="escaped", birth="invalid", phase="forward", op=None, site=None, element=element
    )
    held = json.loads(made.model_dump_json())
    nothing: list[Any] = [None, [], "", 1]
    told = {"rule", "name"}  # what no rule explains has a name of its own
    assert all(held[name] in nothing for name in held if name not in known | told)
    assert (made.rule, made.name) == ("WN000", "unexplained")
    assert json.loads(RUN.model_dump_json())["exit_status"]["script"] is None


def test_an_operand_whose_origin_nobody_told_is_gone() -> None:
    assert Operand(name="self").origin == "gone"
    assert Operand(name="self").value is None


@pytest.mark.parametrize("held", [True, 3, 2.5, "mean", None])
def test_an_operand_keeps_the_type_of_its_value(held: object) -> None:
    again = Operand.model_validate_json(Operand(name="x", value=held).model_dump_json())  # type: ignore[arg-type]
    assert type(again.value) is type(held)
    assert again.value == held


def test_the_document_names_its_schema() -> None:
    document = json.loads(Report(verdict="clean", run=RUN).to_json())
    assert document["schema"] == "whynan.report/2"
    assert "schema_" not in document


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_read_back_from_its_document(name: str) -> None:
    text = REPORTS[name].to_json()
    assert Report.from_json(text).to_json() == text
    assert Report.from_json(text.encode()).to_json(indent=None) == REPORTS[name].to_json(indent=None)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "whynan.report/9"}', b"\xff"])
def test_what_is_no_report_is_refused(text: str | bytes) -> None:
    with pytest.raises(pydantic.ValidationError):
        Report.from_json(text)


def test_the_text_of_a_report_is_the_terminal_report(capsys: pytest.CaptureFixture[str]) -> None:
    made = REPORTS["several"]
    assert str(made) == render(made)
    made.show()
    assert capsys.readouterr().out == render(made) + "\n"
    made.show(show_all=True)
    assert capsys.readouterr().out == render(made, show_all=True) + "\n"


@pytest.mark.process
def test_the_records_load_nothing_to_show_them_with() -> None:
    program = "import sys, whynan.records; print([m for m in ('rich', 'torch', 'whynan.report') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_every_public_word_is_exported() -> None:
    assert set(get_args(whynan.records.Verdict)) == {
        "clean",
        "damaged",
        "nonfinite",
        "divergent",
        "hazard",
        "inconclusive",
    }
    # other rooms make records of their own, once they are loaded
    own = [kind for kind in Record.__subclasses__() if kind.__module__ == "whynan.records.report"]
    assert len(own) > 10
    assert {kind.__name__ for kind in own} <= set(dir(whynan.records))
