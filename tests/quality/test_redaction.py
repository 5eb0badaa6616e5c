"""Promise 7: with ``--redact`` nothing that a program calls its own is in any output; arguments and environment never.

Each secret is first shown to be there without the option, or the test would look at nothing.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.unit.report.programs import REPORTS
from whynan.report.json import parse_report, to_json
from whynan.report.notes import sentence
from whynan.report.terminal import render
from whynan.run.output.run_trace import report_of_directory
from whynan.run.pipeline import fold_report
from whynan.traces.redaction import LEFT_OUT

pytestmark = pytest.mark.process

PROGRAMS = Path(__file__).parent / "confidential"
ARGUMENT, VARIABLE = "geheim_argument", "geheim_environment"
NUMBER = 0.7314159

NEVER = {"an argument of the command line": ARGUMENT, "the environment": VARIABLE, "a warning": "geheim_warning"}
"""What is in no output, with the option or without."""
SECRETS = {
    "the home directory": "geheim_home",
    "the user": "geheim_user",
    "the name of the program": "geheim_program",
    "the name of a file": "geheim_library",
    "a function": "geheim_distance",
    "a class of modules": "GeheimNet",
    "a path of modules": "geheim_part",
    "a submodule in the source text": "geheim_layer",
    "a parameter": "geheim_weight",
    "an optimizer's parameter": "geheim_parameter",
    "a variable that holds a leaf": "geheim_leaf",
    "an autograd function": "GeheimFunction",
    "an operator's library": "geheim_lib.",
    "an operator": "geheim_operator",
    "an operator's argument": "geheim_operand",
    "a key of an output": "geheim key",
    "a field of an output": "geheim_field",
    "a folder of data": "geheim_data",
    "a file of data": "geheim_set",
    "the text of an exception": "geheim_exception",
    "the reason of an allowance": "geheim_reason",
    "the reason in a comment": "geheim_comment",
    "what a comment allows in vain": "geheim-unused-rule",
    "the file of an earlier report": "geheim_baseline",
    "a tensor that was printed": "geheim_printed",
    "a tensor that did no harm": "geheim_harmless",
    "a value": "0.7314",
}


class Outputs(NamedTuple):
    """What came of a run."""

    text: str
    document: str
    trace: bytes
    folder: Path

    def holding(self, secret: str) -> list[str]:
        """The outputs that a secret is in, whatever its case."""
        token = secret.lower()
        texts = {"text": self.text, "document": self.document, "trace": self.trace.decode("latin-1")}
        # a folded line of the terminal may break a name
        texts["text"] += self.text.replace("\n", "").replace(" ", "")
        return [name for name, text in texts.items() if token in text.lower()]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's home, with a program in one folder, and a library and data in others."""
    home = tmp_path_factory.mktemp("run") / "geheim_home" / "geheim_user"
    for folder in ("project", "library", "geheim_data", "out"):
        (home / folder).mkdir(parents=True)
    shutil.copy(PROGRAMS / "geheim_program.py", home / "project")
    shutil.copy(PROGRAMS / "geheim_library.py", home / "library")
    np.save(home / "geheim_data" / "geheim_set.npy", np.array([1.0, float("nan"), NUMBER]))
    return home


def ran(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "HOME": str(home), "USER": "geheim_user", "GEHEIM_TOKEN": VARIABLE, "OMP_NUM_THREADS": "1",
        "COLUMNS": "400",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, *command], cwd=home / "project", env=environment, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


def outputs(home: Path, *, redact: bool) -> Outputs:
    """Run the program under whynan, with every output there is."""
    word = "redact" if redact else "plain"
    program = ["geheim_program.py", "--token", ARGUMENT]
    document, folder, known = home / "out" / f"{word}.json", home / "out" / word, home / "geheim_baseline.json"
    known.write_text(to_json(REPORTS["clean"]), "utf-8")
    options = ["--on-nonfinite", "continue", "--all", "--json", str(document), "--trace", str(folder)]
    options += ["--baseline", str(known), *(["--redact"] if redact else [])]
    done = ran(home, "-m", "whynan", "run", *options, *program)
    assert done.returncode == 1, done.stderr
    # what the program itself prints is its own: its warning, its traceback
    text, own, _ = done.stderr.partition("Traceback (most recent call last)")
    assert own
    text = text.split("\n", 2)[2] if "geheim_warning" in text else text
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    assert len(files) >= 6
    content = b"".join(str(file.relative_to(folder)).encode() + file.read_bytes() for file in files)
    return Outputs(text, document.read_text("utf-8"), content, folder)


