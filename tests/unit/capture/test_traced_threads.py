"""Threads of the program's own, each of which is looked at as the main one is."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import whynan
from tests.unit.capture.seen import code, only, sinks, watched
from whynan.capture.torch.operators import operator_of
from whynan.capture.torch.sites import Lane, Lanes

PATIENCE = 60


def threaded(*work: Callable[[], object], **told: Any) -> Callable[[], None]:
    """A program that does its work in threads, and waits for all of them."""

    def program() -> None:
        threads = [threading.Thread(target=w, **told) for w in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    return program


def trainer(seed: int, steps: int = 200, bad: int | None = None) -> Callable[[], Tensor]:
    """Small steps on numbers of its own; in one of them the loss is NaN."""

    def work() -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        weight = nn.Parameter(torch.rand(4, generator=generator) + 1)
        optimizer = torch.optim.Adam([weight], lr=0.001)
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            x = torch.rand(4, generator=generator) + 0.5
            loss = (weight * (-x if step == bad else x)).sqrt().mean()
            loss.backward()
            optimizer.step()
        return weight.detach()

    return work


def test_a_bad_loss_in_a_thread_is_found_with_its_phases() -> None:
    report = watched(threaded(trainer(0, steps=4, bad=3)), threads=True).report
    finding = only(report)
    assert (finding.phase, finding.step, finding.birth) == ("forward", 3, "invalid")
    assert code(finding) == "(weight * (-x if step == bad else x)).sqrt()"
    assert {("loss", None), ("gradient", "weight"), ("parameter", "weight")} <= sinks(finding)
    assert report.coverage.notes == ()


def test_a_backward_and_an_optimizer_of_a_thread_have_their_phases() -> None:
    def work() -> None:
        weight = nn.Parameter(torch.tensor([0.0, 1.0]))
        optimizer = torch.optim.Adam([weight], lr=0.1, eps=0.0)
        (weight * torch.tensor([0.0, 1.0])).sum().backward()
        optimizer.step()

    finding = only(watched(threaded(work), threads=True).report)
    assert (finding.phase, finding.step, code(finding)) == ("optimizer", 1, "optimizer.step()")

    def root() -> None:
        weight = nn.Parameter(torch.tensor([0.0, 1.0]))
        weight.sqrt().sum().backward()
        torch.optim.SGD([weight], lr=0.1).step()

    finding = only(watched(threaded(root), threads=True).report)
    assert (finding.phase, code(finding)) == ("backward", "weight.sqrt()")


@pytest.mark.breadth
@pytest.mark.parametrize("bad", [None, 150])
def test_two_that_train_at_once_have_the_numbers_of_two_that_train_alone(bad: int | None) -> None:
    alone = [trainer(seed, bad=bad if seed else None)() for seed in (0, 1)]
    found: dict[int, Tensor] = {}

    def work(seed: int) -> Callable[[], None]:
        return lambda: found.update({seed: trainer(seed, bad=bad if seed else None)()})

    report = watched(threaded(work(0), work(1)), threads=True).report
    assert [found[seed].numpy().tobytes() for seed in (0, 1)] == [w.numpy().tobytes() for w in alone]
    if bad is None:
        assert report.verdict == "clean"
    else:
        finding = only(report)
        assert (finding.phase, finding.step, finding.birth) == ("forward", bad, "invalid")


def test_each_thread_counts_its_own_steps_and_backwards() -> None:
    turn = threading.Barrier(2, timeout=PATIENCE)

    def first() -> None:
        weight = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(2):
            weight.sum().backward()
        turn.wait()
        # the second is in the midst of its own
        (-weight).sqrt().sum().backward()
        optimizer.step()
        turn.wait()

    def second() -> None:
        weight = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            weight.sum().backward()
            optimizer.step()
        turn.wait()
        turn.wait()

    finding = only(watched(threaded(first, second), threads=True).report)
    assert (finding.step, finding.micro) == (1, 3)


def test_threads_of_a_pool_are_looked_at() -> None:
    def program() -> None:
        with ThreadPoolExecutor(2) as pool:
            for value in pool.map(lambda x: torch.tensor([x]).log(), [1.0, -1.0, 2.0]):
                value.tolist()

    finding = only(watched(program, threads=True).report)
    assert (code(finding), finding.birth) == ("torch.tensor([x]).log()", "invalid")


def test_an_exception_in_a_thread_is_the_programs_own() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            torch.ones(2) @ torch.ones(3)
        except RuntimeError as error:
            caught.append(error)
            raise LookupError("over") from error

    before = threading.excepthook
    threading.excepthook = lambda told: caught.append(told.exc_value)  # type: ignore[arg-type,return-value]
    try:
        watched(threaded(work), threads=True)
    finally:
        threading.excepthook = before
    assert [type(e) for e in caught] == [RuntimeError, LookupError]
    files = {frame.tb_frame.f_code.co_filename for e in caught for frame in _entries(e)}
    assert not [f for f in files if "/src/whynan/" in f or f.endswith("torch/_ops.py")]


def _entries(error: BaseException) -> list[Any]:
    found, step = [], error.__traceback__
    while step is not None:
        found.append(step)
        step = step.tb_next
    return found


def _switches() -> tuple[Any, ...]:
    names = [n for n in vars(_python_dispatch) if n.startswith("_is_in_")]
    return tuple(getattr(_python_dispatch, n) for n in names)


def test_a_thread_that_outlives_the_trace_is_left_alone() -> None:
    go, seen = threading.Event(), []

    def work() -> None:
        torch.ones(2).log()
        ready.set()
        assert go.wait(PATIENCE)
        bad = torch.zeros(2) / torch.zeros(2)
        seen.append(bad.tolist())
        seen.append([n for n in vars(bad.untyped_storage()) if "whynan" in n])

    ready, thread = threading.Event(), threading.Thread(target=work, daemon=True)
    before = _switches()

    def program() -> None:
        thread.start()
        assert ready.wait(PATIENCE)

    region = watched(program, threads=True)
    assert _switches() == before
    # another trace has its own events
    with whynan.trace() as second:
        torch.ones(2).log().tolist()
        go.set()
        thread.join(PATIENCE)
    assert (region.report.verdict, second.report.verdict) == ("clean", "clean")
    assert len(seen) == 2
    assert seen[1] == []


def test_a_trace_that_ends_while_threads_compute_says_what_it_saw() -> None:
    over, begun = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        weight = nn.Parameter(torch.ones(4))
        begun.release()
        while not over.is_set():
            (weight.log() / weight.log()).nan_to_num().sum().backward()
            weight.grad = None

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]

    def program() -> None:
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=PATIENCE)
        for _ in range(20):
            torch.ones(2).sum().item()

    try:
        for _ in range(3):
            threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
            assert watched(program, threads=True).report.run.exit_status.whynan in (0, 1)
    finally:
        over.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_threads_gradient_is_read_by_that_thread_alone() -> None:
    """Where another thread reads one, while the engine writes it, PyTorch ends the process."""

    class Asked(nn.Parameter):
        @property
        def grad(self) -> Any:
            readers.append(threading.get_ident())
            return Tensor.grad.__get__(self)

        @grad.setter
        def grad(self, value: Any) -> None:
            Tensor.grad.__set__(self, value)

    def work() -> None:
        weight = Asked(torch.zeros(4))
        workers.append(threading.get_ident())
        weight.sqrt().sum().backward()
        begun.set()
        assert over.wait(PATIENCE)
        del readers[:]
        weight.grad = None
        weight.sqrt().sum().backward()

    readers: list[int] = []
    workers: list[int] = []
    begun, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, daemon=True)

    def program() -> None:
        thread.start()
        assert begun.wait(PATIENCE)
        other = nn.Parameter(torch.zeros(4))
        for _ in range(3):
            other.sqrt().sum().backward()
            torch.optim.SGD([other], lr=0.1).step()

    report = watched(program, threads=True).report
    assert set(readers) == set(workers)
    # its bad gradient is told all the same
    assert ("gradient", "weight") in {(r.kind, r.name) for f in report.findings for r in f.reaches}
    over.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def _by_a_worker(bad: float) -> Callable[[], None]:
    """The backward runs in a thread that lives on, a scaler steps in the main one; in the last step it overflows."""

    def program() -> None:
        weight = nn.Parameter(torch.ones(4))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=32.0)
        with ThreadPoolExecutor(1) as pool:
            for step in range(4):
                optimizer.zero_grad()
                x = torch.full((4,), bad if step == 3 else 1.0)
                pool.submit(lambda x=x: scaler.scale((weight * x).sqrt().sum()).backward()).result(PATIENCE)
                scaler.step(optimizer)
                scaler.update()

    return program


def test_a_step_that_a_scaler_skips_is_skipped_though_a_living_thread_made_its_gradients() -> None:
    finding = only(watched(_by_a_worker(-1.0), threads=True).report)
    assert (finding.phase, code(finding)) == ("forward", "(weight * x).sqrt()")
    assert ("loss", None) in sinks(finding)
    assert watched(_by_a_worker(1.0), threads=True).report.verdict == "clean"


def test_a_scaled_loss_that_overflows_is_no_error_though_a_living_thread_made_it() -> None:
    def program() -> None:
        weight = nn.Parameter(torch.ones(4))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=32.0)
        for x in (1.0, 1.0, 2e37):
            optimizer.zero_grad()
            made = asked.submit(lambda x=x: scaler.scale((weight * x).sum()).backward())
            made.result(PATIENCE)
            scaler.step(optimizer)
            scaler.update()

    with ThreadPoolExecutor(1) as asked:
        assert watched(program, threads=True).report.verdict == "clean"


def test_a_gradient_that_a_living_thread_has_discarded_reaches_nothing() -> None:
    over, begun = threading.Event(), threading.Event()

    def work() -> None:
        weight = nn.Parameter(torch.zeros(4))
        weight.sqrt().sum().backward()
        weight.grad = None
        begun.set()
        assert over.wait(PATIENCE)

    thread = threading.Thread(target=work)

    def program() -> None:
        thread.start()
        assert begun.wait(PATIENCE)
        trainer(0, steps=3)()

    report = watched(program, threads=True).report
    over.set()
    thread.join(PATIENCE)
    assert report.verdict == "clean"
    assert report.coverage.notes == ("1 time the program discarded gradients that were NaN or Inf",)


def test_a_gradient_put_by_hand_is_one_though_another_thread_lives() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, args=(PATIENCE,))

    def program() -> None:
        thread.start()
        weight = nn.Parameter(torch.zeros(4))
        (weight.grad,) = torch.autograd.grad(weight.sqrt().sum(), [weight])
        held.append(weight)

    held: list[Tensor] = []
    finding = only(watched(program, threads=True).report)
    over.set()
    thread.join(PATIENCE)
    assert ("gradient", None) in {(kind, None) for kind, _ in sinks(finding)}


def test_threads_that_have_ended_leave_nothing_behind() -> None:
    from whynan.capture.torch import Capture

    weight = nn.Parameter(torch.ones(2))
    with Capture(threads=True) as capture:
        for _ in range(20):
            threaded(lambda: weight.exp().sum().backward())()
        (leaf,) = capture.context.log.leaves.values()
        assert len(leaf.lanes) == 1
        assert not any(lane.nodes for lane in leaf.lanes)
        assert capture.context.lanes.engines == []
        assert capture.context.lanes.program == [capture.context.main]


def test_a_thread_that_python_has_not_started_is_not_entered() -> None:
    depths: list[int] = []

    def work() -> None:
        # whoever logs asks for the current thread, of which a dummy is made then
        threading.current_thread()
        depths.append(len(_get_current_dispatch_mode_stack()))
        done.set()

    def program() -> None:
        _thread.start_new_thread(work, ())
        assert done.wait(PATIENCE)

    done = threading.Event()
    watched(program, threads=True)
    assert depths == [0]


def test_a_mode_that_a_thread_has_entered_is_left_by_the_thread() -> None:
    class Doubling(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    left: list[Any] = []

    def work() -> None:
        with Doubling():
            torch.zeros(1).log()
            left.append([type(m).__name__ for m in _get_current_dispatch_mode_stack()])
        left.append([type(m).__name__ for m in _get_current_dispatch_mode_stack()])

    watched(threaded(work), threads=True)
    assert left == [["TraceMode", "Doubling"], ["TraceMode"]]


def test_without_threads_nothing_of_a_thread_is_looked_at() -> None:
    region = watched(threaded(lambda: torch.zeros(1).log().tolist(), name="reader"))
    assert region.report.coverage.events == 0
    assert region.report.coverage.notes == ("thread 'reader' was not entered: what it computed was not traced",)


def test_methods_of_threads_are_as_before() -> None:
    def methods() -> list[Any]:
        return [vars(threading.Thread)[name] for name in ("start", "_set_ident", "_delete")]

    before = methods()
    watched(lambda: None, threads=True)
    watched(lambda: None)
    assert methods() == before


def test_a_thread_of_the_engines_follows_the_backward_that_is_under_way() -> None:
    from whynan.capture.torch import Capture

    weight = nn.Parameter(torch.ones(2))
    seen: list[bool] = []

    def step() -> None:
        loss = weight.sum()
        # what a device thread of the engine asks, while the program's own waits
        weight.register_hook(lambda _: seen.append(asked.submit(_same_as_main, capture).result(PATIENCE)))
        loss.backward()

    with ThreadPoolExecutor(1) as asked:
        asked.submit(int).result(PATIENCE)
        with Capture() as capture:
            for _ in range(3):
                step()
    assert seen[0]
    assert all(seen)


def _same_as_main(capture: Any) -> bool:
    return capture.context.lane().backward is capture.context.main.backward is not None


def test_the_label_of_a_node_is_of_one_trace() -> None:
    """A graph that one trace has seen may be differentiated in another, whose numbers of sites are others."""
    operator = operator_of(torch.ops.aten.mul.Tensor)
    made, elsewhere = (torch.ones(2, requires_grad=True) * factor for factor in (2, 3))
    one, other = Lane(Lanes()), Lane(Lanes())
    for lane in (one, other):
        lane.lanes.engines.append(lane)
    one.note_node(made, (5, 6, operator, 7, 8))
    other.note_node(elsewhere, (1, 2, operator, 3, 4))
    assert one.entry(made.grad_fn) == (5, 6, operator, 7, 8)
    assert other.entry(made.grad_fn) is None
