"""One bug, one finding: births of one cause are one, and two defects stay two."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import whynan
from tests.selection import spread
from whynan.analysis import folding
from whynan.records import Note, Reach, Report

Program = Callable[[], object]


# -- Programs with one defect ------------------------------------------------------------------------------------------


def vae_by_hand() -> Tensor:
    x = torch.tensor([0.0, 1.0, 1.0, 0.5])
    mu = torch.zeros(4, requires_grad=True)
    logits = torch.tensor([200.0, -200.0, 1.0, 2.0], requires_grad=True)
    p = torch.sigmoid(logits + mu)
    reconstruction = -(x * torch.log(p) + (1 - x) * torch.log(1 - p)).sum()
    divergence = -0.5 * (1 + mu - mu.pow(2) - mu.exp()).sum()
    loss = reconstruction + divergence
    loss.backward()
    return loss


def dice_in_half() -> Tensor:
    guess = torch.full((8,), 30000.0).half().requires_grad_()
    target = torch.full((8,), 20000.0).half()
    dice = 1 - 2 * (guess * target).sum() / (guess.sum() + target.sum())
    dice.backward()
    return dice


def likelihood_of_a_gaussian() -> Tensor:
    x = torch.tensor([1.0, 2.0])
    mu = torch.zeros(2, requires_grad=True)
    var = torch.zeros(2, requires_grad=True)
    loss = (0.5 * (torch.log(var) + (x - mu) ** 2 / var)).mean()
    loss.backward()
    return loss


def masked_mean() -> Tensor:
    x = torch.zeros(3, 2, requires_grad=True)
    mask = torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    loss = ((x * mask).sum(1) / mask.sum(1)).mean()
    loss.backward()
    return loss


def equal_elements_of_a_list() -> Tensor:
    rates = [torch.zeros(2, requires_grad=True) for _ in range(3)]
    logs = [rates[0].log(), rates[1].log(), rates[2].log()]
    return torch.stack(logs).sum()


def root_of_negatives_and_of_zero() -> Tensor:
    x = torch.tensor([-1.0, 0.0, 4.0], requires_grad=True)
    y = x.sqrt()
    y.sum().backward()
    return y


def layers_behind_a_masked_row() -> Tensor:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 4) for _ in range(3)]
    x = torch.randn(2, 3, 4)
    kept = torch.tensor([[True, True, True], [False, False, False]])
    for layer in layers:
        q = layer(x)
        scores = (q @ q.transpose(1, 2)).masked_fill(~kept[:, None], float("-inf"))
        x = torch.relu(scores.softmax(-1) @ q + x)
    loss = x.mean(-1)[kept].sum()
    loss.backward()
    return loss


def scale_that_two_statements_divide_by() -> Tensor:
    rows = torch.tensor([[1.0, 3.0], [2.0, 2.0]])
    scale = rows.amax(1, keepdim=True) - rows.amin(1, keepdim=True)
    zero_point = torch.round(-rows.amin(1, keepdim=True) / scale)
    return torch.round(rows / scale) + zero_point


def row_that_came_in_bad_and_is_read_twice() -> Tensor:
    weight = torch.ones(3, requires_grad=True)
    target = torch.from_numpy(np.array([1.0, np.inf, 2.0], dtype=np.float32))
    level = (weight - target).abs().mean()
    slope = (weight - target).square().sum()
    loss = level + slope
    loss.backward()
    return loss


def terms_named_before_they_meet() -> Tensor:
    near = torch.tensor([1.0, 0.2], requires_grad=True) * 1.0
    far = torch.tensor([0.1, 1.0]) * 1.0
    left = torch.exp(near / 0.01)
    right = 2 * torch.exp(far / 0.01)
    return torch.log(left + right)


def _deviation(log_variance: Tensor) -> Tensor:
    return torch.exp(0.5 * log_variance)


def _divergence(log_variance: Tensor) -> Tensor:
    return (log_variance.exp() - 1 - log_variance).sum()


def log_variance_of_two_functions() -> Tensor:
    log_variance = torch.tensor([1.0, 50.0], requires_grad=True) * 10
    return _deviation(log_variance).sum() + _divergence(log_variance)


def angle_of_two_equal_vectors() -> Tensor:
    cosine = torch.tensor([0.5, 1.0], requires_grad=True)
    angle = torch.acos(cosine)
    weight = torch.sin(0.25 * angle) / torch.sin(angle)
    weight.sum().backward()
    return weight


def precision_that_overflows_by_itself_and_in_a_product() -> Tensor:
    log_variance = torch.tensor([-87.5, -90.0])
    error = torch.tensor([4.0, 1.0], requires_grad=True)
    loss = (0.5 * (log_variance + error**2 * torch.exp(-log_variance))).mean()
    loss.backward()
    return loss


def missing_value_that_the_program_marks() -> Tensor:
    rows = torch.ones(4, 3)
    rows[2, 1] = float("nan")
    model = torch.nn.Linear(3, 2)
    loss = model(rows).pow(2).mean()
    loss.backward()
    return loss


def exponential_and_logarithm_in_two_statements() -> Tensor:
    risk = torch.tensor([-200.0, 3.0, 200.0])
    hazard = torch.exp(risk)
    return torch.log(torch.cumsum(hazard, 0))


class _Heads(torch.nn.Module):
    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_scale = rows.unbind(-1)
        return mean, torch.exp(log_scale)


def scale_that_is_too_large_and_too_small() -> Tensor:
    rows = torch.tensor([[0.5, 95.0], [1.0, -170.0], [2.0, -44.0]], requires_grad=True)
    mean, scale = _Heads()(rows)
    error = (3.0 - mean) / scale
    loss = (0.5 * error**2 + torch.log(scale)).mean()
    loss.backward()
    return loss


def value_that_was_cut_off_to_one() -> Tensor:
    value = torch.tensor([0.5, 1.5], requires_grad=True).clamp(-1, 1)
    before = 0.5 * torch.log((1 + value) / (1 - value))
    return before - torch.log(1 - value * value)


def radius_that_is_differentiated_twice() -> Tensor:
    place = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    weight = torch.ones(1, requires_grad=True)
    height = torch.tanh(weight * torch.sqrt((place**2).sum(1)))
    (slope,) = torch.autograd.grad(height.sum(), place, create_graph=True)
    (curve,) = torch.autograd.grad(slope[:, 0].sum(), place, create_graph=True)
    loss = (curve[:, 0] + 1).pow(2).mean()
    loss.backward()
    return loss


def sum_of_nothing_that_is_divided_by_and_has_no_logarithm() -> tuple[Tensor, Tensor]:
    parts = torch.tensor([[0.5, 0.5], [0.0, 0.0]]) * 2
    total = parts.sum(1, keepdim=True)
    return parts / total, total[:, 0].log().sum()


def rate_that_is_too_high() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU()
    model = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e4, momentum=0.9)
    for _ in range(3):
        images, classes = torch.randn(16, 3, 12, 12), torch.randint(0, 10, (16,))
        out = model(images)
        loss = torch.nn.functional.mse_loss(out, torch.nn.functional.one_hot(classes, 10).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def infinity_that_came_in() -> Tensor:
    rows = torch.from_numpy(np.array([[1.0, -np.inf, 2.0], [0.5, 1.0, 2.0]], np.float32))
    weight = torch.tensor([1.0, 0.0, -1.0], requires_grad=True)
    products = rows * weight
    pairs = products.sum(1).square() - products.square().sum(1)
    loss = pairs.sum() + (rows @ weight).sum()
    loss.backward()
    return loss


def hazard_of_a_duration_of_zero() -> Tensor:
    duration = torch.tensor([0.0, 1.0, 2.0])
    scale, shape = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
    z = duration / scale
    rate = torch.log(shape / scale) + (shape - 1) * torch.log(z)
    loss = -(rate - z**shape).mean()
    loss.backward()
    return loss


class CountingLate(torch.optim.Optimizer):
    """Adam that reads the number of its steps before it counts; or, ``apart``, one that divides by two rows."""

    def __init__(self, params: list[Tensor], *, apart: bool = False) -> None:
        super().__init__(params, {"apart": apart})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                assert p.grad is not None
                count = self.state[p].setdefault("count", 0)
                first, second = (torch.tensor(1 - beta**count) for beta in (0.9, 0.999))
                if group["apart"]:
                    first, second = p.grad.abs().amin(0), (p - 1).square().amin(0)
                    p.sub_(p.grad * 0.1 / first)
                    p.sub_(p.grad.square() * 0.001 / second)
                    continue
                mean = p.grad * 0.1 / first
                square = p.grad.square() * 0.001 / second
                p.sub_(0.01 * mean / (square.sqrt() + 1e-8))
                self.state[p]["count"] += 1


def bias_correction_of_step_zero() -> None:
    weight = torch.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
    weight.square().sum().backward()
    CountingLate([weight]).step()


def rate_of_infinity() -> None:
    weight = torch.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
    for rate in (0.1, math.inf, 0.1):
        loss = (torch.ones(1, 2) @ weight).square().sum()
        weight.grad = None
        loss.backward()
        torch.optim.SGD([weight], lr=rate).step()


def weights_that_are_divided_by_infinity() -> Tensor:
    weights = torch.exp(torch.tensor([[1.0, 95.0], [2.0, 3.0]]))
    weights = weights / weights.sum(0)
    return weights / weights.sum(1, keepdim=True)


def halves_between_equal_angles() -> tuple[Tensor, Tensor]:
    angle = torch.acos(torch.tensor([1.0, 0.5]))
    return torch.sin(0.25 * angle) / torch.sin(angle), torch.sin(0.75 * angle) / torch.sin(angle)


def duration_of_zero_in_a_weibull_density() -> Tensor:
    times = torch.tensor([0.5, 0.0, 2.0])
    shape, scale = torch.full((3,), -0.5, requires_grad=True), torch.full((3,), 0.25, requires_grad=True)
    survival = -(torch.pow(torch.exp(scale) * times, torch.exp(shape)))
    density = shape + scale + (torch.exp(shape) - 1) * (scale + torch.log(times)) + survival
    loss = -(torch.logsumexp(density, 0) + torch.logsumexp(survival, 0))
    loss.backward()
    return loss


def vectors_of_length_zero_in_three_lines() -> Tensor:
    a, b, c = (torch.tensor([[0.0, 0.0], [3.0, 4.0]]) for _ in range(3))
    na = a / a.norm(dim=-1, keepdim=True)
    nb = b / b.norm(dim=-1, keepdim=True)
    nc = c / c.norm(dim=-1, keepdim=True)
    return torch.stack([na, nb, nc])


def rates_that_are_softplus_by_hand() -> tuple[Tensor, Tensor]:
    first, second = torch.tensor([200.0, 1.0]), torch.tensor([1.0, 300.0])
    mean = torch.log(1 + torch.exp(first * 2))
    scale = torch.log(1 + torch.exp(second * 2))
    return mean, scale


def count_that_is_one_over_infinity() -> Tensor:
    scale = torch.exp(torch.tensor([100.0, 1.0]))
    return torch.lgamma(torch.tensor([0.0, 2.0]) + 1 / scale) - torch.lgamma(1 / scale)


ONE: tuple[Program, ...] = (
    vectors_of_length_zero_in_three_lines,
    rates_that_are_softplus_by_hand,
    count_that_is_one_over_infinity,
    duration_of_zero_in_a_weibull_density,
    bias_correction_of_step_zero,
    rate_of_infinity,
    weights_that_are_divided_by_infinity,
    halves_between_equal_angles,
    infinity_that_came_in,
    hazard_of_a_duration_of_zero,
    rate_that_is_too_high,
    sum_of_nothing_that_is_divided_by_and_has_no_logarithm,
    scale_that_is_too_large_and_too_small,
    value_that_was_cut_off_to_one,
    radius_that_is_differentiated_twice,
    missing_value_that_the_program_marks,
    exponential_and_logarithm_in_two_statements,
    terms_named_before_they_meet,
    log_variance_of_two_functions,
    angle_of_two_equal_vectors,
    precision_that_overflows_by_itself_and_in_a_product,
    scale_that_two_statements_divide_by,
    row_that_came_in_bad_and_is_read_twice,
    vae_by_hand,
    dice_in_half,
    likelihood_of_a_gaussian,
    masked_mean,
    equal_elements_of_a_list,
    root_of_negatives_and_of_zero,
    layers_behind_a_masked_row,
)


# -- Programs with two defects -----------------------------------------------------------------------------------------


def logarithm_and_root_in_two_statements() -> Tensor:
    a = torch.zeros(3, requires_grad=True)
    b = torch.tensor([-1.0, 1.0, 2.0], requires_grad=True)
    left = torch.log(a)
    right = torch.sqrt(b)
    return left + right


def quotient_and_root_in_one_statement() -> Tensor:
    a, b = torch.ones(3), torch.zeros(3)
    c = torch.tensor([-1.0, 1.0, 2.0])
    return (a / b).sum() * torch.sqrt(c).sum()


def _entropy(p: Tensor) -> Tensor:
    return -torch.log(p).mean()


def _surprise(q: Tensor) -> Tensor:
    return torch.log(q).sum()


def one_rule_in_two_functions() -> Tensor:
    p = torch.zeros(3, requires_grad=True)
    q = torch.tensor([0.0, 1.0])
    return _entropy(p) + _surprise(q)


def one_rule_on_two_numbers() -> Tensor:
    p = torch.relu(torch.tensor([-1.0, 2.0], requires_grad=True))
    q = torch.relu(torch.tensor([-1.0, 2.0]))
    return _entropy(p) + _surprise(q)


def two_arguments_of_a_call() -> Tensor:
    near = torch.relu(torch.tensor([-1.0, 2.0], requires_grad=True))
    far = torch.relu(torch.tensor([1.0, -2.0]))
    near = torch.log(near)
    far = torch.log(far)
    return torch.nn.functional.l1_loss(near, far)


def derivative_at_another_element() -> Tensor:
    cosine = torch.tensor([-1.0, 0.0], requires_grad=True)
    angle = torch.acos(cosine)
    weight = torch.ones(2) / torch.cos(angle).round()
    (weight + angle).sum().backward()
    return weight


def independent_losses() -> Tensor:
    one = torch.zeros(3, requires_grad=True)
    two = torch.zeros(2, requires_grad=True)
    first = torch.log(one).mean()
    second = torch.log(two).mean()
    loss = first + 0.5 * second
    loss.backward()
    return loss


def losses_added_up_in_place() -> Tensor:
    one = torch.zeros(3, requires_grad=True)
    two = torch.zeros(2, requires_grad=True)
    loss = torch.zeros(())
    loss = loss + torch.log(one).mean()
    loss = loss + torch.log(two).mean()
    loss.backward()
    return loss


def two_outputs() -> tuple[Tensor, Tensor]:
    left = torch.log(torch.zeros(3))
    right = torch.log(torch.tensor([0.0, 1.0]))
    return left, right


def forward_quotient_and_backward_root() -> Tensor:
    a = torch.zeros(2, requires_grad=True)
    b = torch.zeros(2, requires_grad=True)
    quotient = (a + 1) / b.detach()
    root = torch.sqrt(a)
    (quotient.sum() + root.sum()).backward()
    return quotient


def losses_with_a_backward_each() -> None:
    one = torch.zeros(3, requires_grad=True)
    two = torch.zeros(2, requires_grad=True)
    torch.log(one).sum().backward()
    torch.log(two).sum().backward()


def one_computed_from_the_other() -> Tensor:
    x = torch.tensor([1000.0, 5.0])
    first = torch.exp(x)
    return torch.exp(first[1:] * 10) + first[:1]


class _Net(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def terms_that_a_network_parts() -> Tensor:
    net = _Net()
    first = torch.log(torch.zeros(3))
    hidden = net(first)
    second = torch.log(torch.tensor([0.0, 1.0, 1.0]))
    return hidden + second


def sum_and_accumulation_in_half() -> None:
    leaf = torch.ones(2, dtype=torch.float16, requires_grad=True)
    for _ in range(2):
        (leaf * 40000).sum().backward()


TERMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "one": lambda p, t: (p / (t - t.mean())).mean(), "two": lambda p, t: (p / (t * 0)).sum()
}  # fmt: skip


def functions_in_one_statement() -> Tensor:
    p = torch.ones(3)
    return TERMS["one"](p, torch.ones(3)) * TERMS["two"](p, torch.ones(3))


def _divide(n: Tensor, by: Tensor) -> Tensor:
    return n / by


def helper_that_fails_for_two_reasons() -> Tensor:
    constant = torch.full((4,), 3.0)
    mask = torch.zeros(4)
    standardised = _divide(constant - constant.mean(), constant.std())
    return standardised.sum() + _divide(torch.ones(()), mask.sum())


def quotient_whose_zero_is_a_root() -> Tensor:
    a = torch.tensor([0.0, 1.0], requires_grad=True)
    quotient = a / torch.tensor([1.0, 0.0])
    root = torch.sqrt(quotient)
    root[:1].sum().backward()
    return root


class _Losses:
    a = torch.zeros(3)
    b = torch.zeros(3)

    def total(self) -> Tensor:
        one = (torch.ones(3) / self.a).mean()
        two = (torch.full((3,), 2.0) / self.b).mean()
        return (one + two) / len("ab")


def losses_of_one_object() -> Tensor:
    return _Losses().total()


def _scaled(rows: Tensor, scale: Tensor) -> Tensor:
    return rows / scale


def _shifted(rows: Tensor, scale: Tensor) -> Tensor:
    return (rows - 1) / scale


def two_scales_of_one_name() -> Tensor:
    rows = torch.tensor([[1.0, 3.0], [2.0, 2.0]])
    spread = rows.amax(1, keepdim=True) - rows.amin(1, keepdim=True)
    return _scaled(rows, spread) + _shifted(rows, (rows[:, :1] - 2).floor().relu())


def cuts_of_two_numbers() -> Tensor:
    value = torch.tensor([0.5, 1.5]).clamp(-1, 1)
    other = torch.tensor([0.5, 1.25]).clamp(-1, 1)
    return torch.log(1 - value) + 1 / (1 - other)


def scales_of_two_exponentials() -> Tensor:
    wide = torch.exp(torch.tensor([95.0, 1.0]))
    narrow = torch.exp(torch.tensor([1.0, -170.0]))
    return torch.log(wide) + 1 / narrow


def sums_of_one_statement() -> tuple[Tensor, Tensor]:
    parts = torch.tensor([[0.5, 0.5], [0.0, 0.0]]) * 2
    rows, others = parts.sum(1, keepdim=True), (parts * 3).sum(1)
    return parts / rows, others.log().sum()


def scales_that_are_written_in_a_later_step() -> None:
    weight, other = torch.tensor([2.0], requires_grad=True), torch.tensor([[3.0]], requires_grad=True)
    optimizer = torch.optim.SGD([weight, other], lr=0.0)
    for step in range(2):
        optimizer.zero_grad()
        (weight * (3e38 if step else 1.0)).sum().backward()
        (other.square() * (2e38 if step else 1.0)).sum().backward()
        optimizer.step()


def updates_divided_by_two_rows() -> None:
    weight = torch.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
    (weight * torch.tensor([[1.0, 0.0], [1.0, 1.0]])).square().sum().backward()
    CountingLate([weight], apart=True).step()


def row_out_of_range_and_row_all_masked() -> Tensor:
    scores = torch.exp(torch.tensor([[1.0, 200.0], [1.0, 2.0]]))
    scores = scores.masked_fill(torch.tensor([[False, False], [True, True]]), -math.inf)
    scores = scores / 2.0
    return scores.softmax(-1)


def rate_of_infinity_beside_a_pole() -> Tensor:
    first, second = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    (first + second).sum().backward()
    torch.optim.SGD([{"params": [first], "lr": math.inf}, {"params": [second], "lr": 0.5}], lr=0.1).step()
    return first.detach() + 1 / (second.detach() - 0.5)


def one_formula_at_two_places() -> tuple[Tensor, Tensor]:
    first, second = torch.tensor([200.0, 1.0]), torch.tensor([1.0, 300.0])
    mean = torch.log(1 + torch.exp(first * 2))
    second = second.abs()
    scale = torch.log(1 + torch.exp(second * 2))
    return mean, scale


def one_formula_for_two_shapes() -> tuple[Tensor, Tensor]:
    first, second = torch.tensor([200.0, 1.0]), torch.tensor([1.0, 300.0, 2.0])
    mean = torch.log(1 + torch.exp(first * 2))
    scale = torch.log(1 + torch.exp(second * 2))
    return mean, scale


def one_formula_of_a_network_and_of_data() -> Tensor:
    p = torch.relu(torch.tensor([-1.0, 2.0], requires_grad=True))
    q = torch.tensor([1.0, 0.0])
    own = -(torch.log(p) * (1 - q)).sum(-1)
    other = -(torch.log(q) * (1 - p)).sum(-1)
    return torch.stack([own, other])


TWO: tuple[Program, ...] = (
    one_formula_of_a_network_and_of_data,
    one_formula_at_two_places,
    one_formula_for_two_shapes,
    row_out_of_range_and_row_all_masked,
    rate_of_infinity_beside_a_pole,
    updates_divided_by_two_rows,
    scales_that_are_written_in_a_later_step,
    sums_of_one_statement,
    cuts_of_two_numbers,
    scales_of_two_exponentials,
    two_scales_of_one_name,
    functions_in_one_statement,
    helper_that_fails_for_two_reasons,
    quotient_whose_zero_is_a_root,
    losses_of_one_object,
    logarithm_and_root_in_two_statements,
    quotient_and_root_in_one_statement,
    one_rule_in_two_functions,
    one_rule_on_two_numbers,
    two_arguments_of_a_call,
    derivative_at_another_element,
    independent_losses,
    losses_added_up_in_place,
    two_outputs,
    forward_quotient_and_backward_root,
    losses_with_a_backward_each,
    one_computed_from_the_other,
    terms_that_a_network_parts,
    sum_and_accumulation_in_half,
)


def _told(report: Report) -> list[tuple[str, int | None]]:
    return [(f.rule, f.site and f.site.line) for f in (*report.findings, *report.damaging)]


@pytest.mark.parametrize("program", spread(ONE, 4))
def test_one_defect_is_one_finding(program: Program) -> None:
    report = whynan.explain(program)
    assert len(_told(report)) == 1, _told(report)
    assert report.findings[0].severity == "error"


@pytest.mark.parametrize("program", spread(TWO, 4))
def test_two_defects_are_two_findings(program: Program) -> None:
    report = whynan.explain(program)
    assert len(_told(report)) == 2, _told(report)


def test_an_infinity_that_has_made_the_zero_at_fault_did_harm() -> None:
    def program() -> Tensor:
        sigma = torch.tensor([0.5, 0.0])
        step = torch.log(torch.ones(2)) - torch.log(sigma)
        return 1 / (torch.tensor([1.0, 0.5]) / (step - 0.25))

    report = whynan.explain(program)
    (finding,) = report.findings
    assert (finding.op, finding.rule) == ("aten.reciprocal.default", "WN102")
    assert [(member.op, member.rule) for member in finding.also] == [("aten.log.default", "WN201")]
    assert not report.absorbed
    assert report.absorbed_count == 0
    summaries = [link.summary for link in finding.chain if link.role == "cause"]
    assert [summary for summary in summaries if summary.startswith("log of 0 is -Inf")]
    assert "log of 0 is -Inf" in str(report)


def test_an_infinity_beside_it_did_none() -> None:
    def program() -> Tensor:
        left_out = 1 / torch.log(torch.tensor([0.0, 2.0]))
        return left_out + 1 / torch.tensor([0.0, 2.0])

    report = whynan.explain(program)
    assert [finding.op for finding in report.findings] == ["aten.reciprocal.default"]
    assert [finding.op for finding in report.absorbed] == ["aten.log.default"]


def test_an_infinity_that_came_in_is_none_of_the_operation_that_carries_it() -> None:
    def program() -> tuple[Tensor, Tensor]:
        distance = torch.from_numpy(np.array([np.inf, 1.0, 3e38], np.float32)) * 2.0
        return torch.log(1 / distance[:1]), 1 / distance[1:]

    report = whynan.explain(program)
    assert [[member.op for member in finding.also] for finding in report.findings] == [[]]
    assert [finding.op for finding in report.absorbed] == ["aten.mul.Tensor"]


@pytest.mark.full
@pytest.mark.breadth
def test_a_folding_of_everything_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding._Causes, "is_one", lambda *_: True)  # pyright: ignore[reportPrivateUsage]
    assert all(len(_told(whynan.explain(program))) == 1 for program in TWO[::3])


@pytest.mark.full
@pytest.mark.breadth
def test_no_folding_at_all_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding._Causes, "is_one", lambda *_: False)  # pyright: ignore[reportPrivateUsage]
    more = [program for program in ONE[::4] if len(_told(whynan.explain(program))) > 1]
    assert len(more) > len(ONE[::4]) // 2


def test_a_constant_in_the_loss_is_told_before_its_derivative_and_where_it_is_written() -> None:
    report = whynan.explain(missing_value_that_the_program_marks)
    (finding,) = report.findings
    assert (finding.birth, finding.phase, finding.also[0].phase) == ("literal", "forward", "backward")
    written = missing_value_that_the_program_marks.__code__.co_firstlineno + 2
    assert f"at line {written}" in str(report)


@pytest.mark.proof
@pytest.mark.parametrize(("row", "told"), [(10, 1), (11, 2)], ids=["of one sample", "of two samples"])
def test_features_and_targets_that_came_in_bad(row: int, told: int) -> None:
    features, targets = torch.ones(16, 4), torch.ones(16)
    features[10, 1] = targets[row] = torch.nan
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = torch.utils.data.TensorDataset(features, targets)
    with whynan.watch(optimizer, quiet=True) as watched:
        for x, y in torch.utils.data.DataLoader(samples, batch_size=8):
            loss = (model(x).squeeze(-1) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert [f.rule for f in watched.report.findings] == ["WN001"] * told


class Codebook(torch.nn.Module):
    """Rows that are means of what was nearest to them, of which one has had nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.tensor([[1.0], [50.0]]))
        self.register_buffer("counts", torch.zeros(2))
        self.register_buffer("sums", torch.zeros(2, 1))

    def forward(self, z: Tensor) -> Tensor:
        nearest = (z - self.rows.T).abs().argmin(1)
        out = z * self.rows[nearest]
        chosen = torch.nn.functional.one_hot(nearest, 2).float()
        self.counts.mul_(0.9).add_(chosen.sum(0))
        self.sums.mul_(0.9).add_(chosen.T @ z.detach())
        self.rows.copy_(self.sums / self.counts[:, None])
        return out


