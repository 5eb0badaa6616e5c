"""Where a finding is placed and what it tells, in programs in which that is easily mistaken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import whynan
from tests.unit.capture.seen import code, only, sinks, traced

INF = float("inf")


def test_a_birth_in_a_module_hook_is_placed_in_the_hook() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def scale(_module: nn.Module, grads: Any, _out: Any) -> Any:
        return tuple(g / g.abs().max() for g in grads)

    model[1].register_full_backward_hook(scale)
    finding = only(traced(lambda: (model(torch.ones(2, 3)) * 0).sum().backward()))
    assert (code(finding), finding.phase, finding.forward_op) == ("g / g.abs().max()", "backward", None)


def test_a_birth_in_a_hook_of_a_tensor_is_placed_in_the_hook() -> None:
    weight = torch.ones(3, requires_grad=True)

    def work() -> None:
        y = weight * 2
        y.register_hook(lambda g: g / g.norm())
        (y * 0).sum().backward()

    finding = only(traced(work))
    assert code(finding) == "g / g.norm()"
    assert [o.expression for o in finding.element.operands] == ["g", "g.norm()"]


def test_the_backward_of_a_custom_function_is_no_derivative_of_what_its_forward_did() -> None:
    class Div(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x / y.clamp(min=1e-6)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            _, y = ctx.saved_tensors
            return grad / y, None

    x, y = torch.ones(2, requires_grad=True), torch.tensor([0.0, 1.0])
    finding = only(traced(lambda: Div.apply(x, y).sum().backward()))
    assert (code(finding), finding.forward_op, finding.forward_operands) == ("grad / y", None, ())


def test_an_operation_in_place_on_a_view_has_its_own_derivative() -> None:
    weight = torch.tensor([4.0, 0.0, 1.0], requires_grad=True)

    def work() -> None:
        y = weight.clone()
        y[1:].log_()
        y.mul_(2)
        torch.where(y.isfinite(), y, 0.0).sum().backward()

    finding = only(traced(work))
    assert (code(finding), finding.forward_op) == ("y[1:].log_()", "aten.log_.default")


def test_an_operation_in_place_that_saves_its_operand_has_its_own_derivative() -> None:
    scale = torch.zeros(1, requires_grad=True)

    def work() -> None:
        x = torch.ones(2) * 1
        x /= scale
        torch.where(x.isfinite(), x, 0.0).sum().backward()

    finding = only(traced(work))
    assert finding.forward_op == "aten.div_.Tensor"
    assert code(finding) == "x /= scale"


def test_parameters_of_several_modules_that_are_called_apart_keep_apart() -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    def work() -> None:
        x = torch.ones(4, 2) * 200
        for layer in layers:
            x = layer(x)
        torch.exp(x.abs() * 10).sum().backward()

    names = {name for kind, name in sinks(only(traced(work))) if kind == "gradient"}
    assert names == {f"layers.{i}.{name}" for i in range(3) for name in ("weight", "bias")}


def test_leaves_in_a_list_are_named_by_their_place() -> None:
    points = [torch.zeros(2, requires_grad=True) for _ in range(3)]
    finding = only(traced(lambda: sum(p.pow(2).sum().sqrt() for p in points).backward()))
    assert sinks(finding) == {("gradient", f"points[{i}]") for i in range(3)}


def test_a_gradient_put_in_by_hand_is_one() -> None:
    weight = torch.tensor([0.0, 1.0], requires_grad=True)

    def work() -> None:
        loss = (weight * torch.tensor([1.0, 0.0])).pow(2).sum().sqrt()
        (weight.grad,) = torch.autograd.grad(loss, weight)

    assert ("gradient", "weight") in sinks(only(traced(work)))


def test_each_root_counts_its_own_elements() -> None:
    rho = torch.tensor([0.0, 1.0, 100.0], requires_grad=True)

    def work() -> None:
        (rho.exp().sum() + rho.log().sum()).backward()

    report = traced(work)
    assert {(f.op, r.bad) for f in report.findings for r in f.reaches if r.kind == "gradient"} == {
        ("aten.exp.default", 1),
        ("aten.log.default", 1),
    }


def test_the_step_is_that_of_the_optimizer_concerned() -> None:
    first, second = torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    one, other = torch.optim.SGD([first], 0.1), torch.optim.SGD([second], 0.1)

    def work() -> None:
        for _ in range(2):
            one.zero_grad()
            first.pow(2).sum().backward()
            one.step()
        second.sqrt().sum().backward()
        other.step()

    assert only(traced(work)).step == 1


def test_a_forward_belongs_to_the_backward_that_follows_it() -> None:
    seen: list[Any] = []
    for bad in range(3):
        weight = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.SGD([weight], 0.1)
        batches = [torch.ones(2), torch.ones(2), torch.ones(2)]
        batches[bad] = torch.zeros(2)

        def work(batches: list[Tensor] = batches, weight: Tensor = weight, optimizer: Any = optimizer) -> None:
            for x in batches:
                (weight * (x / x.norm())).sum().backward()
            optimizer.step()

        finding = only(traced(work))
        seen.append((finding.step, finding.micro))
    assert seen == [(1, 1), (1, 2), (1, 3)]


def test_what_was_masked_away_comes_back_as_one_finding() -> None:
    scores = torch.zeros(2, 2, requires_grad=True)
    values = torch.ones(2, 2, requires_grad=True)
    seen = torch.tensor([[True, True], [False, False]])

    def work() -> None:
        weights = torch.softmax(scores + torch.where(seen, 0.0, float("-inf")), -1)
        torch.where(seen, weights @ values, 0.0).sum().backward()

    finding = only(traced(work))
    assert (finding.rule, finding.phase) == ("WN501", "forward")
    assert code(finding) == 'torch.softmax(scores + torch.where(seen, 0.0, float("-inf")), -1)'
    assert "weights @ values" in [link.site.code for link in finding.chain if link.role == "step" and link.site]
    assert {name for kind, name in sinks(finding) if kind == "gradient"} == {"scores", "values"}


def test_the_greatest_term_of_a_product_is_followed() -> None:
    layer = nn.Linear(3, 2)
    nn.init.ones_(layer.weight)
    finding = only(whynan.explain(lambda x: layer(x * 1e4).exp(), torch.ones(4, 3)))
    made = [link.summary for link in finding.chain if link.role == "cause"]
    assert any("the greatest term of the product" in text for text in made), made


def test_the_underflow_behind_a_product_of_zeros_is_followed() -> None:
    select = torch.tensor([[1.0, 0.0]])

    def work(noise: Tensor) -> Tensor:
        covariance = noise.exp() * torch.eye(2)
        return 1 / (select @ covariance @ select.T)

    finding = only(whynan.explain(work, torch.tensor(-120.0)))
    assert "exp of -120 is 0 in float32, whose smallest number is 1.4e-45" in [link.summary for link in finding.chain]


@pytest.mark.parametrize("first", [True, False])
def test_the_underflow_in_a_sum_of_zeros_is_followed_and_not_what_its_mask_left_out(first: bool) -> None:
    logits = torch.tensor([[0.0, 200.0, 1.0], [300.0, 1.0, 2.0]])
    mask = torch.tensor([[False, False, True], [False, True, False]])

    def work() -> Tensor:
        shares = torch.softmax(logits, -1)
        return (shares * mask if first else mask * shares).sum(-1).log()

    (finding,) = whynan.explain(work).findings
    said = [link.summary for link in finding.chain if link.role == "cause"]
    assert said[0] == "_softmax of values from 0 to 200 is 0"
    assert said[1:] == [f"{'0 times True' if first else 'True times 0'} is 0", "sum of a row of 0 is 0"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("first", "second"),
    [(torch.zeros(2, 2, dtype=torch.complex64), torch.ones(2, 2)), (torch.zeros(2, 2, dtype=torch.uint16), 1.0)],
    ids=["complex", "uint16"],
)
def test_a_sum_of_zeros_of_any_dtype_is_told(first: Tensor, second: Tensor | float) -> None:
    def work() -> Tensor:
        made = torch.view_as_real(first * second) if first.is_complex() else torch.zeros(2, 2) * first.int()
        return 1 / made.sum(1)

    (finding,) = whynan.explain(work).findings
    assert finding.chain[0].role == "cause"


def test_the_entry_that_was_joined_is_followed() -> None:
    def work(x: Tensor) -> Tensor:
        return torch.log(torch.cat([x + 5, x.relu()]))

    finding = only(whynan.explain(work, torch.tensor([1.0, -2.0])))
    assert "relu made -2 into 0" in [link.summary for link in finding.chain], finding.chain


@pytest.mark.parametrize(
    ("meeting", "roots"),
    [
        (lambda inf, nan: inf + nan, ["aten.exp.default", "aten.log.default"]),
        (lambda inf, nan: inf * nan, ["aten.exp.default", "aten.log.default"]),
        (lambda inf, nan: nan.add_(inf), ["aten.exp.default", "aten.log.default"]),
        (lambda inf, nan: nan / inf, ["aten.log.default"]),
        (lambda inf, nan: torch.minimum(nan, inf), ["aten.log.default"]),
    ],
    ids=["a sum", "a product", "a sum in place", "a quotient by it", "the lesser of both"],
)
def test_an_infinity_that_a_nan_hides_is_a_root_where_it_would_be_bad_alone(
    meeting: Callable[[Tensor, Tensor], Tensor], roots: list[str]
) -> None:
    def work(x: Tensor) -> Tensor:
        return meeting(x.exp(), (x - x).log() * 0)

    report = whynan.explain(work, torch.tensor([100.0]))
    assert sorted(f.op for f in report.findings if f.op) == roots


def test_what_a_mask_spoils_in_both_passes_is_one_finding_at_the_forward() -> None:
    def work() -> None:
        logits = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
        masked = logits.masked_fill(torch.tensor([[False, True, False]]), -INF)
        (masked.softmax(-1) * masked.log_softmax(-1)).sum().backward()

    (finding,) = whynan.explain(work).findings
    assert (finding.phase, finding.op) == ("forward", "aten.mul.Tensor")
    assert "masked_fill made 2 into -Inf" in [link.summary for link in finding.chain if link.role == "cause"]


def test_an_operand_of_a_product_is_no_element_of_its_gradient() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 2))

    def work() -> None:
        rows = torch.tensor([[float("nan"), 1.0], [1.0, 1.0]])
        torch.addmm(torch.zeros(2), rows, weight)[1].sum().backward()

    (finding,) = whynan.explain(work).findings
    assert (finding.op, [o.value for o in finding.forward_operands if o.dtype]) == ("aten.mm.default", [None] * 3)


def test_a_loss_without_weight_is_traced_to_the_weights() -> None:
    def work(weight: Tensor) -> Tensor:
        return F.cross_entropy(torch.zeros(2, 3), torch.tensor([1, 1]), weight=weight)

    (finding,) = whynan.explain(work, torch.tensor([1.0, 0.0, 1.0])).findings
    assert [link.summary for link in finding.chain if link.role == "cause"] == ["argument weight"]


def test_a_running_sum_is_judged_by_what_was_added_so_far() -> None:
    (finding,) = whynan.explain(lambda x: x.cumsum(1), torch.tensor([[1.0, 3e38, 3e38, 3.1e38]])).findings
    (row,) = (o for o in finding.element.operands if o.name == "self")
    assert (finding.element.index, row.min, row.max) == ((0, 2), 1.0, pytest.approx(3e38))


def by_slices() -> Tensor:
    x = torch.rand(4, 6).add(0.5)
    x[:, :2] = 0.0
    x[:, 4:] = 0.5
    return x


def by_columns() -> Tensor:
    x = torch.zeros(2, 6)
    for column in (0, 1, 3, 4, 5):
        x[:, column] = column + 1.0
    return x


def by_another_operation() -> Tensor:
    x = torch.rand(4, 6).sub(2.0).relu()
    x[:, 5:] = 0.5
    return x


def by_data() -> Tensor:
    given = np.ones((4, 6), np.float32)
    given[2, 3] = 0.0
    x = torch.from_numpy(given)
    x[:, 5:] = 0.5
    return x


def by_a_tensor_of_data() -> Tensor:
    given = [float(i) for i in range(3)]
    return torch.tensor(given)


def by_mapped_data() -> Tensor:
    first, _ = map(torch.from_numpy, (np.zeros(2, np.float32), np.ones(2, np.float32)))
    return first


def by_a_list_in_the_source() -> Tensor:
    return torch.tensor([1.0, 0.0])


def by_a_number_put_in() -> Tensor:
    x = torch.rand(3) - 2.0
    x[x < 0] = 0.0
    return x


@pytest.mark.parametrize(
    ("made", "written", "said"),
    [
        (by_slices, "x[:, :2]", "the program writes 0"),
        (by_columns, "torch.zeros(2, 6)", "the program writes 0"),
        (by_another_operation, "torch.rand(4, 6).sub(2.0).relu()", "relu made "),
        (by_data, "torch.from_numpy(given)", "data given[2, 3] is 0"),
        (by_a_tensor_of_data, "torch.tensor(given)", "data given[0] is 0"),
        (by_mapped_data, "first, _", "data from outside"),
        (by_a_list_in_the_source, "torch.tensor([1.0, 0.0])", "the program writes 0"),
        (by_a_number_put_in, "x[x < 0]", "the program writes 0"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_write_to_the_element_is_told_not_the_last_to_its_tensor(
    made: Callable[[], Tensor], written: str, said: str
) -> None:
    finding = whynan.explain(lambda: made().log().sum()).findings[0]
    first = next(link for link in finding.chain if link.role == "cause")
    assert first.site is not None
    assert first.site.code == written
    assert first.summary.startswith(said), first.summary


SENTENCES: list[tuple[str, Any, tuple[Any, ...], list[str]]] = [
    (
        "one minus a probability",
        lambda x: torch.log(1 - x.sigmoid()),
        (torch.tensor([20.5]),),
        ["argument x[0] is 20.5", "sigmoid of 20.5 is 1", "1 minus 1 is 0"],
    ),
    (
        "a negligible side of a difference",
        lambda x: torch.log(x * 1e-20 - x * 0),
        (torch.tensor([-1.0]),),
        ["argument x[0] is -1", "-1 times 1e-20 is -1e-20", "-1e-20 minus -0 is -1e-20"],
    ),
    (
        "two sides that cancel",
        lambda x: torch.log((x + 1) - (x * 1)),
        (torch.tensor([1e9]),),
        ["1e9 minus 1e9 is 0"],
    ),
    (
        "an underflow of half a number's precision",
        lambda x: 1 / torch.square(x),
        (torch.tensor([1e-4]).half(),),
        ["0.0001 to the power 2 is 0 in float16, whose smallest number is 5.96e-8"],
    ),
    (
        "an underflow in the narrower of two dtypes",
        lambda x, s: torch.log(s * x),
        (torch.tensor([1e-4]).half(), torch.tensor(1e-5)),
        ["1e-5 times 0.0001 is 0 in float16, whose smallest number is 5.96e-8"],
    ),
    (
        "a number that a cast has lost",
        lambda x: torch.log((x * 1e-5).half()),
        (torch.tensor([1e-5]),),
        [
            "argument x[0] is 1e-5",
            "1e-5 times 1e-5 is 1e-10",
            "1e-10 as float16 is 0, whose smallest number is 5.96e-8",
        ],
    ),
    (
        "a number that became whole",
        lambda x: torch.log((x * 0.5).int().float()),
        (torch.tensor([1.0]),),
        ["argument x[0] is 1", "1 times 0.5 is 0.5", "0.5 as int32 is 0"],
    ),
    (
        "a quotient that was rounded, which is no underflow",
        lambda x: torch.log(torch.div(x, 3, rounding_mode="floor")),
        (torch.tensor([1.0]),),
        ["div of 1, 3 is 0"],
    ),
    (
        "a difference with a factor, which is no plain one",
        lambda x, y: torch.log(torch.sub(x, y, alpha=2)),
        (torch.tensor([4.0]), torch.tensor([2.0])),
        ["sub of 4, 2 is 0"],
    ),
    (
        "a sum with a factor",
        lambda x, y: torch.sqrt(torch.add(x, y, alpha=-3)),
        (torch.tensor([4.0]), torch.tensor([2.0])),
        ["argument x[0] is 4", "add of 4, 2 is -2"],
    ),
]


@pytest.mark.parametrize(("work", "arguments", "said"), [s[1:] for s in SENTENCES], ids=[s[0] for s in SENTENCES])
def test_a_chain_tells_what_each_event_did(work: Any, arguments: tuple[Any, ...], said: list[str]) -> None:
    finding = whynan.explain(work, *arguments).findings[0]
    assert [link.summary for link in finding.chain if link.role == "cause"] == said


def test_an_infinity_is_told_through_the_zeros_that_it_has_made() -> None:
    """No difference of zeros cancels anything: the first of them leads back to the logarithm, the one finding."""

    def target(distances: Tensor) -> Tensor:
        spread = torch.exp(torch.log(distances))
        covariance = torch.stack([spread * 0.7, spread * 0.2]).T
        determinant = covariance[:, 0] * covariance[:, 0] - covariance[:, 1] * covariance[:, 1]
        return 1 / determinant

    (finding,) = whynan.explain(target, torch.tensor([1.0, 0.0])).findings
    assert finding.rule == "WN102"
    assert "log of 0 is -Inf" in [link.summary for link in finding.chain if link.role == "cause"]


def test_what_cancels_is_explained_by_that() -> None:
    """The twin: two numbers that are no zeros."""
    (finding,) = whynan.explain(lambda x: 1 / (x * 3 - x * 3), torch.tensor([1.0, 2.0])).findings
    assert [link.summary for link in finding.chain if link.role == "cause"] == ["3 minus 3 is 0"]


def test_a_finite_number_that_an_infinity_has_made_is_told_to_its_beginning() -> None:
    def target(x: Tensor) -> Tensor:
        far = x.log() + 1.0
        share = 2.0 / far
        return (1.0 / (share + 0.0)).sum()

    finding = next(f for f in whynan.explain(target, torch.zeros(1)).findings if f.rule == "WN102")
    told = [link.summary for link in finding.chain if link.role == "cause"]
    assert "log of 0 is -Inf" in told


@pytest.mark.parametrize(("again", "micro"), [(False, 1), (True, 2)])
def test_what_comes_behind_the_last_backward_of_a_step_is_of_that_one(again: bool, micro: int) -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work() -> None:
        (weight * 0).sum().backward()
        assert weight.grad is not None
        weight.grad.mul_(1 / weight.grad.norm())
        if again:
            (weight * 0).sum().backward()
        optimizer.step()

    finding = only(traced(work))
    assert (finding.op, finding.micro) == ("aten.reciprocal.default", micro)


MASKED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "entered": lambda x, m: (torch.frombuffer(bytearray(x.numpy().tobytes()), dtype=x.dtype) * 2 * m).sum(),
    "written": lambda x, m: (x * 2 * m).sum(),
    "born": lambda x, m: (m * (x.nan_to_num() / x.nan_to_num())).sum(),
}


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("masked", [True, False])
def test_a_mask_that_multiplies_is_said_to_leave_nan(name: str, masked: bool) -> None:
    x = torch.tensor([float("nan"), 1.0, 2.0])
    mask = torch.tensor([0.0, 1.0, 1.0]) if masked else torch.ones(3)
    finding = only(whynan.explain(MASKED[name], x, mask))
    said = "multiplies it by 0, and 0 times NaN is NaN" in finding.explanation
    assert said is masked
    if masked:
        assert "times_zero" in {link.typed_summary.kind for link in finding.chain}


@pytest.mark.parametrize(("weight", "said"), [(0.0, True), (1.0, False), (-1.0, False)])
def test_a_weight_of_zero_is_said_to_make_nan_of_an_infinity(weight: float, said: bool) -> None:
    x = torch.tensor([1.0, 2.0])

    def loss() -> Tensor:
        term = (x / torch.tensor([0.0, 1.0])).mean()
        return 1 + weight * term

    finding = only(whynan.explain(loss))
    assert ("multiplies it by 0, and 0 times Inf is NaN" in finding.explanation) is said
    assert ("infinity_times_zero" in {link.typed_summary.kind for link in finding.chain}) is said


def summaries(finding: Any) -> list[str]:
    return [link.summary for link in finding.chain if link.role == "cause"]


@pytest.mark.parametrize(
    "pick",
    [
        pytest.param(lambda x: x.gather(1, torch.tensor([[1], [0]])), id="gather"),
        pytest.param(lambda x: x[torch.tensor([0]), torch.tensor([-2])], id="an index, from the end"),
        pytest.param(lambda x: x[:, torch.tensor([False, True, False])], id="a mask"),
        pytest.param(lambda x: x.index_select(1, torch.tensor([2, 1])), id="index_select"),
        pytest.param(lambda x: x.take(torch.tensor([5, 1])), id="take"),
        pytest.param(lambda x: x.flip(1).T, id="flip"),
    ],
)
def test_a_chain_follows_what_is_picked_to_what_has_made_it(pick: Callable[[Tensor], Tensor]) -> None:
    def program() -> Tensor:
        x = torch.tensor([[3.0, 2.0, 5.0], [3.0, 4.0, 5.0]]) - torch.tensor([[1.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
        return torch.log(pick(x))

    assert "2 minus 2 is 0" in summaries(only(whynan.explain(program)))


def test_a_chain_follows_an_infinity_through_what_only_moves_it() -> None:
    def program() -> Tensor:
        x = (torch.log(torch.zeros(1)) - 3.0) * 2.0
        return torch.sqrt(1 / x) / (1 / x)

    causes = summaries(whynan.explain(program).findings[0])
    moved = ["log of 0 is -Inf", "-Inf minus 3 is -Inf", "-Inf times 2 is -Inf"]
    assert [cause for cause in causes if "Inf" in cause][:3] == moved


def test_an_index_that_was_changed_since_says_nothing_of_what_it_picked() -> None:
    def program() -> Tensor:
        x, rows = torch.tensor([[4.0, 0.0], [4.0, 0.0]]) * 1.5, torch.tensor([1])
        picked = x[:, rows]
        rows.zero_()
        gathered = x.gather(1, rows.expand(2, 1) + 1)
        rows.fill_(5)
        return 1 / picked + 1 / gathered

    report = whynan.explain(program)
    told = [summaries(finding) for finding in report.findings]
    assert told
    assert report.verdict == "nonfinite"
    assert not any("6" in summary for causes in told for summary in causes), told
