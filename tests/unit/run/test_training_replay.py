"""A replay of a bad step is faithful, or it is refused and says why; and nothing of it stays in the program."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
import json
import queue
import random
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import whynan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whynan.records import Report

pytestmark = pytest.mark.usefixtures("without_proofs")
BAD = 4
SEEN: list[str] = []
COUNTED = {"steps": 0}
TICKS = itertools.count()
"""Nothing can put it back."""
watch = functools.partial(whynan.watch, quiet=True)


@pytest.fixture(autouse=True)
def _afresh() -> None:
    SEEN.clear()
    COUNTED["steps"] = 0


def training(bad: int | None = BAD, count: int = 6) -> tuple[nn.Module, Any, list[Tensor]]:
    """A small network, its optimizer, and batches of rows to be normalised, one of them all zeros."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    rows = list(torch.randn(count, 5, 3, generator=torch.Generator().manual_seed(1)).unbind())
    if bad is not None:
        rows[bad - 1][2] = 0.0
    return model, torch.optim.SGD(model.parameters(), lr=0.1), rows


def loss_of(model: nn.Module, x: Tensor) -> Tensor:
    """A loss that is NaN for a row of zeros."""
    unit = x / x.norm(dim=1, keepdim=True)
    return model(unit).square().mean()


def watched(fit: Callable[..., Any], *more: Any, on_nonfinite: str | None = None) -> Report:
    """The report of a training with a bad batch."""
    model, optimizer, rows = training()
    with watch(optimizer, on_nonfinite=on_nonfinite) as w:
        fit(model, optimizer, rows, *more)
    return w.report


def line_of(function: Callable[..., Any], text: str) -> int:
    """The line of this file on which a text stands in a function."""
    lines, first = inspect.getsourcelines(function)
    (number,) = (n for n, line in enumerate(lines, first) if text in line)
    return number


def refusal(report: Report) -> str:
    """Why there is no replay; there must be none, and no finding."""
    assert (report.verdict, report.findings) == ("inconclusive", ())
    assert report.run.replay is None or not report.run.replay.faithful
    assert report.run.exit_status.whynan == 1
    notes = [n for n in report.coverage.notes if n.startswith("no replay")]
    assert notes, report.coverage.notes
    return " | ".join(notes)


def explained(report: Report) -> None:
    """There is a faithful replay, and it finds the bad batch."""
    assert report.verdict == "nonfinite", report.coverage.notes
    assert report.run.replay is not None
    assert report.run.replay.faithful is True
    (finding,) = report.findings
    assert (finding.step, finding.birth, finding.site and finding.site.line) == (
        BAD,
        "invalid",
        line_of(loss_of, "x / x.norm"),
    )
    assert finding.element is not None
    assert list(finding.element.index) == [2, 0]


# -- refused ---------------------------------------------------------------------------------------------------------


def fit_and_save(model: nn.Module, optimizer: Any, rows: list[Tensor], path: Path) -> None:
    """Opens a file for each batch."""
    for k, x in enumerate(rows):
        with open(path, "a") as file:
            file.write(f"{k}\n")
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()


def fit_and_tell(model: nn.Module, optimizer: Any, rows: list[Tensor]) -> None:
    """Starts a thread in each turn, before its model is called and after."""
    for x in rows:
        optimizer.zero_grad()
        loss = loss_of(model, x)
        thread = threading.Thread(target=SEEN.append, args=("told",))
        thread.start()
        thread.join()
        loss.backward()
        optimizer.step()


def fit_and_save_late(model: nn.Module, optimizer: Any, rows: list[Tensor], path: Path) -> None:
    """Opens a file between its model and its step."""
    for k, x in enumerate(rows):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        path.write_text(f"{k}\n")
        loss.backward()
        optimizer.step()


@pytest.mark.full
@pytest.mark.breadth
def test_a_replay_that_would_write_a_file_is_refused_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    told = refusal(watched(fit_and_save_late, path))
    assert str(path) in told
    assert f"test_training_replay.py:{line_of(fit_and_save_late, 'path.write_text')}" in told
    assert path.read_text() == f"{BAD - 1}\n"


