"""Whether an optimizer is to blame: only where an output turns bad, or finite, by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from whynan.capture.onnx import engine, optimisers
from whynan.capture.onnx.engine import EngineSettings
from whynan.session.optimising import badness, blamed

if TYPE_CHECKING:
    from collections.abc import Mapping

NAN = float("nan")
FINITE, FIRST, LAST, BOTH = [1.0, 1.0], [NAN, 1.0], [1.0, NAN], [NAN, NAN]
MAKES, OTHER = "MakesIt", "DoesNot"


def values(**outputs: list[float]) -> dict[str, Any]:
    return {name: np.array(each, np.float32) for name, each in outputs.items()}


def told(
    monkeypatch: pytest.MonkeyPatch, here: Mapping[str, Any], written: Mapping[str, Any], without: Mapping[str, Any]
) -> tuple[tuple[str, ...], str | None]:
    """What is said of the outputs of the optimised graph, of the one as written, and of one without an optimizer."""

    def bare(settings: EngineSettings, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        del feeds
        if settings.level == "disabled":
            return written
        return without if MAKES in settings.disabled_optimizers else here

    monkeypatch.setattr(engine, "bare", bare)
    monkeypatch.setattr(optimisers, "modified_by", lambda _settings: (OTHER, MAKES))
    return blamed(EngineSettings("model.onnx"), {}, here)


@pytest.mark.parametrize(
    ("here", "written", "names"),
    [
        (values(y=FIRST), values(y=FINITE), (MAKES,)),
        (values(y=FINITE), values(y=FIRST), (MAKES,)),
        (values(y=FIRST), values(y=LAST), ()),
        (values(y=BOTH), values(y=LAST), ()),
        (values(y=FIRST), values(y=FIRST), ()),
        (values(y=FIRST, z=FIRST), values(y=LAST, z=FINITE), (MAKES,)),
    ],
    ids=["comes", "goes", "elsewhere", "spreads", "same", "one of two"],
)
def test_an_optimizer_is_to_blame_only_where_an_output_turns_by_it(
    here: dict[str, Any],
    written: dict[str, Any],
    names: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    found, note = told(monkeypatch, here, written, written)
    assert found == names
    assert note == snapshot


def test_of_an_optimizer_that_only_moves_what_is_bad_nothing_is_said_for_another_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # without it y is bad elsewhere, and z, which turns, stays as it is
    here, written = values(y=FIRST, z=FIRST), values(y=LAST, z=FINITE)
    found, note = told(monkeypatch, here, written, values(y=LAST, z=FIRST))
    assert found == ()
    assert note is not None
    assert "no single optimizer makes the difference" in note


def test_which_elements_are_bad_is_told_of_what_can_be() -> None:
    outputs = {**values(y=FIRST, z=FINITE), "i": np.array([1]), "s": np.array(["a"], object)}
    assert badness(outputs) == {"y": b"\x80", "z": b""}
