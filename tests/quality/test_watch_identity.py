"""A watch changes no bit of a training, whatever fails inside it, and holds on to nothing.

Trainings are run bare and watched: their losses, weights, optimizer states, and the random numbers drawn after them
are compared bit for bit. Then each function of the watch is made to fail.
"""

from __future__ import annotations

import gc
import inspect
import random
import tempfile
import types
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import whynan
from tests.quality.unharmed import OWN, Forced, standing
from tests.selection import sampled
from whynan.capture.torch.interposition import wrappers
from whynan.capture.torch.silent import optimizer_updates
from whynan.capture.torch.sinks import gradients, loss_scaling
from whynan.replay import checkpoint
from whynan.training import cuda_graphs, guard, listeners, patches, read_back, updates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.quality.conftest import Tally

STEPS = 50
SHORT = 6
SCALE = 2.0**124
MODULES = (
    guard,
    checkpoint,
    gradients,
    listeners,
    wrappers,
    read_back,
    cuda_graphs,
    patches,
    loss_scaling,
    updates,
    optimizer_updates,
)
ERRORS = (Forced, MemoryError, RuntimeError)


@dataclass(frozen=True)
class Training:
    """One training: its model, optimizer and how it goes."""

    make: Callable[[Any], Any]
    scaled: bool = False
    workers: int | None = None
    norm: bool = False
    dropout: bool = False
    closure: bool = False


TRAININGS: dict[str, Training] = {
    "sgd": Training(lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=False)),
    "adam foreach": Training(lambda p: torch.optim.Adam(p, lr=0.01, foreach=True)),
    "adam fused": Training(lambda p: torch.optim.Adam(p, lr=0.01, fused=True)),
    "scaler": Training(lambda p: torch.optim.SGD(p, lr=1e-4), scaled=True),
    "scaler, fused": Training(lambda p: torch.optim.Adam(p, lr=1e-4, fused=True), scaled=True),
    "sgd fused": Training(lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, fused=True)),
    "batch norm": Training(lambda p: torch.optim.Adam(p, lr=0.01), norm=True),
    "dropout": Training(lambda p: torch.optim.Adam(p, lr=0.01), dropout=True),
    "loader": Training(lambda p: torch.optim.SGD(p, lr=0.05), workers=0),
    "two workers": Training(lambda p: torch.optim.SGD(p, lr=0.05), workers=2),
    "closure": Training(lambda p: torch.optim.SGD(p, lr=0.05), closure=True),
    "l-bfgs": Training(lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=4, line_search_fn="strong_wolfe"), closure=True),
}


def _rows(training: Training, steps: int) -> Any:
    data = torch.randn(8 * steps, 3)
    if training.workers is None:
        return [(x,) for x in data.split(8)]
    return DataLoader(TensorDataset(data), batch_size=8, shuffle=True, num_workers=training.workers)


def _model(training: Training) -> nn.Sequential:
    extra: list[nn.Module] = [nn.BatchNorm1d(6)] if training.norm else []
    extra += [nn.Dropout(0.3)] if training.dropout else []
    return nn.Sequential(nn.Linear(3, 6), *extra, nn.Tanh(), nn.Linear(6, 1))


def _fit(training: Training, model: nn.Sequential, optimizer: Any, rows: Any, losses: list[Tensor]) -> None:
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=9, enabled=training.scaled)
    bias = model[-1].bias
    for (x,) in rows:

        def forward(x: Tensor = x) -> Tensor:
            optimizer.zero_grad()
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            if training.scaled:
                # a gradient that is out of range before the loss is: some steps are skipped
                loss = loss + (bias - bias.detach()).sum() * 64
            scaler.scale(loss).backward()
            losses.append(loss.detach().clone())
            return loss

        if training.closure:
            optimizer.step(forward)
        else:
            forward()
            scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() < SCALE


def bits(value: Any) -> Any:
    """Something that is equal to another only bit for bit."""
    if isinstance(value, Tensor):
        return (
            str(value.dtype),
            tuple(value.shape),
            bytes(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()),
        )
    if isinstance(value, dict):
        return [(bits(k), bits(v)) for k, v in value.items()]
    return [bits(each) for each in value] if isinstance(value, (list, tuple)) else repr(value)