def test_a_file_that_is_opened_before_the_model_is_called_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    explained(watched(fit_and_save, path))
    assert path.read_text() == "0\n1\n2\n3\n"


@pytest.mark.full
@pytest.mark.breadth
def test_a_replay_that_would_start_a_thread_is_refused_at_its_line() -> None:
    told = refusal(watched(fit_and_tell))
    assert "thread" in told
    assert f"test_training_replay.py:{line_of(fit_and_tell, 'thread.start()')}" in told
    assert SEEN == ["told"] * BAD


def fit_by_count(model: nn.Module, optimizer: Any, rows: list[Tensor]) -> None:
    """The loss depends on how often it was asked for."""
    for x in rows:
        optimizer.zero_grad()
        loss = loss_of(model, x[:2]) * (1 + TICKS.__next__())
        loss = loss + loss_of(model, x)
        loss_of(model, x[:2]).mul(1 + TICKS.__next__()).backward()
        loss.backward()
        optimizer.step()


def fit_by_time(model: nn.Module, optimizer: Any, rows: list[Tensor]) -> None:
    """A loss depends on the time of the day, finite as it is."""
    for x in rows:
        optimizer.zero_grad()
        (loss_of(model, x[:2]) * (time.perf_counter_ns() % 1_000_003 + 1)).mul(1e-9).backward()
        loss_of(model, x).backward()
        optimizer.step()


@pytest.mark.full
@pytest.mark.breadth
@pytest.mark.parametrize("fit", [fit_by_count, fit_by_time])
def test_a_replay_that_comes_to_another_loss_is_said_to_and_not_used(fit: Callable[..., None]) -> None:
    assert "other losses or gradients than in the step itself" in refusal(watched(fit))


def fit_elsewhere(model: nn.Module, optimizer: Any, rows: list[Tensor]) -> None:
    """Which element is bad depends on a count that goes on."""
    for x in rows:
        optimizer.zero_grad()
        loss_of(model, x[:2]).backward()
        bad = torch.zeros(4, 3)
        if bool((x == 0).any()):
            bad.view(-1)[TICKS.__next__() % 12] = float("nan")
        model[0].weight.grad += bad
        optimizer.step()


@pytest.mark.full
@pytest.mark.breadth
def test_a_replay_with_other_bad_elements_is_said_to_be_and_not_used() -> None:
    assert "other losses or gradients than in the step itself" in refusal(watched(fit_elsewhere))


# -- what cannot be rewound ------------------------------------------------------------------------------------------


def _given(rows: list[Tensor]) -> Iterator[Tensor]:
    yield from rows


def fit_from(model: nn.Module, optimizer: Any, rows: Any) -> None:
    """Reads what cannot be read twice."""
    for x in rows:
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()


def fit_from_reassigned(model: nn.Module, optimizer: Any, rows: Any) -> None:
    """Reads what cannot be read twice, and gives the name another value before and after the model is called."""
    for x in rows:
        x = x * 2
        optimizer.zero_grad()
        loss = loss_of(model, x)
        x = None
        loss.backward()
        optimizer.step()


def fit_by_next(model: nn.Module, optimizer: Any, rows: Any) -> None:
    """Asks an iterator by hand."""
    each = iter(rows)
    while True:
        x = next(each, None)
        if x is None:
            return
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()


def fit_from_queue(model: nn.Module, optimizer: Any, rows: Any) -> None:
    """Takes what it is given out of a queue."""
    waiting: Any = queue.SimpleQueue()
    for x in rows:
        waiting.put(x)
    while not waiting.empty():
        x = waiting.get_nowait()
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()


def fit_from_file(model: nn.Module, optimizer: Any, rows: Any) -> None:
    """Reads a file line by line."""
    with tempfile.TemporaryFile("w+") as file:
        file.writelines(f"{x.flatten().tolist()}\n" for x in rows)
        file.seek(0)
        fit_lines(model, optimizer, file)


def fit_lines(model: nn.Module, optimizer: Any, file: Any) -> None:
    """As many lines as there are."""
    while True:
        line = file.readline()
        if not line:
            return
        x = torch.tensor(json.loads(line.replace("NaN", "0"))).view(-1, 3)
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()


