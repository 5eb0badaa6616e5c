"""One report of several pieces: a birth that two of them have seen is one finding, with one fix."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from whynan.records import ChainLink, Coverage, Element, ExitStatus, Finding, Fix, FixVerdict, Reach, Report, Run, Site
from whynan.run.pipeline import distinct, merge_reports

PLACE = Site(file="net.py", line=4, column=9, end_line=4, end_column=21, code="w.log()", function="step")


def found(**more: Any) -> Finding:
    known: dict[str, Any] = {
        "rule": "WN201",
        "severity": "error",
        "fate": "escaped",
        "birth": "pole",
        "phase": "forward",
        "op": "aten.log.default",
        "site": PLACE,
        "step": 3,
        "element": Element(index=(0,), shape=(2,), dtype="float32", value=None, count=1, total=2),
    }
    return Finding.model_validate({**known, **more})


def fix(status: Literal["verified", "unverified"]) -> Fix:
    return Fix(title="a small number", kind="source", patch=None, verdict=FixVerdict(status=status))


def report(**found_: Any) -> Report:
    run = Run(command="train.py", exit_status=ExitStatus(script=0, whynan=1), device="cpu")
    coverage = Coverage(events=1, eager=1, compiled_regions=0)
    return Report(verdict="nonfinite", run=run, coverage=coverage, **found_)


def reach(kind: Any, name: str | None = None) -> Reach:
    return Reach(kind=kind, name=name, bad=1, total=2)


@pytest.mark.parametrize("order", [1, -1])
def test_a_birth_that_two_pieces_have_seen_is_told_once_at_its_worst(order: int) -> None:
    warning = found(severity="warning", fixes=(fix("unverified"),), reaches=(reach("observed"),))
    error = found(fixes=(fix("verified"),), reaches=(reach("gradient", "w"), reach("observed")))
    (one,) = merge_reports(*[report(findings=(f,)) for f in (warning, error)[::order]]).findings
    assert (one.severity, one.occurrences) == ("error", 1)
    assert [f.verdict.status for f in one.fixes] == ["verified"]
    assert [r.kind for r in one.reaches] == ["gradient", "observed"]


def test_a_birth_of_another_step_is_another_occurrence() -> None:
    (one,) = merge_reports(report(findings=(found(),)), report(findings=(found(step=4),))).findings
    assert one.occurrences == 2


def test_the_same_birth_in_other_words_is_one() -> None:
    """What has left a result out is seen only where the backward is."""
    pieces = [report(findings=(found(),)), report(findings=(found(rule="WN510", severity="warning"),))]
    assert [f.rule for f in merge_reports(*pieces).findings] == ["WN201"]


def test_what_did_harm_in_one_piece_did_not_do_none() -> None:
    harmless = found(severity="info", fate="absorbed")
    whole = merge_reports(report(findings=(found(),)), report(absorbed=(harmless,)))
    assert (len(whole.findings), whole.absorbed, whole.absorbed_count) == (1, (), 0)


def test_what_one_rule_says_of_one_place_is_one() -> None:
    def way(op: str, phase: Any) -> tuple[ChainLink, ...]:
        return (ChainLink(role="birth", op=op, phase=phase, site=PLACE, summary=f"{op} gives Inf"),)

    forward = found(chain=way("aten.log.default", "forward"), reaches=(reach("loss"),))
    derived: dict[str, Any] = {"phase": "backward", "op": "aten.div.Tensor", "grad_fn": "LogBackward0"}
    backward = found(chain=way("aten.div.Tensor", "backward"), reaches=(reach("gradient", "w"),), **derived)
    (one,) = distinct([forward, backward])
    assert (one.phase, [r.kind for r in one.reaches]) == ("forward", ["loss", "gradient"])
    assert [(link.role, link.op) for link in one.chain] == [
        ("birth", "aten.log.default"), ("step", "aten.div.Tensor"), ("sink", None), ("sink", None),
    ]  # fmt: skip


OTHERS: dict[str, dict[str, Any]] = {
    "another place": {"site": PLACE.model_copy(update={"line": 5})},
    "another expression of the line": {"site": PLACE.model_copy(update={"column": 30})},
    "another line of a library": {"library_site": PLACE},
    "another rule": {"rule": "WN202"},
    "an allowed one": {"allowed": "meant"},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_another_cause_is_another_finding(other: dict[str, Any]) -> None:
    assert len(distinct([found(), found(birth="invalid", **other)])) == 2


@pytest.mark.parametrize(
    "more", [{"rule": "WN000"}, {"site": None}, {"site": PLACE.model_copy(update={"column": None})}]
)
def test_where_nothing_is_explained_or_placed_the_births_are_told_apart(more: dict[str, Any]) -> None:
    assert len(distinct([found(**more), found(birth="invalid", **more)])) == 2


def test_two_buffers_that_were_bad_before_are_two() -> None:
    spoilt = [found(rule="WN004", birth="entered", op=None, message=f"buffer {name} holds NaN") for name in "ab"]
    assert distinct(spoilt) == tuple(spoilt)
