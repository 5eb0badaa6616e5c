"""A guard of what the program bounds, masks, or takes a row or a difference of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import whynan
from whynan.run.fix.apply import regenerate_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from whynan.records import Fix

pytestmark = pytest.mark.proof


def best(module: ModuleType, *inputs: torch.Tensor) -> Fix:
    return whynan.explain(module.target, *inputs, rerun=True).findings[0].fixes[0]


BOUNDED = """import torch


def target(m, h):
    ratio = (m.abs() / (0.5 * h))BOUND
    return ratio
"""


def moments() -> tuple[torch.Tensor, torch.Tensor]:
    """A quotient of 0 / 0 in one place, and of something over 0 in another."""
    torch.manual_seed(0)
    m, h = torch.rand(12), torch.rand(12)
    m[3] = h[3] = h[7] = 0
    return m, h


def test_an_infinity_that_is_bounded_is_healthy(loaded: Callable[[str], ModuleType]) -> None:
    fix = best(loaded(BOUNDED.replace("BOUND", ".clamp(None, 1)")), *moments())
    assert (fix.verdict.status, fix.title) == ("guarded", "a denominator of 1 where both are 0")


READ_TWICE = """import torch


def target(y, m):
    h = 1 / m
    return ((y > 0).float() * h).sum() + torch.exp(-h).sum()
"""


def test_what_another_line_reads_is_judged_where_it_is_computed(loaded: Callable[[str], ModuleType]) -> None:
    y, m = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 0.5, 2.0])
    report = whynan.explain(loaded(READ_TWICE).target, y, m, rerun=True)
    assert not any(fix.verdict.status == "verified" for fix in report.findings[0].fixes)


def test_without_a_bound_it_is_not(loaded: Callable[[str], ModuleType]) -> None:
    fix = best(loaded(BOUNDED.replace("BOUND", "")), *moments())
    assert fix.title != "a denominator of 1 where both are 0"


ROWS = """import torch


def target(x):
    return torch.softmax(x, -1) @ torch.ones(3, 1)
"""


def test_a_row_of_nothing_beside_the_least_number_is_one_of_zeros(loaded: Callable[[str], ModuleType]) -> None:
    """A bound of -Inf would give weight to what is masked beside the least finite number."""
    least = torch.finfo(torch.float32).min
    inf = torch.inf
    x = torch.tensor([[-inf, -inf, -inf], [-inf, least, least], [0.5, -inf, 1.0], [0.1, 0.2, 0.3]])
    fix = best(loaded(ROWS), x)
    assert (fix.verdict.status, fix.title) == ("guarded", "softmax of zeros where a row is of -Inf only")


DIFFERENCE = """import torch


def target(p, rows):
    left = 1 - p.sum(1)
    return torch.log(left[rows]).sum()
"""


def test_a_difference_may_be_less_than_0_too(loaded: Callable[[str], ModuleType]) -> None:
    p = torch.tensor([[0.5, 0.5], [0.3, 0.3], [0.1, 0.2]])
    fix = best(loaded(DIFFERENCE), p, torch.tensor([0, 1, 2]))
    assert fix.verdict.status == "guarded"
    assert fix.patch is not None
    assert "<= 0" in fix.patch


MASKED = """import torch


def target(x, y):
    inside = (x > 1e-5).float()
    return (inside * torch.log(x) + (1 - inside) * y).mean()
"""


def test_what_a_mask_leaves_out_may_be_any_number(loaded: Callable[[str], ModuleType]) -> None:
    x = torch.tensor([0.0, 0.5, 0.25, 0.125]).requires_grad_()
    report = whynan.explain(loaded(MASKED).target, x, torch.ones(4), rerun=True)
    assert report.findings[0].fixes[0].verdict.status == "verified"
    factor = loaded(MASKED.replace("(x > 1e-5).float()", "x.detach() * 3"))
    without = whynan.explain(factor.target, x, torch.ones(4), rerun=True)
    assert without.findings[0].fixes[0].verdict.status != "verified"


ARCTANGENT = """import torch


def target(w, h):
    v = torch.atan(w / h) * 2
    return v
