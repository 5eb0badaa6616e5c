"""What is no element of a tensor is as it was after it has been put back."""

from __future__ import annotations

import inspect
import io
import itertools
import logging
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xdist.remote
from execnet.gateway_base import get_execmodel
from torch import nn

from whynan.replay.mutable_state import Gradients, ObjectSnapshot
from whynan.replay.snapshot import restore, rng

DRAWS: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.randn(3).tolist(),
    "torch's normal in pairs": lambda: torch.randn(1, dtype=torch.float64).item(),
    "Python": random.random,
    "Python's normal in pairs": lambda: random.gauss(0, 1),
    "NumPy": lambda: np.random.rand(),
    "NumPy's normal in pairs": lambda: np.random.randn(),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=list(DRAWS))
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_what_is_drawn_next_is_the_same_again(draw: Callable[[], Any], before: int) -> None:
    for _ in range(before):
        draw()
        rng()
    state = rng()
    first = [draw() for _ in range(5)]
    assert [draw() for _ in range(5)] != first
    restore(state)
    assert [draw() for _ in range(5)] == first


def test_another_of_numpys_generators_is_put_back() -> None:
    np.random.seed(1)
    rng()
    np.random.seed(2)
    state = rng()
    first = np.random.rand()
    np.random.seed(1)
    rng()
    restore(state)
    assert np.random.rand() == first


@pytest.mark.parametrize("draws", range(4))
def test_numpys_state_is_what_its_getter_says(draws: int) -> None:
    np.random.seed(3)
    for _ in range(draws):
        np.random.randn()
    state, said = rng(), np.random.get_state()
    np.random.seed(4)
    np.random.randn()
    restore(state)
    assert str(np.random.get_state()) == str(said)


@pytest.mark.parametrize("draws", range(4))
def test_numpys_getter_is_asked_again_only_after_a_draw(draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    getter = np.random.get_state
    monkeypatch.setattr(np.random, "get_state", lambda legacy: asked.append(legacy) or getter(legacy=legacy))
    np.random.seed(3)
    for _ in range(draws):
        np.random.randn()
        rng()
    asked.clear()
    state = rng()
    # one that may be drawn without a change of the words cannot be told from the words
    assert len(asked) == (1 if draws == 0 or draws % 2 else 0)
    assert str(state.numpy) == str(getter(legacy=False))
    asked.clear()
    np.random.rand()
    assert str(rng().numpy) == str(getter(legacy=False))
    assert len(asked) == 1


@pytest.mark.parametrize("draws", [0, 1, 623, 624, 625])
def test_pythons_state_is_what_its_getter_says(draws: int) -> None:
    for _ in range(draws):
        random.getrandbits(32)
    state, expected = rng(), random.getstate()
    random.seed(1)
    restore(state)
    assert random.getstate() == expected


@pytest.mark.parametrize("made", [random.Random, random.SystemRandom])
def test_the_generator_that_is_read_is_the_one_that_is_put_back(
    made: type[random.Random], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "_inst", made())
    state, expected = rng(), random.getstate()
    random.random()
    restore(state)
    assert random.getstate() == expected


def test_a_generator_of_the_programs_own_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(random.Random):
        drawn = 0

        def getstate(self) -> Any:
            return "drawn", self.drawn

        def setstate(self, state: Any) -> None:
            _, self.drawn = state

    mine = Counted()
    monkeypatch.setattr(random, "_inst", mine)
    monkeypatch.setattr(random, "getstate", mine.getstate)
    monkeypatch.setattr(random, "setstate", mine.setstate)
    state = rng()
    mine.drawn = 5
    restore(state)
    assert mine.drawn == 0


def test_a_generator_of_another_kind_is_put_back() -> None:
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(1))
        state, first = rng(), [np.random.randn() for _ in range(3)]
        restore(state)
        assert [np.random.randn() for _ in range(3)] == first
    finally:
        np.random.set_bit_generator(before)


def test_taking_it_draws_nothing() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    bare = torch.randn(2).tolist(), random.random(), np.random.randn(), np.random.randn()
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    rng()
    torchs, pythons, first = torch.randn(2).tolist(), random.random(), np.random.randn()
    rng()
    assert (torchs, pythons, first, np.random.randn()) == bare


