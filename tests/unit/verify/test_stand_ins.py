"""What is given where there is no exact value is stated, and nothing wrong passes for a stand-in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

from whynan.report.wording import reason_text
from whynan.verify.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.records.intents import FixKind
    from whynan.records.report import FixVerdict


def drawn(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def underflowed() -> dict[str, Any]:
    """Probabilities, of which a softmax has rounded one to 0."""
    p = drawn(4, 6).softmax(-1)
    p[0, 0] = 0.0
    return {"p": p.requires_grad_()}


def weighted() -> dict[str, Any]:
    w = torch.ones(4, 6)
    w[2] = 0.0
    return {"x": drawn(4, 6).requires_grad_(), "w": w}


def mean(x: Any, w: Any) -> Any:
    return (x * w).sum(-1) / w.sum(-1)


def _or_one(x: Any, w: Any) -> Any:
    n = w.sum(-1)
    return (x * w).sum(-1) / torch.where(n == 0, 1, n)


def of_logarithm(repaired: Callable[..., Any], kind: FixKind = "guard") -> FixVerdict:
    return judge(lambda p: p.log(), repaired, [underflowed()], kind=kind, rounded=True)


def _at(p: Any, value: Callable[[torch.finfo], float]) -> Any:
    return torch.where(p == 0, value(torch.finfo(p.dtype)), p).log()


def test_a_logarithm_of_what_underflowed_ends_at_the_smallest_normal_number() -> None:
    found = of_logarithm(lambda p: _at(p, lambda f: f.tiny))
    assert found.status == "guarded"
    assert reason_text(found).startswith(
        "what comes in was rounded on its way, so no exact value is known in 1 of 24 elements: -87.3 is given, and the "
        "gradient there is 0; an operand that rounds to the same may have -105.4; forward and backward finite; none of "
    )


def test_a_mean_whose_weights_are_all_0_is_0() -> None:
    found = judge(mean, _or_one, [weighted()], kind="guard")
    assert found.status == "guarded"
    assert reason_text(found).startswith("there is no exact value in 1 of 4 elements: 0 is given, and the gradient ")


@pytest.mark.parametrize(
    ("repaired", "kind"),
    [
        (lambda p: _at(p, lambda f: 1.0), "guard"),
        (lambda p: torch.where(p == 0, -1e4, torch.where(p == 0, 1, p).log()), "guard"),
        (lambda p: p.clamp_min(1e-10).log(), "epsilon"),
        (lambda p: p.clamp_min(1e-3).log(), "guard"),
        (lambda p: torch.nan_to_num(p.log(), neginf=-87.0), "guard"),
        (lambda p: _at(p, lambda f: f.tiny).detach(), "guard"),
        (lambda p: torch.full_like(p, -87.0), "guard"),
        (lambda p: torch.where(p < 0.1, torch.finfo(p.dtype).tiny, p).log(), "guard"),
    ],
    ids=[
        "far from what it may be",
        "beyond what it may be",
        "an epsilon that moves",
        "a clamp that moves",
        "a gradient left bad",
        "detached",
        "constant",
        "a condition that covers healthy ones",
    ],
)
def test_what_is_wrong_of_a_logarithm_is_not_guarded(repaired: Callable[..., Any], kind: FixKind) -> None:
    found = of_logarithm(repaired, kind)
    assert found.status in ("rejected", "unverified"), found
    assert not found.stand_ins


@pytest.mark.parametrize(
    "repaired",
    [
        lambda x, w: (x * w).sum(-1) / w.sum(-1).clamp_min(2.5e0 * 3),
        lambda x, w: torch.where(w.sum(-1) == 0, 50.0, _or_one(x, w)),
        lambda x, w: _or_one(x, w).detach(),
        lambda x, w: torch.zeros_like(mean(x, w)),
        lambda x, w: torch.nan_to_num(mean(x, w)),
    ],
    ids=["a clamp that moves", "larger than any", "detached", "constant", "cleaned"],
)
def test_what_is_wrong_of_a_mean_is_not_guarded(repaired: Callable[..., Any]) -> None:
    found = judge(mean, repaired, [weighted()], kind="guard")
    assert found.status in ("rejected", "unverified"), found
    assert not found.stand_ins


def test_where_an_exact_value_fits_the_dtype_nothing_else_may_stand() -> None:
    def entropy(x: Any) -> Any:
        return x.softmax(-1).log()

    x = drawn(3, 5)
    x[0, 0] = 200.0
    given = {"x": x.requires_grad_()}
    for repaired in (
        lambda x: torch.nan_to_num(entropy(x), neginf=-87.0),
        lambda x: _at(x.softmax(-1), lambda f: f.tiny),
        lambda x: entropy(x).clamp_min(-87.0),
    ):
        assert judge(entropy, repaired, [given], kind="guard", rounded=True).status == "rejected"


def ctc(repaired: Callable[..., Any]) -> FixVerdict:
    """Of a batch in which one target is longer than its input."""
    logs = drawn(6, 3, 5).log_softmax(-1).requires_grad_()
    return judge(lambda x: _ctc(x), repaired, [{"x": logs}], kind="guard")


def _ctc(x: Any, **given: Any) -> Any:
    return F.ctc_loss(x, torch.ones(3, 4, dtype=torch.long), (6, 2, 6), (2, 4, 1), reduction="none", **given)


@pytest.mark.breadth
def test_a_ctc_loss_of_a_target_without_an_alignment_is_0() -> None:
    found = ctc(lambda x: _ctc(x, zero_infinity=True))
    assert found.status == "guarded"
    assert reason_text(found).startswith(
        "the exact value is infinite in 1 of 3 elements: 0 is given, and the gradient there is 0; forward and"
    )


@pytest.mark.parametrize(
    "repaired",
    [
        lambda x: _ctc(x, blank=1),
        lambda x: _ctc(x, blank=4, zero_infinity=True),
        lambda x: 0 * _ctc(x, zero_infinity=True),
        lambda x: torch.where(_ctc(x) == float("inf"), -1.0, _ctc(x, zero_infinity=True)),
        lambda x: _ctc(x.detach(), zero_infinity=True) + 0 * x.sum(),
    ],
)
def test_what_is_wrong_of_a_ctc_loss_is_not_guarded(repaired: Callable[..., Any]) -> None:
    assert ctc(repaired).status not in ("verified", "guarded")


def test_a_direction_of_nothing_lies_between_those_that_it_may_be() -> None:
    x = drawn(4, 3)
    x[1] = 0.0

    def over_norm(x: Any, given: float) -> Any:
        size = x.norm(dim=-1, keepdim=True)
        return torch.where(size == 0, given, x / torch.where(size == 0, 1, size))

    def judged(given: float) -> FixVerdict:
        visit = {"x": x.clone().requires_grad_()}
        return judge(
            lambda x: x / x.norm(dim=-1, keepdim=True),
            lambda x: over_norm(x, given),
            [visit],
            kind="guard",
            rounded=True,
        )

    assert judged(0.0).status == "guarded"
    assert judged(0.9).status == "unverified"


def test_a_number_for_a_pole_is_stated_with_its_gradient() -> None:
    given = [{"x": torch.tensor([0.0, 1.0, 4.0, 9.0], requires_grad=True)}]
    found = judge(torch.sqrt, lambda x: torch.where(x == 0, 0, torch.where(x == 0, 1, x).sqrt()), given, kind="guard")
    assert found.status == "guarded"
    assert reason_text(found).startswith(
        "the exact gradient is infinite in 1 of 4 elements: 0 is given; forward and backward finite; none of "
    )
    found = judge(torch.reciprocal, lambda x: torch.where(x == 0, 1, x).reciprocal(), given, kind="guard")
    assert reason_text(found).startswith(
        "the exact value is infinite in 1 of 4 elements: 1 is given, and the gradient there is 0; forward and "
    )


def _but_at_0(power: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: torch.where(x == 0, 0, power(torch.where(x == 0, 1, x)))


@pytest.mark.parametrize(
    ("original", "repaired"),
    [
        (lambda x: x.abs() ** 0.3, _but_at_0(lambda x: x.abs() ** 0.3)),
        (lambda x: x.sign() * x.abs().sqrt(), _but_at_0(lambda x: x.sign() * x.abs().sqrt())),
        (lambda x: torch.xlogy(x, x), _but_at_0(lambda x: torch.xlogy(x, x))),
    ],
)
def test_a_gradient_of_0_for_a_slope_that_is_infinite_on_both_sides_is_stated(
    original: Callable[[Any], Any], repaired: Callable[[Any], Any]
) -> None:
    given = [{"x": torch.tensor([0.0, 1.0, 0.25, 9.0], requires_grad=True)}]
    found = judge(original, repaired, given, kind="guard")
    assert (found.status, [one.output for one in found.stand_ins]) == ("guarded", [None])


def test_so_is_that_of_a_root_of_a_complex_magnitude() -> None:
    z = torch.complex(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 0.5, -1.0])).requires_grad_()
    root = _but_at_0(lambda size: size**0.3)
    found = judge(lambda z: z.abs() ** 0.3, lambda z: root(z.abs()), [{"z": z}], kind="guard")
    assert found.status == "guarded"


def test_a_gradient_of_0_at_a_kink_is_not() -> None:
    given = [{"x": torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, -1.0]], requires_grad=True)}]

    def norm(x: Any) -> Any:
        return (x * x).sum(1).sqrt()

    def mended(x: Any) -> Any:
        squares = (x * x).sum(1)
        return torch.where(squares == 0, 0, torch.where(squares == 0, 1, squares).sqrt())

    assert judge(norm, mended, given, kind="guard").status == "verified"


def test_a_number_for_what_is_out_of_range_is_stated() -> None:
    given = [{"x": torch.tensor([1.0, 2.0, 100.0])}]
    largest = torch.finfo(torch.float32).max
    found = judge(torch.exp, lambda x: x.exp().clamp(max=largest), given, kind="guard")
    assert reason_text(found).startswith(
        "the exact value is out of range in 1 of 3 elements: 3.4e38 is given for 2.69e43; forward "
    )


def test_a_number_for_what_float64_cannot_hold_either_is_stated() -> None:
    def held(x: Any) -> Any:
        value = x.exp()
        return torch.where(value > torch.finfo(x.dtype).max, torch.finfo(x.dtype).max, value)

    found = judge(torch.exp, held, [{"x": torch.tensor([710.0, 3.0])}], kind="guard")
    assert found.status == "guarded"
    assert [(s.lack, s.count, s.exact_least) for s in found.stand_ins] == [("beyond", 1, None)]
    assert reason_text(found).startswith("the exact value is out of range in 1 of 2 elements: 3.4e38 is given; ")


def test_a_limit_needs_no_statement() -> None:
    def mended(x: Any) -> Any:
        safe = torch.where(x == 0, 1, x)
        return torch.where(x == 0, 1, safe.sin() / safe)

    given = [{"x": torch.tensor([0.0, 1.0, -2.0, 3.0], requires_grad=True)}]
    assert judge(lambda x: x.sin() / x, mended, given, kind="guard").status == "verified"


def shares(x: Any) -> Any:
    return x.amin(1) / x.amax(1)


def first_shares(x: Any) -> Any:
    return x.min(dim=1)[0] / x.max(dim=1)[0]


@pytest.mark.parametrize("original", [shares, first_shares])
def test_which_is_the_largest_beside_a_tie_is_no_limit(original: Any) -> None:
    """The least and the largest of zeros are one element there, and any two beside them."""

    def mended(x: Any, given: float) -> Any:
        return torch.where(x.amax(1) == 0, given, original(torch.where(x.amax(1, keepdim=True) == 0, 1, x)))

    x = torch.tensor([[0.0, 0.0], [1.0, 3.0], [2.0, 5.0], [0.5, 0.25]])
    for given in (0.0, 1.0):
        found = judge(original, lambda x, given=given: mended(x, given), [{"x": x}], kind="guard")
        assert found.status == "guarded", found.why


def test_a_quotient_of_two_that_vanish_at_different_rates_has_no_limit() -> None:
    """The one is a million times as large as the other where they are not 0."""

    def mended(x: Any, y: Any) -> Any:
        return (x / torch.where(torch.logical_and(x == 0, y == 0), 1, y)).clamp(max=1.0)

    given = [{"x": torch.zeros(4) * 1e-4, "y": torch.zeros(4)}, {"x": torch.full((4,), 1e-6), "y": torch.ones(4)}]
    found = judge(lambda x, y: (x / y).clamp(max=1.0), mended, given, kind="guard")
    assert found.status == "guarded", found.why
    assert "there is no exact value" in reason_text(found)


def test_a_limit_is_one_along_opposite_signs_too() -> None:
    """It is 0 where both have one sign, and 1 where one is the other's opposite."""

    def original(a: Any, b: Any) -> Any:
        return (a.abs() + b.abs() - (a + b).abs()) / (a.abs() + b.abs())

    def mended(a: Any, b: Any) -> Any:
        below = a.abs() + b.abs()
        return (below - (a + b).abs()) / torch.where(below == 0, 1, below)

    given = [{"a": torch.tensor([0.0, 1.0, -2.0, 3.0]), "b": torch.tensor([0.0, -0.5, 1.0, 2.0])}]
    assert judge(original, mended, given, kind="guard").status == "guarded"


