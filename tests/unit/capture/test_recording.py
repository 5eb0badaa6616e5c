"""A trace on disk while it is made: what is there when the run is killed, and what the events are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from whynan.api import Trace
from whynan.capture.torch import Capture, tracer
from whynan.capture.torch.event_log import RING
from whynan.capture.torch.trace_segments import FREE, Recording
from whynan.records import Report
from whynan.report.json import to_json
from whynan.run.output.run_trace import report_of_directory
from whynan.traces import Sink
from whynan.traces import format as layout
from whynan.traces.reader import Recorded, read_trace
from whynan.traces.writer import TraceWriter

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "t"


def traced(folder: Path, program: Callable[[], Any], **options: Any) -> Trace:
    """A program traced into a folder."""
    writer = TraceWriter(folder)
    with Trace(recording=writer, **options) as region:
        program()
    assert writer.note is None
    return region


def all_events(found: Recorded) -> Any:
    """The events of all segments."""
    return np.concatenate(list(found.events))


def names(found: Recorded, field: str, table: tuple[Any, ...]) -> list[Any]:
    """What a field of each event names."""
    return [table[number] for number in all_events(found)[field]]


# -- killed ----------------------------------------------------------------------------------------------------------

KILLED = """
import sys
import threading
import torch
from torch import nn
from whynan.api import Trace
from whynan.traces.writer import TraceWriter

def ready():
    print("ready", flush=True)
    sys.stdin.read()

torch.manual_seed(0)
weight = torch.ones(3, requires_grad=True)
healthy = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)

def step(x):
    optimizer.zero_grad()
    (weight * x).log().sum().backward()

with Trace(recording=TraceWriter(sys.argv[1])):
{program}
"""
PROGRAMS = {
    "before anything": "    ready()",
    "before the step that would use it": "    step(torch.zeros(3))\n    ready()",
    "after many events": (
        "    step(torch.zeros(3))\n    optimizer.step()\n    x = torch.ones(1)\n"
        "    for _ in range(66_000):\n        x + 1\n    ready()"
    ),
}


def killed(program: str, folder: Path) -> Report:
    """The report of the trace of a program that was killed when it said that it was ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(program=program), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    process.stdin.close()
    return report_of_directory(folder)


EXPECTED = {
    "before anything": ("inconclusive", set[str]()),
    "before the step that would use it": ("nonfinite", {"loss", "gradient"}),
    "after many events": ("nonfinite", {"loss", "gradient", "parameter"}),
}


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_that_is_killed_leaves_what_was_known(name: str, folder: Path) -> None:
    report = killed(PROGRAMS[name], folder)
    reached = {r.kind for f in report.findings for r in f.reaches} - {"observed"}
    assert (report.verdict, reached) == EXPECTED[name]
    assert any(note.startswith("this trace is unfinished") for note in report.coverage.notes)
    assert report.run.exit_status.script is None
    assert {f.rule for f in report.findings} <= {"WN201"}
    found = read_trace(folder)
    # of the events, every segment that was full
    assert (len(found.events) > RING - 1000) == (name == "after many events")
    assert report.coverage.events >= len(found.events)
    assert all(np.array_equal(s["ordinal"], np.arange(len(s))) for s in found.events)


def test_what_a_kill_would_leave_changes_with_the_run(folder: Path) -> None:
    weight = torch.ones(2, requires_grad=True)
    sgd = torch.optim.SGD([weight], lr=0.1)

    def now() -> tuple[str, set[str]]:
        report = report_of_directory(folder)
        return report.verdict, {r.kind for f in report.findings for r in f.reaches}

    with Trace(recording=TraceWriter(folder)):
        assert now() == ("inconclusive", set())
        (weight * 2).sum().backward()
        assert now() == ("clean", set())
        sgd.zero_grad()
        (weight * 0).log().sum().backward()
        assert now() == ("nonfinite", {"loss", "gradient"})
        sgd.zero_grad()
        (weight * 2).sum().backward()
        assert now() == ("clean", set())
        (weight * 0).log().sum().backward()
        sgd.step()
        assert now() == ("nonfinite", {"loss", "gradient", "parameter"})


def test_the_output_of_a_call_is_known_when_the_call_has_ended(folder: Path) -> None:
    with Trace(recording=TraceWriter(folder)), torch.no_grad():
        nn.Softmax(0)(torch.full((2,), -torch.inf))
        report = report_of_directory(folder)
    assert (report.verdict, report.findings[0].reaches[0].kind) == ("nonfinite", "output")


