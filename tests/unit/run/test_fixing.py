"""A fix is made anew from what a report says, and with it the program is clean."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import torch

import whynan
from tests.made_anew import check
from whynan.fixes.candidates import Declined
from whynan.run.fix.apply import Known, regenerate_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

MASKED = """import torch


def target(x):
    mask = torch.tensor([0.0, 1.0, 1.0])
    loss = (torch.sqrt(x) * mask).sum()
    loss.backward()
    return loss
"""
BY_A_MASK = "a harmless operand where mask leaves the result out"
VANISHED = """import torch


def target(x):
    return FORMULA
"""


@pytest.mark.proof
def test_what_left_a_birth_out_is_found_again_though_the_report_does_not_hold_it(
    loaded: Callable[[str], ModuleType],
) -> None:
    report = whynan.explain(loaded(MASKED).target, torch.tensor([0.0, 1.0, 2.0], requires_grad=True), rerun=True)
    (fix,) = (fix for fix in report.findings[0].fixes if fix.title == BY_A_MASK)
    assert fix.verdict.status == "verified"
    assert check(report) >= 2


@pytest.mark.proof
@pytest.mark.parametrize(
    ("old", "new"), [(", x, 1))", ", x, 2))"), ("mask != 0", "mask == 0"), ("+    loss", "+    os")]
)
def test_an_altered_change_is_none_that_is_made(old: str, new: str, loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(MASKED)
    report = whynan.explain(module.target, torch.tensor([0.0, 1.0, 2.0], requires_grad=True), rerun=True)
    finding = report.findings[0]
    (fix,) = (fix for fix in finding.fixes if fix.title == BY_A_MASK)
    assert fix.patch is not None
    assert old in fix.patch
    altered = fix.model_copy(update={"patch": fix.patch.replace(old, new)})
    assert isinstance(regenerate_text("m.py", MASKED, finding, fix), str)
    assert isinstance(regenerate_text("m.py", MASKED, finding, altered), Declined)


@pytest.mark.proof
@pytest.mark.parametrize(
    "formula", ["torch.log(x + 1e-8).sum()", "torch.rsqrt(x + 1e-8).sum()", "(x / (x + 1e-8)).sum()"]
)
def test_with_a_verified_fix_nothing_is_told_of_the_line_that_it_has_written(
    formula: str, loaded: Callable[[str], ModuleType]
) -> None:
    text = VANISHED.replace("FORMULA", formula)
    report = whynan.explain(loaded(text).target, torch.tensor([0.0, 1.0]).half(), rerun=True)
    finding = report.findings[0]
    assert finding.rule == "WN704"
    best = finding.fixes[0]
    assert best.verdict.status == "verified"
    edited = regenerate_text("m.py", text, finding, best)
    assert isinstance(edited, str)
    assert whynan.explain(loaded(edited).target, torch.tensor([0.0, 1.0]).half()).verdict == "clean"


IN_TWO_TERMS = """import torch


def target(p, y):
    on = y * torch.log(p)
    off = (1 - y) * torch.log(1 - p)
    loss = -(on + off).mean()
    loss.backward()
    return loss
"""


@pytest.mark.proof
def test_a_fix_of_one_cause_mends_all_its_births_and_is_made_anew(loaded: Callable[[str], ModuleType]) -> None:
    p = torch.tensor([0.0, 1.0, 0.5], requires_grad=True)
    y = torch.tensor([1.0, 0.0, 0.5])
    report = whynan.explain(loaded(IN_TWO_TERMS).target, p, y, rerun=True)
    (finding,) = report.findings
    assert {member.site.line for member in finding.also if member.site is not None} >= {6}
    assert check(report) >= 1
    proved = [fix for fix in finding.fixes if fix.verdict.status == "guarded"]
    assert proved
    for fix in proved:
        edited = regenerate_text("m.py", IN_TWO_TERMS, finding, fix)
        assert isinstance(edited, str)
        again = torch.tensor([0.0, 1.0, 0.5], requires_grad=True)
        assert whynan.explain(loaded(edited).target, again, y).verdict == "clean"


MISSING = """import torch