SWITCHED: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "grad mode": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
    "autocast": (lambda: torch.is_autocast_enabled("cpu"), lambda: torch.set_autocast_enabled("cpu", True)),
    "autocast's dtype": (
        lambda: torch.get_autocast_dtype("cpu"),
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
    ),
    "default dtype": (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float64)),
    "anomaly mode": (torch.is_anomaly_enabled, lambda: torch.autograd.set_detect_anomaly(True)),
    "deterministic algorithms": (
        torch.are_deterministic_algorithms_enabled,
        lambda: torch.use_deterministic_algorithms(True),
    ),
    "threads": (torch.get_num_threads, lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
    "precision": (torch.get_float32_matmul_precision, lambda: torch.set_float32_matmul_precision("medium")),
}


@pytest.mark.parametrize(("read", "switch"), SWITCHED.values(), ids=list(SWITCHED))
def test_a_switch_is_put_back(read: Callable[[], Any], switch: Callable[[], Any]) -> None:
    state, before = rng(), read()
    try:
        switch()
        assert read() != before
    finally:
        restore(state)
    assert read() == before


class Plain:
    def __init__(self, **names: Any) -> None:
        self.__dict__.update(names)


class Counting(random.Random):
    drawn = 0

    def random(self) -> float:
        self.drawn += 1
        return super().random()

    def getstate(self) -> Any:
        raise AssertionError("the program's code was called")


class Entropy(random.SystemRandom):
    drawn = 0


class Slotted:
    __slots__ = ("count", "unset")

    def __init__(self) -> None:
        self.count = 1