def _run(training: Training, around: Callable[[Any], AbstractContextManager[Any]], steps: int = STEPS) -> Any:
    """What a training comes to: losses, weights and buffers, the optimizer's state, gradients, and the next draws."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = _model(training)
    optimizer = training.make(model.parameters())
    rows = _rows(training, steps)
    losses: list[Tensor] = []
    with around(optimizer):
        _fit(training, model, optimizer, rows, losses)
    assert len(losses) >= steps
    return {
        "losses": bits(losses),
        "weights": bits(model.state_dict()),
        "optimizer": bits(optimizer.state_dict()["state"]),
        "gradients": bits([p.grad for p in model.parameters() if p.grad is not None]),
        "draws": bits([torch.rand(4), random.random(), np.random.rand()]),
    }


def _bare(_: Any) -> AbstractContextManager[Any]:
    return nullcontext()


def _watched(optimizer: Any) -> AbstractContextManager[Any]:
    return whynan.watch(optimizer, quiet=True)


def _deferred(optimizer: Any) -> AbstractContextManager[Any]:
    return whynan.watch(optimizer, quiet=True, sync="deferred")


def _changed(one: Any, other: Any) -> list[str]:
    return [name for name in one if one[name] != other[name]]


@pytest.mark.parametrize("sync", [_watched, pytest.param(_deferred, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", list(TRAININGS))
def test_a_watched_training_is_the_bare_one_bit_for_bit(name: str, sync: Callable[..., Any], tally: Tally) -> None:
    seen: list[Any] = []

    def around(optimizer: Any) -> AbstractContextManager[Any]:
        seen.append(sync(optimizer))
        return seen[0]

    bare = _run(TRAININGS[name], _bare)
    assert _changed(bare, _run(TRAININGS[name], _bare)) == []
    changed = _changed(bare, _run(TRAININGS[name], around))
    tally.count("bit-identical watched trainings", int(not changed), 1, f"{STEPS} steps each")
    assert seen[0].report.verdict == "clean"
    assert changed == []


@pytest.mark.parametrize("sync", [_watched, _deferred])
def test_a_gradient_that_is_off_by_one_bit_is_noticed(
    sync: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    training = TRAININGS["adam foreach"]
    bare = _run(training, _bare)
    original = guard.gradients_of

    def meddling(optimizer: Any) -> Any:
        found = original(optimizer)
        found[0][1].mul_(1 + torch.finfo(torch.float32).eps)
        return found

    monkeypatch.setattr(guard, "gradients_of", meddling)
    assert {*_changed(bare, _run(training, sync))} >= {"losses", "weights", "optimizer"}


def test_a_random_number_that_is_drawn_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    training = TRAININGS["sgd"]
    bare = _run(training, _bare)
    original = checkpoint.Marks.record_step

    def drawing(self: Any, scaler: Any) -> None:
        random.random()
        original(self, scaler)

    monkeypatch.setattr(checkpoint.Marks, "record_step", drawing)
    assert _changed(bare, _run(training, _watched)) == ["draws"]


# -- what fails inside -----------------------------------------------------------------------------------------------


@pytest.fixture
def as_at_a_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Own errors warn."""
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # the short trainings come to such a step, too
    monkeypatch.setattr(updates, "FIRST", 1)


DOORS = frozenset(["StepHooks._call", "Guard._before", "Guard._after"])
"""Through these the program's step itself is called; torch calls them, and nothing of ours stands above them."""
AT_ITS_ENDS = frozenset(["__init__", "install", "remove", "fail", "_replace", "_take_off"])
"""What runs in the program's ``with`` statement, outside of any step."""


def _functions() -> dict[str, tuple[Any, str, Any]]:
    """Every function of the watch's modules: its owner, its name there, what stands there."""
    found: dict[str, tuple[Any, str, Any]] = {}
    for module in MODULES:
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != module.__name__:
                continue
            if inspect.isfunction(value):
                found[f"{module.__name__.rpartition('.')[2]}.{name}"] = module, name, value
            elif inspect.isclass(value) and not getattr(value, "_is_protocol", False):
                for method, own in vars(value).items():
                    if (
                        inspect.isfunction(own)
                        and own.__module__ == module.__name__
                        and "__create_fn__" not in own.__qualname__
                    ):
                        found[f"{module.__name__.rpartition('.')[2]}.{own.__qualname__}"] = value, method, own
    return found