# -- the events ------------------------------------------------------------------------------------------------------


def work(repeats: int = 1) -> None:
    """Two steps of two backwards each, and so many more events."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(2):
        sgd.zero_grad()
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
        sgd.step()
    x = torch.ones(1)
    for _ in range(repeats):
        x = x * 1.0


def test_every_event_is_on_disk_in_its_order(folder: Path) -> None:
    region = traced(folder, work)
    found = read_trace(folder)
    assert all_events(found)["ordinal"].tolist() == list(range(region.report.coverage.events))


def test_an_event_has_its_operator_site_module_phase_and_node(folder: Path) -> None:
    traced(folder, work)
    found = read_trace(folder)
    operators = names(found, "operator", found.events.operators)
    modules = names(found, "module", found.events.modules)
    nodes = names(found, "node", found.events.nodes)
    phases = names(found, "phase", layout.PHASES)
    lines = names(found, "site", found.events.sites)
    forward = operators.index("aten.tanh.default")
    assert (modules[forward], nodes[forward], phases[forward]) == ("1", None, "forward")
    assert lines[forward].site.code == "model(torch.ones(1, 2))"
    assert lines[forward].library_site is None
    backward = operators.index("aten.tanh_backward.default")
    assert (nodes[backward], phases[backward]) == ("TanhBackward0", "backward")
    assert "optimizer" in phases
    assert "accumulation" in phases
    step = lines[phases.index("optimizer")]
    assert step.site.code == "sgd.step()"


def test_an_event_has_its_step_and_its_backward(folder: Path) -> None:
    traced(folder, work)
    found = read_trace(folder)
    events = all_events(found)
    operators = names(found, "operator", found.events.operators)
    tanh = [n for n, name in enumerate(operators) if name == "aten.tanh.default"]
    slopes = [n for n, name in enumerate(operators) if name == "aten.tanh_backward.default"]
    assert [(e["step"], e["micro"]) for e in events[tanh]] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [(e["step"], e["micro"]) for e in events[slopes]] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    steps = events[[n for n, phase in enumerate(events["phase"]) if layout.PHASES[phase] == "optimizer"]]
    assert sorted({(int(e["step"]), int(e["micro"])) for e in steps}) == [(1, 2), (2, 2)]


def test_without_an_optimizer_no_step_is_known(folder: Path) -> None:
    traced(folder, lambda: torch.ones(2, requires_grad=True).sum().backward())
    assert set(all_events(read_trace(folder))["step"].tolist()) == {0}


@pytest.mark.breadth
@pytest.mark.parametrize("more", [0, RING + 5])
def test_no_event_is_lost_where_the_ring_begins_anew(more: int, folder: Path) -> None:
    region = traced(folder, lambda: work(more))
    found = read_trace(folder)
    assert all_events(found)["ordinal"].tolist() == list(range(region.report.coverage.events))
    sizes = [len(segment) for segment in found.events]
    assert max(sizes) <= layout.SEGMENT
    # where the first one ends depends on what ran before in this process; those between are full
    assert all(size == layout.SEGMENT for size in sizes[1:-1])
    operators = names(found, "operator", found.events.operators)
    assert operators.count("aten.mul.Tensor") >= more


def test_a_second_trace_of_one_process_counts_from_zero(tmp_path: Path) -> None:
    traced(tmp_path / "a", work)
    traced(tmp_path / "b", work)
    assert all_events(read_trace(tmp_path / "b"))["ordinal"][0] == 0
    assert len(read_trace(tmp_path / "a").events) == len(read_trace(tmp_path / "b").events)


def test_the_numbers_are_bit_identical_with_a_recording(folder: Path) -> None:
    def train() -> list[float]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 1))
        adam = torch.optim.Adam(model.parameters())
        for _ in range(3):
            adam.zero_grad()
            model(torch.randn(5, 4)).square().mean().backward()
            adam.step()
        return [v for p in model.parameters() for v in p.flatten().tolist()] + torch.rand(2).tolist()

    bare = train()
    with Trace(recording=TraceWriter(folder)):
        recorded = train()
    assert recorded == bare


def test_the_modules_of_a_tree_are_named_by_their_paths(folder: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.encoder(x)

    model = Net()
    traced(folder, lambda: model(torch.ones(1, 2)))
    assert set(read_trace(folder).events.modules) == {None, "Net", "encoder", "encoder.0", "encoder.1"}


def test_a_module_that_was_let_go_of_has_no_name(folder: Path) -> None:
    def program() -> None:
        for _ in range(3):
            nn.ReLU()(torch.ones(2))

    traced(folder, program)
    assert read_trace(folder).events.modules[0] is None


# -- when facts are written ------------------------------------------------------------------------------------------


class Counting(TraceWriter):
    """A writer that remembers the facts that it was given."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.given: list[tuple[int, int]] = []

    def facts(self, trace: Any, sources: Any, ranges: int) -> bool:
        """Write them."""
        self.given.append((len(trace.births), len(trace.sinks)))
        return super().facts(trace, sources, ranges)


