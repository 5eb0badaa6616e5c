"""The hazards of the rules as expressions, with operands on which they break and operands on which they do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

INF = math.inf
NAN = math.nan
Values = dict[str, Any]
"""Operands by name: nested lists of floats (of the variant's dtype), of booleans or of whole numbers."""


@dataclass(frozen=True)
class Hazard:
    """An expression of ``torch``, ``F`` and operators.

    A word in braces is a number that depends on the dtype, by its name in the operands. ``backward``: the result is
    finite, and its gradient is not.
    """

    rule: str
    code: str
    bad: Callable[[torch.finfo], Values]
    good: Values
    backward: bool = False

    def __str__(self) -> str:
        return f"{self.rule} {'backward of ' if self.backward else ''}{self.code}"


HAZARDS: list[Hazard] = []


def hazard(rule: str, code: str, bad: Callable[[torch.finfo], Values], /, **good: Any) -> None:
    """Note a hazard whose result is bad."""
    HAZARDS.append(Hazard(rule, code, bad, good))


def slope(rule: str, code: str, bad: Callable[[torch.finfo], Values], /, **good: Any) -> None:
    """Note a hazard whose result is finite and whose gradient is not."""
    HAZARDS.append(Hazard(rule, code, bad, good, backward=True))


def least(f: torch.finfo) -> float:
    """The smallest positive number."""
    return f.tiny * f.eps


def steep(f: torch.finfo) -> float:
    """An operand of exp that is too large."""
    return 1.2 * math.log(f.max)


def gap(f: torch.finfo) -> float:
    """A gap between logits over which a softmax rounds to 0."""
    return -1.5 * math.log(least(f))


def flat(f: torch.finfo) -> float:
    """Where a sigmoid has rounded to 1."""
    return -2 * math.log(f.eps)


def root(f: torch.finfo) -> float:
    """A number whose square is too large."""
    return 4 * math.sqrt(f.max)


class NoSuchNumberError(ArithmeticError):
    """A program cannot write the number that a hazard needs in this dtype."""


def narrow(f: torch.finfo) -> float:
    """A number whose square is too large, and is not once it is divided by a little."""
    return 1.2 * math.sqrt(f.max)


def under(f: torch.finfo) -> float:
    """A number by whose square another that is nearer to 1 cannot be divided."""
    return f.max**-0.35


def zeros(*names: str) -> Callable[[torch.finfo], Values]:
    """The same zeros for each name, beside none."""
    return lambda _: {name: [0.0, 0.0, 0.0] for name in names}


def given(**values: Any) -> Callable[[torch.finfo], Values]:
    """Operands that break in every dtype."""
    return lambda _: values


X = [0.5, 1.0, 2.0]
Y = [1.5, 0.75, 0.25]
P = [0.25, 0.5, 0.25]
Q = [0.5, 0.25, 0.25]
SEEN = [True, False, True]
NOTHING = [True, True, True]
LOW = "-math.inf"

# -- division and normalisation ---------------------------------------------------------------------------------------
hazard("WN101", "x / y", given(x=[0.0, 1.0], y=[0.0, 1.0]), x=[0.5, 1.0], y=[2.0, 1.0])
hazard("WN101", "x / torch.sum(x, -1, keepdim=True)", zeros("x"), x=X)
hazard("WN101", "torch.atan(x / y)", zeros("x", "y"), x=X, y=Y)
hazard("WN101", "torch.log(x + 1) + y ** 2 / x", zeros("x", "y"), x=X, y=Y)
slope("WN510", "torch.where(y > 0, x / y, torch.zeros_like(x))", given(x=[0.0, 1.0], y=[0.0, 1.0]), x=X[:2], y=Y[:2])
hazard("WN102", "1 / x", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN102", "x / y", given(x=[2.0, 1.0], y=[0.0, 1.0]), x=[0.5, 1.0], y=[2.0, 1.0])
hazard("WN102", "torch.rsqrt(x)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN102", "torch.reciprocal(x)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN102", "torch.pow(x, -1.5)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN102", "torch.fmod(x, y)", given(x=[2.0, 1.0], y=[0.0, 1.0]), x=[0.5, 1.0], y=[2.0, 1.0])
slope("WN510", "torch.where(torch.abs(x) > 0.001, 1 / x, torch.ones_like(x))", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN103", "x * y", given(x=[0.0, 1.0], y=[INF, 1.0]), x=[0.5, 1.0], y=[2.0, 1.0])
slope("WN510", "torch.where(x > 0, x, torch.exp(x) - 1)", lambda f: {"x": [steep(f), -1.0]}, x=[1.0, -1.0])
hazard("WN104", "x - torch.amax(x, -1, keepdim=True)", given(x=[-INF, -INF]), x=[0.5, 1.0])
hazard("WN104", "x - y", given(x=[INF, 1.0], y=[INF, 1.0]), x=[0.5, 1.0], y=[1.0, 2.0])
hazard("WN104", "torch.sum(x, -1)", given(x=[INF, -INF]), x=[0.5, 1.0])
hazard("WN105", "torch.matmul(x, y)", given(x=[[INF, 1.0]], y=[[0.0], [1.0]]), x=[[2.0, 1.0]], y=[[0.0], [1.0]])
hazard("WN106", "torch.sin(x)", given(x=[INF, 1.0]), x=[2.0, 1.0])
hazard("WN106", "F.silu(x)", given(x=[-INF, 1.0]), x=[2.0, 1.0])
hazard("WN106", "F.gelu(x)", given(x=[-INF, 1.0]), x=[2.0, 1.0])
hazard(
    "WN106",
    "F.binary_cross_entropy_with_logits(x, y)",
    given(x=[INF, 1.0], y=[1.0, 1.0]),
    x=[2.0, 1.0],
    y=[1.0, 1.0],
)
hazard("WN107", "F.layer_norm(x, (3,), eps=0.0)", given(x=[1.0, 1.0, 1.0]), x=X)
slope(
    "WN510",
    "torch.where(m, torch.softmax(x + torch.where(m, 0.0, -math.inf), -1), 0.0)",
    given(x=X, m=[False, False, False]),
    x=X,
    m=SEEN,
)
slope("WN510", "torch.where(torch.isnan(y), 0.0, (x - y) ** 2)", given(x=X, y=[1.0, NAN, 1.0]), x=X, y=Y)
hazard("WN120", "x / y", lambda f: {"x": [1 / under(f), 1.0], "y": [under(f) ** 2, 1.0]}, x=X[:2], y=Y[:2])
hazard("WN120", "x / (y * y)", lambda f: {"x": [1 / under(f), 1.0], "y": [under(f), 1.0]}, x=X[:2], y=Y[:2])
hazard("WN120", "torch.div(x, y ** 2)", lambda f: {"x": [1 / under(f), 1.0], "y": [under(f), 1.0]}, x=X[:2], y=Y[:2])
hazard("WN109", "x / torch.norm(x, dim=-1, keepdim=True)", zeros("x"), x=X)
hazard("WN109", "x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)", zeros("x"), x=X)
hazard("WN109", "x * torch.rsqrt(torch.sum(x * x, -1, keepdim=True))", zeros("x"), x=X)
hazard("WN109", "x / torch.sqrt(torch.sum(torch.square(x), -1, keepdim=True))", zeros("x"), x=X)
hazard(
    "WN110",
    "torch.sum(x * y, -1) / (torch.norm(x, dim=-1) * torch.norm(y, dim=-1))",
    given(x=[0.0, 0.0, 0.0], y=Y),
    x=X,
    y=Y,
)
hazard(
    "WN110",
    "torch.sum(x * y, -1) / torch.sqrt(torch.sum(x ** 2, -1) * torch.sum(y ** 2, -1))",
    given(x=[0.0, 0.0, 0.0], y=Y),
    x=X,
    y=Y,
)
ALIKE = given(x=[1.0, 1.0, 1.0])
hazard("WN111", "(x - torch.mean(x, -1, keepdim=True)) / torch.std(x, -1, keepdim=True)", ALIKE, x=X)
hazard("WN111", "(x - torch.mean(x, -1, keepdim=True)) / torch.sqrt(torch.var(x, -1, keepdim=True))", ALIKE, x=X)
hazard("WN111", "(x - torch.mean(x, -1, keepdim=True)) * torch.rsqrt(torch.var(x, -1, keepdim=True))", ALIKE, x=X)
RANGE = "torch.amax(x, -1, keepdim=True) - torch.amin(x, -1, keepdim=True)"
hazard("WN112", f"(x - torch.amin(x, -1, keepdim=True)) / ({RANGE})", ALIKE, x=X)
SIZES = "torch.sum(x, -1) + torch.sum(y, -1)"
hazard("WN113", f"2 * torch.sum(x * y, -1) / ({SIZES})", zeros("x", "y"), x=X, y=Y)
hazard("WN113", f"torch.sum(x * y, -1) / ({SIZES} - torch.sum(x * y, -1))", zeros("x", "y"), x=X, y=Y)
hazard("WN114", "torch.abs((y - x) / y)", given(x=[1.0, 1.0], y=[0.0, 1.0]), x=[0.5, 1.0], y=[2.0, 1.0])
hazard("WN114", "torch.abs(x - y) / torch.abs(y)", given(x=[1.0, 1.0], y=[0.0, 1.0]), x=[0.5, 1.0], y=[2.0, 1.0])
hazard(
    "WN114", "2 * torch.abs(x - y) / (torch.abs(x) + torch.abs(y))", given(x=[0.0, 1.0], y=[0.0, 1.0]), x=X[:2], y=Y[:2]
)
for quotient in ("torch.sin(x) / x", "(torch.exp(x) - 1) / x", "torch.tanh(x) / x", "(1 - torch.cos(x)) / x"):
    hazard("WN115", quotient, given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN115", "torch.log1p(x) / x", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN115", "torch.expm1(x) / x", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard(
    "WN116",
    "torch.cumprod(x, -1)[..., 1:] / torch.cumprod(x, -1)[..., :-1]",
    lambda f: {"x": [math.sqrt(least(f)) / 4] * 4},
    x=[0.5, 0.5, 0.5, 0.5],
)
hazard("WN116", "1 / torch.exp(torch.cumsum(x, -1))", lambda f: {"x": [-gap(f), -1.0]}, x=[-1.0, -1.0])
hazard("WN117", "1 / x", lambda f: {"x": [least(f), 1.0]}, x=[0.5, 1.0])
hazard("WN117", "y / x", lambda f: {"x": [least(f), 1.0], "y": [1.0, 1.0]}, x=[0.5, 1.0], y=[1.0, 1.0])

# -- logarithm and exponential ----------------------------------------------------------------------------------------
for log in ("log", "log2", "log10"):
    hazard("WN201", f"torch.{log}(x)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN201", "torch.log1p(x)", given(x=[-1.0, 1.0]), x=[0.5, 1.0])
hazard("WN201", "torch.logit(x)", given(x=[1.0, 0.5]), x=[0.25, 0.5])
hazard("WN201", "(1 - x) ** 2 * torch.log(x)", given(x=[0.0, 0.5]), x=[0.25, 0.5])
hazard("WN201", "F.silu(torch.log(x))", given(x=[0.0, 0.5]), x=[0.25, 0.5])
slope("WN510", "torch.where(x > 0, torch.log(x), torch.zeros_like(x))", given(x=[0.0, 1.0]), x=[0.5, 1.0])
slope("WN510", "torch.nan_to_num(torch.log(x), neginf=0.0)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
slope("WN201", "torch.exp(torch.sum(torch.log(x), -1))", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN202", "torch.log(x)", given(x=[-1.0, 1.0]), x=[0.5, 1.0])
hazard("WN202", "torch.log(1 + x)", given(x=[-2.0, 1.0]), x=[0.5, 1.0])
hazard("WN202", "torch.log1p(x)", given(x=[-2.0, 1.0]), x=[0.5, 1.0])
hazard(
    "WN202", "torch.mean((torch.log1p(x) - torch.log1p(y)) ** 2, -1)", given(x=[-2.0, 1.0], y=Y[:2]), x=X[:2], y=Y[:2]
)
for name in ("exp", "exp2", "expm1", "sinh", "cosh"):
    hazard("WN203", f"torch.{name}(x)", lambda f: {"x": [1.5 * steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN203", "torch.exp(x - y)", lambda f: {"x": [-1.0, 1.0], "y": [-steep(f) - 2, 1.0]}, x=X[:2], y=Y[:2])
hazard("WN203", "torch.exp(x / 0.1)", lambda f: {"x": [steep(f) / 10, 1.0]}, x=[0.5, 0.25])
hazard("WN203", "torch.exp(torch.mean(x, -1))", lambda f: {"x": [steep(f), steep(f)]}, x=X[:2])
hazard("WN204", "torch.lgamma(x)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN204", "torch.digamma(x)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
hazard("WN205", "torch.erfinv(x)", given(x=[1.0, 0.5]), x=[0.25, 0.5])
hazard("WN205", "torch.special.ndtri(x)", given(x=[0.0, 0.5]), x=[0.25, 0.5])
hazard("WN206", "torch.log(torch.softmax(x, -1))", lambda f: {"x": [0.0, gap(f)]}, x=[0.5, 1.0])
hazard(
    "WN206",
    "-torch.sum(y * torch.log(torch.softmax(x, -1)), -1)",
    lambda f: {"x": [0.0, gap(f)], "y": [1.0, 0.5]},
    x=[0.5, 1.0],
    y=[1.0, 0.5],
)
hazard(
    "WN206",
    "torch.log(torch.exp(x) / torch.sum(torch.exp(x), -1, keepdim=True))",
    lambda f: {"x": [-gap(f), 0.0]},
    x=[0.5, 1.0],
)
LARGEST = "torch.amax(x, -1, keepdim=True)"
hazard(
    "WN206",
    f"torch.log(torch.exp(x - {LARGEST}) / torch.sum(torch.exp(x - {LARGEST}), -1, keepdim=True))",
    lambda f: {"x": [-gap(f), 0.0]},
    x=[0.5, 1.0],
)
hazard("WN207", "torch.log(torch.sigmoid(x))", lambda f: {"x": [-gap(f), 0.0]}, x=[0.5, 1.0])
hazard(
    "WN207",
    "-torch.log(torch.sigmoid(0.5 * (x - y)))",
    lambda f: {"x": [-gap(f), 0.0], "y": [gap(f), 0.0]},
    x=[0.5, 1.0],
    y=[0.5, 0.5],
)
hazard("WN208", "torch.log(1 - torch.sigmoid(x))", lambda f: {"x": [flat(f), 0.0]}, x=[0.5, 1.0])
hazard("WN208", "torch.log1p(-torch.sigmoid(x))", lambda f: {"x": [flat(f), 0.0]}, x=[0.5, 1.0])
for square in ("torch.tanh(x) ** 2", "torch.square(torch.tanh(x))", "torch.tanh(x) * torch.tanh(x)"):
    hazard("WN209", f"torch.log(1 - {square})", lambda f: {"x": [flat(f), 0.0]}, x=[0.5, 1.0])
hazard("WN210", "x * torch.log(x)", given(x=[0.0, 1.0]), x=[0.5, 0.5])
hazard("WN210", "-torch.sum(x * torch.log(x), -1)", given(x=[0.0, 1.0]), x=[0.5, 0.5])
hazard("WN210", "-torch.sum(x * torch.log2(x), -1)", given(x=[0.0, 1.0]), x=[0.5, 0.5])
hazard("WN211", "torch.log(1 + torch.exp(x))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN211", "torch.log1p(torch.exp(x))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN212", "torch.log(torch.sum(torch.exp(x), -1))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN212", "torch.log(torch.mean(torch.exp(x), -1))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN213", "torch.exp(x) / (1 + torch.exp(x))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
slope("WN213", "1 / (1 + torch.exp(-x))", lambda f: {"x": [-steep(f), 1.0]}, x=[0.5, 1.0])
TANH = "(torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))"
hazard("WN214", TANH, lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN214", "(torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1)", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN215", "torch.log(torch.cosh(x))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN215", "torch.log((torch.exp(x) + torch.exp(-x)) / 2)", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
hazard("WN216", "x * (torch.log(x) - torch.log(y))", given(x=[0.0, 1.0], y=[0.5, 0.5]), x=P[:2], y=Q[:2])
hazard("WN216", "torch.sum(x * (torch.log(x) - torch.log(y)), -1)", given(x=[0.5, 0.5], y=[0.0, 1.0]), x=P, y=Q)
hazard("WN217", "-(y * torch.log(x) + (1 - y) * torch.log(1 - x))", given(x=[0.0, 0.5], y=[0.0, 1.0]), x=P[:2], y=Q[:2])
hazard(
    "WN217",
    "-torch.mean(y * torch.log(x) + (1 - y) * torch.log(1 - x), -1)",
    given(x=[1.0, 0.5], y=[1.0, 1.0]),
    x=P[:2],
    y=Q[:2],
)
hazard("WN218", "torch.log10(torch.mean(x ** 2, -1))", zeros("x"), x=X)
hazard("WN218", "10 * torch.log10(1 / torch.mean((x - y) ** 2, -1))", given(x=X, y=X), x=X, y=Y)
hazard("WN218", "-10 * torch.log10(F.mse_loss(x, y))", given(x=X, y=X), x=X, y=Y)

# -- roots and powers -------------------------------------------------------------------------------------------------
slope("WN301", "torch.sqrt(x)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
slope("WN301", "torch.asin(torch.sqrt(x))", given(x=[0.0, 0.5]), x=[0.25, 0.5])
slope("WN510", "torch.sum(y * torch.sqrt(x), -1)", given(x=[0.0, 1.0], y=[0.0, 1.0]), x=X[:2], y=Y[:2])
hazard("WN302", "torch.sqrt(x)", given(x=[-1e-4, 1.0]), x=[0.5, 1.0])
hazard("WN302", "torch.rsqrt(x)", given(x=[-1e-4, 1.0]), x=[0.5, 1.0])
slope("WN510", "torch.where(x > 0, torch.sqrt(x), torch.zeros_like(x))", given(x=[-1.0, 1.0]), x=[0.5, 1.0])
slope("WN303", "x ** 0.3", given(x=[0.0, 1.0]), x=[0.5, 1.0])
slope("WN303", "torch.sum(y * torch.pow(x, 0.7), -1)", given(x=[0.0, 1.0], y=[1.0, 2.0]), x=X[:2], y=Y[:2])
hazard("WN304", "x ** 0.3", given(x=[-1.0, 1.0]), x=[0.5, 1.0])
hazard("WN304", "torch.pow(x, y)", given(x=[-1.0, 1.0], y=[0.5, 1.0]), x=X[:2], y=Y[:2])
slope("WN305", "x ** y", given(x=[-2.0, 1.0], y=[2.0, 1.0]), x=X[:2], y=[2.0, 1.0])
slope("WN306", "torch.sqrt(torch.mean((x - y) ** 2, -1))", given(x=X, y=X), x=X, y=Y)
slope("WN306", "torch.sqrt(F.mse_loss(x, y))", given(x=X, y=X), x=X, y=Y)
slope("WN307", "torch.sign(x) * torch.sqrt(torch.abs(x))", given(x=[0.0, 1.0]), x=[-0.5, 1.0])
slope("WN307", "torch.abs(x) ** 0.5", given(x=[0.0, 1.0]), x=[-0.5, 1.0])
slope("WN308", "torch.sqrt(torch.sum(x ** 2, -1))", zeros("x"), x=X)
slope("WN308", "torch.sqrt(torch.sum(torch.square(x - y), -1))", given(x=X, y=X), x=X, y=Y)
slope("WN308", "torch.sum((x - y) * (x - y), -1) ** 0.5", given(x=X, y=X), x=X, y=Y)
slope("WN309", "torch.mean(x ** 3, -1) ** (1 / 3)", zeros("x"), x=X)
slope("WN309", "torch.sum(torch.pow(x, 4.0), -1) ** 0.25", zeros("x"), x=X)
slope("WN310", "torch.sqrt(torch.var(x, -1))", ALIKE, x=X)
slope("WN310", "torch.sqrt(torch.mean((x - torch.mean(x, -1, keepdim=True)) ** 2, -1))", ALIKE, x=X)
slope("WN311", "torch.sqrt(x ** 2 + y ** 2)", zeros("x", "y"), x=X, y=Y)
slope("WN311", "torch.sqrt(x * x + torch.square(y))", zeros("x", "y"), x=X, y=Y)

# -- angles, inverse functions and matrices ---------------------------------------------------------------------------
slope(
    "WN401",
    "torch.atan2(x, y)",
    lambda f: {"x": [0.1 / math.sqrt(f.max), 1.0], "y": [0.1 / math.sqrt(f.max), 1.0]},
    x=X[:2],
    y=Y[:2],
)
hazard("WN402", "torch.acos(x)", given(x=[1.25, 0.5]), x=[0.25, 0.5])
hazard("WN402", "torch.atanh(x)", given(x=[1.0, 0.5]), x=[0.25, 0.5])
hazard("WN402", "torch.acosh(x)", given(x=[0.5, 2.0]), x=[1.5, 2.0])
slope("WN402", "torch.acos(x)", given(x=[1.0, 0.5]), x=[0.25, 0.5])
slope("WN402", "torch.asin(x)", given(x=[-1.0, 0.5]), x=[0.25, 0.5])
slope("WN402", "torch.acosh(x)", given(x=[1.0, 2.0]), x=[1.5, 2.0])
TURN = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
APART = [[1.0, 0.5, 0.0], [0.5, 2.0, 0.25], [0.0, 0.25, 4.0]]
slope(
    "WN402",
    "torch.acos((torch.trace(x) - 1) / 2)",
    given(x=TURN),
    x=[[0.5, 0.1, 0.0], [0.1, 0.5, 0.0], [0.0, 0.0, 0.5]],
)
slope("WN403", "torch.linalg.eigh(x)[1][..., 0]", given(x=TURN), x=APART)
slope("WN403", "torch.linalg.svd(x)[0][..., 0]", given(x=TURN), x=APART)
hazard("WN404", "torch.linalg.inv_ex(x)[0]", given(x=[[1.0, 1.0], [1.0, 1.0]]), x=[[2.0, 1.0], [1.0, 1.0]])
hazard("WN404", "torch.logdet(x)", given(x=[[1.0, 1.0], [1.0, 1.0]]), x=[[2.0, 1.0], [1.0, 1.0]])
hazard("WN404", "torch.linalg.slogdet(x)[1]", given(x=[[1.0, 1.0], [1.0, 1.0]]), x=[[2.0, 1.0], [1.0, 1.0]])


def beyond(f: torch.finfo) -> float:
    """A mask that the dtype has no room for."""
    return _if_there(16.0 * f.min, -INF)


# -- softmax, attention and masks -------------------------------------------------------------------------------------
for function in ("softmax", "log_softmax"):
    hazard("WN501", f"torch.{function}(torch.masked_fill(x, m, {LOW}), -1)", given(x=X, m=NOTHING), x=X, m=[False] * 3)
hazard("WN501", "torch.softmax(x + y, -1)", given(x=X, y=[-INF] * 3), x=X, y=[-INF, 0.0, 0.0])
hazard(
    "WN501",
    f"torch.matmul(torch.softmax(torch.where(m, x, {LOW}), -1), y)",
    given(x=X, m=[False] * 3, y=Y),
    x=X,
    m=SEEN,
    y=Y,
)
slope("WN502", "torch.clamp(torch.logsumexp(x + y, -1), min=-5.0)", given(x=X, y=[-INF] * 3), x=X, y=[-INF, 0.0, 0.0])
hazard(
    "WN503", "torch.exp(x) / torch.sum(torch.exp(x), -1, keepdim=True)", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0]
)
hazard(
    "WN503",
    "-torch.log(torch.exp(x / 0.1)[..., 0] / torch.sum(torch.exp(x / 0.1), -1))",
    lambda f: {"x": [steep(f) / 10, 0.5]},
    x=[0.5, 0.25],
)
MASKED = f"torch.masked_fill(x, m, {LOW})"
hazard(
    "WN504",
    f"-torch.sum(torch.softmax({MASKED}, -1) * torch.log_softmax({MASKED}, -1), -1)",
    given(x=X, m=SEEN),
    x=X,
    m=[False, False, False],
)
hazard("WN504", "torch.exp(torch.log_softmax(x, -1)) * torch.log_softmax(x, -1)", given(x=[0.5, -INF]), x=[0.5, 1.0])
hazard(
    "WN505",
    f"y * torch.log_softmax({MASKED}, -1)",
    given(x=X, m=SEEN, y=[0.0, 1.0, 0.0]),
    x=X,
    m=[False] * 3,
    y=[0.0, 1.0, 0.0],
)
hazard("WN505", "F.cross_entropy(x, y)", given(x=[0.5, -INF], y=[1.0, 0.0]), x=[0.5, 1.0], y=[1.0, 0.0])
hazard(
    "WN505",
    "-torch.sum(y * (x - torch.logsumexp(x, -1, keepdim=True)), -1)",
    given(x=[0.5, -INF], y=[1.0, 0.0]),
    x=[0.5, 1.0],
    y=[1.0, 0.0],
)
hazard(
    "WN506",
    "x + (1 - y) * {low}",
    lambda _: {"x": X, "y": [1.0, 0.0, 1.0], "low": -INF},
    x=X,
    y=[1.0, 0.0, 1.0],
    low=-1000.0,
)
hazard(
    "WN506",
    "torch.softmax(x + y * {low}, -1)",
    lambda _: {"x": X, "y": [1.0, 0.0, 1.0], "low": -INF},
    x=X,
    y=[1.0, 0.0, 1.0],
    low=-1000.0,
)
hazard(
    "WN507",
    "torch.softmax(x + y + z, -1)",
    lambda f: {"x": X, "y": [f.min] * 3, "z": [f.min] * 3},
    x=X,
    y=[-8.0] * 3,
    z=[-8.0] * 3,
)
hazard(
    "WN508",
    "torch.softmax(x + y * {low}, -1)",
    lambda f: {"x": X, "y": [1.0, 1.0, 1.0], "low": beyond(f)},
    x=X,
    y=[1.0, 1.0, 0.0],
    low=-1000.0,
)
hazard(
    "WN508",
    "torch.softmax(x + (1 - y) * {low}, -1)",
    lambda f: {"x": X, "y": [0.0, 0.0, 0.0], "low": beyond(f)},
    x=X,
    y=[0.0, 1.0, 0.0],
    low=-1000.0,
)
hazard("WN509", "torch.softmax(x / y, -1)", given(x=X, y=[0.0]), x=X, y=[0.5])
hazard("WN509", "torch.log_softmax((x + z) / y, -1)", given(x=X, z=Y, y=[0.0]), x=X, z=Y, y=[0.5])

# -- reductions -------------------------------------------------------------------------------------------------------
hazard("WN601", "torch.mean(x[..., {start}:], -1)", given(x=X, start=3), x=X, start=2)
for name in ("std", "var"):
    hazard("WN601", f"torch.{name}(x[..., {{start}}:], -1)", given(x=X, start=2), x=X, start=1)
hazard("WN602", "F.cross_entropy(x, t)", given(x=[X, Y], t=[-100, -100]), x=[X, Y], t=[-100, 1])
hazard("WN602", "F.nll_loss(torch.log_softmax(x, -1), t)", given(x=[X, Y], t=[-100, -100]), x=[X, Y], t=[-100, 1])
CTC = "F.ctc_loss(torch.log_softmax(x, -1), t, n, s)"
STEPS = [[[0.5, 1.0, 2.0]]] * 2
hazard("WN603", CTC, given(x=STEPS, t=[[1, 2, 1]], n=[2], s=[3]), x=STEPS, t=[[1, 2, 1]], n=[2], s=[2])

# -- precision and accumulation ---------------------------------------------------------------------------------------
hazard("WN701", "x * y", lambda f: {"x": [root(f), 1.0], "y": [root(f), 1.0]}, x=X[:2], y=Y[:2])
hazard("WN701", "x + y", lambda f: {"x": [0.75 * f.max, 1.0], "y": [0.75 * f.max, 1.0]}, x=X[:2], y=Y[:2])
hazard("WN701", "torch.sum(x, -1)", lambda f: {"x": [f.max] * 3}, x=X)
hazard("WN701", "torch.cumsum(x, -1)", lambda f: {"x": [f.max] * 3}, x=X)
hazard("WN701", "x ** 2", lambda f: {"x": [root(f), 1.0]}, x=X[:2])
hazard("WN701", "torch.logsumexp(x, -1) ** 2", lambda f: {"x": [root(f), 1.0]}, x=X[:2])
hazard(
    "WN701",
    "torch.matmul(x, y)",
    lambda f: {"x": [[root(f)] * 2] * 2, "y": [[root(f)] * 2] * 2},
    x=[X[:2]] * 2,
    y=[Y[:2]] * 2,
)
hazard("WN701", "(x * 2) * 2", lambda f: {"x": [0.4 * f.max, 1.0]}, x=X[:2])
slope("WN701", "(x * {high}) * {high}", lambda f: {"x": [0.0, 0.0], "high": root(f)}, x=[0.5, 1.0], high=2.0)
hazard(
    "WN702",
    "torch.matmul(x, y) / 8",
    lambda f: {"x": [[narrow(f)] * 2] * 2, "y": [[narrow(f)] * 2] * 2},
    x=[X[:2]] * 2,
    y=[Y[:2]] * 2,
)
hazard(
    "WN702",
    "torch.softmax(torch.matmul(x, y) * 0.125, -1)",
    lambda f: {"x": [[narrow(f)] * 2] * 2, "y": [[narrow(f)] * 2] * 2},
    x=[X[:2]] * 2,
    y=[Y[:2]] * 2,
)


def vanishing(f: torch.finfo) -> float:
    """A small number that is 0 in the dtype."""
    return _if_there(least(f) / 8, 0.0)


def _if_there(number: float, *others: float) -> float:
    if number in others:
        raise NoSuchNumberError
    return number


hazard("WN704", "1 / (x + {eps})", lambda f: {"x": [0.0, 1.0], "eps": vanishing(f)}, x=[0.5, 1.0], eps=0.125)
hazard("WN704", "torch.log(x + {eps})", lambda f: {"x": [0.0, 1.0], "eps": vanishing(f)}, x=[0.5, 1.0], eps=0.125)
hazard(
    "WN704",
    "x / (torch.norm(x, dim=-1, keepdim=True) + {eps})",
    lambda f: {"x": [0.0, 0.0], "eps": vanishing(f)},
    x=[0.5, 1.0],
    eps=0.125,
)
hazard(
    "WN704",
    "torch.log(torch.clamp(x, min={eps}))",
    lambda f: {"x": [0.0, 1.0], "eps": vanishing(f)},
    x=[0.5, 1.0],
    eps=0.125,
)
hazard(
    "WN704",
    "F.normalize(x, dim=-1, eps={eps})",
    lambda f: {"x": [0.0, 0.0], "eps": vanishing(f)},
    x=[0.5, 1.0],
    eps=0.125,
)
slope("WN704", "torch.sqrt(x + {eps})", lambda f: {"x": [0.0, 1.0], "eps": vanishing(f)}, x=[0.5, 1.0], eps=0.125)


def rounded(f: torch.finfo) -> Values:
    """A bound below 1 that is 1 in the dtype, and an operand beyond it."""
    return {"x": [1.0, 0.5], "top": _if_there(1 - f.eps / 8, 1.0)}


hazard("WN705", "torch.log(1 - torch.clamp(x, 0.0, {top}))", rounded, x=[0.25, 0.5], top=0.875)
hazard("WN705", "torch.atanh(torch.clamp(x, -{top}, {top}))", rounded, x=[0.25, 0.5], top=0.875)
hazard("WN705", "torch.logit(torch.clamp(x, 0.125, {top}))", rounded, x=[0.25, 0.5], top=0.875)
slope(
    "WN802", "x * y + x * z", lambda f: {"x": [0.0], "y": [0.7 * f.max], "z": [0.6 * f.max]}, x=[1.0], y=[2.0], z=[3.0]
)

# -- data and literals ------------------------------------------------------------------------------------------------
hazard("WN001", "torch.relu(x * 2)", given(x=[NAN, 1.0]), x=[0.5, 1.0])
