"""A second run that tells further back where operands come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.unit.capture.onnx.told import model, node, saved
from whynan.capture.onnx.engine import EngineSettings, opened
from whynan.capture.onnx.observer import Births
from whynan.capture.onnx.places import NoSites
from whynan.capture.onnx.recorder import Recorder
from whynan.session.further import looked_further

LARGE = np.ones(1 << 16, np.float32)


def looked(folder: Path, nodes: list[Any], memory: int | None = None) -> tuple[Births, str | None]:
    """Run nodes from x to y twice, where that is worth it; what is said of that."""
    births = Births(Recorder(), NoSites(), ranges=False)
    with opened(EngineSettings(saved(model(nodes, ["x"], ["y"]), folder), graph="original")) as engine:
        outcome = engine.run({"x": LARGE}, births)
        return births, looked_further(engine, {"x": LARGE}, births, outcome, NoSites(), memory)


def causes(births: Births) -> list[str]:
    (birth,) = births.labels.births
    return [link.summary for link in birth.cause_links]


POLE = [node("Sub", "x x", "d"), node("Div", "x d", "y")]


def test_what_was_gone_is_told(tmp_path: Path) -> None:
    births, note = looked(tmp_path, POLE)
    assert causes(births) == ["1 minus 1 is 0"]
    assert note == "the model was run once more, with the same bits, to tell where the operands of births come from"


def test_where_there_is_no_memory_that_is_said(tmp_path: Path) -> None:
    births, note = looked(tmp_path, POLE, memory=1)
    assert causes(births) == ["Sub made it 0"]
    assert note is not None
    assert note.endswith("come from; memory was there for 0 of 1 values (--memory)")


def test_of_what_does_no_harm_nothing_more_is_asked(tmp_path: Path) -> None:
    masked = [*POLE[:1], node("Div", "d d", "r"), node("IsNaN", "r", "bad"), node("Where", "bad x r", "y")]
    births, note = looked(tmp_path, masked)
    assert births.wanted()
    assert note is None
