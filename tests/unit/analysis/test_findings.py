"""From births and sinks to findings: fates, roots, severity, folding, order and verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.analysis.facts import INF, birth, sink, trace
from whynan.analysis import judge_births
from whynan.records import ChainLink
from whynan.traces import Birth
from whynan.traces.facts import STILL_HELD


def test_a_run_without_births_is_clean() -> None:
    found = judge_births(trace([], []))
    assert (found.verdict, found.escaped, found.damaging, found.absorbed) == ("clean", (), (), ())


def test_a_birth_that_reaches_a_fatal_sink_is_an_error() -> None:
    found = judge_births(trace([birth(1)], [sink(1)]))
    (finding,) = found.escaped
    assert (finding.fate, finding.severity, found.verdict) == ("escaped", "error", "nonfinite")


def test_a_birth_that_reaches_nothing_is_absorbed() -> None:
    found = judge_births(trace([birth(1)], []))
    assert [f.fate for f in found.absorbed] == ["absorbed"]
    assert (found.absorbed[0].severity, found.verdict) == ("info", "clean")


def test_what_is_only_observed_is_a_warning_where_the_run_has_a_fatal_sink() -> None:
    observed = sink(1, kind="observed", name="item", fatal=False)
    found = judge_births(trace([birth(1)], [observed], fatal_seen=True))
    assert ([f.severity for f in found.escaped], found.verdict) == (["warning"], "damaged")


def test_what_is_only_observed_is_an_error_where_it_has_none() -> None:
    observed = sink(1, kind="observed", name="item", fatal=False)
    found = judge_births(trace([birth(1)], [observed]))
    assert ([f.severity for f in found.escaped], found.verdict) == (["error"], "nonfinite")


def test_a_finite_value_made_wrong_is_damage() -> None:
    found = judge_births(trace([birth(1)], [sink(1, damage=True)]))
    assert ([f.severity for f in found.damaging], found.verdict) == (["warning"], "damaged")


def test_a_birth_that_escapes_and_damages_has_escaped() -> None:
    found = judge_births(trace([birth(1)], [sink(1, damage=True), sink(1)]))
    assert (len(found.escaped), found.damaging) == (1, ())


def test_a_value_that_is_merely_held_is_not_told_beside_a_fatal_sink() -> None:
    held = sink(1, kind="observed", name=STILL_HELD, fatal=False)
    (finding,) = judge_births(trace([birth(1)], [held, sink(1)])).escaped
    assert [r.kind for r in finding.reaches] == ["loss"]


@pytest.mark.parametrize("kind", ["loss", "gradient", "parameter"])
def test_a_literal_is_an_error_in_a_loss_a_gradient_or_a_parameter(kind: str) -> None:
    found = judge_births(trace([birth(1, value=-INF, literal=True)], [sink(1, kind=kind)]))  # type: ignore[arg-type]
    assert [(f.birth, f.severity) for f in found.escaped] == [("literal", "error")]


@pytest.mark.parametrize("kind", ["output", "observed", "buffer"])
def test_a_literal_that_merely_leaves_is_none(kind: str) -> None:
    found = judge_births(trace([birth(1, value=-INF, literal=True)], [sink(1, kind=kind)]))  # type: ignore[arg-type]
    assert (found.escaped, found.absorbed, found.verdict) == ((), (), "clean")


def test_a_nan_computed_from_a_literal_is_an_error_wherever_it_leaves() -> None:
    found = judge_births(trace([birth(1, literal=True, computed=True)], [sink(1, kind="output")]))
    assert found.verdict == "nonfinite"


def test_a_backward_birth_is_a_step_of_the_forward_birth_that_it_was_made_from() -> None:
    forward, backward = birth(1), birth(2, phase="backward", causes=frozenset({1}))
    found = judge_births(trace([forward, backward], [sink(1), sink(2, kind="gradient", name="w")]))
    (finding,) = found.escaped
    assert finding.phase == "forward"
    assert [(r.kind, r.name) for r in finding.reaches] == [("loss", None), ("gradient", "w")]


def test_what_a_mask_kept_out_of_the_loss_is_the_root_where_it_comes_back_in_the_gradient() -> None:
    forward, backward = birth(1), birth(2, phase="backward", line=7, causes=frozenset({1}), op="aten.mm.default")
    found = judge_births(trace([forward, backward], [sink(2, kind="gradient", name="w")]))
    (finding,) = found.escaped
    assert (finding.phase, found.absorbed) == ("forward", ())
    assert [(link.role, link.op) for link in finding.chain[:-1]] == [
        ("birth", "aten.log.default"),
        ("step", "aten.mm.default"),
    ]
    assert finding.chain[1].summary == "aten.mm.default gives NaN, computed from what the forward has saved"


@pytest.mark.parametrize(
    "written", [birth(1, literal=True), birth(1, kind="entered", op=None)], ids=["literal", "entered"]
)
def test_of_what_no_operation_has_borne_the_backward_is_the_birth(written: Birth) -> None:
    backward = birth(2, phase="backward", causes=frozenset({1}), op="aten.mm.default")
    found = judge_births(trace([written, backward], [sink(2, kind="gradient", name="w")]))
    (finding,) = found.escaped
    assert (finding.phase, found.absorbed) == ("backward", ())
    assert [link.role for link in finding.chain] == ["cause", "birth", "sink"]


def test_what_came_in_and_was_only_observed_is_told_with_what_was_made_of_it() -> None:
    entered, backward = birth(1, kind="entered", op=None), birth(2, phase="backward", causes=frozenset({1}))
    sinks = [sink(1, kind="observed", fatal=False), sink(2, kind="gradient", name="w")]
    (finding,) = judge_births(trace([entered, backward], sinks)).escaped
    assert (finding.severity, finding.phase, [r.kind for r in finding.reaches]) == (
        "error", "backward", ["gradient", "observed"],
    )  # fmt: skip


def test_a_birth_that_came_back_twice_has_one_root() -> None:
    births = [birth(1)] + [birth(n, phase="backward", causes=frozenset({n - 1})) for n in (2, 3)]
    (finding,) = judge_births(trace(births, [sink(3, kind="gradient", name="w")])).escaped
    assert finding.phase == "forward"


def test_what_is_made_from_two_has_two_roots() -> None:
    first, second = birth(1), birth(2, line=2)
    backward = birth(3, phase="backward", line=3, causes=frozenset({1, 2}))
    found = judge_births(trace([first, second, backward], [sink(3, kind="gradient", name="w")]))
    assert [f.site.line for f in found.escaped if f.site] == [1, 2]


def test_what_is_allowed_in_the_forward_does_not_excuse_what_comes_back() -> None:
    allowed, backward = birth(1, scope=(1,)), birth(2, phase="backward", causes=frozenset({1}), line=3)
    found = judge_births(trace([allowed, backward], [sink(2, kind="gradient", name="w")]))
    assert [f.phase for f in found.escaped] == ["backward"]


def derivative(label: int, element: int = 0) -> Birth:
    """What is born of finite numbers in the derivative of the operation that `birth` makes."""
    made = birth(label, phase="backward", op="aten.div.Tensor")
    made.event = replace(made.event, forward_op="aten.log.default")
    made.element = made.element.model_copy(update={"index": (element,)})
    return made


@pytest.mark.parametrize("fatal", [True, False])
def test_forward_and_backward_of_one_expression_are_one_finding(fatal: bool) -> None:
    sinks = [sink(1, kind="observed", fatal=fatal), sink(2, kind="gradient", name="w")]
    (finding,) = judge_births(trace([birth(1), derivative(2)], sinks)).escaped
    assert (finding.phase, finding.severity) == ("forward", "error")
    assert {r.kind for r in finding.reaches} == {"observed", "gradient"}


def test_forward_and_backward_of_two_elements_are_two() -> None:
    sinks = [sink(1), sink(2, kind="gradient", name="w")]
    found = judge_births(trace([birth(1), derivative(2, element=1)], sinks)).escaped
    assert [f.phase for f in found] == ["forward", "backward"]


def test_the_backward_is_told_where_the_forward_of_its_expression_did_no_harm() -> None:
    found = judge_births(trace([birth(1), derivative(2)], [sink(2, kind="gradient", name="w")]))
    assert ([f.phase for f in found.escaped], found.absorbed) == (["backward"], ())


def test_the_elements_of_births_told_as_one_are_counted_together() -> None:
    forward = birth(1)
    backward = [birth(n, phase="backward", ordinal=9, causes=frozenset({1})) for n in (2, 3)]
    counts = {frozenset({2}): 1, frozenset({3}): 2}
    gradient = sink(2, 3, kind="gradient", name="w", bad=3, counts=counts)
    found = judge_births(trace([forward, *backward], [gradient]))
    (finding,) = found.escaped
    assert [(r.name, r.bad) for r in finding.reaches] == [("w", 3)]
    assert [link.role for link in finding.chain] == ["birth", "step", "sink"]


def test_an_element_that_a_backward_birth_was_folded_with_is_not_said_to_do_no_harm() -> None:
    forward, backward = birth(1), birth(2, phase="backward", causes=frozenset({1}))
    found = judge_births(trace([forward, backward], [sink(1), sink(2, kind="gradient", name="w")]))
    assert (len(found.escaped), found.absorbed) == (1, ())


def test_the_other_elements_of_an_event_that_escaped_are_no_place_without_harm() -> None:
    found = judge_births(trace([birth(1, ordinal=4), birth(2, ordinal=4)], [sink(1)]))
    assert (len(found.escaped), found.absorbed) == (1, ())


def test_another_event_of_the_same_place_may_do_no_harm() -> None:
    found = judge_births(trace([birth(1, ordinal=4), birth(2, ordinal=5)], [sink(1)]))
    assert (len(found.escaped), len(found.absorbed)) == (1, 1)


def test_what_a_sink_holds_is_said() -> None:
    (finding,) = judge_births(trace([birth(1, value=-INF)], [sink(1, value=INF)])).escaped
    assert [r.value for r in finding.reaches] == [INF]


def test_a_literal_cause_takes_no_blame() -> None:
    mask, made = birth(1, value=-INF, literal=True), birth(2, causes=frozenset({1}))
    (finding,) = judge_births(trace([mask, made], [sink(2)])).escaped
    assert (finding.birth, finding.chain[0].role) == ("invalid", "cause")


def test_opposite_infinities_are_two_roots() -> None:
    up, down = birth(1, value=INF, line=1), birth(2, value=-INF, line=2)
    found = judge_births(trace([up, down], [sink(1, 2)]))
    assert [f.site.line for f in found.escaped if f.site] == [1, 2]


def test_the_same_place_again_is_an_occurrence() -> None:
    first = birth(1, ordinal=3, modules={"layers.0": None})
    again = birth(2, ordinal=7, modules={"layers.1": None})
    sinks = [sink(1), sink(2, kind="gradient", name="w")]
    (finding,) = judge_births(trace([first, again], sinks)).escaped
    assert (finding.occurrences, finding.modules) == (2, ("layers.0", "layers.1"))
    assert [(r.kind, r.name) for r in finding.reaches] == [("loss", None), ("gradient", "w")]


def test_two_outputs_of_one_event_are_one_occurrence() -> None:
    (finding,) = judge_births(trace([birth(1, ordinal=3), birth(2, ordinal=3)], [sink(1, 2)])).escaped
    assert finding.occurrences == 1


@pytest.mark.parametrize(
    "other",
    [{"line": 2}, {"op": "aten.sqrt.default"}, {"phase": "backward"}, {"kind": "overflow"}, {"scope": (1,)}],
    ids=str,
)
def test_another_place_operation_phase_kind_or_scope_is_another_finding(other: dict[str, object]) -> None:
    found = judge_births(trace([birth(1), birth(2, **other)], [sink(1, 2)]))  # type: ignore[arg-type]
    assert len(found.escaped) == 2


def test_errors_come_before_warnings_and_then_the_earliest() -> None:
    births = [birth(1, line=1, ordinal=1), birth(2, line=2, ordinal=5), birth(3, line=3, ordinal=2)]
    sinks = [sink(1, kind="observed", fatal=False), sink(2), sink(3)]
    found = judge_births(trace(births, sinks))
    assert [f.site.line for f in found.escaped if f.site] == [3, 2, 1]


@pytest.mark.parametrize(
    ("fatal", "failed", "verdict"),
    [(True, False, "inconclusive"), (False, False, "clean"), (False, True, "inconclusive")],
)
def test_a_bad_sink_without_a_birth_is_inconclusive(fatal: bool, failed: bool, verdict: str) -> None:
    found = judge_births(trace([], [], unexplained=[sink(fatal=fatal)], failed=failed))
    assert found.verdict == verdict


def test_a_sink_whose_birth_is_not_known_changes_nothing() -> None:
    assert judge_births(trace([birth(1)], [sink(9)])).escaped == ()


def test_the_chain_goes_from_the_cause_to_the_sinks_each_once() -> None:
    cause = ChainLink(role="cause", op="aten.relu.default", site=None, summary="relu made -1 into 0")
    step = ChainLink(role="step", op="aten.sum.default", site=None, summary="sum carries it on")
    made = birth(1, cause_links=(cause,), steps=[step], steps_omitted=3, note="log of 0")
    (finding,) = judge_births(trace([made], [sink(1), sink(1, bad=2), sink(1, kind="gradient", name="w")])).escaped
    assert [(link.role, link.summary) for link in finding.chain] == [
        ("cause", "relu made -1 into 0"),
        ("birth", "log of 0"),
        ("step", "sum carries it on"),
        ("step", "3 more events"),
        ("sink", "the loss: 1 of 4 bad"),
        ("sink", "the gradient of w: 1 of 4 bad"),
    ]
    # of several visits to one sink the worst counts
    assert [(r.kind, r.bad) for r in finding.reaches] == [("loss", 2), ("gradient", 1)]


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "NaN"), (INF, "Inf"), (-INF, "-Inf")])
def test_a_birth_says_what_it_gives(value: float, word: str) -> None:
    (finding,) = judge_births(trace([birth(1, value=value)], [sink(1)])).escaped
    assert finding.chain[0].summary == f"aten.log.default gives {word}"


def test_of_two_backward_births_from_one_entered_value_the_first_is_the_root() -> None:
    entered = birth(1, kind="entered", op=None)
    first = birth(2, phase="backward", causes=frozenset({1}), op="aten.mm.default")
    second = birth(3, phase="backward", causes=frozenset({1}), op="aten.bmm.default")
    sinks = [sink(2, kind="gradient", name="w"), sink(3, kind="gradient", name="v")]
    (finding,) = judge_births(trace([entered, first, second], sinks)).escaped
    assert finding.op == "aten.mm.default"
    assert [r.name for r in finding.reaches] == ["w", "v"]
    assert [link.op for link in finding.chain if link.role == "step"] == ["aten.bmm.default"]


def test_a_sink_counts_for_each_root_what_carries_its_label() -> None:
    shared = sink(1, 2, bad=3, counts={frozenset({1}): 2, frozenset({2}): 1})
    found = judge_births(trace([birth(1), birth(2, line=2)], [shared]))
    assert [f.reaches[0].bad for f in found.escaped] == [2, 1]


def test_roots_that_are_one_finding_count_each_element_once() -> None:
    both = sink(1, 2, bad=3, counts={frozenset({1}): 1, frozenset({1, 2}): 1, frozenset({2}): 1})
    (finding,) = judge_births(trace([birth(1), birth(2)], [both])).escaped
    assert finding.reaches[0].bad == 3


def test_what_was_born_is_told_before_what_the_program_writes_itself() -> None:
    written, born = birth(1, value=-INF, literal=True), birth(2)
    found = judge_births(trace([written, born], [sink(1, kind="gradient"), sink(2)]))
    assert [f.birth for f in found.escaped] == ["invalid", "literal"]