def training(steps: int, x: float) -> Callable[[], None]:
    """Steps that are all alike."""

    def program() -> None:
        torch.manual_seed(0)
        weight = torch.ones(2, requires_grad=True)
        sgd = torch.optim.SGD([weight], lr=0.0)
        for _ in range(steps):
            sgd.zero_grad()
            (weight * x).sqrt().sum().backward()
            sgd.step()

    return program


def bearing(steps: int) -> None:
    """Steps each of which bears something that does no harm."""
    weight = torch.ones(2, requires_grad=True)
    sgd = torch.optim.SGD([weight], lr=0.1)
    for _ in range(steps):
        sgd.zero_grad()
        (weight.sum() + torch.zeros(1).log().exp().sum()).backward()
        sgd.step()


def test_a_healthy_run_writes_its_facts_twice(folder: Path) -> None:
    writer = Counting(folder)
    with Trace(recording=writer):
        training(20, 1.0)()
    assert writer.given == [(0, 0), (0, 0)]


def test_facts_are_written_where_something_is_new(folder: Path) -> None:
    writer = Counting(folder)
    with Trace(recording=writer):
        training(1, 0.0)()
    assert len(writer.given) >= 2
    assert writer.given[0] != (0, 0)


def test_what_happens_again_and_again_is_not_written_each_time(folder: Path) -> None:
    def program() -> None:
        weight = torch.ones(2, requires_grad=True)
        sgd = torch.optim.SGD([weight], lr=1.0)
        bad = torch.tensor([torch.inf, 1.0])
        for _ in range(50):
            sgd.zero_grad()
            (weight * bad).sum().backward()
            sgd.step()

    writer = Counting(folder)
    with Trace(recording=writer):
        program()
    assert len(writer.given) < 12


def test_a_run_with_ever_new_births_pays_a_share_of_its_time_only(folder: Path) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.25
        return now

    writer = Counting(folder)
    capture = Capture(recording=writer)
    recording = capture.tracer.recording
    assert recording is not None
    capture.tracer.recording = Recording(writer, capture.context, capture.snapshot, clock)
    with capture:
        bearing(40)
    # each costs a quarter of a second of this clock: those that are free, and the one at the end
    assert len(writer.given) <= FREE / 0.25 + 4
    assert writer.given[-1][0] == 40


def test_with_time_enough_every_new_birth_is_written(folder: Path) -> None:
    writer = Counting(folder)
    capture = Capture(recording=writer)
    recording = capture.tracer.recording
    assert recording is not None
    # a clock that stands still: nothing that is written takes time
    capture.tracer.recording = Recording(writer, capture.context, capture.snapshot, lambda: 0.0)
    with capture:
        bearing(40)
    assert {births for births, _ in writer.given} >= set(range(1, 41))


def test_to_write_facts_does_not_change_them(tmp_path: Path) -> None:
    """Looked at after every event, a run ends with the facts that it has when nobody looks."""

    def program() -> None:
        torch.manual_seed(0)
        training(3, 0.0)()
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
        model = nn.Linear(2, 1)
        sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(2):
            scaler.scale(model(torch.full((1, 2), 1e3)).square().sum()).backward()
            scaler.step(sgd)
            scaler.update()
        model(torch.full((1, 2), torch.inf))

    quiet = traced(tmp_path / "a", program)
    writer = TraceWriter(tmp_path / "b")
    region = Trace(recording=writer)
    with region:
        capture = region.watching.capture
        assert capture is not None
        recording = capture.tracer.recording
        assert recording is not None
        after = capture.tracer.record_event

        def looked_at(*args: Any) -> None:
            after(*args)
            with torch._C._DisableTorchDispatch():
                recording._facts()

        # a frame of the tracer's own: one of the program's would be where the events stand
        looked_at.__code__ = looked_at.__code__.replace(co_filename=tracer.__file__)
        capture.tracer.record_event = looked_at  # type: ignore[method-assign]
        program()
        del capture.tracer.record_event
    assert to_json(region.report) == to_json(quiet.report)