@pytest.fixture(scope="module", params=[True, False], ids=["redacted", "plain"])
def made(request: pytest.FixtureRequest, home: Path) -> tuple[bool, Outputs]:
    """The outputs, with and without the option."""
    return request.param, outputs(home, redact=request.param)


@pytest.mark.parametrize("what", SECRETS)
def test_a_secret_is_in_no_output_and_without_the_option_it_is(made: tuple[bool, Outputs], what: str) -> None:
    redacted, found = made
    if redacted:
        assert found.holding(SECRETS[what]) == []
    else:
        assert found.holding(SECRETS[what])


@pytest.mark.parametrize("what", NEVER)
def test_what_is_never_recorded_is_in_no_output(made: tuple[bool, Outputs], what: str) -> None:
    assert made[1].holding(NEVER[what]) == []


def test_every_kind_of_finding_was_among_them(made: tuple[bool, Outputs]) -> None:
    report = parse_report(made[1].document)
    found = (*report.findings, *report.damaging, *report.absorbed)
    assert {f.fate for f in found} == {"escaped", "damaging", "absorbed"}
    assert {f.phase for f in found} >= {"forward", "backward", "accumulation", "optimizer"}
    assert {f.birth for f in found} >= {"overflow", "pole", "invalid", "entered"}
    assert len(found) >= 10


def test_the_secrets_are_many_and_in_each_output() -> None:
    assert len(SECRETS) + len(NEVER) >= 20


def test_nothing_of_the_program_is_in_any_output(made: tuple[bool, Outputs]) -> None:
    redacted, found = made
    places = found.holding("geheim")
    assert places == ([] if redacted else ["text", "document", "trace"])


def test_no_value_is_in_the_bytes_of_the_trace(made: tuple[bool, Outputs]) -> None:
    for form in ("<f", "<d", ">f", ">d", "<e"):
        assert struct.pack(form, NUMBER) not in made[1].trace


def test_a_redacted_document_is_shown_again_as_it_was(made: tuple[bool, Outputs]) -> None:
    redacted, found = made
    again = render(parse_report(found.document), width=400, show_all=True)
    assert ("geheim" in again.lower()) is not redacted
    assert "file 1" in again if redacted else "geheim_program.py" in again


def test_a_trace_and_its_report_call_a_thing_by_the_same_name(made: tuple[bool, Outputs]) -> None:
    redacted, found = made
    named = [
        {(f.phase, f.op, f.site, f.element.tensor, f.modules) for f in (*r.findings, *r.damaging, *r.absorbed)}
        for r in (parse_report(found.document), fold_report(report_of_directory(found.folder)))
    ]
    assert len(named[0]) >= 10
    assert named[0] <= named[1] if redacted else named[0] == named[1]


def test_a_redacted_trace_is_told_without_names_too(made: tuple[bool, Outputs]) -> None:
    redacted, found = made
    text = render(report_of_directory(found.folder), width=400, show_all=True)
    assert ("geheim" in text.lower()) is not redacted
    assert text.count(sentence(LEFT_OUT)) == redacted


STOPPED = """
import torch
geheim_leaf = torch.tensor([-0.7314159], requires_grad=True)
optimizer = torch.optim.SGD([geheim_leaf], 0.1)
geheim_leaf.log().sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize("redact", [True, False])
def test_the_error_that_ends_a_run_holds_no_secret(home: Path, redact: bool) -> None:
    (home / "project" / "stopped.py").write_text(STOPPED, "utf-8")
    options = ["--quiet", "--on-nonfinite", "raise", *(["--redact"] if redact else [])]
    done = ran(home, "-m", "whynan", "run", *options, "stopped.py")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("whynan.errors.NonFiniteError: ")
    assert ("geheim_leaf" in last, "0.731" in last) == (not redact, not redact)