def fit_changed_in_place(model: nn.Module, optimizer: Any, rows: Any) -> None:
    """Changes what it was given, in place."""
    for x in rows:
        x += 0.0
        x *= 3
        optimizer.zero_grad()
        loss_of(model, x).backward()
        x.fill_(7.0)
        optimizer.step()


SOURCES: dict[str, Callable[[list[Tensor]], Any]] = {
    "a list": lambda rows: rows,
    "an iterator": iter,
    "a generator": _given,
    "a map": lambda rows: map(torch.clone, rows),
}


SHORT_RUN = 2
"""So many of the ways to fit are in the short run."""
FITS = [fit_from, fit_from_reassigned, fit_changed_in_place, fit_by_next, fit_from_queue, fit_from_file]


@pytest.mark.parametrize(
    "fit", [*FITS[:SHORT_RUN], *(pytest.param(f, marks=pytest.mark.breadth) for f in FITS[SHORT_RUN:])]
)
def test_a_replay_is_never_that_of_another_batch(fit: Callable[..., None]) -> None:
    model, optimizer, rows = training()
    # the step after it is as bad, with the same loss and the same bad gradients, but for another reason
    rows[BAD][1] = 0.0
    with watch(optimizer) as w:
        fit(model, optimizer, rows)
    if w.report.verdict == "nonfinite":
        explained(w.report)
    else:
        refusal(w.report)


def _pairs() -> list[Any]:
    """Every way to fit with every source, of which a third is run each time, the first ways of it in the short run.

    Each of both comes up in the third.
    """

    def marks(k: int, n: int) -> list[pytest.MarkDecorator]:
        if (k + n) % 3:
            return [pytest.mark.full]
        return [] if k < SHORT_RUN else [pytest.mark.breadth]

    return [
        pytest.param(fit, source, marks=marks(k, n)) for k, fit in enumerate(FITS) for n, source in enumerate(SOURCES)
    ]


@pytest.mark.breadth
@pytest.mark.parametrize(("fit", "source"), _pairs())
def test_a_replay_of_what_cannot_be_rewound_is_faithful_or_refused(fit: Callable[..., None], source: str) -> None:
    model, optimizer, rows = training()
    given = SOURCES[source](rows)
    with watch(optimizer, on_nonfinite="skip") as w:
        fit(model, optimizer, given)
    if w.report.verdict == "nonfinite":
        explained(w.report)
    else:
        refusal(w.report)
    # nothing that the program would have been given was taken from it
    other, optimizer, rows = training()
    del rows[BAD - 1]
    fit(other, optimizer, SOURCES[source](rows))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.breadth
def test_a_list_whose_item_keeps_its_name_is_replayed_faithfully() -> None:
    for source in SOURCES.values():
        model, optimizer, rows = training()
        with watch(optimizer) as w:
            fit_from(model, optimizer, source(rows))
        explained(w.report)


def fit_same(weight: Tensor, optimizer: Any, rows: Any) -> None:
    """A training of a bare tensor on one batch, again and again."""
    for x in rows:
        optimizer.zero_grad()
        (weight * x).square().sum().backward()
        optimizer.step()


class Agent:
    """Keeps the steps of an episode until one step is made of them, as policy gradients are learnt."""

    def __init__(self, model: nn.Module, optimizer: Any) -> None:
        self.model, self.optimizer = model, optimizer
        self.scores: list[Tensor] = []
        self.rewards: list[float] = []

    def act(self, x: Tensor) -> None:
        self.scores.append(self.model(x).mean())
        self.rewards.append(float(len(self.scores)))

    def learn(self) -> None:
        rewards = torch.tensor(self.rewards)
        rewards = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
        loss = -(torch.stack(self.scores) * rewards).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scores.clear()
        del self.rewards[:]


@pytest.mark.breadth
def test_an_episode_that_is_emptied_behind_its_step_is_replayed_and_stays_as_it_was() -> None:
    model, optimizer, rows = training(bad=None)
    agent = Agent(model, optimizer)
    with watch(optimizer) as w:
        for length in (3, 4, 2, 1, 3):
            for x in rows[:length]:
                agent.act(x + torch.randn(()))
            agent.learn()
    assert w.report.run.replay.faithful
    (finding,) = w.report.findings
    assert (finding.rule, finding.step) == ("WN601", 4)
    assert finding.site is not None
    assert finding.site.line == line_of(Agent.learn, "rewards.std()")
    assert (len(agent.scores), agent.rewards) == (1, [1.0])


