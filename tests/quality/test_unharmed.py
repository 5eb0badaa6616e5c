"""Nothing that fails inside whynan repeats, drops or alters an operation of the user's.

At the entry of every function of the capture an exception is forced, at one of its calls at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType

import pytest

from tests.quality.conftest import Tally
from tests.quality.unharmed import Calls, Outcome, bare, traced
from whynan.capture.torch import mode


@pytest.fixture(autouse=True)
def _as_at_a_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL", raising=False)


@functools.cache
def _expected() -> Outcome:
    return bare()


@functools.cache
def _calls() -> dict[CodeType, int]:
    calls = Calls()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("WHYNAN_RAISE_INTERNAL", raising=False)
        outcome = traced(calls)
    assert outcome.results == _expected().results
    assert outcome.warned == []
    return dict(calls.seen)


def _name(code: CodeType) -> str:
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_qualname}"


def _harm(code: CodeType, number: int, error: type[BaseException]) -> str | None:
    """What a failure at one call of one function did to the user's run; None for nothing."""
    calls = Calls((code, number), error)
    try:
        outcome = traced(calls)
    except Exception as escaped:
        return f"it reached the user: {escaped!r}"
    if not calls.fired:
        return None
    if outcome.results != _expected().results:
        return "other results"
    if outcome.executed != _expected().executed:
        return f"other operations: {outcome.executed - _expected().executed} {_expected().executed - outcome.executed}"
    # an experiment that fails may be one that the operator refuses: then nothing is said
    return f"{len(outcome.warned)} warnings" if len(outcome.warned) > 1 else None


def _check(code: CodeType, numbers: list[int], tally: Tally) -> None:
    harms = []
    for number in numbers:
        error = MemoryError if number % 2 else RuntimeError
        harm = _harm(code, number, error)
        tally.count("forced failures", int(harm is None), 1, "left the run unharmed")
        if harm is not None:
            harms.append(f"{_name(code)} call {number}: {harm}")
            tally.listed("forced failures", harms[-1])
    assert not harms, harms


def _spread(count: int, most: int) -> list[int]:
    """The first, the last, and some between."""
    if count <= most:
        return list(range(1, count + 1))
    step = (count - 1) / (most - 1)
    return sorted({1 + round(i * step) for i in range(most)})


def test_a_failure_at_the_first_call_of_each_function_harms_nothing(tally: Tally) -> None:
    harms: list[str] = []
    for code in _calls():
        harm = _harm(code, 1, RuntimeError)
        tally.count("functions that failed at their first call", int(harm is None), 1, "left the run unharmed")
        if harm is not None:
            harms.append(f"{_name(code)}: {harm}")
            tally.listed("functions that failed at their first call", harms[-1])
    assert not harms, harms


@pytest.mark.full
@pytest.mark.parametrize("part", range(8))
def test_a_failure_at_any_call_harms_nothing(part: int, tally: Tally) -> None:
    for i, (code, count) in enumerate(sorted(_calls().items(), key=lambda item: _name(item[0]))):
        if i % 8 == part:
            _check(code, _spread(count, 24), tally)


def _planted(monkeypatch: pytest.MonkeyPatch, dispatch: Callable[..., object]) -> str | None:
    monkeypatch.setattr(mode.TraceMode, "__torch_dispatch__", dispatch)
    code = next(c for c in _calls() if _name(c) == "tracer.py:Tracer.after")
    return _harm(code, 3, RuntimeError)


def test_an_operation_that_runs_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = mode.TraceMode.__torch_dispatch__

    def twice(self: mode.TraceMode, func: object, types: object, args: object = (), kwargs: object = None) -> object:
        if "randn" in str(func):
            func(*args, **(kwargs or {}))  # type: ignore[operator]
        return original(self, func, types, args, kwargs)

    _calls()
    assert _planted(monkeypatch, twice) is not None


def test_an_exception_that_reaches_the_user_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = mode.TraceMode.__torch_dispatch__

    def unguarded(
        self: mode.TraceMode, func: object, types: object, args: object = (), kwargs: object = None
    ) -> object:
        out = original(self, func, types, args, kwargs)
        if self.tracer.failed:
            raise RuntimeError("ours")
        return out

    _calls()
    harm = _planted(monkeypatch, unguarded)
    assert harm is not None
    assert "it reached the user" in harm