def target(x, y):
    valid = ~torch.isnan(y)
    LOSS
    loss.backward()
    return loss
"""


@pytest.mark.proof
@pytest.mark.parametrize(
    "loss",
    [
        "loss = (x - y * valid).abs().sum()",
        "error = (x - y) ** 2\n    loss = (error * valid).sum()",
        "error = (x - y) ** 2\n    loss = error[valid].mean()",
        "loss = ((x - y) ** 3)[~torch.isnan(y) & (x < 9)].mean()",
    ],
)
def test_a_missing_value_that_is_left_out_too_late_is_left_out_where_it_is_read(
    loss: str, loaded: Callable[[str], ModuleType]
) -> None:
    text, y = MISSING.replace("LOSS", loss), torch.tensor([0.5, torch.nan, 2.0])
    report = whynan.explain(loaded(text).target, torch.ones(3, requires_grad=True), y, rerun=True)
    (finding,) = report.findings
    assert finding.fixes[0].verdict.status in ("verified", "guarded")
    assert check(report) >= 1
    edited = regenerate_text("m.py", text, finding, finding.fixes[0])
    assert isinstance(edited, str)
    assert whynan.explain(loaded(edited).target, torch.ones(3, requires_grad=True), y).verdict == "clean"


@pytest.mark.proof
@pytest.mark.parametrize("loss", ["loss = (x - y)[valid.long()].sum()", "loss = ((x - y) * x)[1:].sum()"])
def test_a_missing_value_that_is_used_is_not_left_out(loss: str, loaded: Callable[[str], ModuleType]) -> None:
    y = torch.tensor([torch.nan, torch.nan, 2.0])
    x = torch.ones(3, requires_grad=True)
    report = whynan.explain(loaded(MISSING.replace("LOSS", loss)).target, x, y, rerun=True)
    assert not any(f.verdict.status in ("verified", "guarded") for f in report.findings[0].fixes)


ASPECT = """import torch


def target(width, height):
    loss = torch.atan(width / height).sum()
    loss.backward()
    return loss
"""


@pytest.mark.proof
def test_the_angle_of_a_flat_box_is_a_right_one(loaded: Callable[[str], ModuleType]) -> None:
    width = torch.linspace(1.0, 3.0, 16).requires_grad_()
    height = torch.linspace(0.0, 2.0, 16).requires_grad_()
    report = whynan.explain(loaded(ASPECT).target, width, height, rerun=True)
    best = report.findings[0].fixes[0]
    assert best.title == "atan2(a, b) where the denominator is 0"
    assert best.verdict.status in ("verified", "guarded")
    assert check(report) >= 1
    edited = regenerate_text("m.py", ASPECT, report.findings[0], best)
    assert isinstance(edited, str)
    height.grad = None
    loaded(edited).target(width, height)
    assert height.grad is not None
    assert torch.allclose(height.grad, (-width / (width**2 + height**2)).detach())


WEIGHTED = """import torch


def target(x, weights):
    total = sum(weights)
    loss = sum(w * (one - 1) ** 2 for one, w in zip(x, weights)) / total
    loss.backward()
    return loss
