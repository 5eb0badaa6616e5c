"""The words for single things: operands written as numbers, long names, what entered, wrong finite values."""

from __future__ import annotations

import math

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.unit.report.programs import (
    ELEMENT,
    FORWARD,
    TURNED,
    cause,
    finding,
    line_of,
    reach,
    report,
    site,
    step,
    value,
)
from whynan.records import Member, Note, Phase, SinkKind, Site
from whynan.records.report import Step
from whynan.report import wording
from whynan.report.terminal import render


@pytest.mark.parametrize(
    ("name", "expression", "said"),
    [
        ("exponent", "2", ["exponent = 0.5"]),
        ("exponent", "-1e-3", ["exponent = 0.5"]),
        ("exponent", "p", ["p = 0.5"]),
        ("exponent", None, ["exponent = 0.5"]),
        ("other", "0.5", []),
        ("other", "scale", ["scale = 0.5"]),
        ("self", None, ["self = 0.5"]),
    ],
)
def test_a_number_in_the_source_is_not_said_to_be_itself(name: str, expression: str | None, said: list[str]) -> None:
    assert wording.operands([value(name, 0.5, expression=expression)]) == said


def test_of_a_long_name_beginning_and_end_are_shown() -> None:
    name = "state[" + "Parameter containing: nan, " * 40 + "].exp_avg"
    (told,) = wording.reach_lines(finding(reaches=(reach("observed", name, 3, 4),)), raised=False)
    assert told.startswith("state[Parameter")
    assert told.endswith("].exp_avg (3 of 4 elements)")
    assert len(told) < 90


@pytest.mark.parametrize("name", ["encoder.layers.11.attention.self.query.weight", "x" * 60])
def test_a_usual_name_is_shown_whole(name: str) -> None:
    assert name in wording.reach_lines(finding(reaches=(reach("gradient", name),)), raised=False)[0]


def test_what_came_in_is_no_result() -> None:
    scalar = ELEMENT.model_copy(update={"index": (), "shape": (), "count": 1, "total": 1, "operands": ()})
    assert wording.element(scalar) == "the result, f32[], is NaN"
    assert wording.element(scalar, entered=True) == "the value, f32[], is NaN"


def test_of_what_only_leaves_the_name_is_told() -> None:
    found = finding(phase="inference", op=None, site=None, birth="entered")
    assert wording.birth_place(found.model_copy(update={"node": None, "value": "w"})) == [
        "w, which leaves the graph as it came in"
    ]


@pytest.mark.parametrize(
    ("kinds", "headline"),
    [
        (("observed", "output"), "warning: NaN turned into a wrong finite value in the output at step 3"),
        (("gradient",), "warning: NaN turned into a wrong finite value in the gradients at step 3"),
        (("observed",), "warning: NaN turned into a wrong finite value at step 3"),
    ],
)
def test_a_wrong_finite_value_has_a_place_and_is_said_to_be_one(kinds: tuple[str, ...], headline: str) -> None:
    reached = tuple(reach(kind) for kind in kinds)
    found = finding(fate="damaging", severity="warning", reaches=reached, chain=(TURNED,))
    assert wording.headline(found, raised=False) == headline
    assert "finite there, but not what float64 would have given" in render(report(damaging=(found,)), source=line_of)


@pytest.mark.parametrize(
    ("did", "said"),
    [
        (Note.create("made_of_bad", operator="argmax", result=0, bad="NaN"), "finite there, but made of NaN"),
        (
            Note.create("made_of_bad", operator="Cast", result="-9223372036854775808", bad="Inf"),
            "finite there, but made of Inf",
        ),
        (Note.create("drops_nan", operator="ReduceMax"), "finite there, but a NaN was left out on the way"),
        (
            Note.create("place_of_nan", operator="GridSample"),
            "finite there, but a NaN was taken for a place on the way",
        ),
        (
            Note.create("float64_differs", operator="topk", result=0, meant=2),
            "finite there, but not what float64 would have given",
        ),
    ],
)
def test_how_a_nan_became_finite_is_said_where_it_ends(did: Note, said: str) -> None:
    link = step(said=did)
    found = finding(fate="damaging", severity="warning", reaches=(reach("output", "index", 1, 2),), chain=(link,))
    assert wording.finite_but_wrong(found) == said
    assert wording.turn_text(found) == link.summary


def test_where_it_is_not_known_how_a_nan_became_finite_nothing_is_said_of_float64() -> None:
    found = finding(fate="damaging", severity="warning", reaches=(reach("output"),), chain=(step(),))
    assert wording.finite_but_wrong(found) == "finite there, but computed from NaN"


def test_of_an_escaped_nan_nobody_says_it_is_finite() -> None:
    assert "finite there" not in render(report(finding()), source=line_of)


def test_of_two_findings_in_one_expression_the_second_tells_what_is_different(snapshot: SnapshotAssertion) -> None:
    again = finding(phase="backward", grad_fn="DivBackward0", message="0 / 0 is NaN in the derivative of div")
    assert render(report(FORWARD, again), source=line_of, width=100) == snapshot


