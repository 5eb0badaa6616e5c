"""The course of a training: what is kept of each step."""

from __future__ import annotations

import pytest
import torch

from whynan.capture.torch.sinks.gradients import Fault, Losses, StepEvidence
from whynan.training.course import CourseSteps


@pytest.mark.parametrize(("rate", "moves"), [(0.1, True), (0.0, False)])
def test_weights_that_no_step_moves_are_told_apart(rate: float, moves: bool) -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=rate)
    kept = CourseSteps(Fault(optimizer, 9, StepEvidence((), (), bad_loss=False)), 5.0)
    for _ in range(3):
        optimizer.zero_grad()
        weight.square().sum().backward()
        kept.pass_step(optimizer, Losses())
        optimizer.step()
    course = kept.course("")
    assert (course.moves, len(course.norms)) == (moves, 3)
