"""Nothing that fails inside whynan repeats, drops or alters an operation of the user's.

In small programs that take every way through the capture an exception is forced at each of its functions, at one call
at a time, and at each call of the doors that the user's own call goes through: the values, the operations and their
number are those of the bare run, one warning is given, and everything put in place for the trace is gone.
"""

from __future__ import annotations

import functools
import gc
import random
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.weak import WeakIdKeyDictionary

from tests.quality.unharmed import DOORS, Calls, Forced, Outcome, Place, bare, functions, harm, standing, traced
from tests.quality.unharmed_programs import BY_NAME, PROGRAMS, Program
from tests.selection import sampled
from whynan import faults
from whynan.capture.provenance import arrays, damage
from whynan.capture.torch import dispatch_mode
from whynan.capture.torch.interposition.wrappers import call_fenced

if TYPE_CHECKING:
    from tests.quality.conftest import Tally

ERRORS = (Forced, MemoryError, RuntimeError)
PARTS = 8
# no part of a trace: those that run at every step are made to fail where they are, in `test_watch_identity.py`
OF_A_WATCH = frozenset(
    (
        "whynan.capture.torch.sinks.gradients",
        "whynan.capture.torch.sinks.values_read",
        # of several processes, which `test_first_rank.py` starts
        "whynan.capture.torch.interposition.collective_calls",
    )
)
PROTOCOLS = frozenset(
    f"{kind.__name__}.{name}"
    for kind in (arrays.Arrays, arrays.Event, damage.Exact)
    for name, held in vars(kind).items()
    if not name.startswith("_") and (callable(held) or isinstance(held, property))
)
# some run only after a failure, five are asked by a watch only, one is torch's question about a mode while it
# compiles, some run in a thread before it can be followed or in a child, and one for the engine's threads, of which a
# CPU has none
UNREACHED = frozenset(
    [
        *("Capture.abandon", "Capture._failed", "TraceContext.fail"),
        "BesideCompiled._should_skip_dynamo",
        # only declared
        *(
            "EventSource.writers_read",
            "EventSource.operation",
            "LabelSets.present",
            "LabelSets.select",
            "LabelSets.union",
            *PROTOCOLS,
        ),
        *("Capture.begin_at", "Capture.set_inherited_state"),
        *("Capture.start_at_step", "Capture.release_outputs"),
        # called at the marks of a training and in its replays
        *("Fetch.__init__", "Fetch.of_indices", "Fetch.roots", "Fetch.fetch", "watch_loaders.<locals>.<lambda>"),
        "owns_elements",
        # of an evaluation of a watched program
        *("Capture.await_outputs", "Capture.has_bad_output", "Capture.stands_alone", "Sinks.await_outputs"),
        # called once before the program begins, and for a composite operator that copies in inference mode
        *("Capture.call_at_first_event", "TraceMode.call_at_first_event", "_copying"),
        *("_enter", "_leave", "TraceContext.enter_thread", "Steps.enter_thread", "Steps.leave_thread"),
        *("_forked", "Capture.disable_in_child", "Lane.follow", "Lane.end", "Leaf.state_left"),
        # a literal through an operation of the program's own
        "Question.may_copy",
        # asked once of each class, before a program of these has come that far
        "_ancestors",
        # told once of each process, before a program of these is made to fail
        "_without_doors",
        # where two operations leave out one result
        "_chooses",
        # of an operation that cannot run without it
        "_numbers_wrapped",
        # of what torch makes of a zero tensor
        "_is_on_meta",
        # one constant that stands in two tensors
        "Entries._again",
        *("Scaler._tell", "ScaleFallCounter.forget", "Capture.set_scale_fall", "Capture.set_start_place"),
        # of a trace that ends in a watch
        "_join",
        # in the engine's threads of a device
        *("_is_node_of", "_with_number", "Lane.label_node", "Lane.note_node", "Lane._of_any_thread"),
        # of several processes
        *(
            "CollectiveLog._begin",
            "CollectiveLog._completes",
            "CollectiveLog._labels",
            "CollectiveLog._leave",
            "CollectiveLog._site",
            "CollectiveLog.note_received",
            "_plain",
            "_root_of",
            "active_log",
            "CollectiveLog.sent_labels",
        ),
        "has_started_others",
        *("join_spawned", "spawned_store"),
        "act_in_concert",
        "acts_blindly",
        "CollectiveRefused.__init__",
        # where PyTorch has another formula under a mode
        "formula_note",
        # of the replay of a step, which `test_replay_unharmed.py` makes fail
        *("_cache_by_class", "identities", "iterates", "layout", "namespace_of", "slot_of"),
        *("<lambda>", "ScalerState.__init__", "ScalerState.restore", "_anomaly", "_autocast", "_deterministic"),
        *("_load_numpy", "_numpy", "_set_deterministic", "_words"),
        *("restore", "restore_generators", "restore_rng_document", "rng", "rng_document"),
        # of a replay: what it begins with, and the steps that an edited program makes
        *(
            "Inherited.__init__",
            "Inherited.describe",
            "_first",
            "_is_told",
            "_number",
            "_storage",
            "described",
            "state_at",
        ),
        *("Capture.listen", "Capture.listen.<locals>.last_step", "_gives", "_numbers", "stored_values"),
    ]
)


@pytest.fixture(autouse=True)
def _as_at_a_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@functools.cache
def _expected(name: str) -> Outcome:
    return bare(BY_NAME[name])


@functools.cache
def _calls(name: str) -> dict[Place, int]:
    """How often each place is come by in a program, after a run that has warmed every cache."""
    program = BY_NAME[name]
    traced(program, Calls())
    calls = Calls()
    outcome = traced(program, calls)
    assert (outcome.values, outcome.warned) == (_expected(name).values, 0)
    return dict(calls.seen)