@pytest.mark.breadth
def test_what_has_spoilt_a_buffer_and_what_the_next_step_reads_of_it_are_one_finding() -> None:
    torch.manual_seed(0)
    layer, book = torch.nn.Linear(2, 1), Codebook()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with whynan.watch(optimizer, quiet=True) as watched:
        for _ in range(3):
            loss = book(layer(torch.rand(4, 2))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (read,) = watched.report.findings
    born = whynan.explain(lambda: torch.zeros(2) / torch.zeros(2)).findings[0]
    spoilt = Reach(kind="buffer", name="rows", bad=1, total=2, value=math.nan)
    first = born.model_copy(update={"step": 1, "birth": "invalid", "rule": "WN101", "reaches": (spoilt,)})
    assert read.rule == "WN004"
    for findings in ([first, read], [read, first]):
        assert folding.cause_groups(findings, lambda _: None) == [[first, read]]
    (*before, entry) = [link for link in read.chain if link.role in ("cause", "birth")]
    since = Note.create("spoilt_during", step=1, optimizer="SGD")
    nameless = Note.create(
        "entered", **{**entry.typed_summary.values, "tensor": None, "sort": "parameter", "since": since}
    )
    unnamed = read.model_copy(update={"chain": (*before, entry.model_copy(update={"typed_summary": nameless}))})
    assert folding.cause_groups([unnamed, first], lambda _: None) == [[first, unnamed]]
    earlier = first.model_copy(update={"step": 2})
    assert len(folding.cause_groups([unnamed, earlier], lambda _: None)) == 2
    other = first.model_copy(update={"reaches": (spoilt.model_copy(update={"name": "counts"}),)})
    later = first.model_copy(update={"step": 3})
    for apart in (other, later):
        assert len(folding.cause_groups([apart, read], lambda _: None)) == 2