def test_a_loop_that_is_given_one_object_again_and_again_is_replayed() -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=100.0)
    with watch(optimizer) as w:
        fit_same(weight, optimizer, itertools.repeat(torch.ones(2), 100))
    assert w.report.verdict == "nonfinite", w.report.coverage.notes


def fit_same_by_epochs(weight: Tensor, optimizer: Any, rows: Any) -> None:
    """The same row again in each epoch, and epochs that have no name."""
    for _ in itertools.repeat(None):
        for x in rows:
            optimizer.zero_grad()
            (weight * x).square().sum().backward()
            optimizer.step()


def fit_same_reassigned(weight: Tensor, optimizer: Any, rows: Any) -> None:
    """The name of what is given is given something else, so that nobody knows it."""
    for x in rows:
        optimizer.zero_grad()
        loss = (weight * x).square().sum()
        x = None
        loss.backward()
        optimizer.step()


@pytest.mark.breadth
@pytest.mark.parametrize("fit", [fit_same_by_epochs, fit_same_reassigned])
def test_a_loop_of_which_nobody_knows_what_it_is_given_is_replayed_faithfully_or_refused(fit: Any) -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=100.0)
    with watch(optimizer) as w:
        fit(weight, optimizer, [torch.ones(2)] * (1 if fit is fit_same_by_epochs else 100))
    if w.report.verdict == "nonfinite":
        assert {f.birth for f in w.report.findings} == {"overflow"}
    else:
        refusal(w.report)


def fit_in_turn(weight: Tensor, optimizer: Any, rows: Any) -> None:
    """One loop after the other; the second takes what is bad."""
    for x in rows:
        optimizer.zero_grad()
        (weight * x).square().sum().backward()
        optimizer.step()
    optimizer.zero_grad()
    (weight * rows[0] / 0).sum().backward()
    optimizer.step()


def test_a_loop_that_has_ended_is_not_taken_up_again() -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with watch(optimizer) as w:
        fit_in_turn(weight, optimizer, [torch.ones(2)] * 2)
    assert {(f.step, f.birth, f.op) for f in w.report.findings} == {(3, "pole", "aten.div.Tensor")}


class Once:
    """What is entered once, like a lock."""

    def __init__(self) -> None:
        self.entered = 0

    def __enter__(self) -> None:
        self.entered += 1
        if self.entered > 1:
            raise RuntimeError("entered again")

    def __exit__(self, *_: object) -> None:
        self.entered -= 1


def fit_inside(model: nn.Module, optimizer: Any, rows: Any, around: Any) -> None:
    """A loop inside of something that is entered once."""
    with around:
        for x in rows:
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()


def fit_with_log(model: nn.Module, optimizer: Any, rows: Any, path: Path) -> None:
    """A loop that writes a file which was opened around it."""
    with open(path, "w") as file:
        for k, x in enumerate(rows):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            file.write(f"{k}\n")
            optimizer.step()


def test_what_is_around_the_loop_is_not_entered_again() -> None:
    explained(watched(fit_inside, Once()))


def test_a_log_that_is_open_around_the_loop_is_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    report = watched(fit_with_log, path)
    assert path.read_text() == "0\n1\n2\n3\n"
    explained(report)


class Gate:
    """Opens at every third entrance, as what accumulates gradients does."""

    def __init__(self) -> None:
        self.entered = 0
        self.is_open = False

    def __enter__(self) -> None:
        self.entered += 1
        self.is_open = self.entered % 3 == 0

    def __exit__(self, *_: object) -> None:
        """It stays as it is."""


def fit_by_turns(model: nn.Module, optimizer: Any, rows: Any, gate: Gate) -> None:
    """A step of three batches, made inside of what counts its entrances."""
    for x in rows:
        with gate:
            loss_of(model, x).backward()
            if gate.is_open:
                optimizer.step()
                optimizer.zero_grad()


