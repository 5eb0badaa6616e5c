"""The report of a run comes in two parts: its first finding before the proof of fixes begins, the rest after it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.selection import sampled

pytestmark = [
    pytest.mark.process,
    pytest.mark.proof,
    pytest.mark.skipif(sys.platform == "win32", reason="of pseudo-terminals and signals"),
]

WHYNAN = Path(sys.executable).with_name("whynan")
TRAINING = """\
import torch

weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(4):
    x = torch.tensor([1.0, 0.0 if step == BAD else 2.0, 3.0, 4.0])
    optimizer.zero_grad()
    loss = torch.log(x * weight).sum()
GUARD    loss.backward()
    optimizer.step()
print("done", flush=True)
"""
GUARD = '    if not loss.isfinite():\n        raise SystemExit("the loss is not finite")\n'
PROGRAMS = {
    "a watched step": TRAINING.replace("BAD", "2").replace("GUARD", ""),
    "the first step": TRAINING.replace("BAD", "0").replace("GUARD", ""),
    "no step": "import torch\n\nx = torch.tensor([1.0, 0.0], requires_grad=True)\ntorch.log(x).sum().backward()\n",
    "an exception": "import torch\n\nx = torch.tensor([1.0, 0.0])\ny = torch.log(x)\nif y.isinf().any():\n"
    '    raise ValueError("Inf in y")\n',
}
PATCHES = """\
import os
import signal

import whynan.run.output.delivery as delivery
import whynan.run.proof.proving as proving
import whynan.run.proof.trials as trials
import whynan.run.region as region
import whynan.run.watch.replays as replays

prove, judge = proving.prove_fixes, trials.judge_candidate


def begins(*given, **named):
    os.write(2, b"<a proof begins>")
    return prove(*given, **named)


def interrupted(*given, **named):
    os.kill(os.getpid(), signal.SIGINT)
    return judge(*given, **named)


def fails(*given, **named):
    raise RuntimeError("planted")


region.prove_fixes = replays.prove_fixes = begins
CHANGE
"""
"""What Python loads before whynan's command."""
WAITS = "delivery.Display.explained = lambda *_: None"
INTERRUPTED = "trials.judge_candidate = interrupted"
FAILS = "trials.judge_candidate = fails; os.environ.pop('WHYNAN_RAISE_INTERNAL', None)"
VERDICT = re.compile("  fix      (verified|guarded|distorting): ")
BEGINS = "<a proof begins>"
_CODES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Ran:
    """What a run has left: its status, what it wrote to the error stream, its report."""

    status: int
    text: str
    report: dict[str, Any]

    @property
    def fixes(self) -> list[dict[str, Any]]:
        """The verdicts of all its fixes."""
        return [fix["verdict"] for finding in self.report["findings"] for fix in finding["fixes"]]


def run(folder: Path, program: str, change: str = "", *options: str, terminal: bool = False) -> Ran:
    """Run a program under whynan, which says where a proof begins; its error stream a pipe, or a pseudo-terminal."""
    (folder / "bad.py").write_text(program, encoding="utf-8")
    (folder / "before").mkdir(exist_ok=True)
    (folder / "before" / "sitecustomize.py").write_text(PATCHES.replace("CHANGE", change), encoding="utf-8")
    command = [str(WHYNAN), "run", "--json", "r.json", *options, "bad.py"]
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm", "PYTHONPATH": str(folder / "before")}
    ours, theirs = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    parts: list[bytes] = []
    try:
        while part := os.read(ours, 65_536):
            parts.append(part)
    except OSError:
        # what Linux says where nobody has a pseudo-terminal open any more
        pass
    os.close(ours)
    process.communicate()
    written = folder / "r.json"
    return Ran(process.returncode, b"".join(parts).decode(), json.loads(written.read_text("utf-8")))


def shown(text: str) -> str:
    """What stands on a terminal in the end: without colours, and without lines that were taken away."""
    lines = _CODES.sub("", text).replace(BEGINS, "").replace("\r\n", "\n").split("\n")
    return "\n".join(line.rpartition("\r\x1b[2K")[2] for line in lines)


def order(text: str) -> list[str]:
    """What came when: the finding, the beginning of the first proof, its verdict."""
    plain = _CODES.sub("", text)
    verdict = next((match.start() for match in VERDICT.finditer(plain)), -1)
    found = {"born": plain.find("  born "), "proof": plain.find(BEGINS), "verdict": verdict}
    assert min(found.values()) >= 0, plain
    return sorted(found, key=lambda name: found[name])


