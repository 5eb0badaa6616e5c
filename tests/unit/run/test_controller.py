"""A program that is attended from within: what one report of its first step, its evaluations and its bad step says."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import whynan
from whynan import faults
from whynan.config import Options
from whynan.errors import NonFiniteError
from whynan.run.controller import Controller
from whynan.run.isolation import Isolation
from whynan.run.pipeline import merge_reports
from whynan.run.script import Beginning
from whynan.run.script import Program as Script

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from whynan.records import Report

BAD = 4


class Net(nn.Module):
    """Takes logarithms of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logarithms, weighted."""
        return self.last(torch.log(x))


def batch(bad: bool = False) -> Tensor:
    """Positive numbers, or with one zero among them."""
    x = torch.rand(8, 4) + 0.1
    if bad:
        x[2, 1] = 0.0
    return x


NETS = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(4, 1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        return self.last(torch.log(x))


class Counted(Net):
    def forward(self, x):
        self.seen += 1 + torch.rand(())
        return self.last(torch.log(x))


class Drawn(Net):
    def forward(self, x):
        rows = x / x.sum(1, keepdim=True)
        return torch.distributions.Normal(rows, 1.0, validate_args=True).log_prob(x)
"""
"""Models of a file of their own, in which edits can be tried."""


class Program:
    """A model with its optimizer, for programs that train and evaluate."""

    def __init__(self, made: Callable[[], nn.Module] = Net) -> None:
        torch.manual_seed(0)
        self.net = made()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def fit(self, steps: int, bad: int | None = None) -> None:
        """Train, with a bad batch at one of the steps."""
        for step in range(1, steps + 1):
            self.optimizer.zero_grad()
            loss = self.net(batch(step == bad)).square().mean()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def score(self, x: Tensor) -> Tensor:
        """What the model says of some rows."""
        return self.net(x)


def controller(options: Options) -> Controller:
    """The controller of a script that nothing stands beside."""
    return Controller(Beginning(Script("script", "train.py")), options, Isolation(list(sys.path), frozenset()))


