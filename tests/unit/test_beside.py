"""What the frames around a test hold: of all the tests of a run, hardly another one."""

from __future__ import annotations

import pytest

from whynan.replay.checkpoint import stack
from whynan.replay.mutable_state import ObjectSnapshot


def _reached(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The tests that a replay would look into."""
    looked: list[object] = []
    look = ObjectSnapshot._look
    monkeypatch.setattr(
        ObjectSnapshot, "_look", lambda self, value, depth: (looked.append(value), look(self, value, depth))
    )
    ObjectSnapshot([names for f in stack(libraries=True) for names in (f.f_locals, f.f_globals)])
    return {value.nodeid for value in looked if isinstance(value, pytest.Item)}


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.breadth) for n in range(1, 8))])
def test_a_replay_meets_no_tests_but_this_and_the_next(
    number: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = _reached(monkeypatch)
    assert request.node.nodeid in reached
    assert len(reached) <= 2
