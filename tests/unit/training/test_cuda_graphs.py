"""CUDA graphs under a watch: nothing is done while one is captured, and its replays are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import whynan
from tests.unit.run.test_training import batches, bits, network
from whynan.training import cuda_graphs, guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.run.watch.training import Watch

NAN = float("nan")


class Graph:
    """What stands in for a CUDA graph: while it captures nothing is run for good, and its replay calls no hook."""

    capturing = False

    def __init__(self) -> None:
        self.run: Callable[[], None] = lambda: None

    def capture_begin(self) -> None:
        """As torch's."""
        Graph.capturing = True

    def capture_end(self) -> None:
        """As torch's."""
        Graph.capturing = False

    def replay(self) -> None:
        """Do what was captured."""
        self.run()


@pytest.fixture(autouse=True)
def _stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: Graph.capturing)


class Program:
    """A training step that is captured once and replayed with other rows in the same memory."""

    def __init__(self) -> None:
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, foreach=False)
        self.x = torch.ones(5, 3)
        self.loss = torch.zeros(())
        self.graph = Graph()

    def body(self) -> None:
        """One step, as it is written."""
        unit = self.x / self.x.norm(dim=1, keepdim=True)
        self.loss = self.model(unit).square().mean()
        self.loss.backward()
        self.optimizer.step()

    def capture(self) -> None:
        """Capture it; what it does meanwhile is undone, and the gradients are where a replay puts them."""
        before = [p.detach().clone() for p in self.model.parameters()]
        self.graph.capture_begin()
        self.body()
        self.graph.capture_end()
        with torch.no_grad():
            for p, value in zip(self.model.parameters(), before, strict=True):
                p.copy_(value)
        self.graph.run = self.kernels

    def kernels(self) -> None:
        """The same step without a hook."""
        parameters = list(self.model.parameters())
        unit = self.x / self.x.norm(dim=1, keepdim=True)
        loss = self.model(unit).square().mean()
        found = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            self.loss.copy_(loss)
            for p, gradient in zip(parameters, found, strict=True):
                assert p.grad is not None
                p.grad.copy_(gradient)
                p.sub_(0.1 * gradient)

    def train(self, rows: list[Tensor]) -> None:
        """Replay for each."""
        for x in rows:
            self.x.copy_(x)
            self.graph.replay()


def _watch(**more: Any) -> Watch:
    return whynan.watch(quiet=True, **more)


def _operations(watched: bool) -> list[str]:
    program = Program()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        if watched:
            with _watch(sync="deferred"):
                program.graph.capture_begin()
                with torch.profiler.record_function("captured"):
                    program.body()
                program.graph.capture_end()
        else:
            with torch.profiler.record_function("captured"):
                program.body()
    events = profile.events()
    (region,) = [e.time_range for e in events if e.name == "captured"]
    inside = [e for e in events if region.start <= e.time_range.start <= e.time_range.end <= region.end]
    # a reference to the loss, which is no memory and no kernel
    return [e.name for e in inside if e.name.startswith("aten::") and e.name not in ("aten::detach", "detach")]


def test_nothing_is_computed_or_read_while_a_graph_is_captured() -> None:
    bare = _operations(watched=False)
    assert "aten::mse_loss" in bare or len(bare) > 20
    assert _operations(watched=True) == bare


def test_an_operation_in_a_capture_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = _operations(watched=False)
    monkeypatch.setattr(guard, "is_capturing", lambda: False)
    assert _operations(watched=True) != bare


NOT_LOOKED_AT = "6 replays of CUDA graphs: what ran inside was not looked at"


def _notes(w: Watch) -> list[str]:
    return list(w.report.coverage.notes)


@pytest.mark.parametrize("sync", ["step", "deferred"])
def test_replays_of_a_graph_are_counted_and_run_as_without_a_watch(sync: str) -> None:
    program, bare = Program(), Program()
    with _watch(sync=sync) as w:
        program.capture()
        program.train(batches(None))
    bare.capture()
    bare.train(batches(None))
    assert (w.report.verdict, w.report.findings) == ("clean", ())
    assert _notes(w) == ["0 steps watched: the loss and the gradients of each were finite", NOT_LOOKED_AT]
    assert bits(program.model.state_dict()) == bits(bare.model.state_dict())


def test_weights_that_a_graph_spoils_are_noticed_as_the_watch_ends() -> None:
    program = Program()
    with _watch() as w:
        program.capture()
        program.train(batches())
    assert all(bool(p.isnan().any()) for p in program.model.parameters())
    assert (w.report.verdict, w.report.run.exit_status.whynan) == ("inconclusive", 1)
    assert _notes(w)[1:] == ["4 parameters bad at the end: spoilt by the last step, or in a CUDA graph", NOT_LOOKED_AT]


def test_without_a_graph_nothing_is_said_of_any() -> None:
    program = Program()
    with _watch() as w:
        program.body()
    assert _notes(w) == ["1 step watched: the loss and the gradients of each were finite"]


def test_a_graph_that_raises_does_so_without_a_frame_of_ours() -> None:
    program = Program()

    def fail() -> None:
        raise ZeroDivisionError

    program.graph.run = fail
    with pytest.raises(ZeroDivisionError) as caught, _watch():
        program.graph.replay()
    assert not any("whynan" in str(entry.path) for entry in caught.traceback[1:])


def test_a_graph_without_a_step_needs_nothing() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    graph = Graph()
    with _watch() as w:
        graph.capture_begin()
        model(torch.ones(2, 3)).sum().backward()
        graph.capture_end()
        optimizer.zero_grad(set_to_none=False)
        for x in batches(None):
            graph.replay()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert any("6 steps watched" in note for note in w.report.coverage.notes)


def _eager_then_graph(model: nn.Module, optimizer: Any, graph: Graph, rows: list[Tensor]) -> None:
    for x in rows:
        optimizer.zero_grad()
        graph.replay()
        model(x / x.norm(dim=1, keepdim=True)).square().mean().backward()
        optimizer.step()


@pytest.mark.full
def test_a_graph_is_not_run_again_with_what_led_to_a_step() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    graph, runs = Graph(), []
    graph.run = lambda: runs.append(1)
    with _watch() as w:
        _eager_then_graph(model, optimizer, graph, batches())
    assert len(runs) == 4
    # from the first module on, which comes after it, the step can be run again
    assert w.report.verdict == "nonfinite"
    assert _notes(w)[-1] == "4 replays of CUDA graphs: what ran inside was not looked at"


def test_the_doors_are_left_as_they_were() -> None:
    before = Graph.replay, Graph.capture_begin
    with _watch():
        assert Graph.replay is not before[0]
    assert (Graph.replay, Graph.capture_begin) == before


def test_without_cuda_nothing_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if not torch.cuda.is_available():
        assert cuda_graphs.is_capturing() is False


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("sync", ["step", "deferred"])
def test_a_captured_training_on_cuda(sync: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    torch.manual_seed(0)
    model = nn.Linear(3, 1).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True, capturable=True)
    x = torch.ones(5, 3, device="cuda")
    graph = torch.cuda.CUDAGraph()

    def body() -> None:
        optimizer.zero_grad(set_to_none=False)
        (model(x) / x.norm(dim=1, keepdim=True)).square().mean().backward()
        optimizer.step()

    with _watch(sync=sync) as w:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                body()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            body()
        for k in range(4):
            x.fill_(float(k != 2))
            graph.replay()
    assert w.report.run.device == "cuda"
    assert w.report.run.exit_status.whynan == 1
    assert "4 replays of CUDA graphs: what ran inside was not looked at" in w.report.coverage.notes
