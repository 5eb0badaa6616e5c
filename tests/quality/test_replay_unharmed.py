"""A function of the replay that fails, at any of its first calls, changes nothing of the training that is watched."""

from __future__ import annotations

import ctypes
import inspect
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.quality.test_watch_identity import _bare, _changed, _continuing, _run_bad
from tests.quality.unharmed import OWN, Forced, standing
from tests.selection import sampled
from whynan.capture.torch.provenance import before_the_run
from whynan.replay import (
    carried_state,
    class_lookup,
    live_objects,
    mutable_state,
    open_files,
    plan,
    sandbox,
    snapshot,
    time_limit,
    undo_log,
)
from whynan.training import replay

MODULES = (
    open_files,
    live_objects,
    sandbox,
    time_limit,
    mutable_state,
    before_the_run,
    class_lookup,
    carried_state,
    replay,
    snapshot,
    undo_log,
    plan,
)


def _functions() -> dict[str, tuple[Any, str, Any]]:
    found: dict[str, tuple[Any, str, Any]] = {}
    for module in MODULES:
        short = module.__name__.rpartition(".")[2]
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != module.__name__:
                continue
            if inspect.isfunction(value):
                found[f"{short}.{name}"] = module, name, value
            elif inspect.isclass(value) and not getattr(value, "_is_protocol", False):
                for method, own in vars(value).items():
                    made = inspect.isfunction(own) and own.__code__.co_filename == module.__file__
                    if made and own.__module__ == module.__name__:
                        found[f"{short}.{own.__qualname__}"] = value, method, own
    return found


SPARED = frozenset(["carried_state.CarriedState.__init__", "replay._retry_once"])
"""What runs in the program's ``with`` statement, outside of any step; what puts all back, if need be twice."""
FUNCTIONS = _functions()
for _name in SPARED:
    del FUNCTIONS[_name]


@pytest.mark.usefixtures("without_proofs")
@pytest.mark.parametrize("key", sampled(sorted(FUNCTIONS), 50))
def test_a_function_of_the_replay_that_fails_changes_nothing(
    key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bare, before = _run_bad(_bare), standing()
    harms: list[str] = []
    for number in (1, 2, 5):
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            calls = _failing(patch, key, number)
            try:
                changed = _changed(bare, _run_bad(_continuing))
            except Exception as escaped:
                harms.append(f"call {number} reached the user: {escaped!r}")
                continue
        if calls.value < number:
            break
        warned = sum(OWN in str(w.message) for w in caught)
        if changed or warned > 1 or standing() != before:
            harms.append(f"call {number}: other {changed}, {warned} warnings, {standing() == before}")
    assert not harms, "\n".join(harms)


def _failing(patch: pytest.MonkeyPatch, key: str, number: int) -> ctypes.c_int:
    owner, name, original = FUNCTIONS[key]
    # no list: a replay would put it back
    calls = ctypes.c_int(0)

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.value += 1
        if calls.value == number:
            raise Forced("forced")
        return original(*args, **kwargs)

    if inspect.ismodule(owner):
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("whynan.") and vars(module).get(name) is original:
                patch.setattr(module, name, failing)
    else:
        patch.setattr(owner, name, failing)
    return calls
