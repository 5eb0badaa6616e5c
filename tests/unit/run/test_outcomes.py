"""What a run with an edited file shows of the finding that the edit is to mend."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.report.programs import ELEMENT, cause, finding, report, value
from whynan.records import Element, Finding, FixVerdict, Site
from whynan.run.proof.outcomes import EditOutcome, outcome_of
from whynan.run.proof.reruns import EditedRun

BEFORE = "a = 1\nb = 2\nc = 3\n"
AFTER = "a = 1\nb = 20\nc = 3\n"


def at(line: int, file: str = "net.py", **fields: object) -> Finding:
    """A birth at a line of a file, as no other is."""
    return finding(site=Site(file=file, line=line, code=f"{file} {line}"), **fields)


FIRST = at(3)
HARM = {"fate": "damaging", "severity": "warning"}


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (FIRST, "rejected"),
        (at(2), "rejected"),
        (at(1), "remains"),
        (at(2, "other.py"), "remains"),
        (at(3, **HARM), "rejected"),
        (at(2, **HARM), "rejected"),
        (at(1, **HARM), "remains"),
        (at(2, "other.py", **HARM), "remains"),
        (at(1, **HARM, chain=(cause("1 / 2", 2),)), "rejected"),
        (at(1, **HARM, chain=(cause("1 / 2", 2, "other.py"),)), "remains"),
        # which only passes through the edited line on its way
        (at(1, **HARM, chain=(cause("1 / 2", 2).model_copy(update={"role": "step"}),)), "remains"),
    ],
)
def test_a_birth_is_the_edits_doing_where_it_comes_from_an_edited_line_of_that_file(
    found: Finding, status: str
) -> None:
    trial = report(verdict="damaged", damaging=(found,)) if found.fate == "damaging" else report(found)
    outcome = outcome_of(trial, report(FIRST), FIRST, BEFORE, AFTER)
    assert (outcome.rejected is not None, outcome.remains is not None) == (status == "rejected", status == "remains")


def test_an_expression_that_an_edit_leaves_as_it_was_is_none_of_its_doing() -> None:
    before, after = "z = f(x) - f( 1-x)\n", "z = f(g(x)) - f(1 - x)\n"
    left = {"f(1 - x)": "remains", "f(g(x))": "rejected", "f(g(x)) - f(1 - x)": "rejected"}
    for code, status in left.items():
        found = finding(site=Site(file="net.py", line=1, end_line=1, code=code))
        outcome = outcome_of(report(found), report(FIRST), FIRST, before, after)
        assert getattr(outcome, status) is not None, code


def test_what_was_there_before_is_not_told_again() -> None:
    first = report(FIRST, damaging=(at(2, **HARM),))
    assert (
        outcome_of(report(verdict="damaged", damaging=(at(2, **HARM),)), first, FIRST, BEFORE, AFTER) == EditOutcome()
    )
    less = report(verdict="damaged", damaging=(at(1, **HARM),))
    assert outcome_of(less, report(FIRST, at(1)), FIRST, BEFORE, AFTER).remains is not None
    told = outcome_of(report(at(1)), report(FIRST, at(1)), FIRST, BEFORE, AFTER)
    assert told.remains is not None
    assert told.remains.startswith("another finding remains: ")


@pytest.mark.parametrize(("finite", "said"), [(True, "it holds on the captured operands, but "), (None, "")])
def test_only_what_was_judged_on_captured_operands_is_said_to_hold_on_them(finite: bool | None, said: str) -> None:
    left = EditOutcome(remains="another finding remains", ends_badly=True)
    told = left.apply_to(FixVerdict(status="guarded", forward_finite=finite))
    assert (told.status, told.why) == ("unverified", f"{said}another finding remains")


def test_a_program_that_ends_badly_all_the_same_is_not_cured() -> None:
    told = outcome_of(report(verdict="inconclusive", damaging=(at(1, **HARM),)), report(FIRST), FIRST, BEFORE, AFTER)
    assert told.rejected == "run with it, the program still ends with a bad number"


@pytest.mark.parametrize(
    ("mended", "left", "badly"), [("error", "error", True), ("error", "warning", False), ("warning", "warning", True)]
)
@pytest.mark.parametrize("was_there", [True, False])
def test_a_run_ends_badly_with_what_is_as_severe_as_what_was_mended(
    mended: str, left: str, badly: bool, was_there: bool
) -> None:
    first, other = at(3, severity=mended), at(1, severity=left)
    told = outcome_of(report(other), report(first, *([other] if was_there else [])), first, BEFORE, AFTER)
    assert (told.rejected, told.ends_badly, told.next) == (None, badly, other)


HUGE = ELEMENT.model_copy(update={"operands": (value("self", 3.4e38), value("other", 2.0)), "value": float("inf")})


@pytest.mark.parametrize("element", [HUGE, ELEMENT])
@pytest.mark.parametrize("makes_up", [True, False])
@pytest.mark.parametrize("line", [1, 2])
def test_an_overflow_of_the_huge_numbers_that_a_guard_gives_is_its_doing(
    element: Element, makes_up: bool, line: int
) -> None:
    behind = at(3, birth="overflow", rule="WN701", element=element, chain=(cause("where gives 3.4e38", line),))
    first = at(1)
    outcome = outcome_of(report(behind), report(first), first, BEFORE, AFTER, makes_up=makes_up)
    is_its_doing = element is HUGE and makes_up and line == 2
    assert (outcome.rejected is not None, outcome.remains is not None) == (is_its_doing, not is_its_doing)
    assert outcome.next is behind


def test_a_birth_is_told_by_the_line_that_the_file_has_it_at() -> None:
    longer = "a = 1\nx = 0\nb = 20\nc = 3\n"
    first = at(1)
    told = outcome_of(report(at(4)), report(first), first, BEFORE, longer)
    assert str(told.remains).endswith(" at net.py:3 (WN101 zero-over-zero)")
    told = outcome_of(report(at(2)), report(first), first, BEFORE, longer)
    assert str(told.rejected).endswith(" in the edited lines of net.py (WN101 zero-over-zero)")


ASTRAY = EditedRun(report(), further=3, earlier=(1.0, 2.0), later=(500.0, 600.0, 700.0))
EXACT = FixVerdict(status="verified", forward_finite=True, backward_finite=True, healthy_elements=100, why="finite")
GUARDED = EXACT.model_copy(update={"status": "guarded"})
SETTING = FixVerdict(status="verified", why="finite")


@pytest.mark.parametrize(("judged", "status"), [(EXACT, "verified"), (GUARDED, "unverified"), (SETTING, "unverified")])
def test_losses_gone_astray_speak_against_what_is_not_exact(judged: FixVerdict, status: str) -> None:
    """What exact values and gradients do to a training is the formula's own doing, and said."""
    found = EditOutcome().after(ASTRAY).apply_to(judged)
    assert found.status == status
    assert "with it the loss, of a magnitude of at most 2 up to that step, is 600 as a rule" in found.why


def test_losses_that_stay_speak_against_nothing() -> None:
    stays = replace(ASTRAY, later=(1.0, 2.0, 3.0))
    found = EditOutcome().after(stays).apply_to(GUARDED)
    assert (found.status, found.why) == ("guarded", "finite; with it the program makes the step and 3 more")


def test_a_program_that_learns_nothing_with_a_change_is_told_so() -> None:
    dead = replace(ASTRAY, later=(1.0, 1.0), learns=False)
    found = EditOutcome().after(dead).apply_to(GUARDED)
    assert found.status == "guarded"
    assert found.why.endswith(
        "with it every gradient of that step and of those after it is 0: the program learns nothing then"
    )
    alone = EditOutcome().after(replace(dead, later=(1.0,))).apply_to(GUARDED)
    assert "learns nothing" not in alone.why
