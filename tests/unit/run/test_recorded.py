"""A run and its trace: the folder gives the report that the run gave."""

from __future__ import annotations

import importlib.util
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from syrupy.assertion import SnapshotAssertion
from torch import Tensor, nn

import whynan
from tests.selection import examples
from tests.unit.analysis.facts import birth, sink, trace
from tests.unit.traces.folders import FOUND, change, document, recorded
from tests.unit.traces.strategies import traces
from whynan.api import Trace
from whynan.config import Options
from whynan.records import Report
from whynan.report.json import to_json
from whynan.run.guarded_capture import CaptureOptions
from whynan.run.output.run_trace import report_of_directory, report_of_recorded, update_trace
from whynan.run.region import Region
from whynan.run.suppressions import Baseline, comments_of
from whynan.traces import Trace as Facts
from whynan.traces.format import Meant, SessionPart
from whynan.traces.reader import Recorded, read_trace
from whynan.traces.writer import TraceWriter

ROOT = Path(__file__).parents[3]


def example(name: str) -> Any:
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / name / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gem_pooling() -> None:
    example("gem_pooling").train(3, 0.0)


def gem_pooling_mended() -> None:
    example("gem_pooling").train(2, 1e-6)


def accumulation() -> None:
    x = torch.full((1,), 65000.0, dtype=torch.float16, requires_grad=True)
    for _ in range(3):
        (x * 3e4).sum().backward()


def opposite_infinities() -> None:
    x = torch.zeros(1, requires_grad=True)
    (x.sqrt() - x.clone().sqrt()).sum().backward()


def optimizer() -> None:
    x = torch.ones(3, requires_grad=True)
    adam = torch.optim.Adam([x], lr=0.1, eps=0.0, foreach=False)
    for _ in range(2):
        adam.zero_grad()
        (x[:2] * 2).sum().backward()
        adam.step()


def two_optimizers() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(m.parameters(), lr=1e30, momentum=0.9) for m in (first, second)]
    for _ in range(6):
        for one in optimizers:
            one.zero_grad()
            second(first(torch.ones(4, 2))).square().sum().backward()
            one.step()


def literal() -> None:
    x = torch.ones(2, requires_grad=True)
    (x * torch.full((2,), -torch.inf)).sum().backward()


def masked() -> None:
    scores = torch.randn(2, 4, requires_grad=True)
    mask = torch.tensor([[True] * 4, [False] * 4])
    scores.masked_fill(~mask, -torch.inf).softmax(-1).sum().backward()


def damaging() -> None:
    x = torch.tensor([300.0, 300.0], dtype=torch.float16)
    (x * x.square().mean().rsqrt()).tolist()


def clipped() -> None:
    model = nn.Linear(2, 1)
    model(torch.full((1, 2), 1e30)).square().sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def absorbed() -> None:
    for _ in range(40):
        torch.where(torch.tensor([True, False]), torch.tensor([1.0, 2.0]), torch.zeros(2).log()).sum().item()


DIRTY = torch.tensor([[1.0, torch.nan], [1.0, 2.0]])


def entered() -> None:
    nn.Linear(2, 1)(DIRTY).sum().backward()


def many_modules() -> None:
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sqrt()

    model = nn.Sequential(*(Root() for _ in range(4)))
    model(torch.tensor([-1.0], requires_grad=True)).sum().backward()


def from_another_trace() -> None:
    model = nn.Linear(1, 1)
    model.register_buffer("seen", torch.full((1,), torch.nan))
    model(torch.ones(1, 1)).sum().backward()
    model.seen += 1  # type: ignore[operator]