def steep() -> dict[str, Any]:
    """Probabilities, two of them below the smallest normal number, where 1 / p is out of range."""
    return {"p": torch.tensor([0.3, 1e-42, 1e-40, 1.0]).requires_grad_()}


def test_a_logarithm_may_end_where_its_slope_leaves_the_range() -> None:
    tiny = torch.finfo(torch.float32).tiny
    found = judge(torch.log, lambda input: input.clamp(min=tiny).log(), [{"input": steep()["p"]}], kind="guard")
    assert (found.status, [s.lack for s in found.stand_ins]) == ("guarded", ["steep"])
    assert reason_text(found).startswith(
        "the gradient of the exact value is out of range in 2 of 4 elements: -87.3 is given for -96.7 to -92.1, "
        "and the gradient there is 0; forward and backward finite; none of "
    )


@pytest.mark.parametrize("least", [1e-20, 1e-6])
def test_where_its_slope_is_in_range_it_may_not_end(least: float) -> None:
    found = judge(torch.log, lambda input: input.clamp(min=least).log(), [{"input": steep()["p"]}], kind="guard")
    assert found.status == "distorting"


def met() -> dict[str, Any]:
    a = torch.tensor([0.3, -float("inf"), 1.0], requires_grad=True)
    return {"a": a, "b": torch.tensor([1.0, -float("inf"), 1.0], requires_grad=True)}