@pytest.mark.breadth
def test_what_counts_its_entrances_is_as_it_was_where_it_is_entered_again() -> None:
    model, optimizer, rows = training(bad=3 * BAD - 1, count=15)
    with watch(optimizer) as w:
        fit_by_turns(model, optimizer, rows, Gate())
    explained(w.report)


# -- nothing stays ---------------------------------------------------------------------------------------------------


class Kept:
    """Everything that a training keeps beside its weights."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 1))
        self.average = copy.deepcopy(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.history: list[float] = []
        self.seen: set[int] = set()
        self.count = 0
        self.generator = torch.Generator().manual_seed(3)
        self.draws: list[float] = []
        self.hooked = 0
        self.model.register_forward_hook(self._hook)
        self.array = np.zeros(4)

    def _hook(self, *_: Any) -> None:
        self.hooked += 1

    def fit(self, rows: list[Tensor], file: Any = None) -> None:
        """Train, and keep books of it: all before the step, so that the replay comes by it."""
        for number, x in enumerate(rows):
            self.optimizer.zero_grad()
            noise = torch.rand(x.shape, generator=self.generator) * 1e-3 * random.random() * np.random.rand()
            x = torch.where(x == 0, x, x + noise + torch.rand(()) * 1e-3)
            loss = loss_of(self.model, x)
            self.count += 1
            COUNTED["steps"] += 1
            SEEN.append(f"step {number}")
            self.history.append(float(loss))
            self.seen.add(number)
            self.array[number % 4] += 1
            print("step", number)
            if file is not None:
                file.write(f"{number}\n")
            with torch.no_grad():
                for kept, now in zip(self.average.parameters(), self.model.parameters(), strict=True):
                    kept.lerp_(now, 0.1)
            loss.backward()
            self.scheduler.step()
            self.optimizer.step()
            self.draws.append(torch.rand(()).item() + random.random() + float(np.random.rand()))

    def state(self) -> dict[str, Any]:
        """All of it, comparable."""
        tensors = [*self.model.state_dict().values(), *self.average.state_dict().values()]
        gradients = [None if p.grad is None else p.grad for p in self.model.parameters()]
        return {
            "weights": [t.clone() for t in tensors],
            "gradients": [None if g is None else g.clone() for g in gradients],
            "optimizer": [v.clone() for s in self.optimizer.state.values() for v in s.values()],
            "books": (repr(self.history), sorted(self.seen), self.count, self.hooked, list(self.draws)),
            "array": self.array.tolist(),
            "schedule": (self.scheduler.last_epoch, self.scheduler.get_last_lr()),
            "module": (list(SEEN), dict(COUNTED)),
            "draws": (torch.rand(3), torch.rand(3, generator=self.generator), random.random(), np.random.rand()),
            "training": self.model.training,
        }


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one.nan_to_num(7e30), other.nan_to_num(7e30))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _kept(capsys: pytest.CaptureFixture[str], path: Path, *, watches: bool) -> tuple[dict[str, Any], Report | None]:
    """What a training with a bad step leaves that goes on over it."""
    SEEN.clear()
    COUNTED["steps"] = 0
    _, _, rows = training()
    kept = Kept()
    report = None
    with open(path, "w+") as file:
        file.write("begun\n")
        if watches:
            with watch(kept.optimizer, on_nonfinite="continue") as w:
                kept.fit(rows, file)
            report = w.report
        else:
            kept.fit(rows, file)
        at = file.tell()
    found = kept.state()
    found["file"] = path.read_text(), at
    found["printed"] = capsys.readouterr().out
    return found, report


@pytest.mark.proof
def test_a_replay_leaves_nothing_in_the_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bare, _ = _kept(capsys, tmp_path / "log.txt", watches=False)
    again, _ = _kept(capsys, tmp_path / "log.txt", watches=False)
    assert [name for name in bare if not _same(bare[name], again[name])] == []
    found, report = _kept(capsys, tmp_path / "log.txt", watches=True)
    assert report is not None
    explained(report)
    assert [name for name in bare if not _same(bare[name], found[name])] == []
    assert bare["printed"] == "".join(f"step {n}\n" for n in range(6))


@pytest.mark.breadth
def test_a_trace_of_a_replay_that_stays_is_noticed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whynan.training import replay

    bare, _ = _kept(capsys, tmp_path / "log.txt", watches=False)
    monkeypatch.setattr(replay.ObjectSnapshot, "restore", lambda _: None)
    monkeypatch.setattr(replay, "restore", lambda _: None)
    monkeypatch.setattr(replay, "assign", lambda _: None)
    monkeypatch.setattr(replay.Gradients, "restore", lambda _: None)
    found, _ = _kept(capsys, tmp_path / "log.txt", watches=True)
    assert {n for n in bare if not _same(bare[n], found[n])} >= {"books", "schedule", "module", "draws", "array"}


def fit_gradients_kept(model: nn.Module, optimizer: Any, rows: list[Tensor], kept: list[Any]) -> None:
    """Keeps hold of its gradients, which accumulate and are set to zero in place."""
    for x in rows:
        optimizer.zero_grad(set_to_none=False)
        loss_of(model, x).backward()
        kept.append([(p.grad, None if p.grad is None else p.grad.clone()) for p in model.parameters()])
        optimizer.step()


@pytest.mark.full
def test_gradients_are_the_same_objects_with_the_same_values_after_a_replay() -> None:
    model, optimizer, rows = training()
    kept: list[Any] = []
    with watch(optimizer) as w:
        fit_gradients_kept(model, optimizer, rows, kept)
    explained(w.report)
    assert len(kept) == BAD
    for parameter, (gradient, value) in zip(model.parameters(), kept[-1], strict=True):
        assert parameter.grad is gradient
        assert _same(gradient, value)


@pytest.mark.full
def test_the_thread_that_replays_leaves_no_mode_and_no_hook() -> None:
    from tests.quality.unharmed import standing

    before = standing()
    model, optimizer, rows = training()
    with watch(optimizer, on_nonfinite="skip"):
        fit_from(model, optimizer, rows)
    assert standing() == before


def fit_whatever_comes(model: nn.Module, optimizer: Any, rows: list[Tensor]) -> None:
    """Lets nothing end its loop."""
    for x in rows:
        with contextlib.suppress(BaseException):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()


def fit_whatever_comes_for_ever(model: nn.Module, optimizer: Any, rows: list[Tensor]) -> None:
    """The same, in a loop that ends of itself only."""
    number = 0
    while number < len(rows):
        x = rows[number]
        number += 1
        with contextlib.suppress(BaseException):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()


def fit_catching(model: nn.Module, optimizer: Any, rows: list[Tensor]) -> None:
    """Catches everything, and tries for ever."""
    number = -1
    while True:
        number += 1
        try:
            if number == len(rows):
                return
            optimizer.zero_grad()
            loss_of(model, rows[number]).backward()
            optimizer.step()
        except:  # noqa: E722
            pass


@pytest.mark.parametrize(
    "fit",
    [
        fit_whatever_comes,
        pytest.param(fit_whatever_comes_for_ever, marks=pytest.mark.breadth),
        pytest.param(fit_catching, marks=pytest.mark.breadth),
    ],
)
def test_a_replay_whose_end_the_program_suppresses_ends_nevertheless(fit: Callable[..., None]) -> None:
    report = watched(fit)
    explained(report)
    assert report.coverage.events < 500


def fit_and_save_if_it_can(model: nn.Module, optimizer: Any, rows: list[Tensor], path: Path) -> None:
    """Goes on where it cannot write, and then the loss is another one: as bad, for another reason."""
    for x in rows:
        optimizer.zero_grad()
        loss = loss_of(model, x)
        try:
            path.write_text("")
        except BaseException:
            loss = loss + (x * 0).log().sum()
        loss.backward()
        optimizer.step()


@pytest.mark.full
@pytest.mark.breadth
def test_a_replay_that_goes_on_over_a_refusal_is_not_used(tmp_path: Path) -> None:
    assert "for writing" in refusal(watched(fit_and_save_if_it_can, tmp_path / "log.txt"))


def fit_by_hand(batches: Iterator[Tensor], model: nn.Module, optimizer: Any) -> None:
    """Takes from an iterator, so that only what comes from the model on can be run again."""
    while (x := next(batches, None)) is not None:
        y = x.clone()
        y.sub_(y.mean(0)).div_(y.std(0))
        loss = model(y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_a_gradient_that_nothing_clears_is_not_what_the_step_has_left_there() -> None:
    model, optimizer, rows = training()
    judge = nn.Linear(1, 1)
    whole = nn.Sequential(model, judge)
    with watch(optimizer) as w:
        for x in rows:
            optimizer.zero_grad()
            loss_of(whole, x).backward()
            optimizer.step()
    explained(w.report)
    assert (w.report.absorbed_count, w.report.damaging) == (0, ())
    left = [parameter.grad for parameter in judge.parameters()]
    assert all(grad is not None and bool(grad.isnan().all()) for grad in left)


def test_a_gradient_of_another_net_that_an_earlier_step_has_left_bad_is_the_cause() -> None:
    model, optimizer, rows = training(bad=None)
    judge = nn.Linear(1, 1)
    with watch(optimizer) as w:
        for k, x in enumerate(rows):
            optimizer.zero_grad()
            steepness = 0.0 if judge.weight.grad is None else judge.weight.grad.abs().mean()
            (model(x).square().mean() * (1 + steepness)).backward()
            optimizer.step()
            if k == 1:
                (judge(x[:, :1]) * 0).sum().sqrt().backward()
    (finding,) = w.report.findings
    assert finding.site is not None
    assert (finding.phase, finding.rule) == ("backward", "WN301")
    assert finding.site.code == "(judge(x[:, :1]) * 0).sum().sqrt()"


@pytest.mark.breadth
def test_what_a_step_made_ahead_of_where_its_replay_begins_is_not_taken_for_data() -> None:
    model, optimizer, rows = training(bad=None)
    rows[BAD - 1][:, 1] = 2.0
    with watch(optimizer) as w:
        fit_by_hand(iter(rows), model, optimizer)
    (finding,) = w.report.findings
    assert (finding.rule, finding.birth, finding.data) == ("WN004", "entered", None)
    assert finding.message.startswith("a tensor (made before what was run again, from line ")
    assert "looks at all of it" in finding.explanation


def test_what_a_step_makes_ahead_of_its_model_is_traced_where_the_loop_can_be_run_again() -> None:
    model, optimizer, rows = training(bad=None)
    rows[BAD - 1][:, 1] = 2.0
    with watch(optimizer) as w:
        for x in rows:
            y = x.clone()
            y.sub_(y.mean(0)).div_(y.std(0))
            loss = model(y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert w.report.findings[0].rule == "WN111"


def test_a_step_outside_of_the_main_thread_is_not_run_again() -> None:
    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(watched(fit_from)))
    thread.start()
    thread.join()
    assert "it could not be ended, as it runs outside of the main thread" in refusal(reports[0])


@pytest.mark.breadth
def test_the_programs_alarm_goes_on_after_a_replay() -> None:
    mine = signal.signal(signal.SIGALRM, lambda *_: SEEN.append("alarm"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 500.0)
        explained(watched(fit_from))
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 300.0 < left < 500.0
        assert signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, mine)
    assert not SEEN


def fit_drawing(model: nn.Module, optimizer: Any, rows: list[Tensor]) -> None:
    """Draws from the system and from a generator of its own."""
    system, mine = random.SystemRandom(), Drawing(1)
    for x in rows:
        system.random()
        optimizer.zero_grad()
        loss_of(model, x * (1 + mine.random())).backward()
        optimizer.step()
    SEEN.append(f"{mine.drawn} {mine.random()}")


class Drawing(random.Random):
    """Counts its draws."""

    drawn = 0

    def random(self) -> float:
        """One more."""
        self.drawn += 1
        return super().random()


@pytest.mark.breadth
def test_generators_of_the_programs_go_on_as_if_nothing_had_been_drawn() -> None:
    model, optimizer, rows = training(None)
    fit_drawing(model, optimizer, rows)
    model, optimizer, rows = training()
    with watch(optimizer, on_nonfinite="continue") as w:
        fit_drawing(model, optimizer, rows)
    explained(w.report)
    assert SEEN[0] == SEEN[1]