"""


@pytest.mark.proof
def test_what_a_comprehension_names_by_itself_need_not_be_known_ahead_of_its_statement(
    loaded: Callable[[str], ModuleType],
) -> None:
    report = whynan.explain(loaded(WEIGHTED).target, torch.ones(2, requires_grad=True), [0.0, 0.0], rerun=True)
    fix = report.findings[0].fixes[0]
    assert fix.verdict.status == "guarded"
    assert "/ (1 if total == 0 else total)" in (fix.patch or "")


@pytest.mark.proof
@pytest.mark.parametrize(("width", "value"), [(1, 1), (3, 0)])
def test_the_only_share_of_nothing_is_the_limit_and_any_other_is_none(
    width: int, value: float, loaded: Callable[[str], ModuleType]
) -> None:
    module = loaded(VANISHED.replace("FORMULA", "(x / x.sum(1, keepdim=True)).square().sum()"))
    x = torch.rand(4, width)
    x[1] = 0
    report = whynan.explain(module.target, x, rerun=True)
    fix = report.findings[0].fixes[0]
    assert fix.verdict.status == ("guarded" if value == 0 else "verified")
    assert fix.title == ("a denominator of 1 where it is 0" if value == 0 else "1 where the denominator is 0")
    assert check(report) >= 1


@pytest.mark.proof
def test_a_quotient_that_is_1_nowhere_else_is_not_1_of_nothing(loaded: Callable[[str], ModuleType]) -> None:
    """With 0 the program raises, and with 1 it would go on."""
    text = VANISHED.replace("import torch", "import math\nimport torch")
    module = loaded(text.replace("FORMULA", "x.sum() * math.log(((x > 0.3) * 1.0 * (x > 0)).sum() / (x > 0).sum())"))
    report = whynan.explain(module.target, torch.tensor([-0.5, -0.1, -2.0]), rerun=True)
    assert "1 where the denominator is 0" not in {fix.title for fix in report.findings[0].fixes}


POSES = """import torch


def to_quaternion(v):
    squared = (v * v).sum(-1)
    theta = torch.sqrt(squared)
    mask = squared > 0
    k = torch.where(mask, torch.sin(theta / 2) / theta, 0.5 * torch.ones_like(theta))
    w = torch.where(mask, torch.cos(theta / 2), torch.ones_like(theta))
    return w, v * k[..., None]


def to_vector(w, xyz):
    squared = xyz.square().sum(-1)
    sine = torch.sqrt(squared)
    twice = 2 * torch.atan2(sine, w)
    k_pos = twice / sine
    k_neg = 2 * torch.ones_like(sine)
    return xyz * torch.where(squared > 0, k_pos, k_neg)[..., None]


def target(v):
    loss = (to_vector(*to_quaternion(v)) - 1).square().mean()
    loss.backward()
    return loss
"""


@pytest.mark.proof
def test_what_fails_twice_in_each_of_two_functions_is_mended_by_one_change(
    loaded: Callable[[str], ModuleType],
) -> None:
    v = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.2, 0.3]], requires_grad=True)
    report = whynan.explain(loaded(POSES).target, v, rerun=True)
    lines = {finding.site.line for finding in report.findings if finding.site is not None}
    assert lines == {8, 17}
    for finding in report.findings:
        best = finding.fixes[0]
        assert best.verdict.status == "guarded", [fix.verdict.why for fix in finding.fixes]
        assert {further.site.function for further in best.further} == {"to_quaternion", "to_vector"}
        edited = regenerate_text("m.py", POSES, finding, best, Known({}, report.findings))
        assert isinstance(edited, str)
        again = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.2, 0.3]], requires_grad=True)
        assert whynan.explain(loaded(edited).target, again).verdict == "clean"


@pytest.mark.proof
def test_a_power_of_zero_is_guarded_only_where_its_exponent_is_below_zero(loaded: Callable[[str], ModuleType]) -> None:
    gain = VANISHED.replace("FORMULA", "(x ** p).sum()").replace("target(x)", "target(x, p)")
    x, p = torch.tensor([0.0, 0.0, 2.0]), torch.tensor([-0.5, 0.0, 0.5])
    (finding,) = whynan.explain(loaded(gain).target, x, p, rerun=True).findings
    best = finding.fixes[0]
    assert best.verdict.status == "guarded"
    assert best.title == "0 where the base is 0 and its exponent below 0"
    edited = regenerate_text("m.py", gain, finding, best)
    assert isinstance(edited, str)
    assert loaded(edited).target(x, p).item() == pytest.approx(1 + 2**0.5)


LATTICE = """import math
import torch