def test_the_gradient_of_what_has_no_value_is_no_healthy_one() -> None:
    """That of a difference is 1 where both sides are infinite, too."""

    def guarded(a: Any, b: Any) -> Any:
        return torch.where((a == b) & torch.isinf(a), 0, a - b)

    assert judge(torch.sub, named(guarded), [renamed(met())], kind="guard").status == "guarded"


def test_a_gradient_that_is_lost_elsewhere_is_found_all_the_same() -> None:
    def detached(a: Any, b: Any) -> Any:
        return torch.where((a == b) & torch.isinf(a), 0, (a - b).detach())

    assert judge(torch.sub, named(detached), [renamed(met())], kind="guard").status == "rejected"


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda input, other: function(input, other)


def renamed(given: dict[str, Any]) -> dict[str, Any]:
    return {"input": given["a"], "other": given["b"]}


def test_a_limit_may_be_larger_than_all_that_is_healthy() -> None:
    """sin(k x) / x comes to k at 0, and nothing else there is half as large."""
    given = [{"k": torch.tensor([3.0, 5.0]), "x": torch.tensor([[0.0], [2.0], [3.0]])}]

    def mended(k: Any, x: Any) -> Any:
        return torch.where(x == 0, k, (k * x).sin() / torch.where(x == 0, 1, x))

    def halved(k: Any, x: Any) -> Any:
        return torch.where(x == 0, k / 2, (k * x).sin() / torch.where(x == 0, 1, x))

    verdicts = [judge(lambda k, x: (k * x).sin() / x, one, given, kind="reformulation") for one in (mended, halved)]
    assert [found.status for found in verdicts] == ["verified", "rejected"]