class Unfriendly(dict[str, Any]):
    """Whatever is asked of it raises."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the program's code was called")

    __getattribute__ = __getattr__ = __iter__ = __len__ = __getitem__ = __setitem__ = _refuse
    items = keys = values = clear = update = __eq__ = __bool__ = __repr__ = _refuse  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def changes() -> list[tuple[str, Any, Callable[[Any], object], Callable[[Any], object]]]:
    """Names of kinds, something of each, how it is changed, and how to see what it holds."""
    return [
        ("list", [1, 2], lambda x: x.append(3), list),
        ("list reordered", [1, 2], lambda x: x.reverse(), list),
        ("dict", {"a": 1}, lambda x: x.update(a=2, b=3), lambda x: list(x.items())),
        ("dict reordered", {"a": 1, "b": 2}, lambda x: x.update(a=x.pop("a")), lambda x: list(x.items())),
        ("set", {1, 2}, lambda x: x.add(3), sorted),
        ("deque", deque([1, 2], 2), lambda x: x.append(3), list),
        ("counter", Counter("aab"), lambda x: x.update("bbb"), lambda x: list(x.items())),
        ("ordered", OrderedDict(a=1, b=2), lambda x: x.move_to_end("a"), lambda x: list(x.items())),
        ("default", defaultdict(list), lambda x: x["new"].append(1), lambda x: list(x.items())),
        ("bytes", bytearray(b"ab"), lambda x: x.extend(b"c"), bytes),
        ("stream", io.StringIO("ab"), lambda x: x.write("cd"), lambda x: (x.getvalue(), x.tell())),
        ("instance", Plain(n=1), lambda x: x.__dict__.update(n=2, m=3), lambda x: dict(vars(x))),
        ("slots", Slotted(), lambda x: (setattr(x, "count", 2), setattr(x, "unset", 1)),
         lambda x: (x.count, hasattr(x, "unset"))),
        ("nested", {"a": [{"b": deque([set()])}]}, lambda x: x["a"][0]["b"][0].add(1), str),
        ("random", random.Random(1), lambda x: x.random(), lambda x: x.getstate()),
        ("random's second", random.Random(1), lambda x: x.gauss(), lambda x: x.getstate()),
        ("random of one's own", Counting(1), lambda x: x.random(), lambda x: (random.Random.getstate(x), x.drawn)),
        ("random of the system", Entropy(), lambda x: setattr(x, "drawn", 1), lambda x: x.drawn),
        ("generator", torch.Generator(), lambda x: torch.rand(1, generator=x), lambda x: x.get_state().tolist()),
        ("numpy's first", np.random.RandomState(1), lambda x: x.randn(), lambda x: str(x.get_state())),
        ("array", np.array([1.0, np.nan, -0.0]), lambda x: x.fill(1.0), lambda x: x.tobytes()),
        ("numpy", np.random.default_rng(1), lambda x: x.random(), lambda x: str(x.bit_generator.state)),
    ]  # fmt: skip


@pytest.mark.parametrize("name", [name for name, *_ in changes()])
def test_what_a_thing_holds_is_put_back_into_it(name: str) -> None:
    _, thing, change, see = next(row for row in changes() if row[0] == name)
    names = {"thing": thing}
    before = see(thing)
    contents = ObjectSnapshot([names])
    change(thing)
    names["thing"], names["new"] = None, 1
    assert see(thing) != before
    contents.restore()
    assert names == {"thing": thing}
    assert names["thing"] is thing
    assert see(thing) == before
    assert not contents.iterators


def test_no_code_of_the_programs_is_called() -> None:
    unfriendly = Unfriendly()
    dict.__setitem__(unfriendly, "inner", [1])
    contents = ObjectSnapshot([[unfriendly]])
    dict.__getitem__(unfriendly, "inner").append(2)
    dict.__setitem__(unfriendly, "new", 1)
    contents.restore()
    assert list(dict.items(unfriendly)) == [("inner", [1])]


class Judging(type):
    """What has an ``__eq__`` of its own, and by that no hash."""

    def __eq__(cls, other: object) -> bool:
        raise AssertionError("code of the program's")


class Answering(type):
    """What answers by itself when a name of a class is asked for."""

    refuses = False

    def __getattribute__(cls, name: str) -> Any:
        if Answering.refuses:
            raise AssertionError("code of the program's")
        return super().__getattribute__(name)


@pytest.mark.parametrize("metaclass", [Judging, Answering])
def test_classes_are_told_apart_by_identity(metaclass: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Config(metaclass=metaclass):
        def __init__(self) -> None:
            self.seen = [1]

        def __iter__(self) -> Iterator[int]:
            yield from self.seen

    held = Config()
    monkeypatch.setattr(Answering, "refuses", True)
    found = ObjectSnapshot([{"held": held, "kind": Config, "each": iter(held)}])
    held.seen.append(2)
    found.restore()
    assert held.seen == [1]
    assert not found.failed


def test_what_threads_share_in_a_library_stays_as_they_have_left_it() -> None:
    executor, handler, ours = ThreadPoolExecutor(1), BufferingHandler(100), Locked()
    names = {"executor": executor, "handler": handler, "ours": ours}
    contents = ObjectSnapshot([names])
    executor.submit(int).result()
    handler.buffer.append(logging.makeLogRecord({}))
    ours.seen.append(1)
    threads = list(executor._threads)
    contents.restore()
    executor.shutdown()
    assert (list(executor._threads), handler.buffer, ours.seen) == (threads, [], [])
    assert threads


def test_a_librarys_code_that_is_run_as_no_module_is_still_the_librarys() -> None:
    names: dict[str, Any] = {"__name__": "handed_over"}
    path = inspect.getsourcefile(xdist.remote)
    exec(compile(Path(str(path)).read_text(), str(path), "exec"), names)
    queue = names["TestQueue"](get_execmodel("thread"))
    queue.put(1)
    contents = ObjectSnapshot([{"queue": queue}])
    queue.replace([2, 3])
    contents.restore()
    assert list(queue._items) == [2, 3]


class Locked:
    """What is the program's own is its own to run again."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seen: list[int] = []


class Meter:
    total = 0
    seen: list[int] = []  # noqa: RUF012


def test_counters_in_classes_closures_and_defaults_are_put_back() -> None:
    count = 0

    def step(seen: list[int] = []) -> None:  # noqa: B006
        nonlocal count
        count += 1
        seen.append(count)
        Meter.total += 1
        Meter.seen.append(count)

    step()
    contents = ObjectSnapshot([{"step": step, "Meter": Meter}])
    step()
    Meter.made = 1  # type: ignore[attr-defined]
    assert (count, step.__defaults__, Meter.total, Meter.seen) == (2, ([1, 2],), 2, [1, 2])
    contents.restore()
    assert (count, step.__defaults__, Meter.total, Meter.seen) == (1, ([1],), 1, [1])
    assert not hasattr(Meter, "made")


