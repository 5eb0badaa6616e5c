"""The run that explains what is bad in a graph whose numbers no file has."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from syrupy.assertion import SnapshotAssertion

from whynan.capture.onnx.engine import EngineSettings
from whynan.capture.onnx.execution import Outcome
from whynan.records import Coverage
from whynan.report.notes import sentence
from whynan.run.onnx.explaining import agree, explaining, folding_note, unexplained
from whynan.traces import Sink, Trace

SETTINGS = EngineSettings("model.onnx")
BAD = Trace([], [], Coverage(), unexplained=[Sink("output", "y", 1, 2, frozenset(), True)])
CLEAN = Trace([], [], Coverage())


def outcome(*computed: str, blocked: bool = False, **outputs: Any) -> Outcome:
    held = {name: np.array(values, np.float32) for name, values in outputs.items()}
    return Outcome(held, True, "", 1, 1, 1, {}, (), onnx.ModelProto(), computed, blocked)


def test_a_run_whose_numbers_the_file_has_explains_itself() -> None:
    assert explaining(SETTINGS, outcome(), BAD) is None
    assert explaining(SETTINGS, outcome(blocked=True), CLEAN) is None


def test_what_is_bad_in_blocks_is_told_without_them() -> None:
    plain = explaining(SETTINGS, outcome(blocked=True), BAD)
    assert plain is not None
    assert (plain.level, plain.disabled_optimizers) == ("all", ("NchwcTransformer",))


@pytest.mark.parametrize("found", [BAD, CLEAN], ids=["bad", "an infinity"])
def test_what_was_computed_before_the_run_is_looked_for_in_the_graph_as_written(found: Trace) -> None:
    plain = explaining(SETTINGS, outcome("k", blocked=True), found)
    assert plain is not None
    assert (plain.level, plain.disabled_optimizers) == ("disabled", ())


def test_runs_agree_whose_bad_outputs_are_the_same() -> None:
    here = outcome(y=[np.nan, 1], z=[1, 2])
    assert agree(here, outcome(y=[1, np.inf], z=[2, 1]))
    assert not agree(here, outcome(y=[1, 1], z=[1, 2]))
    assert not agree(here, outcome(y=[np.nan, 1], z=[np.nan, 2]))


@pytest.mark.parametrize("of", [outcome(*"abcdef"), outcome(blocked=True)], ids=["computed", "blocked"])
def test_which_run_is_told_of_is_said(of: Outcome, snapshot: SnapshotAssertion) -> None:
    assert f"{sentence(folding_note(of))}\n{sentence(unexplained(of))}" == snapshot