def test_a_gradient_that_a_scaler_skips_is_none_in_the_facts_either(folder: Path) -> None:
    model = nn.Linear(2, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with Trace(recording=TraceWriter(folder)):
        scaler.scale(model(torch.full((1, 2), 1e3)).square().sum()).backward()
        assert {s.kind for s in read_trace(folder).trace.sinks} == {"loss", "gradient"}
        scaler.step(sgd)
        scaler.update()
        (torch.ones(1, requires_grad=True) * 2).sum().backward()
        assert [s for s in read_trace(folder).trace.sinks if s.fatal] == []


def test_the_file_of_a_birth_has_the_hash_that_it_had_then(folder: Path, tmp_path: Path) -> None:
    import hashlib

    file = tmp_path / "net.py"
    file.write_text("import torch\ntorch.zeros(1, requires_grad=True).log().sum().backward()\n")
    first = hashlib.sha256(file.read_bytes()).hexdigest()
    with Trace(recording=TraceWriter(folder)):
        exec(compile(file.read_text(), str(file), "exec"), {})
        file.write_text("# edited while it runs\n")
        assert read_trace(folder).sources == {str(file): first}


# -- harm ------------------------------------------------------------------------------------------------------------


def test_a_forked_child_leaves_the_trace_alone(folder: Path) -> None:
    writer = TraceWriter(folder)
    with Trace(recording=writer) as region:
        training(1, 1.0)()
        child = os.fork()
        if not child:
            training(2, 0.0)()
            region.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(child, 0)
        assert read_trace(folder).ended is None
        assert read_trace(folder).trace.births == []
    assert read_trace(folder).ended is not None
    assert region.report.verdict == "clean"


def test_a_failure_of_the_recording_is_one_of_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    monkeypatch.setattr("whynan.capture.torch.trace_segments.Segments.flush", lambda _: 1 / 0)
    with pytest.warns(RuntimeWarning, match="an error of its own"), Trace(recording=TraceWriter(folder)) as region:
        training(1, 0.0)()
    assert region.report.findings != ()


def test_a_writer_that_stopped_is_not_asked_again(folder: Path) -> None:
    writer = Counting(folder)
    with Trace(recording=writer) as region:
        os.rename(folder, folder.parent / "elsewhere")
        training(30, 0.0)()
    assert len(writer.given) <= 4
    assert region.report.verdict == "nonfinite"
    assert any("stopped after" in note for note in region.report.coverage.notes)


def test_the_sinks_that_wait_are_found_without_being_used(folder: Path) -> None:
    from whynan.capture.torch.sinks.sinks import Pending

    with Capture() as capture:
        weight = torch.ones(2, requires_grad=True)
        (weight * 0).log().sum().backward()
        waiting: list[Sink] = Pending(capture.context).sinks()
        assert {s.kind for s in waiting} == {"loss", "gradient"}
        assert capture.context.log.found == []
    assert capture.trace is not None
    assert {s.kind for s in capture.trace.sinks} >= {"loss", "gradient"}


def test_a_gradient_of_a_thread_that_trains_is_not_read_before_the_thread_has_ended(folder: Path) -> None:
    from whynan.capture.torch.sinks.sinks import Pending

    done, go = threading.Event(), threading.Event()

    def train() -> None:
        weight = torch.ones(2, requires_grad=True)
        held.append(weight)
        (weight * 0).log().sum().backward()
        done.set()
        assert go.wait(60)

    held: list[torch.Tensor] = []
    thread = threading.Thread(target=train)
    with Capture(threads=True) as capture:
        thread.start()
        assert done.wait(60)
        assert Pending(capture.context).sinks() == []
        weight = torch.ones(2, requires_grad=True)
        (weight * 0).log().sum().backward()
        own = len(Pending(capture.context).sinks())
        assert own
        go.set()
        thread.join(60)
        assert len(Pending(capture.context).sinks()) == 2 * own


def test_events_beyond_the_budget_are_left_out_and_the_report_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    writer = TraceWriter("t", budget=0)
    with Trace(recording=writer) as region:
        work()
    note = "the trace in t holds the first 0 events only: events may take 0 MiB"
    assert region.report.coverage.notes == (note,)
    assert to_json(report_of_directory(folder)) == to_json(region.report)