class Average:
    """An EMA of weights and how often it was updated."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.updates = 0

    def update(self, model: nn.Module) -> None:
        self.updates += 1
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}


def deep(levels: int) -> nn.Module:
    model: nn.Module = nn.Linear(2, 2)
    for _ in range(levels):
        model = nn.Sequential(model, nn.Dropout())
    return model


def test_a_training_is_as_it_was() -> None:
    model = deep(8)
    inner = list(model.modules())[-2]
    adam = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(adam, 1)
    average = Average(model)

    def step() -> None:
        adam.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        adam.step()
        scheduler.step()
        average.update(model)

    def held() -> Any:
        gradients = [id(p.grad) for p in model.parameters()]
        shadow = [id(t) for t in average.shadow.values()]
        flags = [m.training for m in model.modules()]
        groups = [{k: v for k, v in g.items() if k != "params"} for g in adam.param_groups]
        return scheduler.state_dict(), groups, gradients, shadow, average.updates, flags, len(adam.state)

    before = str(held())
    contents = ObjectSnapshot([{"model": model, "adam": adam, "scheduler": scheduler, "average": average}])
    model.eval()
    inner.register_buffer("new", torch.ones(1))
    next(iter(model.parameters())).requires_grad_(False)
    step()
    assert str(held()) != before
    contents.restore()
    assert str(held()) == before
    assert not hasattr(inner, "new")
    assert all(p.requires_grad for p in model.parameters())
    assert len(contents.tensors) >= 2


def test_a_buffer_given_another_tensor_is_the_first_again() -> None:
    norm = nn.BatchNorm1d(2)
    mean = norm.running_mean
    contents = ObjectSnapshot([{"norm": norm}])
    norm.running_mean = torch.ones(2)
    contents.restore()
    assert norm.running_mean is mean


def test_what_cannot_be_put_back_is_listed() -> None:
    def items() -> Iterator[int]:
        yield from range(9)

    ended = items()
    list(ended)
    numbers, batches, pairs = itertools.count(), items(), iter([1, 2])
    contents = ObjectSnapshot(
        [{"a": [numbers], "b": {"batches": batches}, "c": pairs, "ended": ended, "d": [1], "e": "text"}]
    )
    assert sorted(map(id, contents.iterators)) == sorted(map(id, [numbers, batches, pairs]))


def test_what_a_loader_is_in_the_middle_of_is_listed() -> None:
    loader = torch.utils.data.DataLoader([1, 2, 3])
    assert not ObjectSnapshot([{"loader": loader}]).iterators
    assert ObjectSnapshot([{"batches": iter(loader)}]).iterators


def test_large_arrays_are_listed_and_left() -> None:
    array = np.zeros(1 << 18)
    assert ObjectSnapshot([{"array": array}]).large[0] is array


def test_what_cannot_be_put_back_hinders_nothing_else() -> None:
    stream, numbers = io.BytesIO(b"ab"), [1]
    contents = ObjectSnapshot([[stream, numbers]])
    stream.close()
    numbers.append(2)
    contents.restore()
    assert numbers == [1]
    assert len(contents.failed) == 1


def test_what_compiling_put_into_a_modules_names_stays() -> None:
    names: dict[str, Any] = {"__builtins__": {}, "step": 1, "gone": 2}
    contents = ObjectSnapshot([names])
    names.update({"__compiled_fn_3": len, "made": 3, "step": 2})
    del names["gone"]
    contents.restore()
    assert names == {"__builtins__": {}, "step": 1, "gone": 2, "__compiled_fn_3": len}


def test_too_much_is_said() -> None:
    many = [[k] for k in range(1000)]
    assert not ObjectSnapshot([many]).exceeded
    assert ObjectSnapshot([many], limit=500).exceeded


def test_things_within_each_other_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    contents = ObjectSnapshot([loop])
    loop.append(1)
    contents.restore()
    assert len(loop) == 1


def test_no_deeper_than_was_said() -> None:
    nested: list[Any] = [[[1]]]
    contents = ObjectSnapshot([nested], depth=1)
    nested[0].append(2)
    nested[0][0].append(2)
    contents.restore()
    assert nested == [[[1, 2]]]


def test_gradients_are_the_same_objects_again() -> None:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    first.grad = grad = torch.ones(2)
    taken = Gradients.snapshot([first, second])
    first.grad = None
    second.grad = torch.ones(2)
    taken.restore()
    assert first.grad is grad
    assert second.grad is None


def test_memory_that_was_exchanged_is_exchanged_back() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = grad = torch.ones(2)
    address = weight.data_ptr()
    taken = Gradients.snapshot([weight])
    weight.grad = None
    weight.data = torch.zeros(5)
    taken.restore()
    assert weight.data_ptr() == address
    assert weight.tolist() == [1.0, 1.0]
    assert weight.grad is grad
