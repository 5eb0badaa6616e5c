"""Fixes of known worth: formulas that fail, mends of them that are right, and mends that are not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.records.intents import FixKind

DTYPES: Final = ("float32", "float16", "bfloat16", "float64")
LARGE: Final = {"float32": 200.0, "float16": 30.0, "bfloat16": 200.0, "float64": 2000.0}
"""Where an exponential of the dtype overflows, and that of its negative vanishes."""
SMALL: Final = {"float32": 1e-20, "float16": 2e-4, "bfloat16": 1e-20, "float64": 1e-160}
"""A number whose square vanishes, or nearly."""


@dataclass(frozen=True)
class Mend:
    """One mend of a formula; ``dtypes`` where it is what it is said to be, and ``why`` where that is not all."""

    name: str
    function: Callable[..., Any]
    kind: FixKind
    dtypes: tuple[str, ...] = DTYPES
    why: str = ""


@dataclass(frozen=True)
class Row:
    """A formula, inputs with which it fails, and its mends. ``knowable``: what fails has an exact finite value."""

    name: str
    original: Callable[..., Any]
    inputs: Callable[[torch.Generator, str], dict[str, Any]]
    right: tuple[Mend, ...]
    wrong: tuple[Mend, ...] = ()
    knowable: bool = False
    dtypes: tuple[str, ...] = DTYPES

    def captured(self, dtype: str) -> dict[str, Any]:
        """A visit that fails."""
        found = self.inputs(torch.Generator().manual_seed(5), dtype)
        return {
            name: value.to(getattr(torch, dtype)).requires_grad_(name != "m")
            if isinstance(value, torch.Tensor) and value.is_floating_point()
            else value
            for name, value in found.items()
        }


def normal(draw: torch.Generator, shape: tuple[int, ...] = (6, 8)) -> Any:
    """Standard normal numbers in float64."""
    return torch.randn(shape, generator=draw, dtype=torch.float64)


def with_large(sign: float) -> Any:
    """Normal numbers, some of which an exponential does not bear."""

    def made(draw: torch.Generator, dtype: str) -> dict[str, Any]:
        x = normal(draw)
        x[0, 0], x[3, 5] = sign * LARGE[dtype], sign * 1.1 * LARGE[dtype]
        return {"x": x}

    return made


def alike_and_large(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Normal numbers about one that an exponential does not bear: every row fails."""
    return {"x": normal(draw) + LARGE[dtype]}