def skipped() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    model = nn.Linear(2, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        sgd.zero_grad()
        scaler.scale(model(torch.ones(1, 2)).square().sum()).backward()
        scaler.step(sgd)
        scaler.update()


PROGRAMS: dict[str, Callable[[], None]] = {
    program.__name__: program
    for program in (
        gem_pooling, gem_pooling_mended, accumulation, opposite_infinities, optimizer, two_optimizers, literal, masked,
        damaging, clipped, absorbed, entered, many_modules, from_another_trace, skipped,
    )
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "t"


def told(program: Callable[[], None], folder: Path, *, redact: bool = False, **options: Any) -> tuple[Report, Report]:
    """The report of a run, and that of its trace."""
    writer = TraceWriter(folder, redact=redact)
    with Trace(recording=writer, **options) as region:
        program()
    assert writer.note is None
    return region.report, report_of_directory(folder)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_trace_gives_the_report_of_its_run(name: str, folder: Path) -> None:
    torch.manual_seed(0)
    live, again = told(PROGRAMS[name], folder)
    assert to_json(again) == to_json(live)
    assert str(again) == str(live)


@pytest.mark.breadth
def test_the_programs_are_of_every_kind() -> None:
    verdicts: set[str] = set()
    kinds: set[str] = set()
    for program in PROGRAMS.values():
        torch.manual_seed(0)
        with whynan.trace() as region:
            program()
        verdicts.add(region.report.verdict)
        kinds |= {f.birth for f in (*region.report.findings, *region.report.damaging, *region.report.absorbed)}
    assert {"clean", "damaged", "nonfinite"} <= verdicts
    assert kinds == {"overflow", "pole", "invalid", "entered", "literal"}


def test_two_runs_that_differ_have_other_reports(tmp_path: Path) -> None:
    _, first = told(literal, tmp_path / "a")
    _, second = told(masked, tmp_path / "b")
    assert to_json(first) != to_json(second)


def test_ranges_come_back(folder: Path) -> None:
    live, again = told(optimizer, folder, ranges=True)
    assert len(live.ranges) > 20
    assert to_json(again) == to_json(live)


def test_an_exception_comes_back(folder: Path) -> None:
    def program() -> None:
        loss = torch.zeros(1).log()
        raise ValueError(f"loss is {loss.item()}")

    writer = TraceWriter(folder)
    with pytest.raises(ValueError, match="loss is"), Trace(recording=writer, quiet=True) as region:
        program()
    again = report_of_directory(folder)
    assert to_json(again) == to_json(region.report)
    assert again.run.exception == "ValueError: loss is -inf"


def test_allowances_come_back_and_those_that_excused_nothing(folder: Path) -> None:
    def program() -> None:
        with whynan.allow("WN2", reason="empty rows"), whynan.allow("WN999", reason="never") as _:
            torch.zeros(1, requires_grad=True).log().sum().backward()

    with pytest.raises(whynan.WhynanError):
        program()

    def legal() -> None:
        with whynan.allow("WN2", reason="empty rows"), whynan.allow("WN4", reason="never"):
            torch.zeros(1, requires_grad=True).log().sum().backward()

    live, again = told(legal, folder)
    assert live.verdict == "clean"
    assert live.unused_allows == ("WN4",)
    assert to_json(again) == to_json(live)


def test_a_comment_of_the_source_still_holds_when_the_source_is_gone(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "import torch\n\n\ndef work():\n"
        "    x = torch.zeros(1, requires_grad=True)\n"
        "    x.log().sum().backward()  # whynan: allow WN201, WN302 (meant)\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    writer = TraceWriter(folder)
    with Trace(recording=writer) as region:
        scope["work"]()
    assert region.report.verdict == "clean"
    file.unlink()
    assert to_json(report_of_directory(folder)) == to_json(region.report)


def test_what_an_earlier_report_knew_is_known(tmp_path: Path) -> None:
    live, _ = told(literal, tmp_path / "a")
    earlier = tmp_path / "earlier.json"
    earlier.write_text(to_json(live), encoding="utf-8")
    writer = TraceWriter(tmp_path / "b")
    region = Region(Options(), command="trace", watched=CaptureOptions(recording=writer))
    region.baseline = Baseline.read(str(earlier))
    with region:
        literal()
    assert (live.verdict, region.report.verdict) == ("nonfinite", "clean")
    earlier.unlink()
    assert to_json(report_of_directory(tmp_path / "b")) == to_json(region.report)


def test_notes_of_the_session_come_back(folder: Path) -> None:
    writer = TraceWriter(folder)
    with Trace(recording=writer, yields=True) as region, whynan.trace():
        pass
    assert any("traces itself" in note for note in region.report.coverage.notes)
    assert to_json(report_of_directory(folder)) == to_json(region.report)


def test_a_status_that_is_known_later_is_told_again(folder: Path) -> None:
    writer = TraceWriter(folder)
    with Trace(recording=writer) as region:
        literal()
    status = region.report.run.exit_status.model_copy(update={"script": None})
    final = region.report.model_copy(update={"run": region.report.run.model_copy(update={"exit_status": status})})
    update_trace(writer, final)
    assert to_json(report_of_directory(folder)) == to_json(final)


def test_a_failure_of_our_own_comes_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    monkeypatch.setattr("whynan.capture.torch.provenance.births.BadEvents.explain_event", lambda *_, **__: 1 / 0)
    writer = TraceWriter(folder)
    with pytest.warns(RuntimeWarning, match="an error of its own"), Trace(recording=writer) as region:
        literal()
    assert region.report.verdict == "inconclusive"
    assert to_json(report_of_directory(folder)) == to_json(region.report)


@pytest.mark.parametrize("name", ["_begin", "_end"])
def test_a_failure_to_record_leaves_the_run_alone(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    monkeypatch.setattr(f"whynan.run.output.run_trace.{name}", lambda *_: 1 / 0)
    writer = TraceWriter(folder)
    with pytest.warns(RuntimeWarning, match="an error of its own"), Trace(recording=writer) as region:
        literal()
    assert {f.birth for f in region.report.findings} == {"literal"}


# -- a disk that is full ---------------------------------------------------------------------------------------------


def test_a_trace_that_had_to_stop_is_a_note_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = TraceWriter("t")
    with Trace(recording=writer) as region:
        os.rename("t", "u")
        literal()
    assert {f.birth for f in region.report.findings} == {"literal"}
    assert region.report.coverage.notes == snapshot


def test_a_trace_that_stopped_at_its_very_end_is_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = TraceWriter("t")
    end = writer.end
    monkeypatch.setattr(writer, "end", lambda *told: (os.rename("t", "u"), end(*told)))
    with Trace(recording=writer) as region:
        literal()
    assert region.report.coverage.notes == snapshot
    assert {f.birth for f in report_of_directory("u").findings} == {"literal"}


# -- a run that did not end its trace --------------------------------------------------------------------------------


def test_an_unfinished_trace_is_judged_as_if_the_run_had_ended_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "t", finished=False)
    found = report_of_directory("t")
    assert (found.verdict, found.run.exit_status.script, found.run.exit_status.whynan) == ("nonfinite", None, 1)
    assert found.unused_allows == ()
    assert [(s.file, s.sha256) for s in found.run.sources] == [("net.py", "0" * 64)]
    assert str(found) == snapshot


def test_a_healthy_run_that_did_not_end_is_clean_as_far_as_it_goes(folder: Path) -> None:
    recorded(folder, facts=trace([], [], fatal_seen=True), finished=False)
    found = report_of_directory(folder)
    assert found.verdict == "clean"
    assert "unfinished" in found.coverage.notes[0]


def test_a_run_without_facts_is_inconclusive(folder: Path, snapshot: SnapshotAssertion) -> None:
    recorded(folder, facts=None, finished=False)
    found = report_of_directory(folder)
    assert found.verdict == "inconclusive"
    assert str(found) == snapshot


def test_an_unfinished_run_is_excused_by_a_source_that_is_still_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    monkeypatch.chdir(tmp_path)
    source = "x.log()  # whynan: allow WN000\n"
    (tmp_path / "net.py").write_text(source)
    recorded(tmp_path / "t", finished=False, facts=trace([birth(1)], [sink(1)]))
    place = ("facts.json", "sources", 0, "sha256")
    change(tmp_path / "t" / place[0], *place[1:], to=hashlib.sha256(source.encode()).hexdigest())
    assert report_of_directory("t").verdict == "clean"
    change(tmp_path / "t" / place[0], *place[1:], to="0" * 64)
    assert report_of_directory("t").verdict == "nonfinite"


# -- strangers -------------------------------------------------------------------------------------------------------


def as_read(facts: Facts, events: Any) -> Recorded:
    """Facts as if they had been read from a folder."""
    return Recorded(
        run=read_run(), session=SessionPart(), options={}, started="", ended="now", trace=facts,
        allowances=tuple(Meant(pattern="WN5", reason="") for _ in range(2)), sources={}, events=events,
    )  # fmt: skip


def read_run() -> Any:
    from tests.unit.traces.folders import RUN

    return RUN


@pytest.mark.breadth
@given(traces())
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_facts_that_can_be_read_make_a_report(facts: Facts) -> None:
    made = report_of_recorded(as_read(facts, None))
    assert Report.from_json(to_json(made)).verdict == made.verdict
    assert str(made)


def test_no_file_that_a_trace_names_is_read_for_its_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(folder)

    def read(*told: Any) -> None:
        raise AssertionError(told)

    monkeypatch.setattr("whynan.run.pipeline.sha256_of", read)
    monkeypatch.setattr("whynan.run.suppressions.lines_of", read)
    assert report_of_directory(folder).verdict == "nonfinite"


# -- redacted --------------------------------------------------------------------------------------------------------


def test_a_redacted_trace_tells_where_and_of_what_kind(folder: Path) -> None:
    live, again = told(gem_pooling, folder, redact=True)
    assert (again.verdict, len(again.findings)) == (live.verdict, len(live.findings))
    assert [(f.birth, f.phase, f.op) for f in again.findings] == [(f.birth, f.phase, f.op) for f in live.findings]
    assert all(f.site is None or f.site.code is None for f in again.findings)


def test_no_file_of_a_redacted_trace_holds_a_name_of_the_program(folder: Path) -> None:
    told(gem_pooling, folder, redact=True, ranges=True)
    text = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file()).decode("latin-1")
    for word in ("gem_pooling", "train.py", "pooled", "ranking_loss", "project", "GeM", "Embedder", str(ROOT)):
        assert word not in text, word
    assert "PowBackward1" in text


def test_the_words_that_are_looked_for_stand_in_a_trace_that_is_not_redacted(folder: Path) -> None:
    told(gem_pooling, folder)
    text = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file()).decode("latin-1")
    for word in ("gem_pooling", "train.py", "pooled", "ranking_loss", "project", "GeM", "Embedder"):
        assert word in text, word


# -- what is recorded ------------------------------------------------------------------------------------------------


def test_a_trace_says_of_what_run_it_is(folder: Path) -> None:
    told(literal, folder)
    held = document(folder / "run.json")
    assert held["run"]["versions"].keys() >= {"whynan", "python", "torch"}
    assert held["run"]["flags"].keys() >= {"threads", "default_dtype"}
    assert held["options"] == {
        "memory": None, "ranges": False, "on_nonfinite": "stop", "start_step": 1, "steps": None, "strict": False,
    }  # fmt: skip
    assert held["pid"] == os.getpid()


def test_what_is_known_at_the_start_is_written_at_the_start(folder: Path) -> None:
    writer = TraceWriter(folder)
    with Trace(recording=writer):
        found = read_trace(folder)
    assert (found.ended, found.run.command) == (None, "trace")
    assert found.run.flags["threads"] == torch.get_num_threads()


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files of one name in several folders are several files, and reports are as wide everywhere."""
    monkeypatch.setenv("COLUMNS", "100")
    comments_of.cache_clear()
    linecache.clearcache()
    yield
    sys.modules.pop("gem_pooling", None)
    comments_of.cache_clear()
    linecache.clearcache()


def test_the_facts_of_the_tests_are_not_empty() -> None:
    assert FOUND.births
    assert FOUND.sinks


def test_a_redacted_trace_gives_the_report_that_was_given_out(tmp_path: Path) -> None:
    from whynan.report.redaction import redacted

    folder = tmp_path / "trace"
    writer = TraceWriter(folder, redact=True)
    with Trace(recording=writer) as t:
        weight = torch.tensor([0.0, 1.0], requires_grad=True)
        weight.sqrt().sum().backward()
        torch.optim.SGD([weight], lr=0.1).step()
    told = report_of_directory(folder)
    assert [f.rule for f in told.findings] == [f.rule for f in t.report.findings] == ["WN301"]
    assert told == redacted(t.report, writer.names)
