"""The verdict of a fix, and its reason as the user reads it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

from whynan.verify import truth
from whynan.verify import verdict as judging
from whynan.verify.oracle import TimeIsOverError, ends_at
from whynan.verify.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from syrupy.assertion import SnapshotAssertion

    from whynan.records.intents import FixKind
    from whynan.records.report import FixVerdict

EPS = 1e-7


def drawn(*shape: int, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def logits() -> dict[str, Any]:
    x = drawn(6, 8)
    x[0, 0] = 300.0
    return {"x": x.requires_grad_()}


def with_zero() -> dict[str, Any]:
    x = drawn(6, 8)
    x[1, 2] = 0.0
    return {"x": x.requires_grad_()}


def points() -> dict[str, Any]:
    y, x = drawn(6, 8), drawn(6, 8, seed=1)
    y[0, 0] = x[0, 0] = 1e-20
    return {"y": y.requires_grad_(), "x": x.requires_grad_()}


def angle(y: Any, x: Any) -> Any:
    return torch.atan2(y, x)


def clobbered(y: Any, x: Any) -> Any:
    near = x < EPS
    return torch.atan2(y, x * ~near + near * EPS)


def log_softmax(x: Any) -> Any:
    return x.softmax(-1).log()


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[[], dict[str, Any]], FixKind]] = {
    "verified": (log_softmax, lambda x: x.log_softmax(-1), logits, "reformulation"),
    "verified guard": (lambda x: 1 / x, lambda x: 1 / torch.where(x == 0, 1.0, x), with_zero, "guard"),
    "remains": (
        lambda x: (x * x).sum(-1).sqrt() / x.prod(-1),
        lambda x: (x * x).sum(-1).sqrt() / torch.where(x.prod(-1) == 0, 1.0, x.prod(-1)),
        with_zero,
        "guard",
    ),
    "distorting": (lambda x: x.abs().sqrt(), lambda x: (x.abs() + 1e-12).sqrt(), with_zero, "epsilon"),
    "distorting angle": (angle, lambda y, x: torch.atan2(y, x + EPS), points, "epsilon"),
    "clobbered": (angle, clobbered, points, "guard"),
    "not cured": (angle, lambda y, x: torch.atan2(y, x + EPS * (x == 0)), points, "epsilon"),
    "made up": (log_softmax, lambda x: x.softmax(-1).clamp_min(1e-30).log(), logits, "guard"),
    "further": (log_softmax, lambda x: x.log_softmax(0), logits, "reformulation"),
    "constant": (log_softmax, torch.zeros_like, logits, "reformulation"),
    "detached": (log_softmax, lambda x: x.log_softmax(-1).detach(), logits, "reformulation"),
    "healthy lost": (
        lambda x: 1 / x,
        lambda x: 1 / torch.where(x == 0, 1.0, torch.where(x.abs() > 4, x, x - x.detach() * (x.abs() > 2.6))),
        with_zero,
        "guard",
    ),
    "raises": (log_softmax, lambda x: x.no_such_method(), logits, "reformulation"),
    "shape": (log_softmax, lambda x: x.log_softmax(-1).sum(-1), logits, "reformulation"),
    "dtype": (log_softmax, lambda x: x.log_softmax(-1).double(), logits, "reformulation"),
    "fewer": (lambda x: (x.exp(), log_softmax(x)), lambda x: x.log_softmax(-1), logits, "reformulation"),
    "healthy by itself": (lambda x: x.exp(), lambda x: x.exp(), with_zero, "guard"),
    "original raises": (lambda x: x.no_such_method(), lambda x: x, logits, "guard"),
}


def verdict(name: str) -> FixVerdict:
    original, repaired, inputs, kind = CASES[name]
    return judge(original, repaired, [inputs()], kind=kind)


@pytest.mark.parametrize("name", CASES)
def test_every_reason_is_a_line_that_a_user_can_read(name: str, snapshot: SnapshotAssertion) -> None:
    found = verdict(name)
    assert "\n" not in found.why
    # how many are like this depends on torch's own kernels
    counts = re.sub(r"\d[\d,]*(?= (healthy|of|undecided|bad))|[\d.]+%", "N", found.why)
    assert (found.status, counts) == snapshot


def test_a_verified_fix_says_how_many_elements_it_was_judged_on() -> None:
    found = verdict("verified")
    assert found.forward_finite is True
    assert found.backward_finite is True
    assert found.healthy_worse == 0
    assert (found.healthy_elements or 0) > 1000
    assert f"{found.healthy_elements:,}" in found.why


def test_half_of_the_healthy_values_are_counted() -> None:
    found = verdict("clobbered")
    assert found.status == "rejected"
    assert found.healthy_worse is not None
    assert found.healthy_elements is not None
    assert 0.4 < found.healthy_worse / found.healthy_elements < 0.9


def test_nothing_captured_is_no_verdict() -> None:
    assert judge(log_softmax, log_softmax, [], kind="guard").status == "unverified"


def test_without_gradients_the_forward_alone_is_judged() -> None:
    visit = {"x": logits()["x"].detach()}
    found = judge(log_softmax, lambda x: x.log_softmax(-1), [visit], kind="reformulation")
    assert found.status == "verified"
    assert found.backward_finite is None
    assert found.why.startswith("forward finite; none of")


def test_the_gradient_that_came_in_decides_whether_the_input_fails() -> None:
    def original(x: Any) -> Any:
        return x * 1e20 * 1e19

    visit = {"x": (drawn(20) * 1e-5).requires_grad_()}
    small = {**visit, "": torch.full((20,), 1e-10)}
    assert judge(original, original, [small], kind="guard").why == "what was captured does not fail by itself"
    assert judge(original, original, [visit], kind="guard").why.startswith("still ")


def halves() -> dict[str, Any]:
    return {"x": torch.tensor([[1000.0, 500.0], [1.0, 2.0]], dtype=torch.float16, requires_grad=True)}


def over_root_mean_square(x: Any) -> Any:
    return x / torch.sqrt(torch.mean(x**2, -1, keepdim=True) + 1e-6)


def over_wide_root_mean_square(x: Any) -> Any:
    return over_root_mean_square(x.float()).type_as(x)


SILENT: dict[str, Callable[..., Any]] = {
    "mended": over_wide_root_mean_square,
    "not mended": lambda x: x / torch.sqrt(torch.mean(x * x, -1, keepdim=True) + 1e-6),
    "constant": lambda x: over_root_mean_square(x) * 0 + 0.3,
    "detached": lambda x: over_wide_root_mean_square(x).detach(),
    "bad now": lambda x: x / (over_root_mean_square(x) - over_root_mean_square(x)),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_is_finite_and_wrong_has_to_come_near_the_exact_value(name: str, snapshot: SnapshotAssertion) -> None:
    assert over_root_mean_square(**halves()).isfinite().all()
    found = judge(over_root_mean_square, SILENT[name], [halves()], kind="reformulation")
    assert (found.status == "verified") == (name == "mended")
    assert re.sub(r"\d[\d,]*(?= (healthy|of|undecided|bad))", "N", found.why) == snapshot


def test_a_large_silent_input_is_cut_down_and_judged() -> None:
    large = {"x": torch.cat([halves()["x"].detach()] * 40).tile(1, 8).requires_grad_()}
    assert judge(over_root_mean_square, over_wide_root_mean_square, [large], kind="reformulation").status == "verified"
    assert judge(over_root_mean_square, SILENT["constant"], [large], kind="reformulation").status == "rejected"


def test_whole_numbers_have_to_be_the_same_where_nothing_is_bad() -> None:
    def original(x: Any) -> Any:
        return x.log(), (4 * x).int(), x > 0

    def mended(x: Any, *, scale: float = 4.0, least: float = 0.0) -> Any:
        return torch.where(x == 0, 1e-38, x).log(), (scale * x).int(), x > least

    visits = [{"x": torch.tensor([0.0, 1.0, 2.0])}, {"x": torch.tensor([0.5, 1.0, 2.0])}]
    assert judge(original, mended, visits, kind="guard").status == "guarded"
    found = judge(original, lambda x: mended(x, scale=5.0), visits, kind="guard")
    assert found.status == "rejected"
    assert found.why == "gives 5 where the original gives 4, in 2 of 3 elements"
    assert judge(original, lambda x: mended(x, least=1.0), visits, kind="guard").status == "rejected"


def test_whole_numbers_alone_are_not_judged() -> None:
    visit = {"x": torch.tensor([0.0, 1.0])}
    found = judge(lambda x: x.log().int(), lambda x: (x + 1).log().int(), [visit], kind="guard")
    assert (found.status, found.why) == ("unverified", "it gives no floating-point number that could be judged")


def test_a_lost_gradient_is_rejected_where_few_healthy_inputs_are_like_the_run() -> None:
    def root(x: Any) -> Any:
        return torch.mean(x**3, -1) ** (1 / 3)

    def guarded(x: Any) -> Any:
        base = torch.mean(x**3, -1)
        return torch.where(base == 0, 0, torch.where(base == 0, 1, base) ** (1 / 3))

    visit = {"x": torch.zeros(3, requires_grad=True)}
    assert judge(root, guarded, [visit], kind="guard").status == "verified"
    assert judge(root, lambda x: guarded(x).detach(), [visit], kind="guard").status == "rejected"


def test_the_last_visits_are_looked_at_as_far_as_memory_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    healthy: dict[str, Any] = {"x": drawn(6, 8).requires_grad_()}
    repaired: Any = lambda x: x.log_softmax(-1)
    assert judge(log_softmax, repaired, [logits(), healthy], kind="reformulation").status == "verified"
    monkeypatch.setattr(judging, "ELEMENTS", 60)
    assert judge(log_softmax, repaired, [logits(), healthy], kind="reformulation").status == "unverified"
    assert judge(log_softmax, repaired, [healthy, logits()], kind="reformulation").status == "verified"


def test_a_large_captured_input_is_judged_in_the_rows_that_matter() -> None:
    x = drawn(300, 500)
    x[17, 3] = 300.0
    visit = {"x": x.requires_grad_()}
    assert judge(log_softmax, lambda x: x.log_softmax(-1), [visit], kind="reformulation").status == "verified"
    wrong = judge(log_softmax, lambda x: (x.softmax(-1) + 1e-30).log(), [visit], kind="reformulation")
    assert wrong.status == "rejected"
    assert "-69.1" in wrong.why


def test_an_operator_that_the_oracle_lacks_leaves_a_fix_unverified(snapshot: SnapshotAssertion) -> None:
    def original(x: Any) -> Any:
        return torch.linalg.matrix_exp(x[:4, :4]).sum() + log_softmax(x)

    def repaired(x: Any) -> Any:
        return torch.linalg.matrix_exp(x[:4, :4]).sum() + x.log_softmax(-1)

    x = drawn(6, 8)
    x[5, 0] = 300.0
    found = judge(original, repaired, [{"x": x.requires_grad_()}], kind="reformulation")
    assert found.status == "unverified"
    assert found.undecided
    assert re.sub(r"\d+ elements", "N elements", found.why) == snapshot


def test_inputs_and_random_states_are_left_as_they_were() -> None:
    visit = logits()
    before, state = visit["x"].detach().clone(), torch.get_rng_state()
    judge(
        lambda x: F.dropout(x.softmax(-1).log_(), 0.5),
        lambda x: F.dropout(x.log_softmax(-1), 0.5),
        [visit],
        kind="reformulation",
    )
    assert torch.equal(before, visit["x"])
    assert visit["x"].grad is None
    assert torch.equal(state, torch.get_rng_state())


def test_what_is_drawn_at_random_is_drawn_alike() -> None:
    found = judge(
        lambda x: F.dropout(x.softmax(-1).log(), 0.5),
        lambda x: F.dropout(x.log_softmax(-1), 0.5),
        [logits()],
        kind="reformulation",
    )
    assert found.status == "verified"


def test_an_infinity_that_comes_in_is_passed_on() -> None:
    x = logits()["x"].detach()
    x[3, 3] = -torch.inf
    found = judge(log_softmax, lambda x: x.log_softmax(-1), [{"x": x}], kind="reformulation")
    assert found.status == "verified"


def test_what_is_not_cured_is_rejected_without_asking_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    def unasked(*given: Any, **named: Any) -> Any:
        raise AssertionError("the oracle was asked")

    monkeypatch.setattr(judging, "truths", unasked)
    assert verdict("not cured").status == "rejected"


def probabilities() -> dict[str, Any]:
    p = drawn(6, 8).sigmoid()
    p[0, 0], p[1, 1] = 1.0, 0.0
    return {"p": p.requires_grad_()}


def guarded(p: Any) -> Any:
    q = 1 - p
    return torch.where(q == 0, torch.finfo(q.dtype).tiny, q).log()


def test_a_guard_of_what_was_rounded_before_is_not_verified() -> None:
    def judged(rounded: bool) -> FixVerdict:
        return judge(lambda p: (1 - p).log(), guarded, [probabilities()], kind="guard", rounded=rounded)

    assert [s.lack for s in judged(False).stand_ins] == ["infinite"]
    assert judged(True).status == "unverified"
    assert judged(True).why == (
        "what comes in was rounded on its way, so the exact value is not known: the fix gives -87.3; an operand that "
        "rounds to the same may have -18.02"
    )


def test_of_a_guard_that_holds_for_whatever_was_rounded_only_the_gradient_is_stated() -> None:
    def product(p: Any) -> Any:
        return p * p.log()

    def mended(p: Any) -> Any:
        safe = torch.where(p > 0, p, 1.0)
        return torch.where(p > 0, p * safe.log(), torch.zeros_like(p))

    found = judge(product, mended, [probabilities()], kind="guard", rounded=True)
    assert found.status == "guarded"
    assert [(s.output, s.least, s.greatest) for s in found.stand_ins] == [(None, 0, 0)]


@pytest.mark.breadth
def test_a_gradient_that_cancels_to_nothing_has_the_noise_of_its_terms() -> None:
    x = {"x": (drawn(6, 8, seed=1) + 200).requires_grad_()}

    def softmax(x: Any) -> Any:
        return x.exp() / x.exp().sum(-1, keepdim=True)

    assert judge(softmax, lambda x: x.softmax(-1), [x], kind="reformulation").status == "verified"
    wrong = judge(softmax, lambda x: x.softmax(-1) + 1e-6 * x.sin(), [x], kind="reformulation")
    assert wrong.status == "rejected"


def sequence(p: Any) -> Any:
    return p.prod(-1).log()


@pytest.mark.parametrize("length", [60, 400])
def test_a_product_of_many_factors_is_judged_whole(length: int) -> None:
    # cut down to a few factors it would not be 0 any more
    visit = {"p": torch.full((2, length), 0.01).requires_grad_()}
    tiny = torch.finfo(torch.float32).tiny
    guard = judge(sequence, lambda p: torch.where((q := p.prod(-1)) == 0, tiny, q).log(), [visit], kind="guard")
    assert guard.status == "rejected"
    assert guard.why.startswith("the value is -87.3 where the exact one is ")


def test_what_is_too_large_for_the_oracle_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "_MOST_WHOLE", 500)
    visit = {"p": torch.full((2, 400), 0.01).requires_grad_()}
    found = judge(sequence, lambda p: p.prod(-1).clamp_min(1e-38).log(), [visit], kind="guard")
    assert found.status == "unverified"
    assert found.why.startswith("exact values are not known of inputs as large as the captured ones, so ")
    assert found.undecided


@pytest.mark.parametrize(
    ("original", "right", "wrong", "given"),
    [
        (
            lambda x: x.std(),
            lambda x: x.std() if x.numel() > 1 else x.new_zeros(()),
            lambda x: x.std(correction=0),
            {"x": torch.ones(1)},
        ),
        (
            lambda x, m: x[m].mean(),
            lambda x, m: x[m].sum() / m.sum().clamp_min(1),
            lambda x, m: x[m].sum() / 5,
            {"x": torch.randn(5), "m": torch.zeros(5, dtype=torch.bool)},
        ),
        (
            lambda a, b: a / b,
            lambda a, b: a / torch.where(b == 0, 1, b),
            lambda a, b: torch.where(b == 0, 1.0, 2.0),
            {"a": torch.zeros(()), "b": torch.zeros(())},
        ),
    ],
    ids=["one element", "an empty mask", "nothing but zeros"],
)
def test_where_nothing_healthy_was_captured_other_sizes_and_values_are_tried(
    original: Any, right: Any, wrong: Any, given: dict[str, Any]
) -> None:
    stated = judge(original, right, [given], kind="guard")
    assert stated.status == "guarded"
    assert [(s.lack, s.least, s.greatest, s.count, s.total) for s in stated.stand_ins] == [("undefined", 0, 0, 1, 1)]
    found = judge(original, wrong, [given], kind="guard")
    assert found.status == "rejected"
    assert found.healthy_elements


def test_where_nothing_can_be_healthy_nothing_is_verified() -> None:
    def original(x: Any) -> Any:
        return x.sum() / 0.0

    found = judge(original, lambda x: x.sum() * 0.0, [{"x": torch.zeros(3)}], kind="guard")
    assert (found.status, found.why) == ("unverified", "nothing healthy is known that it could be compared on")


@pytest.mark.parametrize("given", [0.0, 7.0])
def test_a_value_that_has_a_limit_is_that(given: float) -> None:
    x = drawn(6)
    x[2] = 0.0

    def repaired(x: Any) -> Any:
        return torch.where(x == 0, given, torch.sin(x) / torch.where(x == 0, 1, x))

    found = judge(lambda x: torch.sin(x) / x, repaired, [{"x": x}], kind="guard")
    assert found.status == "rejected"
    assert "undefined" in found.why


def test_complex_inputs_are_judged() -> None:
    z = torch.complex(drawn(8, 8), drawn(8, 8, seed=1))
    z[0, 0] = 0

    def original(z: Any) -> Any:
        return (z.real / z.abs()).sum(-1)

    found = judge(original, lambda z: (z.real / z.abs().clamp_min(1e-30)).sum(-1), [{"z": z}], kind="guard")
    assert found.status == "distorting"  # it moves numbers below 1e-30


def test_a_complex_quotient_is_judged_by_its_parts() -> None:
    z = torch.complex(drawn(8, 8), drawn(8, 8, seed=1))
    z[0, 0] = 0

    def repaired(z: Any, shift: float = 0.0) -> Any:
        size = z.abs()
        return z / torch.where(size == 0, 1, size + shift)

    assert judge(lambda z: z / z.abs(), repaired, [{"z": z}], kind="guard").status == "guarded"
    assert judge(lambda z: z / z.abs(), lambda z: repaired(z, 0.1), [{"z": z}], kind="guard").status == "rejected"


def below(operand: Any, least: Callable[[torch.finfo], float]) -> Any:
    return torch.log(torch.where(operand <= 0, least(torch.finfo(operand.dtype)), operand))


@pytest.mark.parametrize("eps", [1e-8, 1e-7, 1e-6])
@pytest.mark.parametrize("saturated", [True, False])
def test_a_logarithm_out_of_its_domain_by_rounding_is_no_logarithm_of_zero(eps: float, saturated: bool) -> None:
    def margin(z: Any) -> Any:
        return 1 - (torch.sigmoid(z) if saturated else z) - eps

    z = torch.tensor([0.5, 40.0, 1.0] if saturated else [0.5, 1.0, 0.25], requires_grad=True)
    told = [
        judge(lambda z: torch.log(margin(z)), lambda z, least=least: below(margin(z), least), [{"z": z}], kind="guard")
        for least in (lambda f: f.tiny, lambda f: f.eps)
    ]
    assert [verdict.status for verdict in told] == ["rejected", "verified"], told


def test_a_logarithm_of_what_is_negative_by_far_may_be_that_of_zero() -> None:
    x = torch.tensor([0.5, -3.0, 1.0], requires_grad=True)
    assert judge(torch.log, lambda input: below(input, lambda f: f.tiny), [{"input": x}], kind="guard").status == (
        "guarded"
    )


def energy(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum(-1)


HALVES = [{"x": torch.linspace(-200, 300, 24).reshape(3, 8).half()}]


def test_a_wider_dtype_is_taken_where_it_is_asked_for_alone() -> None:
    def wide(x: torch.Tensor) -> torch.Tensor:
        return (x.float() * x.float()).sum(-1)

    said = judge(energy, wide, HALVES, kind="reformulation", widens=True)
    assert said.status == "verified"
    assert said.why.endswith("; its value stays float32 from there on, for it does not fit float16")
    said = judge(energy, wide, HALVES, kind="reformulation")
    assert (said.status, said.why) == ("rejected", "gives float32[3] where the original gives float16[3]")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: torch.full((x.shape[0],), 1e5),
        lambda x: (x.float() * x.float()).sum(-1) * 1.01,
        lambda x: (x.float() * x.float()).sum(-1).clamp(max=9e4),
        lambda x: torch.nan_to_num((x * x).sum(-1).float(), posinf=1e5),
        lambda x: (x.double() * x.double()).sum(-1),
        lambda x: (x.float() * x.float()).sum(-1).to(x.dtype),
    ],
    ids=["a constant", "1% more", "a bound", "a number for Inf", "float64", "cast back"],
)
def test_a_wrong_value_of_a_wider_dtype_is_not_verified(wrong: Any) -> None:
    assert judge(energy, wrong, HALVES, kind="reformulation", widens=True).status == "rejected"


def test_a_sum_of_very_many_is_judged_whole() -> None:
    ones = [{"x": torch.ones(70_000, dtype=torch.float16)}]

    def share(x: torch.Tensor) -> torch.Tensor:
        return x.sum() / (2 * x.numel())

    def wide(x: torch.Tensor) -> torch.Tensor:
        return (x.float().sum() / (2 * x.numel())).to(x.dtype)

    def bounded(x: torch.Tensor) -> torch.Tensor:
        return x.sum().clamp(max=torch.finfo(x.dtype).max) / (2 * x.numel())

    assert judge(share, wide, ones, kind="reformulation").status == "verified"
    said = judge(share, bounded, ones, kind="reformulation")
    assert (said.status, said.why) == (
        "rejected",
        "the value is 0.468 where the exact one is 0.5, on the failing input",
    )


def softmax_by_hand(x: Any) -> Any:
    e = torch.exp(x / 0.1)
    return e / e.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("repaired", "status"),
    [
        (lambda x: (x / 0.1).softmax(-1), "verified"),
        # of a mask that a 0 beside an Inf is, nothing is kept
        (lambda x: (x / 0.1).softmax(-1) * (1 + 1e-3 * (x > 30)), "rejected"),
        (lambda x: (x / 0.2).softmax(-1), "rejected"),
    ],
)
def test_what_overflows_before_two_forms_part_is_not_kept(repaired: Callable[[Any], Any], status: str) -> None:
    """``x / 0.1`` is Inf at an extreme of x, where one form gives 0 beside it and the other NaN."""
    verdict = judge(softmax_by_hand, repaired, [{"x": (8 * drawn(6, 4)).requires_grad_()}], kind="reformulation")
    assert verdict.status == status


def test_an_overflow_of_the_new_form_alone_is_told_of() -> None:
    """The twin: the original has no Inf there."""
    verdict = judge(
        lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True),
        lambda x: (x * 10 / 10).softmax(-1),
        [{"x": (50 * drawn(6, 4)).requires_grad_()}],
        kind="reformulation",
    )
    assert verdict.status == "rejected"


@pytest.mark.parametrize(
    ("original", "repaired"),
    [
        (lambda x: x / (x * torch.sqrt(1 + x * x)), lambda x: torch.sqrt(1 + x * x) / (1 + x * x)),
        (
            lambda x: torch.where(x * x > 4, 1 / (x * x), torch.sin(x) / x),
            lambda x: torch.where(x * x > 4, (x * x) / (x * x) / (x * x), torch.sinc(x / torch.pi)),
        ),
    ],
)
def test_an_overflow_of_what_is_not_scaled_alone_is_told_of(
    original: Callable[[Any], Any], repaired: Callable[[Any], Any]
) -> None:
    """``x * x`` is Inf far from the limit, and 1 / Inf the right 0."""
    verdict = judge(original, repaired, [{"x": torch.tensor([0.0, 1.0, 2.0, -3.0, 9.0])}], kind="reformulation")
    assert verdict.status == "rejected"


@pytest.mark.parametrize("factor", [0.5, 1.5, 2.0])
def test_a_wrong_gradient_beyond_all_digits_of_the_value_is_found(factor: float) -> None:
    x = torch.tensor([[100.0, 2.0, 3.0], [1.0, -2.0, 3.0]], requires_grad=True)

    def judged(slope: float) -> FixVerdict:
        return judge(
            lambda x: x.exp().sum(-1).log(),
            lambda x: torch.where(x > 1e6, slope * x + (1 - slope) * x.detach(), x).logsumexp(-1),
            [{"x": x}],
            kind="reformulation",
        )

    assert judged(1.0).status == "verified"
    assert judged(factor).why.startswith("the gradient of x is ")


def _of_similar(x: Any, mask: Any) -> Any:
    return torch.log(1 + (torch.exp(x) * mask).sum(1))


@pytest.mark.parametrize(
    ("floor", "status"),
    [(lambda log: log, "rejected"), (lambda log: log.clamp(min=torch.finfo(log.dtype).min), "verified")],
    ids=["a row of -Inf", "the least number"],
)
def test_a_mask_that_leaves_out_a_row_may_be_new(floor: Callable[[Any], Any], status: str) -> None:
    """In the run each row of the mask had something; the logarithm of a sum of nothing has no derivative."""

    def mended(x: Any, mask: Any) -> Any:
        return F.softplus(torch.logsumexp(x + floor(torch.log(mask)), 1))

    x = 3 * drawn(4, 4)
    x[0, 1] = 100.0
    mask = 1 - torch.eye(4)
    assert judge(_of_similar, mended, [{"x": x.requires_grad_(), "mask": mask}], kind="reformulation").status == status


def test_a_judgement_keeps_the_time_that_it_has() -> None:
    original, repaired, inputs, kind = CASES["verified"]
    with pytest.raises(TimeIsOverError), ends_at(0.0):
        judge(original, repaired, [inputs()], kind=kind)
    assert judge(original, repaired, [inputs()], kind=kind).status == "verified"


def test_a_case_is_as_large_as_what_is_computed_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose distances are ten thousand times as many are not evaluated as they are: it takes minutes."""

    def squares(x: Any) -> Any:
        # of fewer rows it does not fail
        return ((x[:, None] - x[None]) ** 2).sum(-1) + (len(x) != 120)

    def distances(x: Any) -> Any:
        return squares(x).sqrt()

    def mended(x: Any) -> Any:
        return torch.where(squares(x) == 0, 0.0, torch.where(squares(x) == 0, 1.0, squares(x)).sqrt())

    sizes: list[int] = []
    exact = truth.exact

    def noted(program: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        sizes.extend(math.prod(shape) for step in program.steps for shape in step.shapes)
        return exact(program, inputs, *given, **named)

    monkeypatch.setattr(truth, "exact", noted)
    judge(distances, mended, [{"x": drawn(120, 3).requires_grad_()}], kind="guard")
    assert max(sizes, default=0) < 120 * 120