def with_large_sums(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Normal numbers, and rows of some whose exponentials are finite, and their sum is not."""
    x = normal(draw)
    x[0, :4] = math.log(torch.finfo(getattr(torch, dtype)).max) - 0.1
    return {"x": x}


def saturated(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Numbers below 0 that are far from each other: of most rows one probability is 1."""
    return {"x": -normal(draw).abs() * 2 * LARGE[dtype]}


def _less_greatest(x: Any) -> Any:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def with_zeros(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Normal numbers with some zeros."""
    x = normal(draw)
    x[0, 0] = x[2, 3] = 0.0
    return {"x": x}


def positive_with_zeros(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Positive numbers with some zeros."""
    x = normal(draw).abs()
    x[0, 0] = x[2, 3] = 0.0
    return {"x": x}


def probabilities_with_zeros(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Rows of probabilities, some of them certain."""
    x = normal(draw).softmax(-1)
    x[1] = torch.tensor([1.0] + [0.0] * 7)
    return {"x": x}


def with_zero_rows(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Rows of normal numbers, one of zeros."""
    x = normal(draw)
    x[2] = 0.0
    return {"x": x}


def with_constant_rows(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Rows of normal numbers, one of them the same number throughout."""
    x = normal(draw)
    x[2] = 0.5
    return {"x": x}


def near_origin(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Points, some of which are nearly the origin."""
    y, x = normal(draw), normal(draw)
    y[0, 0] = x[0, 0] = y[1, 1] = SMALL[dtype]
    x[1, 1] = 0.0
    return {"y": y, "x": x}


def masked_rows(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Rows with a mask that leaves nothing of one."""
    m = (torch.rand((6, 8), generator=draw) > 0.4).double()
    m[3] = 0.0
    m[:3, 0] = m[4:, 0] = 1.0
    return {"x": normal(draw), "m": m}


def cosines_at_limit(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Cosines, of which some are exactly one."""
    x = torch.tanh(normal(draw)) * 0.9
    x[0, 0], x[3, 3] = 1.0, -1.0
    return {"x": x}


def _inside(x: Any) -> Any:
    inside = x.abs() < 1
    return torch.where(inside, torch.where(inside, x, 0.0).acos(), x.detach().acos())


def _over_own_norm(x: Any) -> Any:
    size = x.norm(dim=-1, keepdim=True)
    return x / torch.where(size == 0, 1.0, size)


def _norm_guarded(x: Any) -> Any:
    square = (x * x).sum(-1)
    zero = square == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, square).sqrt())


def _standardised(x: Any) -> Any:
    wide = x.std(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / torch.where(wide == 0, 1.0, wide)


def _root_of_zero(x: Any) -> Any:
    return torch.where(x == 0, 0.0, torch.where(x == 0, 1.0, x).sqrt())


def _angle(y: Any, x: Any) -> Any:
    m = torch.maximum(y.abs(), x.abs()).detach()
    m = torch.where(m == 0, 1.0, m)
    return torch.atan2(y / m, x / m)


def _near(y: Any, x: Any) -> Any:
    near = x < 1e-7
    return torch.atan2(y, x * ~near + near * 1e-7)


def _near_corrected(y: Any, x: Any) -> Any:
    near = x.abs() < 1e-7
    return torch.atan2(y, x * ~near + near * 1e-7)


def _filtered(x: Any) -> Any:
    x = x.clone()
    x[x <= 1e-6] = 1e-6
    return 1 / x


def _entropy(x: Any) -> Any:
    safe = torch.where(x > 0, x, 1.0)
    return torch.where(x > 0, x * safe.log(), torch.zeros_like(x))


def _one_plus_elu(x: Any) -> Any:
    return torch.where(x > 0, x, torch.exp(x) - 1)


def _product(x: Any) -> Any:
    zero = x == 0
    return torch.where(zero.any(-1), 0.0, torch.where(zero, 1.0, x).log().sum(-1).exp())


def _geometric(x: Any) -> Any:
    mean = x.pow(3.0).mean(-1)
    zero = mean == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, mean).pow(1 / 3.0))


class _HalfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] / 2


def halved(x: Any) -> Any:
    """The same value with half the gradient."""
    return _HalfGradient.apply(x)


class _CleanGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.nan_to_num(gradients[0], 0.0, 0.0, 0.0)


def cleaned(x: Any) -> Any:
    """The same value; a gradient that is bad becomes 0."""
    return _CleanGradient.apply(x)


def _bce(x: Any, m: Any) -> Any:
    p = x.sigmoid()
    return -(m * p.log() + (1 - m) * (1 - p).log())


def mixtures(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Weights and log densities of a mixture, which all vanish in one row."""
    x = normal(draw)
    x[2] -= 3 * LARGE[dtype]
    return {"x": x, "m": normal(draw).softmax(-1)}


def choices(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Logits and a mask of some of them, none of which is among the greatest in one row."""
    found = masked_rows(draw, dtype)
    found["m"][3, 0] = 1.0
    found["x"][1, 1:] += LARGE[dtype]
    found["m"][1] = torch.tensor([1.0] + [0.0] * 7)
    return found


def powers(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Positive numbers, and exponents some of which are 0."""
    return {"m": normal(draw).abs() + 0.5, "y": with_zeros(draw, dtype)["x"]}


def bases(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    """Positive numbers but one, and exponents that are no whole numbers but in one column."""
    x = normal(draw).abs() + 0.1
    x[2, 3], x[4, 0] = -0.5, -0.25
    m = torch.full((6, 8), 0.3, dtype=torch.float64)
    m[:, 0] = 2.0
    return {"x": x, "m": m}


def _limit(x: Any, at_zero: Any, function: Any, power: int = 1) -> Any:
    return torch.where(x == 0, at_zero, function(x) / torch.where(x == 0, 1.0, x) ** power)


def _half_angle(x: Any) -> Any:
    return 0.5 * torch.where(x == 0, 1.0, (x / 2).sin() / (torch.where(x == 0, 1.0, x) / 2)) ** 2


def _box_cox(m: Any, y: Any) -> Any:
    log = m.log()
    return torch.where(y == 0, log * (1 + y * log / 2), (m**y - 1) / torch.where(y == 0, 1.0, y))


def _zero_power(x: Any, m: Any) -> Any:
    bad = (x < 0) & torch.isnan(x**m)
    return torch.where(bad, 0.0, torch.where(bad, 1.0, x) ** m)


def _bce_inputs(draw: torch.Generator, dtype: str) -> dict[str, Any]:
    m = (torch.rand((6, 8), generator=draw) > 0.5).double()
    x = normal(draw)
    x[0, 0], m[0, 0], x[3, 5], m[3, 5] = LARGE[dtype], 0.0, -LARGE[dtype], 1.0
    return {"x": x, "m": m}


def _tanh_by_hand(x: Any) -> Any:
    return (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())


_LOG2: Final = math.log(2.0)
_G: Final[FixKind] = "guard"
_R: Final[FixKind] = "reformulation"
_E: Final[FixKind] = "epsilon"

ROWS: Final = (
    Row(
        "log of softmax",
        lambda x: x.softmax(-1).log(),
        with_large(1.0),
        (Mend("log_softmax", lambda x: x.log_softmax(-1), _R),),
        (
            Mend(
                "x - logsumexp",
                lambda x: x - x.logsumexp(-1, keepdim=True),
                _R,
                ("float32", "float64"),
                why="cancels where the probability is nearly one, which the logarithm of it does not",
            ),
            Mend("p + 1e-8", lambda x: (x.softmax(-1) + 1e-8).log(), _E),
            Mend("p + 1e-12", lambda x: (x.softmax(-1) + 1e-12).log(), _R),
            Mend("p + 1e-38", lambda x: (x.softmax(-1) + 1e-38).log(), _R),
            Mend("p clamped", lambda x: x.softmax(-1).clamp_min(1e-7).log(), _G),
            Mend("wrong axis", lambda x: x.log_softmax(0), _R),
            Mend("half the gradient", lambda x: halved(x.log_softmax(-1)), _R),
            Mend("lost sign", lambda x: -x.log_softmax(-1), _R),
        ),
        knowable=True,
    ),
    Row(
        "log of sigmoid",
        lambda x: x.sigmoid().log(),
        with_large(-1.0),
        (
            Mend("logsigmoid", lambda x: F.logsigmoid(x), _R),
            Mend("-logaddexp(-x, 0)", lambda x: -torch.logaddexp(-x, torch.zeros_like(x)), _R),
        ),
        (
            Mend("another beta", lambda x: -F.softplus(-x, beta=2), _R),
            Mend("p + 1e-6", lambda x: (x.sigmoid() + 1e-6).log(), _E),
            Mend("x clamped", lambda x: x.clamp_min(-10).sigmoid().log(), _G),
            Mend("half the gradient", lambda x: halved(F.logsigmoid(x)), _R),
        ),
        knowable=True,
    ),
    Row(
        "log of one minus sigmoid",
        lambda x: (1 - x.sigmoid()).log(),
        with_large(1.0),
        (Mend("logsigmoid(-x)", lambda x: F.logsigmoid(-x), _R),),
        (Mend("logsigmoid(x)", lambda x: F.logsigmoid(x), _R),),
        knowable=True,
    ),
    Row(
        "log of one plus exp",
        lambda x: (1 + x.exp()).log(),
        with_large(1.0),
        (Mend("logaddexp(x, 0)", lambda x: torch.logaddexp(x, torch.zeros_like(x)), _R),),
        (
            Mend("exponent clamped", lambda x: (1 + x.clamp(max=10.0).exp()).log(), _G),
            Mend("threshold", lambda x: F.softplus(x, threshold=5), _R, ("float32", "float64")),
            Mend("relu", lambda x: x.relu(), _R),
        ),
        knowable=True,
    ),
    Row(
        "log of sum of exp",
        lambda x: x.exp().sum(-1).log(),
        with_large(1.0),
        (Mend("logsumexp", lambda x: x.logsumexp(-1), _R),),
        (
            Mend("amax", lambda x: x.amax(-1), _R),
            Mend("other rows", lambda x: x.roll(1, 0).logsumexp(-1), _R),
            Mend("mean", lambda x: x.logsumexp(-1) - math.log(8), _R),
        ),
        knowable=True,
    ),
    Row(
        "softmax by hand",
        lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
        with_large(1.0),
        (Mend("softmax", lambda x: x.softmax(-1), _R),),
        (
            Mend("wrong axis", lambda x: x.softmax(0), _R),
            Mend("maximum not detached and lost", lambda x: (x - x.amax()).exp(), _R),
        ),
        knowable=True,
    ),
    *(
        Row(
            f"softmax by hand of {name}",
            lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
            inputs,
            (Mend("softmax", lambda x: x.softmax(-1), _R), Mend("less the greatest", _less_greatest, _R)),
            (
                Mend("wrong axis", lambda x: x.softmax(0), _R),
                Mend("not of the whole row", lambda x: x.exp() / x[..., 1:].exp().sum(-1, keepdim=True), _R),
                Mend("half the gradient", lambda x: halved(x.softmax(-1)), _R),
                Mend("shifted", lambda x: (x - x.amax(-1, keepdim=True)).exp(), _R),
                Mend("1e-4", lambda x: _less_greatest(x) + 1e-4, _R),
            ),
            knowable=True,
        )
        for name, inputs in (
            ("large numbers", alike_and_large),
            ("a large sum", with_large_sums),
            ("numbers far apart", saturated),
        )
    ),
    Row(
        "log of sum of exp of large numbers",
        lambda x: x.exp().sum(-1).log(),
        alike_and_large,
        (Mend("logsumexp", lambda x: x.logsumexp(-1), _R),),
        (
            Mend("amax", lambda x: x.amax(-1), _R),
            Mend("half the gradient", lambda x: halved(x.logsumexp(-1)), _R),
            Mend("all but one", lambda x: x[..., 1:].logsumexp(-1), _R),
        ),
        knowable=True,
    ),
    Row(
        "sigmoid by hand",
        lambda x: 1 / (1 + (-x).exp()),
        with_large(-1.0),
        (Mend("sigmoid", lambda x: x.sigmoid(), _R),),
        (
            Mend("clamped", lambda x: 1 / (1 + (-x).clamp(max=9.0).exp()), _G),
            Mend("hardsigmoid", lambda x: F.hardsigmoid(x), _R),
        ),
    ),
    Row(
        "tanh by hand",
        _tanh_by_hand,
        with_large(1.0),
        (Mend("tanh", lambda x: x.tanh(), _R),),
        (Mend("clipped line", lambda x: x.clamp(-1, 1), _R),),
    ),
    Row(
        "log of cosh",
        lambda x: x.cosh().log(),
        with_large(1.0),
        (
            Mend(
                "|x| + log(1 + exp(-2|x|)) - log 2",
                lambda x: x.abs() + torch.logaddexp(-2 * x.abs(), torch.zeros_like(x)) - _LOG2,
                _R,
            ),
        ),
        (Mend("|x|", lambda x: x.abs(), _R), Mend("without log 2", lambda x: x.abs() + F.softplus(-2 * x.abs()), _R)),
        knowable=True,
    ),
    Row(
        "log of one minus tanh squared",
        lambda x: (1 - x.tanh() ** 2).log(),
        with_large(1.0),
        (Mend("softplus", lambda x: 2 * (_LOG2 - x - torch.logaddexp(-2 * x, torch.zeros_like(x))), _R),),
        (
            Mend("1e-6", lambda x: (1 - x.tanh() ** 2 + 1e-6).log(), _E),
            Mend("softplus(2x)", lambda x: 2 * (_LOG2 - x - F.softplus(2 * x)), _R),
        ),
        knowable=True,
    ),
    Row(
        "cross entropy by hand",
        _bce,
        _bce_inputs,
        (
            Mend("with logits", lambda x, m: F.binary_cross_entropy_with_logits(x, m, reduction="none"), _R),
            Mend("logsigmoid", lambda x, m: -(m * F.logsigmoid(x) + (1 - m) * F.logsigmoid(-x)), _R),
        ),
        (
            Mend("sides swapped", lambda x, m: F.binary_cross_entropy_with_logits(-x, m, reduction="none"), _R),
            Mend(
                "p clamped",
                lambda x, m: F.binary_cross_entropy(x.sigmoid().clamp(1e-3, 1 - 1e-3), m, reduction="none"),
                _E,
            ),
        ),
    ),
    Row(
        "x log x",
        lambda x: x * x.log(),
        probabilities_with_zeros,
        (Mend("double where", _entropy, _G),),
        (
            Mend("x + 1e-6", lambda x: x * (x + 1e-6).log(), _E),
            Mend("clamped", lambda x: x.clamp_min(1e-2) * x.clamp_min(1e-2).log(), _G),
        ),
    ),
    Row(
        "reciprocal",
        lambda x: 1 / x,
        with_zeros,
        (Mend("guarded", lambda x: 1 / torch.where(x == 0, 1.0, x), _G),),
        (
            Mend("clobbered", _filtered, _G),
            Mend("x + 1e-6", lambda x: 1 / (x + 1e-6), _E, ("float32", "bfloat16", "float64")),
            Mend("|x|", lambda x: 1 / torch.where(x == 0, 1.0, x.abs()), _G),
            Mend("clamped", lambda x: 1 / x.clamp_min(1e-4), _G),
            Mend("small is eps", lambda x: 1 / torch.where(x.abs() < 1e-3, 1e-3, x), _G),
        ),
    ),
    Row(
        "square root",
        lambda x: x.sqrt(),
        positive_with_zeros,
        (Mend("guarded", _root_of_zero, _G),),
        (
            Mend("x + 1e-6", lambda x: (x + 1e-6).sqrt(), _E, ("float32", "bfloat16", "float64")),
            Mend("clamped", lambda x: x.clamp_min(1e-4).sqrt(), _G),
            Mend("clamped at 0", lambda x: x.clamp_min(0).sqrt(), _G),
            Mend("still at zero", lambda x: x.abs().sqrt(), _R),
        ),
    ),
    Row(
        "logarithm",
        lambda x: x.log(),
        positive_with_zeros,
        (Mend("guarded", lambda x: torch.where(x == 0, torch.finfo(x.dtype).tiny, x).log(), _G),),
        (
            Mend("wrong at one", lambda x: torch.where(x == 1, 0.5, torch.where(x == 0, 1.0, x).log()), _G),
            Mend("log1p", lambda x: x.log1p(), _R),
        ),
    ),
    Row(
        "norm by hand",
        lambda x: (x * x).sum(-1).sqrt(),
        with_zero_rows,
        (Mend("guarded", _norm_guarded, _G),),
        (
            Mend("the sum of magnitudes", lambda x: x.abs().sum(-1), _R),
            Mend("1e-3", lambda x: ((x * x).sum(-1) + 1e-3).sqrt(), _E),
        ),
    ),
    Row(
        "over its own norm",
        lambda x: x / x.norm(dim=-1, keepdim=True),
        with_zero_rows,
        (Mend("guarded", _over_own_norm, _G),),
        (
            Mend("normalize", lambda x: F.normalize(x, dim=-1), _R, ("float32", "bfloat16", "float64")),
            Mend("1e-3", lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-3), _E),
            Mend("wrong axis", lambda x: F.normalize(x, dim=0), _R),
        ),
    ),
    Row(
        "standardised",
        lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True),
        with_constant_rows,
        (Mend("guarded", _standardised, _G),),
        (
            Mend("1e-5", lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5), _E),
            Mend(
                "biased",
                lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0).clamp_min(1e-8),
                _R,
            ),
        ),
    ),
    Row(
        "arc cosine",
        lambda x: x.acos(),
        cosines_at_limit,
        (Mend("guarded", _inside, _G),),
        (
            Mend("clamped", lambda x: x.clamp(-(1 - 1e-7), 1 - 1e-7).acos(), _G),
            Mend("clamped far", lambda x: x.clamp(-0.99, 0.99).acos(), _G),
            Mend("arc sine", lambda x: torch.where(x.abs() < 1, x, 0.0).asin(), _R),
        ),
    ),
    Row(
        "angle near the origin",
        lambda y, x: torch.atan2(y, x),
        near_origin,
        (Mend("scaled", _angle, _R),),
        (
            Mend("eps where zero", lambda y, x: torch.atan2(y, x + 1e-7 * (x == 0).to(x.dtype)), _E),
            Mend("near = x < eps", _near, _G),
            Mend("near = |x| < eps", _near_corrected, _G),
            Mend("x + 1e-7", lambda y, x: torch.atan2(y, x + 1e-7), _E),
            Mend("x + 1e-30", lambda y, x: torch.atan2(y, x + 1e-30), _R),
            Mend("quotient", lambda y, x: (y / torch.where(x == 0, 1.0, x)).atan(), _R),
        ),
        dtypes=("float32", "bfloat16", "float64"),
    ),
    Row(
        "selected root",
        lambda x: torch.where(x > 0, x.sqrt(), torch.zeros_like(x)),
        with_zeros,
        (
            Mend(
                "double where",
                lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), torch.zeros_like(x)),
                _G,
            ),
        ),
        (
            Mend("clamped", lambda x: torch.where(x > 0, x.clamp_min(1e-2).sqrt(), torch.zeros_like(x)), _G),
            Mend("cleaned", lambda x: torch.where(x > 0, x, 1.0).sqrt(), _G),
        ),
    ),
    Row(
        "ELU by hand",
        _one_plus_elu,
        with_large(1.0),
        (Mend("clamped inside", lambda x: torch.where(x > 0, x, torch.exp(x.clamp(max=0)) - 1), _G),),
        (
            Mend("clamped outside", lambda x: torch.where(x > 0, x.clamp(max=3.0), torch.exp(x.clamp(max=0)) - 1), _G),
            Mend("softplus", lambda x: F.softplus(x) - 1, _R),
        ),
    ),
    Row(
        "masked mean",
        lambda x, m: (x * m).sum(-1) / m.sum(-1),
        masked_rows,
        (Mend("at least one", lambda x, m: (x * m).sum(-1) / m.sum(-1).clamp_min(1), _G),),
        (
            Mend("1e-6", lambda x, m: (x * m).sum(-1) / (m.sum(-1) + 1e-2), _E),
            Mend("at least three", lambda x, m: (x * m).sum(-1) / m.sum(-1).clamp_min(6), _G),
        ),
    ),
    Row(
        "product by logarithms",
        lambda x: x.log().sum(-1).exp(),
        positive_with_zeros,
        (Mend("guarded", _product, _G),),
        (
            Mend("prod", lambda x: x.prod(-1), _R, why="overflows on its way where a sum of logarithms does not"),
            Mend("1e-3", lambda x: (x + 1e-3).log().sum(-1).exp(), _E),
            Mend("sum", lambda x: x.sum(-1), _R),
        ),
    ),
    Row(
        "sine over x",
        lambda x: x.sin() / x,
        with_zeros,
        (
            Mend(
                "guarded",
                lambda x: torch.where(x == 0, 1.0, torch.where(x == 0, 1.0, x).sin() / torch.where(x == 0, 1.0, x)),
                _G,
            ),
        ),
        (Mend("sinc without pi", lambda x: torch.sinc(x), _R),),
    ),
    Row(
        "log of a mixture",
        lambda x, m: torch.log((m * x.exp()).sum(-1)),
        mixtures,
        (Mend("logsumexp", lambda x, m: torch.logsumexp(x + m.log(), -1), _R),),
        (
            Mend("weights as they are", lambda x, m: torch.logsumexp(x + m, -1), _R),
            Mend("without the weights", lambda x, m: torch.logsumexp(x, -1), _R),
            Mend("other rows", lambda x, m: torch.logsumexp(x + m.log(), 0).mean() + 0 * x.sum(-1), _R),
            Mend("the greatest alone", lambda x, m: (x + m.log()).amax(-1), _R),
        ),
        knowable=True,
        dtypes=("float32", "float64"),
    ),
    Row(
        "softmax of a choice",
        lambda x, m: x.softmax(-1) * m / (x.softmax(-1) * m).sum(-1, keepdim=True),
        choices,
        (),
        (
            Mend("mask for its logarithm", lambda x, m: (x + m).softmax(-1), _R),
            Mend("mask afterwards", lambda x, m: x.softmax(-1) * m, _R),
            Mend("mask of -30", lambda x, m: (x - 30 * (1 - m)).softmax(-1), _R),
            Mend("wrong axis", lambda x, m: (x + m.log()).softmax(0), _R),
        ),
        knowable=True,
        dtypes=("float32", "float64"),
    ),
    Row(
        "sine over x by its limit",
        lambda x: x.sin() / x,
        with_zeros,
        (Mend("1", lambda x: _limit(x, 1.0, torch.sin), _R),),
        (
            Mend("0", lambda x: _limit(x, 0.0, torch.sin), _R),
            Mend("with a slope", lambda x: _limit(x, 1 + x, torch.sin), _R),
            Mend("without a gradient", lambda x: _limit(x, 1.0, torch.sin).detach(), _R),
        ),
    ),
    Row(
        "exp(x) - 1 over x",
        lambda x: (x.exp() - 1) / x,
        with_zeros,
        (Mend("1 + x / 2", lambda x: _limit(x, 1 + x / 2, lambda x: x.exp() - 1), _R),),
        (
            Mend("twice its slope", lambda x: _limit(x, 1 + x, lambda x: x.exp() - 1), _R),
            Mend("its slope the other way", lambda x: _limit(x, 1 - x / 2, lambda x: x.exp() - 1), _R),
        ),
        dtypes=("float32", "float64"),
    ),
    Row(
        "1 - cos(x) over the square",
        lambda x: (1 - x.cos()) / x**2,
        with_zeros,
        (Mend("half angles", _half_angle, _R),),
        (
            Mend("1 instead of 1/2", lambda x: _limit(x, 1.0, lambda x: 1 - x.cos(), 2), _R),
            Mend("0 instead of 1/2", lambda x: _limit(x, 0.0, lambda x: 1 - x.cos(), 2), _R),
            Mend("the whole angle", lambda x: 0.5 * torch.where(x == 0, 1.0, x.sin() / x) ** 2, _R),
        ),
        dtypes=("float32", "float64"),
    ),
    Row(
        "power transform",
        lambda m, y: (m**y - 1) / y,
        powers,
        (Mend("logarithm at 0", _box_cox, _R),),
        (
            Mend("0 at 0", lambda m, y: (m**y - 1) / torch.where(y == 0, 1.0, y), _R),
            Mend("m - 1 at 0", lambda m, y: torch.where(y == 0, m - 1, (m**y - 1) / torch.where(y == 0, 1.0, y)), _R),
            Mend(
                "the slope of the power twice",
                lambda m, y: torch.where(y == 0, m.log() * (1 + y * m.log()), (m**y - 1) / torch.where(y == 0, 1.0, y)),
                _R,
            ),
        ),
        dtypes=("float32", "float64"),
    ),
    Row(
        "power of a negative base",
        lambda x, m: x**m,
        bases,
        (Mend("0 where there is none", _zero_power, _G),),
        (
            Mend("0 of every negative base", lambda x, m: torch.where(x < 0, 0.0, torch.where(x < 0, 1.0, x) ** m), _G),
            Mend("of the magnitude", lambda x, m: x.abs() ** m, _G),
            Mend("1 where there is none", lambda x, m: torch.where(x < 0, 100.0, x.abs() ** m), _G),
        ),
    ),
    Row(
        "mean of powers",
        lambda x: x.pow(3.0).mean(-1).pow(1 / 3.0),
        lambda draw, dtype: {"x": with_zero_rows(draw, dtype)["x"].abs()},
        (Mend("guarded", _geometric, _G),),
        (Mend("clamped", lambda x: x.clamp_min(0.3).pow(3.0).mean(-1).pow(1 / 3.0), _G),),
        dtypes=("float32", "bfloat16", "float64"),
    ),
)


def harmful(row: Row, mend: Mend) -> list[Mend]:
    """The constant, the detach and the zeroed gradient of a right mend."""
    right, original = mend.function, row.original
    found = [
        Mend("constant", lambda **given: torch.zeros_like(right(**given)), mend.kind),
        Mend("detach", lambda **given: right(**given).detach(), mend.kind),
    ]
    if row.knowable:
        found.append(
            Mend(
                "zeroed gradient",
                lambda **given: torch.nan_to_num(
                    original(**{n: cleaned(v) if v.requires_grad else v for n, v in given.items()}), 0.0, 0.0, 0.0
                ),
                mend.kind,
            )
        )
    return found
