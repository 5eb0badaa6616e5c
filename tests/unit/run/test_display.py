"""A report in two parts on one stream: what the first has, what the second has, and what is never written twice."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest
import torch

import whynan
from tests.unit.report.programs import REPORTS, finding, report
from whynan.config import Options
from whynan.integrations.callback import TrainingWatch
from whynan.records import Member, Report
from whynan.report.terminal import render
from whynan.run.output.delivery import Delivery, Display
from whynan.run.pipeline import fold_report

ERASED = "\r\x1b[2K"


class Terminal(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, terminal: bool = True) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


def without_fixes(made: Report) -> Report:
    changed = {
        name: tuple(f.model_copy(update={"fixes": ()}) for f in getattr(made, name))
        for name in ("findings", "damaging")
    }
    return made.model_copy(update=changed)


@pytest.mark.parametrize("name", REPORTS)
def test_both_parts_are_the_report(name: str) -> None:
    made, out = fold_report(REPORTS[name]), Terminal(terminal=False)
    display = Display(lambda: out)
    display.explained(without_fixes(made))
    first = out.getvalue()
    display.explained(without_fixes(made))
    display.trying(1, 2)
    assert out.getvalue() == first
    assert bool(first) is bool(made.findings or made.damaging)
    assert " fix  " not in first
    display.finish(made)
    assert out.getvalue() == render(made, width=100) + "\n"


def test_a_terminal_says_how_far_the_proof_has_come() -> None:
    made, out = REPORTS["several"], Terminal()
    display = Display(lambda: out)
    display.explained(made)
    display.trying(2, 5)
    lines = out.getvalue().split(ERASED)[1:]
    more = len(made.findings) + len(made.damaging) - 1
    assert [line.split(";")[0] for line in lines] == [
        "  fix      trying to mend it ...",
        "  fix      trying 2 of 5 changes ...",
    ]
    assert all(line.endswith(f"; {more} more findings after it") for line in lines)
    display.finish(made)
    first, *_, rest = out.getvalue().split(ERASED)
    assert first + rest == render(made, width=100) + "\n"


@pytest.mark.parametrize("kind", ["dumb", "pipe", "none", "quiet"])
def test_elsewhere_there_is_no_such_line(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb" if kind == "dumb" else "xterm")
    out = Terminal(terminal=kind != "pipe")
    display = Display(lambda: None if kind == "none" else out, quiet=kind == "quiet")
    display.explained(REPORTS["forward"])
    display.trying(1, 2)
    assert ERASED not in out.getvalue()
    display.finish(REPORTS["forward"])
    assert out.getvalue() == ("" if kind in ("none", "quiet") else render(REPORTS["forward"], width=100) + "\n")


def test_a_birth_that_a_proof_has_shown_to_be_of_the_same_cause_is_named_then() -> None:
    out, one = Terminal(terminal=False), finding()
    member = Member(site=one.site, phase="backward", op="aten.div.Tensor", rule=one.rule)
    display = Display(lambda: out)
    display.explained(report(one))
    display.finish(report(one.model_copy(update={"also": (member,)})))
    rows = [line for line in out.getvalue().split("\n") if line.startswith("  also ")]
    assert rows == ["  also     the same in its backward"]


def test_where_the_finding_is_not_there_any_more_the_report_is_whole() -> None:
    made, out = REPORTS["forward"], Terminal(terminal=False)
    other = report(finding(rule="WN203", name="exp-overflow"))
    display = Display(lambda: out)
    display.explained(other)
    first = out.getvalue()
    display.finish(made)
    assert out.getvalue() == f"{first}\n{render(made, width=100)}\n"


def test_fixes_that_come_before_the_end_do_not_come_again() -> None:
    made, out = fold_report(REPORTS["several"]), Terminal(terminal=False)
    display = Display(lambda: out)
    display.explained(made)
    display.proved(made)
    assert render(made, width=100).startswith(out.getvalue())
    display.proved(made)
    display.finish(made)
    assert out.getvalue() == render(made, width=100) + "\n"


def test_an_error_of_our_own_leaves_the_finding_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    made, out = REPORTS["forward"], Terminal(terminal=False)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL", raising=False)
    display = Display(lambda: out)
    monkeypatch.setattr("whynan.report.terminal.opening", fails)
    with pytest.warns(RuntimeWarning, match="RuntimeError"):
        display.explained(made)
    display.finish(made)
    assert out.getvalue() == render(made, width=100) + "\n"


def test_a_stream_that_takes_nothing_is_no_error_of_our_own() -> None:
    class Full(Terminal):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    out = Full()
    delivery = Display(lambda: out)
    delivery.explained(REPORTS["forward"])
    delivery.trying(1, 2)
    with pytest.raises(OSError, match="No space left"):
        delivery.finish(REPORTS["forward"])


def test_both_parts_leave_out_what_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal(terminal=False)
    monkeypatch.setattr(sys, "__stderr__", out)
    whole = Delivery(Options(redact=True))
    whole.deliver(REPORTS["several"])
    text = out.getvalue()
    out.seek(0)
    out.truncate()
    parts = Delivery(Options(redact=True))
    parts.explained(without_fixes(REPORTS["several"]))
    assert "net.py" not in out.getvalue()
    parts.deliver(REPORTS["several"])
    assert out.getvalue() == text


# -- where a training is watched -------------------------------------------------------------------------------------


def train(weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
    """Three steps, the last of which has a zero in a logarithm."""
    for step in range(3):
        x = torch.tensor([1.0, 0.0 if step == 2 else 2.0])
        optimizer.zero_grad()
        torch.log(x * weight).sum().backward()
        optimizer.step()


def watched() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with whynan.watch(optimizer):
        train(weight, optimizer)


def called_back() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    watch = TrainingWatch(on_nonfinite=None, quiet=None)
    watch.begin("fit", lambda: None)
    train(weight, torch.optim.SGD([weight], lr=0.1))
    watch.end()


@pytest.mark.proof
@pytest.mark.parametrize(
    ("run", "waits"),
    [
        (watched, False),
        (called_back, True),
        pytest.param(watched, True, marks=pytest.mark.full),
        pytest.param(called_back, False, marks=pytest.mark.full),
    ],
)
def test_the_finding_of_a_watch_is_there_before_its_proof(
    run: Callable[[], None], waits: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from whynan.run.watch import replays

    before, prove = list[str](), replays.prove_fixes

    def proves(*given: object, **named: object) -> Report:
        before.append(capsys.readouterr().out)
        return prove(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(replays, "prove_fixes", proves)
    if waits:
        # the twin: the delivery waits
        monkeypatch.setattr(Display, "explained", lambda *_, **__: None)
    run()
    after = capsys.readouterr().out
    assert ["  born " in text for text in before] == [not waits]
    assert ("  born " in after) is waits
    assert "  fix      guarded: " in after
    assert "nonfinite: 1 error" in after