OF_A_WATCH = ("loss_scaling.Falling", "loss_scaling.Discards", "wrappers.StepHooks")


def _is_of_a_trace(key: str) -> bool:
    """Those of a trace are made to fail in `test_unharmed.py`."""
    return key.startswith(("loss_scaling.", "wrappers.")) and not key.startswith(OF_A_WATCH)


FUNCTIONS = {
    key: place
    for key, place in _functions().items()
    if not _is_of_a_trace(key)
    and place[1] not in AT_ITS_ENDS
    and place[2].__qualname__ not in DOORS
    and not place[1].startswith("__")
}
# the makers of the doors run as a watch begins; what they make is made to fail by name below
MAKERS = frozenset(f"patches.Entrances.{name}" for name in ("_engine", "_module", "_scaled", "_fetched")) | {
    "cuda_graphs.GraphReplays._door"
}


PROGRAMS = ("adam foreach", "scaler", "two workers", "l-bfgs", "closure")


class Failing:
    """A function that fails at one of its calls."""

    def __init__(self, original: Any, number: int, error: type[Exception]) -> None:
        self.original, self.number, self.error, self.calls = original, number, error, 0

    def wrap(self) -> Any:
        """As a function, so that it binds."""

        def failing(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.number:
                raise self.error("forced")
            return self.original(*args, **kwargs)

        return failing


def _replaced(patch: pytest.MonkeyPatch, key: str, number: int, error: type[Exception]) -> Failing:
    owner, name, original = FUNCTIONS[key]
    failing = Failing(original, number, error)
    made = failing.wrap()
    if isinstance(owner, types.ModuleType):
        # wherever it was imported to
        for module in MODULES:
            if getattr(module, name, None) is original:
                patch.setattr(module, name, made)
    else:
        patch.setattr(owner, name, made)
    return failing


def _harm(
    training: Training,
    bare: Any,
    key: str,
    number: int,
    error: type[Exception],
    around: Callable[[Any], AbstractContextManager[Any]] = _watched,
) -> tuple[str | None, bool]:
    """What a failure did beside one warning, and whether it came to it."""
    before = standing()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        failing = _replaced(patch, key, number, error)
        try:
            found = _run(training, around, SHORT)
        except Exception as escaped:
            return f"it reached the user: {escaped!r}", True
    reached = failing.calls >= number
    changed = _changed(bare, found)
    warned = sum(OWN in str(w.message) for w in caught)
    if changed:
        return f"other {changed}", reached
    if warned != int(reached):
        return f"{warned} warnings", reached
    return ("doors stayed" if standing() != before else None), reached


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """The bare trainings."""
    torch.set_num_threads(1)
    return {name: _run(TRAININGS[name], _bare, SHORT) for name in PROGRAMS}


@pytest.mark.usefixtures("as_at_a_users")
@pytest.mark.parametrize("name", sampled(PROGRAMS, 4))
def test_a_function_of_the_watch_that_fails_changes_nothing(name: str, expected: dict[str, Any], tally: Tally) -> None:
    harms: list[str] = []
    total = 0
    for key in FUNCTIONS.keys() - MAKERS:
        for number, error in zip((1, 2, 5), ERRORS, strict=True):
            harm, reached = _harm(TRAININGS[name], expected[name], key, number, error)
            total += reached
            if harm is not None:
                harms.append(f"{name}: {key} call {number} {error.__name__}: {harm}")
                tally.listed("forced failures of a watch", harms[-1])
            if not reached:
                break
    tally.count("forced failures of a watch", total - len(harms), total, "left the training unharmed, with one warning")
    assert total > 20
    assert not harms, "\n".join(sorted(harms))


OF_DEFERRED = sorted(
    key
    for key, (_, _, function) in FUNCTIONS.items()
    if key not in MAKERS and function.__module__.rpartition(".")[2] in ("guard", "read_back")
)


@pytest.mark.usefixtures("as_at_a_users")
@pytest.mark.parametrize("name", sampled(["adam fused", "scaler, fused", "adam foreach"], 3))
def test_a_function_that_fails_while_steps_are_read_later_changes_nothing(name: str, tally: Tally) -> None:
    bare = _run(TRAININGS[name], _bare, SHORT)
    harms: list[str] = []
    reached_in: set[str] = set()
    for key in OF_DEFERRED:
        for number, error in zip((1, 2, 5), ERRORS, strict=True):
            harm, reached = _harm(TRAININGS[name], bare, key, number, error, _deferred)
            reached_in |= {key} if reached else set()
            if harm is not None:
                harms.append(f"{name}: {key} call {number} {error.__name__}: {harm}")
                tally.listed("forced failures of a watch", harms[-1])
            if not reached:
                break
    assert reached_in >= {
        "read_back.PendingReads.add",
        "read_back.PendingReads.read",
        "read_back.PendingReads.read_all",
        "read_back.ReadBack.reading",
        "guard.Guard._read_back",
    }
    assert not harms, "\n".join(harms)


@pytest.mark.usefixtures("as_at_a_users")
def test_a_failure_that_changes_a_weight_is_noticed(expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fail = guard.Guard.fail

    def meddling(self: Any) -> bool:
        for module in [o for o in gc.get_objects() if type(o) is nn.Linear]:
            with torch.no_grad():
                module.weight.mul_(1 + torch.finfo(torch.float32).eps)
        return fail(self)

    monkeypatch.setattr(guard.Guard, "fail", meddling)
    harm, _ = _harm(TRAININGS["adam foreach"], expected["adam foreach"], "gradients.norm_of", 2, Forced)
    assert harm is not None
    assert "weights" in harm


@pytest.mark.usefixtures("as_at_a_users")
def test_a_failure_that_nobody_hears_of_is_noticed(expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "report_internal_error", lambda: None)
    harm, _ = _harm(TRAININGS["adam foreach"], expected["adam foreach"], "gradients.norm_of", 2, Forced)
    assert harm == "0 warnings"


def _fit_bad(model: nn.Module, optimizer: Any, rows: list[Tensor], losses: list[Tensor]) -> None:
    for x in rows:
        optimizer.zero_grad()
        loss = model(x / x.norm(dim=1, keepdim=True)).square().mean()
        loss.backward()
        losses.append(loss.detach().clone())
        optimizer.step()


def _run_bad(around: Callable[[Any], AbstractContextManager[Any]]) -> Any:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = [torch.randn(4, 3) for _ in range(5)]
    rows[3][1] = 0.0
    losses: list[Tensor] = []
    with around(optimizer):
        _fit_bad(model, optimizer, rows, losses)
    return {"losses": bits(losses), "weights": bits(model.state_dict()), "draws": bits(torch.rand(3))}


def _continuing(optimizer: Any) -> AbstractContextManager[Any]:
    return whynan.watch(optimizer, quiet=True, on_nonfinite="continue")


def _calls_at_the_bad_step(key: str) -> range:
    """The numbers of the calls of a function at and after the bad step."""
    with pytest.MonkeyPatch.context() as patch:
        failing = _replaced(patch, key, -1, Forced)
        begun: list[int] = []
        explained = guard.Guard.report_fault
        patch.setattr(guard.Guard, "report_fault", lambda self, f: begun.append(failing.calls) or explained(self, f))
        _run_bad(_continuing)
    return range((begun or [0])[0] + 1, failing.calls + 1)


@pytest.mark.usefixtures("as_at_a_users", "without_proofs")
@pytest.mark.parametrize("key", sampled(sorted(FUNCTIONS.keys() - MAKERS), 60))
def test_what_fails_while_a_bad_step_is_explained_changes_nothing(key: str) -> None:
    bare, before = _run_bad(_bare), standing()
    harms: list[str] = []
    numbers = list(_calls_at_the_bad_step(key))
    for number in sorted({*numbers[:2], *numbers[-1:]}):
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _replaced(patch, key, number, Forced)
            try:
                changed = _changed(bare, _run_bad(_continuing))
            except Exception as escaped:
                harms.append(f"call {number} reached the user: {escaped!r}")
                continue
        warned = sum(OWN in str(w.message) for w in caught)
        if changed or warned > 1 or standing() != before:
            harms.append(f"call {number}: other {changed}, {warned} warnings, {standing() == before}")
    assert not harms, "\n".join(harms)


# -- nothing is held -------------------------------------------------------------------------------------------------


def _tensors() -> int:
    gc.collect()
    return sum(issubclass(type(o), Tensor) for o in gc.get_objects())


def _caches() -> tuple[int, ...]:
    return tuple(len(cache) for cache in (checkpoint._spans, checkpoint._codes, checkpoint._tails, wrappers._left))


def _held(
    steps: int, *, leak: list[Any] | None = None, around: Callable[[Any], AbstractContextManager[Any]] = _watched
) -> tuple[int, int, tuple[int, ...]]:
    """Tensors, objects and cached entries after so many steps, the watch still on."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(4, 2)

    def train() -> None:
        for k in range(steps):
            optimizer.zero_grad()
            loss = model(x + k * 1e-6).square().mean()
            loss.backward()
            optimizer.step()
            if leak is not None:
                leak.append(loss.detach())

    with around(optimizer):
        train()
        return _tensors(), len(gc.get_objects()), _caches()


def _held_in_backward(steps: int) -> tuple[int, int, tuple[int, ...]]:
    """The same where the optimizers step inside the backward; each call keeps its own model, as PyTorch's hooks do."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizers = {p: torch.optim.SGD([p], lr=1e-3) for p in model.parameters()}
    x = torch.randn(4, 2)

    def step(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)

    def train() -> None:
        for k in range(steps):
            model(x + k * 1e-6).square().mean().backward()

    with whynan.watch(quiet=True):
        train()
        return _tensors(), len(gc.get_objects()), _caches()


def _grown(held: Callable[[int], tuple[int, int, tuple[int, ...]]]) -> tuple[int, int, list[int]]:
    # from one line: what is read of a line that a mark is taken at is kept for the next
    _, few, many = [held(steps) for steps in (200, 200, 2000)]
    return many[0] - few[0], many[1] - few[1], [b - a for a, b in zip(few[2], many[2], strict=True)]


# thousands of steps like those of the trainings above, in which there is no line to cover anew
@pytest.mark.full
@pytest.mark.no_cover
@pytest.mark.parametrize("around", [_watched, _deferred])
def test_a_long_training_holds_no_more_than_a_short_one(around: Callable[[Any], AbstractContextManager[Any]]) -> None:
    tensors, objects, caches = _grown(lambda steps: _held(steps, around=around))
    assert tensors <= 2
    assert objects < 200
    assert max(caches) <= 2


@pytest.mark.full
@pytest.mark.no_cover
def test_steps_inside_the_backward_hold_no_more_either() -> None:
    tensors, objects, caches = _grown(_held_in_backward)
    assert tensors <= 2
    assert objects < 200
    assert max(caches) <= 2


@pytest.mark.full
@pytest.mark.no_cover
def test_a_tensor_that_is_held_at_every_step_is_noticed() -> None:
    leak: list[Any] = []
    tensors, _, _ = _grown(lambda steps: (leak.clear(), _held(steps, leak=leak))[1])
    assert tensors > 1000


@pytest.mark.full
@pytest.mark.xfail(strict=True, reason="the caches of the marks forget beyond 4,096 places only")
def test_functions_that_are_made_anew_leave_nothing_in_the_caches() -> None:
    def again(times: int) -> tuple[int, ...]:
        for _ in range(times):
            namespace: dict[str, Any] = {"watched": _watched, "torch": torch}
            source = "def go(model, optimizer):\n    model(torch.ones(1, 2)).sum().backward()\n    optimizer.step()\n"
            exec(compile(source, __file__, "exec"), namespace)
            model = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            with _watched(optimizer):
                namespace["go"](model, optimizer)
        gc.collect()
        return _caches()

    few = again(5)
    many = again(150)
    assert max(b - a for a, b in zip(few, many, strict=True)) < 100


@pytest.fixture(autouse=True)
def _in_the_main_thread() -> Iterator[None]:
    yield
    gc.collect()