def _fail_all(program: Program, points: list[tuple[Place, int, type[BaseException]]], tally: Tally) -> None:
    harms: list[str] = []
    for place, number, error in points:
        done = harm(program, _expected(program.name), Calls(place, number, error))
        if done is not None:
            harms.append(f"{program.name}: {place} call {number} {error.__name__}: {done}")
            tally.listed("forced failures", harms[-1])
    tally.count("forced failures", len(points) - len(harms), len(points), "left the run unharmed, with one warning")
    assert not harms, f"{len(harms)} of {len(points)}:\n" + "\n".join(harms[:20])


def _sample(name: str) -> list[tuple[Place, int, type[BaseException]]]:
    """One call of a sixth of the places, the first, the last or one between, in the first program that comes by it.

    All calls of all places are those of the full check.
    """
    points: list[tuple[Place, int, type[BaseException]]] = []
    before = PROGRAMS[: [p.name for p in PROGRAMS].index(name)]
    drawn = random.Random(name)
    for place, count in _calls(name).items():
        if not any(place in _calls(other.name) for other in before):
            number = drawn.choice([1, drawn.randint(1, count), count])
            points.append((place, number, drawn.choice(ERRORS)))
    return points[::12]


@pytest.mark.parametrize("name", sampled(BY_NAME, 4))
def test_a_failure_in_a_sample_of_the_calls_harms_nothing(name: str, tally: Tally) -> None:
    _fail_all(BY_NAME[name], _sample(name), tally)


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", list(BY_NAME))
def test_a_failure_at_any_call_harms_nothing(name: str, part: int, tally: Tally) -> None:
    every = [(p, n, ERRORS[n % len(ERRORS)]) for p, count in _calls(name).items() for n in range(1, count + 1)]
    _fail_all(BY_NAME[name], every[part::PARTS], tally)


@pytest.mark.full
def test_every_function_of_the_capture_fails_somewhere(tally: Tally) -> None:
    reached = {place._replace(calls=None) for name in BY_NAME for place in _calls(name)}
    inside = {f for f, module in functions().items() if f.function not in DOORS and module not in OF_A_WATCH}
    missed = sorted(str(f) for f in inside - reached)
    for place in missed:
        tally.listed("functions made to fail", f"not reached: {place}")
    tally.count("functions made to fail", len(inside) - len(missed), len(inside))
    assert {f.function for f in functions()} >= DOORS
    assert {m.split(":")[1] for m in missed} == UNREACHED


def _harm_of(name: str, function: str, error: type[BaseException] = Forced) -> str | None:
    place = next(p for p in _calls(name) if p.function == function)
    return harm(BY_NAME[name], _expected(name), Calls(place, 2, error))


def _planted(
    monkeypatch: pytest.MonkeyPatch, dispatch: Callable[..., Any], function: str = "Tracer.record_event"
) -> str:
    _calls("training")
    monkeypatch.setattr(dispatch_mode.TraceMode, "__torch_dispatch__", dispatch)
    done = _harm_of("training", function)
    assert done is not None
    return done


def test_an_operation_that_runs_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = dispatch_mode.TraceMode.__torch_dispatch__

    def twice(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.context.failed and "relu" in str(func):
            func(*args, **(kwargs or {}))
        return original(self, func, types, args, kwargs)

    assert "other operations" in _planted(monkeypatch, twice)


def test_an_operation_that_is_dropped_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = dispatch_mode.TraceMode.__torch_dispatch__

    def dropped(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.context.failed and "relu" in str(func):
            return args[0]
        return original(self, func, types, args, kwargs)

    assert "other values" in _planted(monkeypatch, dropped)


def test_a_value_that_differs_in_one_bit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = dispatch_mode.TraceMode.__torch_dispatch__

    def altered(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = original(self, func, types, args, kwargs)
        if self.context.failed and "mean" in str(func):
            out.nextafter_(torch.full_like(out, 9.0))
        return out

    assert "other values" in _planted(monkeypatch, altered)


def test_an_exception_that_reaches_the_user_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = dispatch_mode.TraceMode.__torch_dispatch__

    def unguarded(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = original(self, func, types, args, kwargs)
        if self.context.failed:
            raise RuntimeError("ours")
        return out

    assert "it reached the user" in _planted(monkeypatch, unguarded)


def test_a_failure_that_nobody_hears_of_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    _calls("births")
    monkeypatch.setattr("whynan.capture.torch.context.report_internal_error", lambda: None)
    assert _harm_of("births", "Tracer.record_event") == "0 warnings"


def test_two_warnings_of_one_failure_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    _calls("births")

    def loud() -> None:
        faults.report_internal_error()
        faults.report_internal_error()

    monkeypatch.setattr("whynan.capture.torch.context.report_internal_error", loud)
    assert _harm_of("births", "Tracer.record_event") == "2 warnings"


def test_a_patch_that_stays_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    _calls("births")
    before = standing()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "save", torch.save)
        assert standing() == before
        patch.setattr(torch, "save", lambda *a, **k: None)
        assert standing() != before


def test_what_the_garbage_collector_calls_is_no_call_of_a_door() -> None:
    collected: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        collected.append(phase)

    class Circle:
        def __init__(self) -> None:
            self.itself = self

    calls = Calls()
    references = WeakIdKeyDictionary({Circle(): 0}), weakref.WeakSet([Circle()]), weakref.ref(Circle(), lambda _: None)
    gc.callbacks.append(note)
    try:
        with calls.watching():
            call_fenced(lambda: True, gc.collect)
    finally:
        gc.callbacks.remove(note)
    assert collected == ["start", "stop"]
    assert not references[0]
    assert {place.calls for place in calls.seen} == {"collect", "is_grad_enabled"}
