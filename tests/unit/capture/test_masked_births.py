"""What a mask keeps out of the loss and the gradient brings back: one finding, where the bad number is from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.unit.capture.seen import code, only, sinks, traced

INF, NAN = float("inf"), float("nan")
WANTED = torch.tensor([False, True])
FIRST = torch.tensor([1])

Mask = Callable[[Tensor], Tensor]

MASKS: dict[str, Mask] = {
    "where": lambda y: torch.where(WANTED, y, 0.0),
    "masked_fill": lambda y: y.masked_fill(~WANTED, 0.0),
    "masked_select": lambda y: y.masked_select(WANTED),
    "index": lambda y: y[WANTED],
    "a slice": lambda y: y[1:],
    "select": lambda y: y.select(0, 1),
    "narrow": lambda y: y.narrow(0, 1, 1),
    "gather": lambda y: y.gather(0, FIRST),
    "index_select": lambda y: y.index_select(0, FIRST),
    "split": lambda y: y.split(1)[1],
    "nansum": lambda y: y.nansum(),
    "nanmean": lambda y: y.nanmean(),
    "nan_to_num": lambda y: y.nan_to_num(0.0),
    "a loss that ignores": lambda y: F.nll_loss(torch.stack([y, y], 1).log(), torch.tensor([-100, 1])),
    "an entropy that ignores": lambda y: F.cross_entropy(torch.stack([y, -y], 1), torch.tensor([-100, 1])),
    "a loss of the wanted": lambda y: F.mse_loss(y[WANTED], torch.ones(1)),
    "a hand-written loss": lambda y: torch.where(WANTED, (y - 1) ** 2, 0.0).sum() / WANTED.sum(),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_root_is_the_operation_that_bore_it(mask: Mask, dtype: torch.dtype) -> None:
    x = torch.tensor([-1.0, 4.0], dtype=dtype, requires_grad=True)

    def work() -> None:
        y = x.sqrt()
        z = y * 2
        mask(z).sum().backward()

    report = traced(work)
    finding = only(report)
    assert (code(finding), finding.phase, finding.birth) == ("x.sqrt()", "forward", "invalid")
    assert sinks(finding) == {("gradient", "x")}
    assert report.absorbed == ()
    # the way back is told
    assert "backward" in [link.phase for link in finding.chain if link.role == "step"]


@pytest.mark.parametrize("mask", [MASKS[n] for n in ("where", "masked_fill", "index", "a slice", "gather")])
def test_so_it_is_of_an_infinity(mask: Mask) -> None:
    x = torch.tensor([100.0, 1.0], requires_grad=True)

    def work() -> None:
        y = x.exp()
        z = y * y
        mask(z).sum().backward()

    finding = only(traced(work))
    assert (code(finding), finding.phase, finding.birth) == ("x.exp()", "forward", "overflow")


@pytest.mark.parametrize(
    "clip",
    [
        lambda y: y.clamp(max=5.0),
        lambda y: y.clamp_max(5.0),
        lambda y: torch.minimum(y, torch.tensor(5.0)),
        lambda y: torch.fmin(y, torch.tensor(5.0)),
        lambda y: (-y).relu(),
        lambda y: F.threshold(-y, -100.0, -100.0),
        lambda y: y.sort().values[:1],
        lambda y: y.min(),
        lambda y: F.max_pool1d(-y[None, None], 2),
    ],
)
def test_so_it_is_of_an_infinity_that_a_bound_takes_away(clip: Mask) -> None:
    x = torch.tensor([100.0, 1.0], requires_grad=True)

    def work() -> None:
        y = x.exp()
        z = y * y
        clip(z).sum().backward()

    finding = only(traced(work))
    assert (code(finding), finding.phase, finding.birth) == ("x.exp()", "forward", "overflow")


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_of_a_constant_the_backward_is_the_birth(mask: Mask) -> None:
    x = torch.tensor([1.0, 4.0], requires_grad=True)

    def work() -> None:
        y = x * torch.tensor([NAN, 1.0])
        mask(y).sum().backward()

    finding = only(traced(work))
    assert (finding.phase, finding.birth) == ("backward", "invalid")
    assert finding.chain[0].summary == "a constant that the program writes holds NaN at [0]"


def test_of_a_constant_infinity_too() -> None:
    x = torch.tensor([1.0, 4.0], requires_grad=True)

    def work() -> None:
        y = x * torch.tensor([-INF, 1.0])
        y[1].backward()

    finding = only(traced(work))
    assert (code(finding), finding.phase, finding.birth) == ("x * torch.tensor([-INF, 1.0])", "backward", "invalid")


def test_of_data_the_backward_is_the_birth() -> None:
    x, labels = torch.zeros(2, requires_grad=True), torch.tensor([NAN, 1.0])

    def work() -> None:
        error = x - labels
        (error**2).nansum().backward()

    report = traced(work)
    finding = only(report)
    assert (code(finding), finding.phase, finding.rule, report.absorbed) == ("error**2", "backward", "WN108", ())


def test_what_a_derivative_makes_of_finite_numbers_is_born_in_it() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    report = traced(lambda: torch.where(x > 0, x.log(), 0.0).sum().backward())
    finding = only(report)
    assert (code(finding), finding.phase, finding.rule) == ("x.log()", "backward", "WN510")
    assert report.absorbed == ()


SPREADS: dict[str, Callable[[Tensor], Tensor]] = {
    "of all": lambda x: torch.stack([x[:1].var(), x.var()]),
    "of rows": lambda x: torch.cat([x[None, :1].var(1), x[None].var(1)]),
    "with its mean": lambda x: torch.stack([torch.var_mean(x[:1])[0], torch.var_mean(x)[0]]),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_a_constant_in_the_formula_of_a_derivative_is_none_of_the_programs(spread: Callable[[Tensor], Tensor]) -> None:
    """The variance of one number divides by 0, forward and, by a constant that PyTorch writes, backward."""
    x = torch.tensor([1.0, 4.0], requires_grad=True)
    report = traced(lambda: torch.where(WANTED, spread(x), 0.0).sum().backward())
    finding = only(report)
    assert (finding.rule, finding.phase, finding.birth, report.absorbed) == ("WN601", "forward", "invalid", ())
    assert sinks(finding) == {("gradient", "x")}


def test_a_constant_that_the_program_multiplies_by_stays_its_own() -> None:
    """The twin: the derivative reads what the program has written."""
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    finding = only(traced(lambda: (x * INF).masked_fill(WANTED | True, 0.0).sum().backward()))
    assert (code(finding), finding.phase) == ("x * INF", "backward")
    assert finding.chain[0].summary == "a constant that mul writes"


def test_what_is_masked_in_the_backward_too_does_no_harm() -> None:
    x = torch.tensor([-1.0, 4.0], requires_grad=True)
    report = traced(lambda: torch.where(x > 0, x.log(), 0.0).sum().backward())
    assert (report.verdict, [f.op for f in report.absorbed]) == ("clean", ["aten.log.default"])


def test_a_birth_that_python_reads_and_the_gradient_brings_back_is_told_once() -> None:
    weight = torch.tensor([-1.0, 4.0], requires_grad=True)

    def work() -> None:
        for _ in range(2):
            root = weight.sqrt()
            root.max().item()
            root.nansum().backward()
            with torch.no_grad():
                weight.sub_(weight.grad)
            weight.grad = None

    finding = only(traced(work))
    assert (code(finding), finding.phase, finding.severity) == ("weight.sqrt()", "forward", "error")


def test_forward_and_backward_of_an_expression_in_a_loop_by_hand_are_one() -> None:
    weight = torch.tensor([0.0, 4.0], requires_grad=True)

    def work() -> None:
        for _ in range(2):
            loss = weight.log().sum()
            loss.item()
            loss.backward()
            with torch.no_grad():
                weight.sub_(weight.grad * 0.1)
            weight.grad = None

    finding = only(traced(work))
    assert (code(finding), finding.phase, finding.rule) == ("weight.log()", "forward", "WN201")


def test_attention_whose_padded_rows_the_loss_ignores_is_told_at_its_softmax() -> None:
    torch.manual_seed(0)
    embed, head = torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 0]])
    padding = tokens == 0

    def work() -> None:
        x = embed(tokens)
        scores = x @ x.transpose(-1, -2)
        blocked = padding[:, :, None] | padding[:, None, :]
        weights = scores.masked_fill(blocked, -INF).softmax(-1)
        logits = head(weights @ x)
        loss = F.cross_entropy(logits.view(-1, 8), tokens.masked_fill(padding, -100).view(-1))
        loss.backward()

    report = traced(work)
    finding = only(report)
    assert (code(finding), finding.rule) == ("scores.masked_fill(blocked, -INF).softmax(-1)", "WN501")
    assert report.absorbed == ()
    told = [link.site.code for link in finding.chain if link.role == "step" and link.phase == "backward" and link.site]
    assert told[0].startswith("F.cross_entropy(")