def test_another_expression_another_reason_and_another_path_are_told_in_full() -> None:
    elsewhere = finding(site=site(3, "features.relu()"))
    text = render(report(FORWARD, elsewhere), source=line_of, width=100)
    assert text.count("counts = 0") == 2
    other = finding(explanation="Another reason.", chain=(cause("log of 0 is -Inf", 12),))
    told = render(report(FORWARD, other), source=line_of, width=100).split("2 of 2")[1]
    assert "Another reason." in told
    assert "from     log of 0 is -Inf, at line 12" in told
    assert "counts = 0" not in told


def test_lines_without_columns_are_not_taken_for_one_expression() -> None:
    line = Site(file="net.py", line=20)
    text = render(report(finding(site=line), finding(site=line)), source=line_of, width=100)
    assert "the expression of" not in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ValueError: bad loc:\ntensor([[nan],\n[nan]])", "the program raised ValueError: bad loc:..."),
        ("RuntimeError: " + "x" * 1000, "the program raised RuntimeError: " + "x" * 286 + "..."),
        ("KeyError: 'x'", "the program raised KeyError: 'x'"),
    ],
)
def test_of_an_exception_the_first_line_is_told(text: str, told: str) -> None:
    shown = render(report(finding(), run={"exception": text}), source=line_of, width=2000)
    assert shown.splitlines()[-1] == told


def member(line: int, code: str = "x", phase: Phase = "forward", rule: str = FORWARD.rule, **more: str) -> Member:
    there = Site(file="net.py", line=line, column=1, end_line=line, end_column=9, code=code).model_copy(update=more)
    return Member(site=there, phase=phase, op="aten.log.default", rule=rule)


HERE = FORWARD.site
ITSELF = Member(site=HERE, phase="backward", op="aten.div.Tensor", rule=FORWARD.rule)


@pytest.mark.parametrize(
    ("also", "said"),
    [
        ((), ""),
        ((ITSELF,), "the same in its backward"),
        ((member(15),), "the same in line 15"),
        ((member(15), member(15, "y"), ITSELF), "the same in line 15 (twice) and in its backward"),
        ((member(15), member(15, "y"), member(15, "z")), "the same in line 15 (3 times)"),
        ((member(15, phase="backward"),), "the same in the backward of line 15"),
        ((member(15, rule="WN102"), member(16)), "the same in line 16; from the same cause: WN102 in line 15"),
        ((member(15, rule="WN102"),) * 2, "from the same cause: WN102 in line 15 (twice)"),
        ((member(7, file="loss.py"),), "the same in loss.py:7"),
        ((member(HERE.line, "y / z"),), "the same in y / z"),
        ((member(HERE.line, "y / z", phase="backward"),), "the same in the backward of y / z"),
        ((ITSELF.model_copy(update={"phase": "forward"}),), "the same in this expression"),
        (tuple(map(member, (3, 4, 5, 6, 7))), "the same in line 3, in line 4 and 3 more places"),
        (
            (Member(site=None, phase="forward", op="aten.log.default", rule=FORWARD.rule),),
            "the same in aten.log.default, whose line is not known",
        ),
    ],
)
def test_other_births_of_a_cause_are_one_short_line(also: tuple[Member, ...], said: str) -> None:
    found = finding(also=also)
    assert wording.also_text(found) == said
    shown = render(report(found), width=100, source=line_of)
    assert (f"also     {said}" in shown) is bool(said)
    assert ("also  " in shown) is bool(said)


@pytest.mark.parametrize(
    ("losses", "kind", "said"),
    [
        ((0.5, 0.4, math.nan), "loss", "NaN in the loss at step 5, born in step 3"),
        ((0.5, 0.4, 0.3), "loss", "NaN in the loss at step 3"),
        ((0.5, 0.4, math.nan), "output", "NaN in the output at step 3"),
        ((), "loss", "NaN in the loss at step 3"),
    ],
    ids=["a later step is bad", "no step is bad", "of no loss", "no history"],
)
def test_a_birth_of_an_earlier_step_is_told_apart_from_the_bad_one(
    losses: tuple[float, ...], kind: SinkKind, said: str
) -> None:
    found = finding(reaches=(reach(kind),))
    history = [Step(step=number, loss=loss) for number, loss in enumerate(losses, 3)]
    assert wording.headline(found, raised=False, bad_at=wording.bad_step(found, history)) == said


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            (5, 7, 9, 20, 20, 20, 20),
            ["link 0, at line 5", "(1 step between)", "link 2, at line 9", "(3 steps between)", "link 6, at line 20"],
        ),
        ((5, 7, 9, 11, 12, 13), ["link 0, at line 5", "(3 steps between)", "link 4, at line 12", "link 5, at line 13"]),
        ((20, 20, 20, 20, 20), ["link 0, at line 20", "(2 steps between)", "link 3, at line 20", "link 4, at line 20"]),
        ((5, 7, 9, 20), ["link 0, at line 5", "link 1, at line 7", "link 2, at line 9", "link 3, at line 20"]),
    ],
)
def test_of_a_long_chain_what_came_last_on_another_line_is_told(lines: tuple[int, ...], told: list[str]) -> None:
    """The birth's own line, 20, the reader has before them."""
    chain = tuple(cause(f"link {number}", line) for number, line in enumerate(lines))
    assert wording.causes(finding(chain=chain)) == told
