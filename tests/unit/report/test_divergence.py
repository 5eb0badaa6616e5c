"""The text of a comparison: the operation on both sides, its numbers, how the error grows, and what was aligned."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.report.programs import report
from whynan.records import (
    Aligned,
    Attribution,
    Coverage,
    Divergence,
    Element,
    Finding,
    Growth,
    IntroducedError,
    Note,
    Operand,
    OutputError,
    PropagatedError,
    Report,
    Site,
)
from whynan.report.redaction import redacted
from whynan.report.terminal import render

SITE = Site(file="net.py", line=12, column=9, end_line=12, end_column=20, code="self.fc(x)", module="fc")
FOUND = Finding(
    rule="WNX01",
    name="atan2-on-negative-axis",
    severity="error",
    fate="escaped",
    birth=None,
    phase="inference",
    op="Where",
    site=SITE,
    node="node_atan2",
    value="atan2",
    element=Element(
        index=(0, 3),
        shape=(2, 8),
        dtype="float32",
        value=-3.1415927,
        count=1,
        total=16,
        operands=(
            Operand(name="imag", index=(0, 3), value=0.0, dtype="float32"),
            Operand(name="real", index=(0, 3), value=-1.0, dtype="float32"),
        ),
    ),
    message="on the same operands B gives -3.14159 where A gives 3.14159",
    explanation="The exporter writes atan2 as the arctangent of a quotient.",
    divergence=Divergence(
        introduced=IntroducedError(
            max_abs=6.2831855,
            max_rel=2.0,
            max_ulp=2.6e7,
            index=(0, 3),
            a=3.1415927,
            b=-3.1415927,
            exact=3.141592653589793,
        ),
        propagated=PropagatedError(max_abs=1e-7, max_rel=3e-8),
        tolerance=2e-6,
        count=1,
        total=16,
        other_node="atan2",
        other_op="aten.atan2.default",
        other_value="atan2",
        other_site=SITE,
        why="on the same operands B gives -3.14159 where A gives 3.14159",
        nodes=("node_Div_1", "node_Atan_2", "node_Greater_3", "node_Less_4", "node_Add_5"),
        growth=(
            Growth(value="atan2", op="Where", max_rel=2.0),
            Growth(value="cos", op="Cos", max_rel=1e-7),
            Growth(value="out", op="Mul", max_rel=float("nan")),
        ),
        attributions=(Attribution(source="lowering", evidence="aten.atan2.default of A is Div Atan Where in B"),),
    ),
)
ALIGNED = Aligned(values=7, of=12, by={"name": 3, "metadata": 4}, unaligned=("val_1", "val_2"))
OUTPUTS = (
    OutputError(name="out", max_abs=0.5, max_rel=None, nan_mismatch=2),
    OutputError(name="extra", max_abs=None, max_rel=None),
)
NOTES = (
    Note.create("sides_differ", what="the output extra of B has no partner in A"),
    Note.create("harmless_difference", op="Where", value_name="masked", max_abs=3.4e38),
    Note.create("not_judged", count=3, names=("a", "b", "c")),
    Note.create("amplified", output="out", max_rel=0.01),
)


def compared(verdict: str, *findings: Finding, notes: tuple[Note, ...] = ()) -> Report:
    coverage = Coverage(events=12, aligned=ALIGNED, typed_notes=notes)
    return report(*findings).model_copy(update={"verdict": verdict, "coverage": coverage, "outputs": OUTPUTS})


@pytest.mark.parametrize("width", [40, 100])
def test_a_divergence_is_told(width: int, snapshot: SnapshotAssertion) -> None:
    assert render(compared("divergent", FOUND), width=width) == snapshot


def test_two_runs_that_agree_are_told_with_what_was_seen(snapshot: SnapshotAssertion) -> None:
    assert render(compared("clean", notes=NOTES), width=100) == snapshot


def test_two_runs_that_are_both_bad_do_not_agree() -> None:
    assert "which is no agreement" in render(compared("nonfinite"), width=100)


def test_a_redacted_divergence_has_no_names_and_no_values() -> None:
    told = render(redacted(compared("divergent", FOUND)), width=100)
    assert "node_atan2" not in told
    assert "3.14159" not in told
    assert "net.py" not in told
    assert "Where" in told
