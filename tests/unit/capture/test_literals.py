"""Bad numbers that the program itself writes: sources, and errors only in a loss, a gradient or a parameter."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import whynan
from tests.unit.capture.seen import code, only, sinks, traced

INF = math.inf
WAYS: dict[str, Callable[[], Tensor]] = {
    "full": lambda: torch.full((2,), INF),
    "full_like": lambda: torch.full_like(torch.ones(2), -INF),
    "tensor": lambda: torch.tensor([INF, 1.0]),
    "masked_fill": lambda: torch.ones(2).masked_fill(torch.tensor([True, False]), -INF),
    "fill_": lambda: torch.ones(2).fill_(INF),
    "new_full": lambda: torch.ones(2).new_full((2,), -INF),
    "where with a number": lambda: torch.where(torch.tensor([True, False]), 1.0, -INF),
    "setitem": lambda: (t := torch.ones(2), t.__setitem__(0, INF))[0],
    "an added number": lambda: torch.ones(2) + INF,
    "a multiplied number": lambda: torch.ones(2) * -INF,
    "clamp": lambda: torch.ones(2).clamp(min=INF),
    "nan_to_num": lambda: torch.tensor([float("nan")]).nan_to_num(INF),
    "pad": lambda: nn.functional.pad(torch.ones(1), (0, 1), value=-INF),
    "NaN as a number": lambda: torch.full((2,), math.nan),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_literal_that_merely_leaves_is_no_error(way: str) -> None:
    assert whynan.explain(WAYS[way]).verdict == "clean"


@pytest.mark.parametrize("way", WAYS)
def test_copies_of_a_literal_are_none_either(way: str) -> None:
    def target() -> Tensor:
        return torch.stack([WAYS[way]().clone(), torch.zeros_like(WAYS[way]())]).t().contiguous()

    assert whynan.explain(target).verdict == "clean"


def test_infinities_computed_from_literals_and_finite_values_are_none() -> None:
    def target() -> Tensor:
        mask = torch.full((2, 2), -INF).triu(1)
        return (mask + torch.ones(2, 2)) * 0.5

    assert whynan.explain(target).verdict == "clean"


def test_a_mask_that_softmax_takes_is_clean() -> None:
    scores = torch.zeros(3, 3, requires_grad=True)

    def work() -> None:
        mask = torch.full((3, 3), -INF).triu(1)
        (scores + mask).softmax(-1).sum().backward()

    assert traced(work).verdict == "clean"


def test_a_nan_from_a_literal_is_a_birth_and_the_literal_its_cause() -> None:
    def target() -> Tensor:
        scores = torch.full((2, 2), -INF)
        scores[1] = 0.0
        return scores.softmax(-1)

    finding = only(whynan.explain(target))
    assert (finding.op, finding.birth, finding.element.index) == ("aten._softmax.default", "invalid", (0, 0))
    causes = [c for c in finding.chain if c.role == "cause"]
    assert [(c.op, None if c.site is None else c.site.code) for c in causes] == [
        ("aten.full.default", "torch.full((2, 2), -INF)")
    ]


def test_a_literal_in_a_loss_is_named_at_the_first_reduction() -> None:
    weight = torch.ones(2, requires_grad=True)

    def work() -> None:
        scores = weight.masked_fill(torch.tensor([True, False]), -INF)
        loss = scores.mean()
        loss.backward()

    finding = only(traced(work))
    assert (finding.birth, code(finding)) == ("literal", "scores.mean()")
    assert ("loss", None) in sinks(finding)


def test_without_a_reduction_it_is_named_where_it_is_written() -> None:
    weight = torch.ones((), requires_grad=True)

    def work() -> None:
        (weight * INF).backward()

    finding = only(traced(work))
    assert finding.birth == "literal"
    assert code(finding) == "weight * INF"


def test_a_literal_in_a_parameter_is_an_error() -> None:
    model = nn.Linear(2, 1)

    def work() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=INF)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    finding = only(traced(work))
    assert finding.birth == "literal"
    assert {k for k, _ in sinks(finding)} == {"parameter"}


def test_an_infinity_in_an_argument_is_a_literal() -> None:
    assert whynan.explain(torch.abs, torch.tensor([INF])).verdict == "clean"
    finding = only(whynan.explain(lambda x: x - x, torch.tensor([INF, 1.0])))
    assert (finding.op, finding.birth) == ("aten.sub.Tensor", "invalid")


def test_an_infinite_buffer_is_a_literal() -> None:
    class Observer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("low", torch.tensor(INF))

        def forward(self, x: Tensor) -> Tensor:
            self.low = torch.minimum(self.low, x.min())
            return x

    assert whynan.explain(Observer(), torch.ones(3)).verdict == "clean"


def test_a_literal_beside_a_birth_explains_nothing() -> None:
    def target(x: Tensor) -> Tensor:
        return x.log() + torch.full((2,), -INF)

    finding = only(whynan.explain(target, torch.zeros(2)))
    assert finding.op == "aten.log.default"


@pytest.mark.parametrize("rounds", [1, 4])
def test_the_same_literal_many_times_is_told_once(rounds: int) -> None:
    weight = torch.ones(2, requires_grad=True)

    def work() -> None:
        for _ in range(rounds):
            loss = (weight + INF).sum()
            loss.backward()

    finding = only(traced(work))
    assert (finding.birth, finding.op) == ("literal", "aten.sum.default")
    assert ("loss", None) in sinks(finding)


def test_one_in_an_expanded_argument_is_known_to_be_it() -> None:
    scores = torch.tensor([INF, 1.0]).expand(3, -1)
    finding = only(whynan.explain(lambda x: x - x.amax(-1, keepdim=True), scores))
    assert (finding.birth, finding.op, finding.element.count) == ("invalid", "aten.sub.Tensor", 3)


def test_one_in_an_expanded_tensor_is_no_error_where_it_merely_leaves() -> None:
    assert whynan.explain(lambda: torch.tensor([INF, 1.0]).expand(3, -1)).verdict == "clean"


def test_one_that_an_operation_of_the_users_gives_back_is_no_birth() -> None:
    # it is not run again, so that nobody can ask what it makes of other operands
    @torch.library.custom_op("whynan_tests::doubled_in_numpy", mutates_args=())
    def doubled(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() * 2)

    report = whynan.explain(lambda x: doubled(x.masked_fill(x > 0, -INF)), torch.tensor([1.0, -1.0]))
    assert (report.verdict, report.absorbed_count) == ("clean", 0)