"""


def test_an_infinity_whose_arctangent_is_taken_is_healthy(loaded: Callable[[str], ModuleType]) -> None:
    w, h = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([2.0, 0.0, 0.0])
    fixes = whynan.explain(loaded(ARCTANGENT).target, w, h, rerun=True).findings[0].fixes
    (best,) = (fix for fix in fixes if fix.verdict.status in ("verified", "guarded"))
    assert best.title == "a denominator of 1 where both are 0"
    (wrong,) = (fix for fix in fixes if fix.title == "a denominator of 1 where it is 0")
    assert wrong.verdict.status == "rejected"
    assert wrong.verdict.why == "moves 1 of 2 elements finite behind it: 3.142 becomes 2.214"


def test_so_it_is_where_the_failing_input_has_none(loaded: Callable[[str], ModuleType]) -> None:
    w, h = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([2.0, 0.0, 4.0])
    fixes = whynan.explain(loaded(ARCTANGENT).target, w, h, rerun=True).findings[0].fixes
    titles = [fix.title for fix in fixes if fix.verdict.status in ("verified", "guarded")]
    assert titles == ["a denominator of 1 where both are 0"]


LEFT_OUT = """import torch


def target(hits, seen):
    score = hits / seen
    mean = score.nanmean()
    return mean, score[:2]
"""


def test_a_nan_that_a_mean_leaves_out_is_meant(loaded: Callable[[str], ModuleType]) -> None:
    hits, seen = torch.tensor([0.0, 1.0, 3.0]), torch.tensor([0.0, 2.0, 4.0])
    fixes = whynan.explain(loaded(LEFT_OUT).target, hits, seen, rerun=True).findings[0].fixes
    assert not [fix.verdict.why for fix in fixes if fix.verdict.status in ("verified", "guarded")]
    assert any("finite behind it: 0.625 becomes 0.4167" in fix.verdict.why for fix in fixes)


STEP_SIZE = """import torch


def factor(ratio, safety=0.9):
    grown = safety / ratio ** 0.5
    return torch.clamp(grown, 0.2, 10.0)


def target(x):
    ratio = (x * x).mean().sqrt()
    loss = (x + 1).sum() * factor(ratio)
    loss.backward()
    return loss
"""


def test_a_bound_of_an_infinity_is_kept_by_the_change_of_three_places(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(STEP_SIZE)
    report = whynan.explain(module.target, torch.zeros(3, requires_grad=True), rerun=True)
    best = report.findings[0].fixes[0]
    assert best.verdict.status in ("verified", "guarded"), best.verdict.why
    edited = regenerate_text("m.py", STEP_SIZE, report.findings[0], best)
    assert isinstance(edited, str)
    mended = loaded(edited)
    x = torch.zeros(3, requires_grad=True)
    assert mended.target(x).item() == module.target(x.detach().clone().requires_grad_()).item() == 30
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())


COUNTED = """import torch


def target(total, count):
    mean = total / count
    bad = torch.isnan(mean).float().mean()
    return mean, bad
"""


def test_a_share_of_bad_numbers_that_is_counted_is_no_number_that_a_guard_moves(
    loaded: Callable[[str], ModuleType],
) -> None:
    fix = best(loaded(COUNTED), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]))
    assert (fix.verdict.status, fix.title) == ("guarded", "a denominator of 1 where it is 0")


STICKS = """import torch


def target(v):
    left = torch.cumsum(torch.log1p(-v), 0)
    weights = v * torch.exp(left)
    return weights
"""


def test_what_a_stand_in_makes_of_nothing_may_be_a_rounding_of_the_others(
    loaded: Callable[[str], ModuleType],
) -> None:
    v = torch.tensor([0.25, 1.0, 0.5], requires_grad=True)
    fix = best(loaded(STICKS.replace("return", "weights.sum().backward()\n    return")), v)
    assert fix.verdict.status == "guarded", fix.verdict.why


LEFT_OUT_LATER = """import torch


def target(x):
    power = torch.pow(x, 1 / 3)
    scaled = 7.787 * x + 0.5
    out = torch.where(x > 0.5, power, scaled)
    out.sum().backward()
    return out
"""


def test_what_a_selection_leaves_out_further_on_may_be_moved(loaded: Callable[[str], ModuleType]) -> None:
    x = torch.tensor([0.0, 0.25, 0.75, 1.0], requires_grad=True)
    fixes = whynan.explain(loaded(LEFT_OUT_LATER).target, x, rerun=True).findings[0].fixes
    chosen = [fix for fix in fixes if "torch.where(x > 0.5, x, 1)" in (fix.patch or "")]
    assert [fix.verdict.status for fix in chosen] == ["verified"], [(f.title, f.verdict.why) for f in fixes]
