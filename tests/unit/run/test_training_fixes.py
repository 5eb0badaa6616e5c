"""The verdict on a change of how a program trains, by the steps that it makes: what learns holds, and nothing else."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.report.programs import finding
from whynan.run.proof.training_fixes import changes_of
from whynan.training.course import Course

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = """\
import torch

model = torch.nn.Linear(3, 1).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(9):
    model(torch.randn(4, 3).half()).pow(2).mean().backward()
    optimizer.step()
"""
RAN_AWAY = Course((4.0, 90.0, 4e5, 3e12, 2e25, math.inf), (3.0, 50.0, 1e4, 1e9, 1e20, math.nan), 6)
LEARNS = Course(tuple(4.0 * 0.9**n for n in range(60)), tuple(3.0 * 0.9**n for n in range(60)), 6)
LONG = Course((*([4.0] * 25), 5e6, math.inf), (*([3.0] * 25), 5e6, math.nan), 27)


def verdicts(first: Course | str, course: Course | str, **more: Any) -> list[tuple[str, str, str]]:
    """The changes that are tried after a first run, where each gives one course."""

    def course_of(path: str = "", before: str = "", after: str = "") -> Course | str:
        del before, after
        return course if path else first

    given = {"birth": "overflow", "step": first.wanted if isinstance(first, Course) else 6, **more}
    bad = finding().model_copy(update=given)
    return [(c.title, v.status, v.why) for c, v in changes_of(bad, {"train.py": TEXT}, course_of)]


def test_a_change_with_which_the_program_learns_is_guarded_and_says_so() -> None:
    title, status, why = verdicts(RAN_AWAY, LEARNS)[0]
    assert (title, status) == ("a tenth of the learning rate", "guarded")
    assert why == (
        "the learning rate is a tenth of what it was; run with it from its start, the program makes 60 steps where it "
        "failed at step 6: all are finite, and the loss, 4 at first, is 0.0128 in the last of them"
    )


def test_a_training_that_went_well_for_long_is_clipped_first() -> None:
    course = Course((4.0,) * 27 + (3.5,) * 20, (3.0,) * 25 + (10.0,) + (3.0,) * 21, 27)
    title, status, why = verdicts(LONG, course)[0]
    assert (title, status) == ("gradients clipped to a norm of 10.0", "guarded")
    assert why.startswith("the gradients of 1 of 47 steps are shortened, and those of no other;")


def same(loss: Callable[[int], float], norm: Callable[[int], float] = lambda n: 3.0, steps: int = 60) -> Course:
    return Course(tuple(map(loss, range(steps))), tuple(map(norm, range(steps))), 6)


@pytest.mark.parametrize(
    ("course", "why"),
    [
        (Course((4.0, 3.0), (3.0, 3.0), 6, "with it step 3 is bad: NaN or Inf in the loss"), "step 3 is bad"),
        (same(lambda n: 4.0, steps=5), "ends before it comes as far"),
        (same(lambda n: math.nan if n == 7 else 4.0), "whose loss is not known"),
        (same(lambda n: 3.0 - 0.01 * n), "the first loss is another one already"),
        (same(lambda n: 4.0 + 0.01 * n), "4 was reached before"),
        (same(lambda n: 5e4 if n > 40 else 4.0), "4 was reached before"),
        (same(lambda n: 4.0 - 0.01 * n, lambda n: 1.3**n, steps=20), "the gradients grow on"),
        (same(lambda n: 1e7 if n == 5 else 4.0 - 0.01 * n, lambda n: 3.0, steps=20), "the loss rises to 1e+07 on its"),
    ],
    ids=["bad", "short", "unknown", "other data", "no better", "worse at last", "postponed", "a leap"],
)
def test_a_change_with_which_it_does_not_learn_is_rejected(course: Course, why: str) -> None:
    found = [one for one in verdicts(RAN_AWAY, course) if "rate" in one[0]]
    assert found
    assert all(status == "rejected" and why in said for _, status, said in found)


@pytest.mark.parametrize("norm", [10.0, 0.0], ids=["as large as they may be", "what is left of Inf"])
def test_a_training_that_only_clipping_holds_is_not_mended_by_it(norm: float) -> None:
    found = [one for one in verdicts(LONG, same(lambda n: 4.0 - 0.01 * n, lambda n: norm)) if "clipped" in one[0]]
    assert found[0][1:] == ("rejected", "with it the gradients stay as large as they may be")


@pytest.mark.parametrize(
    ("first", "more"),
    [
        ("what trains is not run again from its start", {}),
        (Course((4.0, -3e3, -2e9, -1e20, -math.inf), (3.0, 50.0, 1e9, 1e20, math.nan), 5), {}),
        (Course((4.0, 3.0, 2.5, 2.0, math.inf), (3.0, 3.0, 1e6, 1e9, math.nan), 5), {}),
        (Course((4.0, 4.1, 4.2, 4.0, math.inf), (3.0, 3.0, 3.0, 3.0, math.nan), 5), {}),
        (RAN_AWAY, {"birth": "pole"}),
        (RAN_AWAY, {"birth": "invalid"}),
        (RAN_AWAY, {"step": 1}),
    ],
    ids=["not run", "no lower bound", "learns", "at once", "pole", "invalid", "first step"],
)
def test_what_did_not_run_away_is_not_tried(first: Course | str, more: dict[str, Any]) -> None:
    assert verdicts(first, LEARNS, **more) == []


def test_smaller_steps_that_fail_at_the_same_step_are_given_up() -> None:
    """What fails at once for another reason is run no more often than that takes."""
    other = (4.0, 3.9, 3.8, 3.9, 3.7, math.inf)
    still = Course(other, (3.0, 2.9, 2.8, 2.9, 2.7, math.nan), 6, "with it step 6 is bad still")
    slower = [title for title, _, _ in verdicts(RAN_AWAY, still) if "rate" in title]
    assert slower == ["a tenth of the learning rate"]


def test_smaller_steps_that_run_away_still_are_made_smaller_yet() -> None:
    still = Course((4.0, 60.0, *RAN_AWAY.losses[2:]), RAN_AWAY.norms, 6, "with it step 6 is bad still")
    slower = [title for title, _, _ in verdicts(RAN_AWAY, still) if "rate" in title]
    assert slower == [f"a {part} of the learning rate" for part in ("tenth", "hundredth", "thousandth")]


NOISE = (0.0, 0.4, -0.3, 0.1, -0.4, 0.3, 0.2, -0.2, 0.35, -0.1)


def noisy(trend: Callable[[int], float], steps: int = 30, **more: Any) -> Course:
    """Losses of new data at each step, the first of which is a low one."""
    return Course(tuple(trend(n) + NOISE[n % 10] for n in range(steps)), (3.0,) * steps, 6, **more)


@pytest.mark.parametrize(
    ("course", "status"),
    [
        (noisy(lambda n: 4.15), "guarded"),
        (noisy(lambda n: 4.15, steps=7), "rejected"),
        (noisy(lambda n: 4.0 + 0.04 * n), "rejected"),
        (noisy(lambda n: 4.0 + n, steps=10), "rejected"),
        (noisy(lambda n: 4.15 if n < 20 else 5.0), "rejected"),
        (noisy(lambda n: 4.0 - 0.01 * n, moves=False), "rejected"),
        (Course(noisy(lambda n: 3.9).losses, (0.0,) * 30, 6), "rejected"),
    ],
    ids=["noise", "too few", "a slow rise", "a rise", "worse at last", "frozen weights", "no gradients"],
)
def test_a_loss_of_new_data_at_each_step_may_be_as_far_above_as_they_scatter(course: Course, status: str) -> None:
    assert verdicts(replace(RAN_AWAY, losses=(course.losses[0], *RAN_AWAY.losses[1:])), course)[0][1] == status


def test_a_rate_that_changes_nothing_is_not_the_one_that_trains() -> None:
    same_steps = Course(RAN_AWAY.losses, RAN_AWAY.norms, 6, "with it step 6 is bad still")
    titles = [title for title, _, _ in verdicts(RAN_AWAY, same_steps)]
    assert [title for title in titles if "rate" in title] == ["a tenth of the learning rate"]
    assert sum("clipped" in title for title in titles) == 1


def test_a_program_that_ends_by_itself_at_its_least_loss_has_learnt() -> None:
    assert verdicts(RAN_AWAY, same(lambda n: 4.0 / 10**n, steps=4))[0][1] == "guarded"


def test_steps_without_any_loss_that_is_finite_are_no_course_to_be_judged() -> None:
    nothing = Course((4.0, *([math.nan] * 5)), (3.0, *([math.nan] * 5)), 6)
    assert verdicts(nothing, LEARNS) == []


def test_an_update_in_float16_is_tried_in_float32_where_that_computes_the_same() -> None:
    first = Course((4.0,), (3.0,), 1, "with it step 1 leaves NaN or Inf in the weights")
    half = finding().element.model_copy(update={"dtype": "float16"})
    more = {"phase": "optimizer", "birth": "invalid", "step": 1, "element": half}
    ((title, status, _),) = verdicts(first, LEARNS, **more)
    assert (title, status) == ("float32, wherever the file asks for float16", "guarded")
    ((_, status, why),) = verdicts(Course((9.0,), (3.0,), 1), LEARNS, **more)
    assert (status, why) == ("rejected", "with it the first loss is 4, which was 9")