def trap(x: Any) -> Any:
    return torch.where(x > 0, x.sqrt(), x - 3)


def wrong_trap(x: Any) -> Any:
    """The derivative is mended, and a constant that has nothing to do with it is another."""
    return torch.where(x > 0, torch.where(x > 0, x, 1).sqrt(), x - 1.8)


def limited(y: Any) -> Any:
    return torch.where(y == 0, 1, y.sin() / torch.where(y == 0, 1, y))


def ended(x: Any) -> Any:
    return x.clamp(min=torch.finfo(x.dtype).tiny).log()


def lost_beside(a: Any, b: Any) -> Any:
    """A second output whose gradients are lost where the first has no value."""
    first = torch.where(a < 0, 0, torch.where(a < 0, 1, a).log() - b)
    return first, torch.where(a < 0, a.detach(), a) * torch.where(a < 0, b.detach(), b)


def lost_row(a: Any, b: Any) -> Any:
    """A product whose second factor has lost the gradient of a row of the same number."""
    return torch.where(a < 0, 0, torch.where(a < 0, 1, a).log()) @ torch.cat([b[:1].detach(), b[1:]])


SQUARE = torch.tensor([[0.7, -1.0, 1.2], [1.1, 0.8, 0.6], [0.9, 1.3, 0.5]])
NOT_STATED = {
    "a constant beside a mended derivative": (trap, wrong_trap, {"x": [4.0, -1.0, 0.5, 9.0, 2.0, 1.5]}),
    "a value moved at a pole of its derivative": (
        lambda x: x.sqrt() + 5,
        lambda x: torch.where(x == 0, 3, torch.where(x == 0, 1, x).sqrt() + 5),
        {"x": [4.0, 0.0, 0.5, 9.0]},
    ),
    "what is moved on fresh inputs alone": (
        lambda x, y: x.log() + y.sin() / y,
        lambda x, y: ended(x) + limited(y),
        {"x": [4.0, 1.0, 0.5, 9.0], "y": [1.0, 0.0, 2.0, 3.0]},
    ),
    "a gradient of another output": (
        lambda a, b: (a.log() - b, a * b),
        lost_beside,
        {"a": [0.3, -2.0, 1.0, 4.0], "b": [1.0, 3.0, 1.0, 2.0]},
    ),
    "a gradient of the same place in a square": (
        lambda a, b: a.log() @ b,
        lost_row,
        {"a": SQUARE.tolist(), "b": SQUARE.abs().tolist()},
    ),
}