def lse(x, dim):
    m = x.max(dim, keepdim=True).values
    return m.squeeze(dim) + torch.log(torch.exp(x - m).sum(dim))


class Lattice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Parameter(torch.zeros(3, 3))

    def transitions(self):
        forbidden = torch.tensor([[True, True, True], [False, False, False], [True, False, False]])
        return self.scores.masked_fill(forbidden, float("-inf"))

    def forward(self, emitted):
        alpha = emitted.new_full((3,), -math.inf)
        alpha[0] = 0.0
        for each in emitted:
            alpha = lse(alpha + self.transitions() + each[:, None], 1)
        return lse(alpha, 0)


def target(emitted):
    model = Lattice()
    loss = -model(emitted)
    loss.backward()
    return loss, model.scores.grad
"""


@pytest.mark.proof
def test_what_is_forbidden_is_written_as_a_finite_number(loaded: Callable[[str], ModuleType]) -> None:
    emitted = torch.tensor([[0.1, 0.2, 0.3], [0.3, 0.1, 0.2], [0.2, 0.4, 0.1]])
    report = whynan.explain(loaded(LATTICE).target, emitted, rerun=True)
    finding = report.findings[0]
    assert finding.rule == "WN501"
    best = finding.fixes[0]
    assert best.verdict.status == "guarded"
    assert best.title == "a large negative number in place of -Inf where it is written"
    assert best.patch is not None
    assert best.patch.count("-1e30") == 1
    edited = regenerate_text(finding.site.file if finding.site else "", LATTICE, finding, best)
    assert isinstance(edited, str)
    loss, gradient = loaded(edited).target(emitted)
    ways = [(0, *way) for way in itertools.product((1, 2), repeat=3) if way[0] == 1]
    scores = torch.stack([sum((emitted[n, to] for n, to in enumerate(way[1:])), torch.tensor(0.0)) for way in ways])
    assert torch.isfinite(gradient).all()
    assert loss.item() == pytest.approx(-scores.logsumexp(0).item())


RADII = """import torch


def target(areas):
    radii = []
    loss = 0
    for area in areas.unbind(0):
        n = torch.sqrt(area)
        HANDED
        g = torch.where(area > 0, torch.tanh(n) / n, torch.ones_like(n))
        loss = loss + (area * g - 1).square().mean()
    if radii:
        loss = loss + torch.stack(radii).sum()
    loss.backward()
    return loss
"""


@pytest.mark.proof
@pytest.mark.parametrize(("handed", "status"), [("pass", "verified"), ("radii.append(n)", "guarded")])
def test_what_is_put_into_a_list_is_read_elsewhere(
    handed: str, status: str, loaded: Callable[[str], ModuleType]
) -> None:
    areas = torch.tensor([[0.0, 0.3, 0.7], [0.2, 0.5, 0.1]], requires_grad=True)
    report = whynan.explain(loaded(RADII.replace("HANDED", handed)).target, areas, rerun=True)
    best = report.findings[0].fixes[0]
    assert best.verdict.status == status, best.verdict.why


SCALE_INVARIANT = """import torch


def target(x, weight):
    d = (x**2).mean() - weight * x.mean() ** 2
    loss = torch.sqrt(d)
    loss.backward()
    return loss
"""


@pytest.mark.proof
def test_the_root_of_a_difference_is_guarded_below_zero_too(loaded: Callable[[str], ModuleType]) -> None:
    x = torch.full((4,), 0.5, requires_grad=True)
    report = whynan.explain(loaded(SCALE_INVARIANT).target, x, 1.0, rerun=True)
    best = report.findings[0].fixes[0]
    assert best.verdict.status in ("verified", "guarded"), best.verdict.why
    assert "d <= 0" in (best.patch or "")