def attended(program: Callable[[], Any], folder: Path, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The report of a program, whynan's exit status, and the exception that the program ended by."""
    path = folder / "report.json"
    session = controller(Options(json=str(path), quiet=True, **options))
    session.begin()
    error: BaseException | None = None
    try:
        program()
    except (Exception, SystemExit) as raised:
        error = raised
    session.end(error)
    return json.loads(path.read_text(encoding="utf-8")), {"whynan": session.whynan, "error": error}


@pytest.mark.full
def test_a_bad_step_stops_the_program_and_is_told_with_its_first_step(tmp_path: Path) -> None:
    program = Program()
    report, word = attended(lambda: program.fit(6, bad=BAD), tmp_path)
    (finding,) = report["findings"]
    assert (report["verdict"], finding["rule"], finding["step"]) == ("nonfinite", "WN201", BAD)
    assert finding["element"]["index"] == [2, 1]
    assert report["run"]["replay"]["faithful"] is True
    assert word["whynan"] == 1
    assert report["run"]["exit_status"] == {"script": None, "whynan": 1}
    assert isinstance(word["error"], SystemExit)
    # the first step was traced, the others were watched
    assert report["coverage"]["events"] > 0


@pytest.mark.full
def test_a_program_may_go_on_after_its_bad_step(tmp_path: Path) -> None:
    program = Program()
    report, word = attended(lambda: program.fit(6, bad=BAD), tmp_path, on_nonfinite="continue")
    assert (report["verdict"], word["error"]) == ("nonfinite", None)
    # after it the weights are bad, which every later step shows
    assert any("2 more steps bad after that" in note for note in report["coverage"]["notes"])


@pytest.mark.proof
def test_a_bad_step_may_raise_where_it_is(tmp_path: Path) -> None:
    program = Program()
    report, word = attended(lambda: program.fit(6, bad=BAD), tmp_path, on_nonfinite="raise")
    assert isinstance(word["error"], NonFiniteError)
    assert word["error"].finding.rule == report["findings"][0]["rule"] == "WN201"


@pytest.mark.proof
def test_the_first_evaluation_of_a_kind_is_looked_at_as_it_runs_and_its_fixes_are_proved(
    tmp_path: Path, loaded: Callable[[str], ModuleType]
) -> None:
    program = Program(loaded(NETS).Net)

    def work() -> None:
        program.fit(3)
        program.score(batch(bad=True))
        program.score(batch())

    report, word = attended(work, tmp_path)
    (finding,) = report["findings"]
    assert (finding["rule"], finding["step"], finding["element"]["index"]) == ("WN201", 4, [2, 1])
    assert "output" in {reached["kind"] for reached in finding["reaches"]}
    assert finding["fixes"][0]["verdict"]["status"] == "guarded"
    assert isinstance(word["error"], SystemExit)


@pytest.mark.full
def test_what_is_proved_of_an_evaluation_leaves_nothing_behind(
    tmp_path: Path, loaded: Callable[[str], ModuleType]
) -> None:
    """What the module keeps, and the random numbers, are as after one call."""
    module, states = loaded(NETS), list[tuple[Any, ...]]()
    for prove in (False, True):
        program = Program(module.Counted)

        def work(program: Program = program) -> None:
            program.fit(3)
            program.score(batch(bad=True))

        report, _ = attended(work, tmp_path, on_nonfinite="continue", prove=prove)
        (finding,) = report["findings"]
        states.append((program.net.seen, torch.get_rng_state().tolist()))
        assert any(fix["verdict"]["status"] == "guarded" for fix in finding["fixes"]) is prove
    assert states[0] == states[1]


@pytest.mark.full
def test_of_an_evaluation_that_raises_for_what_it_holds_fixes_are_proved(
    tmp_path: Path, loaded: Callable[[str], ModuleType]
) -> None:
    module = loaded(NETS)
    program = Program(module.Net)

    def work() -> None:
        program.fit(3)
        program.net.__class__ = module.Drawn
        x = batch()
        x[2] = 0.0
        program.score(x)

    report, word = attended(work, tmp_path)
    (finding,) = report["findings"]
    assert (finding["rule"], finding["fixes"][0]["verdict"]["status"]) == ("WN101", "guarded")
    assert isinstance(word["error"], ValueError)


@pytest.mark.full
def test_a_later_evaluation_that_is_bad_is_run_again(tmp_path: Path, loaded: Callable[[str], ModuleType]) -> None:
    program = Program(loaded(NETS).Net)

    def work() -> None:
        for epoch in range(3):
            program.fit(2)
            program.score(batch(bad=epoch == 2))

    report, _ = attended(work, tmp_path)
    (finding,) = report["findings"]
    assert (finding["rule"], finding["element"]["index"]) == ("WN201", [2, 1])
    assert report["run"]["replay"]["kind"] == "step"
    assert report["run"]["replay"]["faithful"] is True
    assert finding["fixes"][0]["verdict"]["status"] == "guarded"


@pytest.mark.parametrize("first", [0, 2])
def test_what_an_evaluation_gave_and_the_program_mends_ends_nothing(first: int, tmp_path: Path) -> None:
    """The first of its kind, or a later one."""
    program = Program()

    def work() -> None:
        for epoch in range(4):
            program.fit(2)
            program.score(batch(bad=epoch >= first)).nan_to_num(neginf=-5.0).sum().item()

    report, word = attended(work, tmp_path)
    assert (report["verdict"], report["findings"], word["error"]) == ("clean", [], None)


@pytest.mark.parametrize("end", ["the program ends", "it raises", "a step follows"])
def test_what_an_evaluation_gave_is_told_where_the_program_goes_on(end: str, tmp_path: Path) -> None:
    program = Program()

    def work() -> None:
        for epoch in range(3):
            program.fit(2)
            program.score(batch(bad=epoch == 2))
        if end == "it raises":
            raise LookupError(end)
        if end == "a step follows":
            program.fit(1)

    report, word = attended(work, tmp_path, prove=False)
    (finding,) = report["findings"]
    assert (finding["rule"], finding["severity"]) == ("WN201", "error")
    expected = {"the program ends": type(None), "it raises": LookupError, "a step follows": SystemExit}
    assert type(word["error"]) is expected[end]


@pytest.mark.parametrize("way", ["before a step", "in a thread"])
def test_a_bad_evaluation_that_a_step_follows_at_once_or_in_a_thread(way: str, tmp_path: Path) -> None:
    """A step walks over torch's hooks meanwhile; a thread may have ended before the program goes on."""
    program = Program()

    def evaluate() -> None:
        with contextlib.suppress(SystemExit):
            program.score(batch(bad=True))

    def work() -> None:
        program.fit(2)
        if way == "in a thread":
            thread = threading.Thread(target=evaluate)
            thread.start()
            thread.join()
            program.fit(1)
        else:
            program.score(batch())
            program.net(batch()).sum().backward()
            program.score(batch(bad=True))
            program.optimizer.step()

    report, word = attended(work, tmp_path, prove=False, on_nonfinite="continue")
    (finding,) = report["findings"]
    assert (finding["rule"], finding["severity"], word["error"]) == ("WN201", "error", None)


@pytest.mark.parametrize(("width", "error"), [(4, type(None)), (3, RuntimeError)])
def test_a_module_that_vmap_calls_is_no_evaluation(width: int, error: type, tmp_path: Path) -> None:
    """What it gives there has no numbers that could be read, nor has what an exception leaves."""
    program = Program()

    def work() -> None:
        program.fit(2)
        with torch.no_grad():
            torch.func.vmap(program.net)(torch.ones(3, 2, width))

    report, word = attended(work, tmp_path)
    assert (report["verdict"], type(word["error"])) == ("clean", error)
    assert "error of its own" not in str(report["coverage"]["notes"])


@pytest.mark.parametrize("first", [0, 1])
def test_where_it_is_to_be_raised_it_is_so_at_its_own_call(first: int, tmp_path: Path) -> None:
    program, raised = Program(), list[int]()

    def work() -> None:
        for epoch in range(2):
            program.fit(2)
            try:
                program.score(batch(bad=epoch >= first)).nan_to_num()
            except NonFiniteError:
                raised.append(epoch)

    attended(work, tmp_path, prove=False, on_nonfinite="raise")
    assert raised == [first]


@pytest.mark.parametrize("own", ["explain", "trace", "watch"])
def test_a_region_of_the_programs_own_loses_no_evaluation(own: str, tmp_path: Path) -> None:
    program = Program()

    def work() -> None:
        program.fit(2)
        program.score(batch())
        program.fit(1)
        program.score(batch(bad=True))
        if own == "explain":
            whynan.explain(torch.ones, 1)
        elif own == "trace":
            with whynan.trace():
                torch.ones(1)
        else:
            with whynan.watch(program.net, program.optimizer):
                program.fit(1)

    report, _ = attended(work, tmp_path, prove=False, on_nonfinite="continue")
    assert "WN201" in {finding["rule"] for finding in report["findings"]}
    assert torch._C._len_torch_dispatch_stack() == 0


def test_below_a_mode_of_the_programs_it_is_told_at_once(tmp_path: Path) -> None:
    """A mode that the program takes off is the last that was put on."""
    from torch.utils.flop_counter import FlopCounterMode

    program = Program()

    def work() -> None:
        program.fit(2)
        with FlopCounterMode(display=False):
            program.score(batch(bad=True)).nan_to_num()

    _, word = attended(work, tmp_path, prove=False)
    assert isinstance(word["error"], SystemExit)


def test_an_evaluation_that_cannot_be_run_again_is_said_to_be(tmp_path: Path) -> None:
    program = Program()
    calls = []

    class Counting(Net):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(len(calls))
            if len(calls) > 5:
                raise RuntimeError("called once too often")
            return super().forward(x) * float("inf" if len(calls) == 5 else 1.0) * 0.0

    counting = Counting()

    def score(x: Tensor) -> Tensor:
        with torch.no_grad():
            return counting(x)

    def work() -> None:
        program.fit(2)
        for _ in range(5):
            score(batch())

    report, word = attended(work, tmp_path)
    assert word["error"] is None
    assert report["verdict"] == "inconclusive"
    (note,) = [n for n in report["coverage"]["notes"] if "could not be run again" in n]
    assert note.endswith("it raises RuntimeError")


def test_good_evaluations_change_nothing(tmp_path: Path) -> None:
    program = Program()

    def work() -> None:
        for _ in range(3):
            program.fit(2)
            program.score(batch())

    report, word = attended(work, tmp_path)
    assert (report["verdict"], word["whynan"], word["error"]) == ("clean", 0, None)
    assert any(note.startswith("5 steps watched") for note in report["coverage"]["notes"])


@pytest.mark.proof
def test_a_number_that_is_read_before_the_end_is_looked_into(tmp_path: Path) -> None:
    program = Program()

    def work() -> None:
        program.fit(3)
        loss = program.net(batch(bad=True)).square().mean()
        if not loss.item() < 1e9:
            raise FloatingPointError("no number")

    report, word = attended(work, tmp_path)
    (finding,) = report["findings"]
    assert (finding["rule"], finding["element"]["index"]) == ("WN201", [2, 1])
    assert isinstance(word["error"], FloatingPointError)
    assert report["run"]["exception"].startswith("FloatingPointError")
    assert report["run"]["exit_status"] == {"script": 1, "whynan": 1}


@pytest.mark.proof
def test_strict_makes_a_warning_count(tmp_path: Path) -> None:
    program = Program()

    def work() -> None:
        program.fit(2)
        program.net(batch(bad=True)).square().mean().item()
        program.fit(2)

    report, word = attended(work, tmp_path)
    assert (report["verdict"], word["whynan"]) == ("damaged", 0)
    assert attended(work, tmp_path, strict=True)[1]["whynan"] == 1


def test_a_forked_child_looks_at_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    session = controller(Options(json=str(path), quiet=True))
    session.begin()
    session.after_fork()
    Program().fit(6, bad=BAD)
    session.end()
    assert session.whynan == 0
    assert not path.exists()


@pytest.mark.proof
def test_how_the_program_ended_is_put_into_the_report_of_one_that_went_on(tmp_path: Path) -> None:
    program, path = Program(), tmp_path / "report.json"
    session = controller(Options(json=str(path), quiet=True, on_nonfinite="raise"))
    session.begin()
    with pytest.raises(NonFiniteError):
        program.fit(6, bad=BAD)
    assert json.loads(path.read_text())["run"]["exit_status"] == {"script": 0, "whynan": 1}
    session.end(script=3)
    assert json.loads(path.read_text())["run"]["exit_status"] == {"script": 3, "whynan": 1}


@pytest.mark.full
def test_an_earlier_report_and_a_trace_are_taken_and_made(tmp_path: Path) -> None:
    first = Program()
    attended(lambda: first.fit(6, bad=BAD), tmp_path)
    known = tmp_path / "known.json"
    (tmp_path / "report.json").rename(known)
    second = Program()
    folder = tmp_path / "trace"
    report, word = attended(
        lambda: second.fit(6, bad=BAD), tmp_path, baseline=str(known), trace=str(folder), redact=True
    )
    assert (report["findings"], word["whynan"]) == ([], 0)
    assert any(folder.iterdir())


def test_merged_pieces_are_each_told_once() -> None:
    import whynan

    def bad() -> Tensor:
        return torch.log(torch.zeros(2))

    one = whynan.explain(bad)
    clean = whynan.explain(lambda: torch.ones(2))
    first, second = (
        one.model_copy(update={"findings": tuple(f.model_copy(update={"step": step}) for f in one.findings)})
        for step in (1, 2)
    )
    both: Report = merge_reports(clean, first, second)
    (finding,) = both.findings
    assert (both.verdict, finding.occurrences) == ("nonfinite", 2 * one.findings[0].occurrences)
    # what two pieces have seen of one step is one birth
    assert merge_reports(first, first).findings[0].occurrences == one.findings[0].occurrences
    assert both.run.exit_status.whynan == 1
    assert both.coverage.events == clean.coverage.events + 2 * one.coverage.events
    assert merge_reports(clean) is clean


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Nothing that is meant to last as long as the process outlasts a test, nor a watch of one that failed."""
    monkeypatch.setattr(faults, "_told", None)
    yield
    from whynan.run.watch import training

    for left in tuple(training._active):
        left.end()