@pytest.mark.parametrize("why", list(NOT_STATED))
def test_what_is_not_stated_is_not_excused(why: str) -> None:
    original, repaired, given = NOT_STATED[why]
    values = {name: torch.tensor(numbers, requires_grad=True) for name, numbers in given.items()}
    assert judge(original, repaired, [values], kind="guard").status in ("rejected", "distorting")


def test_what_is_stated_of_a_large_input_is_known_of_a_part_of_it() -> None:
    """Of the part that is looked at a sum is another, and so may be the value there."""
    x, y = torch.linspace(0.5, 1.5, 400), torch.full((400,), 0.2)
    x[3] = 1e-40
    given = {"x": x.requires_grad_(), "y": y}
    found = judge(lambda x, y: x.log() + y.sum(), lambda x, y: ended(x) + y.sum(), [given], kind="guard")
    assert found.status == "distorting"
    found = judge(lambda x: x.log(), ended, [{"x": given["x"]}], kind="guard")
    assert (found.status, [s.count for s in found.stand_ins]) == ("guarded", [None])


def test_an_infinity_that_is_meant_is_healthy_and_one_of_another_sign_is_not() -> None:
    def bias(m: Any, x: Any) -> Any:
        return torch.where(m > 0, torch.exp(x), m * -torch.inf)

    given = {"m": torch.tensor([1.0, 1.0, 0.0, -1.0]), "x": torch.tensor([200.0, 1.0, 2.0, 3.0])}
    mended = {"m": given["m"].clamp(min=0.0), "x": given["x"].clamp(max=3.0)}
    fixed = judge(bias, lambda m, x: torch.where(m > 0, torch.exp(x), 0.0), [given], kind="guard", infinite=-torch.inf)
    assert (fixed.status, "still Inf" in fixed.why) == ("rejected", True)
    hidden = {"m": torch.tensor([0.0, 1.0]), "x": torch.ones(2)}
    found = judge(
        lambda m, x: x + m * -torch.inf,
        lambda m, x: x + torch.where(m == 0, 0, -torch.inf),
        [hidden],
        kind="guard",
        infinite=-torch.inf,
    )
    assert found.status == "guarded"
    assert found.forward_finite is None
    assert "finite but for the -Inf that the program writes" in found.why
    assert torch.isfinite(bias(**mended)[0])


