"""Promise 8: text is data. Whatever a stranger calls a thing, no output obeys it, hides it or breaks on it."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator
from rich.cells import cell_len
from rich.errors import MarkupError
from rich.text import Text
from torch import nn

import whynan
from tests.quality.hostile import PROGRAMS, TEXTS, argument, class_name, file_name
from whynan import api
from whynan.cli.main import main
from whynan.config import Options
from whynan.errors import WhynanError
from whynan.records import Report
from whynan.report import page, wording
from whynan.report.json import make_schema, parse_report, to_json
from whynan.report.redaction import redacted
from whynan.report.terminal import render
from whynan.run.output.run_trace import report_of_directory
from whynan.traces.writer import TraceWriter

SGR = re.compile(r"\x1b\[[0-9;]*m")
VALIDATOR = Draft202012Validator(make_schema())
LONGEST = 40_000
SAMPLE = ("markup", "colours", "lines", "half a pair", "very long")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Report]:
    """The report of every program with every text, made when it is asked for."""

    class Reports(dict[tuple[str, str], Report]):
        def __missing__(self, key: tuple[str, str]) -> Report:
            place, text = key
            try:
                made = self[key] = PROGRAMS[place](TEXTS[text], tmp_path_factory.mktemp("hostile"))
            except Exception as error:
                # pytest itself cannot show a traceback through a file of such a name
                causes = [ascii(e) for e in (error, error.__cause__, error.__context__) if e is not None]
                raise AssertionError("\n".join(causes)) from None
            return made

    return Reports()


def check_terminal(text: str, width: int) -> None:
    """Raise where a terminal would obey, hide or run over."""
    assert text.replace("\n", "").isprintable()
    assert all(cell_len(line) <= width for line in text.split("\n"))
    assert len(text) < LONGEST


def check_document(text: str) -> None:
    """Raise where a document is not strict, not of its schema, or not to be looked at."""
    document = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    VALIDATOR.validate(document)
    text.encode("utf-8")
    assert text.replace("\n", "").isprintable()
    assert to_json(parse_report(text)) == text


def some(sample: tuple[str, ...]) -> list[Any]:
    """All texts, of which a share is looked at in every run of the tests."""
    return [pytest.param(text, marks=[] if text in sample else [pytest.mark.full]) for text in TEXTS]


@pytest.mark.parametrize("text", some(SAMPLE))
@pytest.mark.parametrize("place", PROGRAMS)
def test_no_output_obeys_a_stranger(place: str, text: str, reports: dict[tuple[str, str], Report]) -> None:
    report = reports[place, text]
    for shown in (report, redacted(report)):
        for width in (40, 100):
            plain = render(shown, width=width, show_all=True)
            check_terminal(plain, width)
            coloured = render(shown, width=width, show_all=True, color=True)
            assert SGR.sub("", coloured) == plain
        check_document(to_json(shown))
        check_document(shown.to_json())


UNSEEN = ("an identifier", "a global variable", "an optimizer's name of a parameter", "a setting of an operator")
"""Places whose text whynan has no use for today, or that take only some of it."""


UNSEEN = ("an identifier", "a global variable", "an optimizer's name of a parameter", "a setting of an operator")
"""Places whose text whynan has no use for today, or that take only some of it."""


@pytest.mark.parametrize("place", PROGRAMS)
def test_each_program_has_a_finding_and_carries_its_text(place: str, reports: dict[tuple[str, str], Report]) -> None:
    report = reports[place, "markup"]
    assert report.findings or report.coverage.notes
    shown = "".join(render(report, width=4000, show_all=True).split())
    assert ("[boldred]x[" in shown) is (place not in UNSEEN)


@pytest.mark.parametrize("text", ["colours", "lines", "bidirectional", "zero width", "very long"])
def test_the_check_sees_what_is_not_escaped(
    text: str, monkeypatch: pytest.MonkeyPatch, reports: dict[tuple[str, str], Report]
) -> None:
    report = reports["a function, its code and its file", text]
    monkeypatch.setattr(page, "plain", lambda held: held)
    monkeypatch.setattr(page, "shortened", lambda held: held)
    monkeypatch.setattr(wording, "_NAME_LENGTH", 10**9)
    with pytest.raises(AssertionError):
        check_terminal(render(report, width=100), 100)


def test_the_check_sees_markup_that_is_obeyed(
    monkeypatch: pytest.MonkeyPatch, reports: dict[tuple[str, str], Report]
) -> None:
    report = reports["modules", "markup"]
    monkeypatch.setattr(page.Text, "append", lambda self, text, style=None: self.append_text(Text.from_markup(text)))
    with pytest.raises((AssertionError, MarkupError)):
        assert "[bold red]x[/]" in render(report, width=4000)


def test_the_check_sees_a_document_that_a_terminal_would_obey(reports: dict[tuple[str, str], Report]) -> None:
    report = reports["modules", "control bytes of 8 bits"]
    with pytest.raises(AssertionError):
        check_document(report.model_dump_json(by_alias=True, indent=2))


def meta(text: str) -> Any:
    net = nn.Module()
    net.register_parameter(text.replace(".", "_") or "_", nn.Parameter(torch.empty(2, device="meta")))
    net.forward = lambda: None
    return whynan.explain(net)


def misfitting(text: str) -> Any:
    def target(x: int, y: object = text) -> None: ...

    target.__qualname__ = text
    return whynan.explain(target)


def configured(text: str) -> Any:
    return Options.load(environment={f"WHYNAN_{text}": text})


ERRORS: dict[str, Any] = {
    "a parameter without values": meta,
    "inputs that do not fit": misfitting,
    "an allowance of no rule": lambda text: whynan.allow(text, reason="x").__enter__(),
    "an option in the environment": configured,
    "a value of an option": lambda text: Options.load(environment={"WHYNAN_MEMORY": text}),
    "what cannot be called": lambda text: whynan.explain(type(class_name(text), (), {})()),
    "a document": lambda text: parse_report(json.dumps({text: text})),
    "a field of a document": lambda text: parse_report(json.dumps({"schema": "whynan.report/2", text: text})),
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("place", ERRORS)
def test_an_error_is_one_line_that_can_be_shown(place: str, text: str) -> None:
    with pytest.raises(WhynanError) as raised:
        ERRORS[place](TEXTS[text])
    line = str(raised.value)
    assert line.isprintable()
    line.encode("utf-8")
    assert len(line) < 12_000


@pytest.mark.parametrize("text", some(("colours", "half a pair")))
@pytest.mark.parametrize("redact", [False, pytest.param(True, marks=pytest.mark.full)], ids=["plain", "redacted"])
def test_a_trace_on_disk_is_data_too(text: str, redact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, place in enumerate(PROGRAMS):
        folder = tmp_path / str(number)
        folder.mkdir()
        writer = TraceWriter(folder / "trace", redact=redact)
        monkeypatch.setattr(api, "Trace", functools.partial(api.Trace, recording=writer))
        PROGRAMS[place](TEXTS[text], folder)
        monkeypatch.undo()
        assert writer.note is None
        check_folder(folder / "trace")
        report = report_of_directory(folder / "trace")
        assert report.findings or report.coverage.notes
        check_terminal(render(report, width=60, show_all=True), 60)
        check_document(to_json(report))


def check_folder(folder: Path) -> None:
    """Raise where a file of a trace is no strict JSON, or not to be looked at."""
    for file in folder.iterdir():
        if file.suffix not in (".json", ".jsonl"):
            continue
        content = file.read_bytes().decode("utf-8")
        lines = content.split("\n")[:-1] if file.suffix == ".jsonl" else [content]
        for line in lines:
            json.loads(line, parse_constant=lambda name: pytest.fail(name))
            assert line.isprintable(), (file.name, ascii(line)[:300])


COMMANDS: dict[str, list[str]] = {
    "no command": ["{}"],
    "no option": ["run", "--{}", "x.py"],
    "no script": ["run", "no/{}.py"],
    "no module": ["run", "-m", "{}"],
    "no place for a document": ["run", "--json", "no/{}/x", "-c", "pass"],
    "no ending": ["run", "--on-nonfinite", "{}", "x.py"],
    "no number of bytes": ["run", "--memory", "{}", "x.py"],
    "no report": ["report", "no/{}"],
    "no report with fixes": ["fix", "no/{}"],
    "no checkpoint": ["checkpoint", "no/{}.pt"],
    "no earlier report": ["run", "--baseline", "no/{}", "-c", "pass"],
    "no shell": ["completion", "{}"],
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_in_one_line(
    command: str, text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    held = argument(TEXTS[text])
    assert main([part.replace("{}", held) for part in COMMANDS[command]]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err[:-1].isprintable(), ascii(err)
    assert len(err) < 4_000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("text", some(("half a pair",)))
def test_a_script_of_any_name_is_run_and_told_of(text: str, tmp_path: Path) -> None:
    name = file_name(TEXTS[text])
    (tmp_path / f"{name}.py").write_text(
        "import torch\nx = torch.ones(2, requires_grad=True)\n(x - 1).sqrt().sum().backward()\n"
    )
    command = [sys.executable, "-m", "whynan", "run", "--json", f"{name}.json", "--trace", f"{name}.d", f"./{name}.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == 1, ascii(done.stderr)
    check_terminal(done.stderr.decode("utf-8"), 100)
    check_document((tmp_path / f"{name}.json").read_text("utf-8").removesuffix("\n"))
    check_folder(tmp_path / f"{name}.d")
    again = [sys.executable, "-m", "whynan", "report", f"./{name}.d"]
    told = subprocess.run(again, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert told.returncode == 1, ascii(told.stderr)
    check_terminal(told.stdout.decode("utf-8").removesuffix("\n"), 100)
    assert "WN301" in told.stdout.decode("utf-8")