@pytest.mark.parametrize("name", sampled(PROGRAMS, 2))
def test_the_finding_is_there_before_a_proof_begins(name: str, tmp_path: Path) -> None:
    ran = run(tmp_path, PROGRAMS[name], terminal=True)
    assert order(ran.text) == ["born", "proof", "verdict"]
    assert ran.status == 1


@pytest.mark.full
def test_a_report_that_waits_for_its_proof_is_noticed(tmp_path: Path) -> None:
    ran = run(tmp_path, PROGRAMS["a watched step"], WAITS, terminal=True)
    assert order(ran.text) == ["proof", "born", "verdict"]


@pytest.mark.full
def test_both_parts_are_one_report(tmp_path: Path) -> None:
    program = PROGRAMS["a watched step"]
    whole = run(tmp_path, program, WAITS).text.replace(BEGINS, "")
    parts = run(tmp_path, program)
    assert order(parts.text) == ["born", "proof", "verdict"]
    assert parts.text.replace(BEGINS, "") == whole
    assert shown(run(tmp_path, program, terminal=True).text) == whole
    assert whole.count("  born ") == 1


@pytest.mark.full
def test_a_terminal_has_a_line_of_progress_that_goes(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    text = _CODES.sub("", run(tmp_path, PROGRAMS["a watched step"], terminal=True).text)
    lines = re.findall(r"\r\x1b\[2K([^\r\n]*)", text)
    assert lines[:-1] == snapshot
    assert "\x1b[2K" not in run(tmp_path, PROGRAMS["a watched step"]).text


@pytest.mark.full
def test_quiet_nothing_is_shown(tmp_path: Path) -> None:
    ran = run(tmp_path, PROGRAMS["a watched step"], "", "--quiet", terminal=True)
    assert ran.text.replace(BEGINS, "") == ""
    assert ran.fixes[0]["status"] == "distorting"


@pytest.mark.parametrize("name", ["a watched step", "no step"])
def test_an_interrupt_ends_the_proof_and_the_report_comes(
    name: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    ran = run(tmp_path, PROGRAMS[name], INTERRUPTED)
    assert ran.status == 1
    assert {fix["why"] for fix in ran.fixes} == {"not tried (interrupted)"}
    assert ran.text.count("  born ") == 1
    assert " ".join(ran.text.replace(BEGINS, "").partition("  fix ")[2].replace(str(tmp_path), "").split()) == snapshot


@pytest.mark.full
def test_a_program_that_would_go_on_is_interrupted(tmp_path: Path) -> None:
    ran = run(tmp_path, PROGRAMS["a watched step"], INTERRUPTED, "--on-nonfinite", "continue")
    assert "KeyboardInterrupt" in ran.text
    assert ran.status == -2
    assert {fix["why"] for fix in ran.fixes} == {"not tried (interrupted)"}


@pytest.mark.full
def test_an_error_in_a_proof_leaves_the_finding(tmp_path: Path) -> None:
    ran = run(tmp_path, PROGRAMS["a watched step"], FAILS)
    assert ran.status == 1
    assert ran.text.count("  born ") == 1
    assert "RuntimeWarning: whynan met an error of its own (RuntimeError)" in ran.text
    assert {fix["status"] for fix in ran.fixes} == {"unverified"}


@pytest.mark.full
@pytest.mark.parametrize("option", sampled(["continue", "raise"], 2))
def test_what_does_not_stop_ends_as_it_did(option: str, tmp_path: Path) -> None:
    ran = run(tmp_path, PROGRAMS["a watched step"], "", "--on-nonfinite", option)
    assert ran.text.count("  born ") == 1
    assert order(ran.text) == (["proof", "born", "verdict"] if option == "continue" else ["born", "proof", "verdict"])


@pytest.mark.full
@pytest.mark.parametrize("bad", sampled(["0", "2"], 2))
def test_what_a_program_says_as_it_ends_itself_comes_after_the_verdict_of_its_finding(bad: str, tmp_path: Path) -> None:
    text = run(tmp_path, TRAINING.replace("BAD", bad).replace("GUARD", GUARD)).text
    verdict, *_ = (match.start() for match in VERDICT.finditer(text))
    assert text.index("  born ") < text.index(BEGINS) < verdict
    assert verdict < text.index("the loss is not finite") < text.index("nonfinite: ")
    assert text.count("  born ") == 1