def test_a_quotient_of_nothing_is_stated_beside_a_logarithm_too() -> None:
    def gain(x: Any) -> Any:
        return ((2**x - 1) / torch.log2(torch.arange(2.0, x.shape[1] + 2))).sum(1)

    def ndcg(x: Any, y: Any, found: Callable[[Any], Any]) -> Any:
        return gain(x) / found(gain(y))

    grades = torch.tensor([[3.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 2.0]])
    found = judge(
        lambda x, y: ndcg(x, y, lambda total: total),
        lambda x, y: ndcg(x, y, lambda total: torch.where(total == 0, 1, total)),
        [{"x": grades.flip(1), "y": grades.sort(1, descending=True).values}],
        kind="guard",
    )
    assert found.status == "guarded"
    assert [(given.lack, given.count) for given in found.stand_ins] == [("undefined", 1)]


def difference() -> dict[str, Any]:
    """Sides of a difference that rounding makes equal in the first."""
    return {"a": torch.tensor([1e8, 2.0, 3.0, 5.0]), "b": torch.ones(4)}


def quotient(a: Any, b: Any) -> Any:
    return 1 / ((a + b) - a)


def zeroed(a: Any, b: Any) -> Any:
    d = (a + b) - a
    return torch.where(d == 0, 0, 1 / torch.where(d == 0, 1, d))


def test_a_number_far_from_one_that_rounding_has_lost_is_stated() -> None:
    found = judge(quotient, zeroed, [difference()], kind="guard")
    assert (found.status, [s.lack for s in found.stand_ins]) == ("guarded", ["rounding"])
    assert reason_text(found).startswith(
        "rounding leaves no digit of the exact value in 1 of 4 elements: 0 is given for 1; forward finite; none of "
    )


def test_of_the_exact_number_nothing_is_stated_though_rounding_had_lost_it() -> None:
    def mended(a: Any, b: Any) -> Any:
        d = (a + b) - a
        return torch.where(d == 0, 1 / b, 1 / torch.where(d == 0, 1, d))

    assert judge(quotient, mended, [difference()], kind="guard").status == "verified"


def test_a_number_near_to_the_lost_one_by_what_is_usual_needs_no_statement() -> None:
    given = [{"x": torch.tensor([[1.0, 2.0, 3.0], [1e-4, -0.0, 1e-4], [2.0, -1.0, 0.5]])}]

    def deviation(x: Any) -> Any:
        return ((x * x).mean(-1) - x.mean(-1) ** 2 - 1e-7).sqrt()

    def clamped(x: Any) -> Any:
        return ((x * x).mean(-1) - x.mean(-1) ** 2 - 1e-7).clamp(min=0).sqrt()

    found = judge(deviation, clamped, given, kind="guard")
    assert "rounding" not in [s.lack for s in found.stand_ins]
