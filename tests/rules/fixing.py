"""The hazards that a fix is known for, as programs: by their number in docs/hazards.md, in several spellings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from tests.quality.variants.hazards import ALIKE, INF, Hazard, Values, flat, gap, given, root, steep, zeros

X: Final = [0.5, 1.0, 2.0]
Y: Final = [1.5, 0.75, 0.25]
FORMS: Final = ("function", "method", "split", "in-place", "helper")
"""How each program is written; what the operations do not allow is left out."""


@dataclass(frozen=True)
class Row:
    """A hazard by its number, the rules that it may be explained by, and its operands' dtype.

    ``rewritten``: a rewrite of it was checked before there were fixes; its fix has to be verified.
    """

    number: int
    hazard: Hazard
    dtype: str = "float32"
    rewritten: bool = True

    def __str__(self) -> str:
        return f"{self.number} {self.hazard}"


ROWS: Final[list[Row]] = []


def _row(number: int, rule: str, code: str, bad: Callable[[torch.finfo], Values], /, **good: Any) -> None:
    ROWS.append(Row(number, Hazard(rule, code, bad, good)))


def _slope(number: int, rule: str, code: str, bad: Callable[[torch.finfo], Values], /, **good: Any) -> None:
    ROWS.append(Row(number, Hazard(rule, code, bad, good, backward=True)))


def _half(number: int, rule: str, code: str, bad: Callable[[torch.finfo], Values], /, **good: Any) -> None:
    ROWS.append(Row(number, Hazard(rule, code, bad, good), "float16"))


def _further(number: int, rule: str, code: str, bad: Callable[[torch.finfo], Values], /, **good: Any) -> None:
    ROWS.append(Row(number, Hazard(rule, code, bad, good), rewritten=False))


def _further_slope(number: int, rule: str, code: str, bad: Callable[[torch.finfo], Values], /, **good: Any) -> None:
    ROWS.append(Row(number, Hazard(rule, code, bad, good, backward=True), rewritten=False))


_row(
    1,
    "WN206",
    "-torch.sum(y * torch.log(torch.softmax(x, -1)), -1)",
    lambda f: {"x": [0.0, gap(f)], "y": [1.0, 0.5]},
    x=[0.5, 1.0],
    y=[1.0, 0.5],
)
_row(2, "WN207", "torch.log(torch.sigmoid(x))", lambda f: {"x": [-gap(f), 0.0]}, x=[0.5, 1.0])
_row(3, "WN208", "torch.log(1 - torch.sigmoid(x))", lambda f: {"x": [flat(f), 0.0]}, x=[0.5, 1.0])
_row(4, "WN211", "torch.log(1 + torch.exp(x))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
_row(5, "WN212", "torch.log(torch.sum(torch.exp(x), -1))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
_row(
    6,
    "WN503",
    "torch.exp(x) / torch.sum(torch.exp(x), -1, keepdim=True)",
    lambda f: {"x": [steep(f), 1.0]},
    x=[0.5, 1.0],
)
_row(7, "WN213", "torch.exp(x) / (1 + torch.exp(x))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
_slope(7, "WN213", "1 / (1 + torch.exp(-x))", lambda f: {"x": [-steep(f), 1.0]}, x=[0.5, 1.0])
_row(
    8,
    "WN214",
    "(torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))",
    lambda f: {"x": [steep(f), 1.0]},
    x=[0.5, 1.0],
)
_row(9, "WN215", "torch.log(torch.cosh(x))", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
_row(10, "WN209", "torch.log(1 - torch.tanh(x) ** 2)", lambda f: {"x": [flat(f), 0.0]}, x=[0.5, 1.0])
_row(11, "WN210", "-torch.sum(x * torch.log(x), -1)", given(x=[0.0, 1.0]), x=[0.5, 0.5])
_row(12, "WN504", "-torch.sum(torch.softmax(x, -1) * torch.log_softmax(x, -1), -1)", given(x=[-INF, 1.0, 2.0]), x=X)
_row(
    15,
    "WN217",
    "-(y * torch.log(torch.sigmoid(x)) + (1 - y) * torch.log(1 - torch.sigmoid(x)))",
    lambda f: {"x": [-gap(f), flat(f)], "y": [1.0, 0.0]},
    x=X[:2],
    y=Y[1:],
)
_row(22, "WN101", "torch.log(y) + x ** 2 / y", zeros("x", "y"), x=X, y=Y)
_row(23, "WN203", "torch.exp(x)", lambda f: {"x": [1.5 * steep(f), 1.0]}, x=[0.5, 1.0])
_row(27, "WN113", "2 * torch.sum(x * y, -1) / (torch.sum(x, -1) + torch.sum(y, -1))", zeros("x", "y"), x=X, y=Y)
_slope(28, "WN306", "torch.sqrt(torch.mean((x - y) ** 2, -1))", given(x=X, y=X), x=X, y=Y)
_slope(31, "WN301", "torch.sqrt(x)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
_slope(33, "WN307", "torch.sign(x) * torch.sqrt(torch.abs(x))", given(x=[0.0, 1.0]), x=[-0.5, 1.0])
_slope(34, "WN308", "torch.sqrt(torch.sum(x ** 2, -1))", zeros("x"), x=X)
_slope(34, "WN308", "torch.sqrt(torch.sum((x - y) ** 2, -1))", given(x=X, y=X), x=X, y=Y)
_slope(36, "WN101", "torch.hypot(x, y)", zeros("x", "y"), x=X, y=Y)
_row(37, "WN109", "x / torch.norm(x, dim=-1, keepdim=True)", zeros("x"), x=X)
_further(37, "WN109", "x * torch.rsqrt(torch.mean(x * x, -1, keepdim=True))", zeros("x"), x=X)
_row(
    39,
    "WN110",
    "torch.sum(x * y, -1) / (torch.norm(x, dim=-1) * torch.norm(y, dim=-1))",
    given(x=[0.0, 0.0, 0.0], y=Y),
    x=X,
    y=Y,
)
_row(40, "WN102", "torch.rsqrt(x)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
_row(40, "WN102", "1 / x", given(x=[0.0, 1.0]), x=[0.5, 1.0])
_slope(44, "WN309", "torch.mean(x ** 3, -1) ** (1 / 3)", zeros("x"), x=X)
_slope(45, "WN201", "torch.exp(torch.sum(torch.log(x), -1))", given(x=[0.0, 1.0]), x=[0.5, 1.0])
_row(47, "WN111", "(x - torch.mean(x, -1, keepdim=True)) / torch.std(x, -1, keepdim=True)", ALIKE, x=X)
_slope(48, "WN310", "torch.sqrt(torch.var(x, -1))", ALIKE, x=X)
_row(50, "WN601", "torch.sum(x * y, -1) / torch.sum(y, -1)", given(x=X, y=[0.0, 0.0, 0.0]), x=X, y=[1.0, 0.0, 1.0])
_half(
    52,
    "WN701",
    "x / torch.sqrt(torch.mean(x ** 2, -1, keepdim=True) + 1e-6)",
    lambda f: {"x": [root(f), root(f) / 2]},
    x=X,
)
_slope(55, "WN402", "torch.acos(x)", given(x=[1.0, 0.5]), x=[0.25, 0.5])
_row(58, "WN402", "torch.atanh(x)", given(x=[1.0, 0.5]), x=[0.25, 0.5])
_row(60, "WN201", "torch.logit(x)", given(x=[1.0, 0.5]), x=[0.25, 0.5])
_row(63, "WN115", "torch.sin(x) / x", given(x=[0.0, 1.0]), x=[0.5, 1.0])
_row(63, "WN115", "(torch.exp(x) - 1) / x", given(x=[0.0, 1.0]), x=[0.5, 1.0])
_slope(65, "WN510", "torch.where(x > 0, torch.log(x), torch.zeros_like(x))", given(x=[0.0, 1.0]), x=[0.5, 1.0])
_slope(66, "WN510", "torch.nan_to_num(torch.log(x), neginf=0.0)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
_slope(67, "WN510", "torch.where(x > 0, x, torch.exp(x) - 1)", lambda f: {"x": [steep(f), -1.0]}, x=[1.0, -1.0])
_row(69, "WN501", "torch.softmax(x, -1)", given(x=[-INF, -INF]), x=[0.5, 1.0])
_half(
    75,
    "WN702",
    "torch.matmul(x, y) / 8",
    lambda f: {n: [[0.97 * math.sqrt(f.max)] * 2] * 2 for n in "xy"},
    x=[X[:2]] * 2,
    y=[Y[:2]] * 2,
)
_slope(
    81,
    "WN502",
    "torch.clamp(torch.logsumexp(x + y, -1), min=-5.0)",
    given(x=[0.5, 1.0], y=[-INF, -INF]),
    x=[0.5, 1.0],
    y=[-1.0, -2.0],
)
_row(85, "WN404", "torch.linalg.inv_ex(x)[0]", given(x=[[1.0, 1.0], [1.0, 1.0]]), x=[[2.0, 0.5], [0.5, 1.0]])
_row(86, "WN404", "torch.logdet(x)", given(x=[[1.0, 1.0], [1.0, 1.0]]), x=[[2.0, 0.5], [0.5, 1.0]])
_slope(87, "WN403", "torch.linalg.eigh(x)[1][:, 0]", given(x=[[1.0, 0.0], [0.0, 1.0]]), x=[[2.0, 0.5], [0.5, 1.0]])
_row(
    90,
    "WN116",
    "torch.cumprod(x, -1)[..., 1:] / torch.cumprod(x, -1)[..., :-1]",
    lambda f: {"x": [math.sqrt(f.tiny) / 64] * 4},
    x=[0.5, 0.5, 0.5, 0.5],
)
_slope(91, "WN311", "torch.sqrt(x ** 2 + y ** 2)", zeros("x", "y"), x=X, y=Y)

_further(
    13, "WN216", "x * (torch.log(x) - torch.log(y))", given(x=[0.0, 1.0], y=[0.5, 0.5]), x=[0.25, 0.5], y=[0.5, 0.25]
)
_further(
    15,
    "WN217",
    "-(y * torch.log(x) + (1 - y) * torch.log(1 - x))",
    given(x=[0.0, 0.5], y=[0.0, 1.0]),
    x=[0.25, 0.5],
    y=[0.5, 0.25],
)
_further(26, "WN201", "(1 - x) ** 2 * torch.log(x)", given(x=[0.0, 0.5]), x=[0.25, 0.5])
_further(29, "WN114", "torch.abs((y - x) / y)", given(x=[1.0, 1.0], y=[0.0, 1.0]), x=[0.5, 1.0], y=[2.0, 1.0])
_further(30, "WN202", "torch.log(1 + x)", given(x=[-2.0, 1.0]), x=[0.5, 1.0])
_further(32, "WN302", "torch.sqrt(x)", given(x=[-1e-4, 1.0]), x=[0.5, 1.0])
_further(41, "WN117", "1 / x", lambda f: {"x": [f.tiny * f.eps, 1.0]}, x=[0.5, 1.0])
_further_slope(42, "WN305", "x ** y", given(x=[-2.0, 1.0], y=[2.0, 1.0]), x=X[:2], y=[2.0, 1.0])
_further(43, "WN304", "x ** 0.3", given(x=[-1.0, 1.0]), x=[0.5, 1.0])
_further_slope(57, "WN301", "torch.asin(torch.sqrt(x))", given(x=[0.0, 0.5]), x=[0.25, 0.5])
_further_slope(59, "WN402", "torch.acosh(x)", given(x=[1.0, 2.0]), x=[1.5, 2.0])
_further(61, "WN205", "torch.erfinv(x)", given(x=[1.0, 0.5]), x=[0.25, 0.5])
_further(62, "WN204", "torch.lgamma(x)", given(x=[0.0, 1.0]), x=[0.5, 1.0])
_further(64, "WN102", "torch.fmod(x, y)", given(x=[2.0, 1.0], y=[0.0, 1.0]), x=[0.5, 1.0], y=[2.0, 1.0])
_further(93, "WN101", "x / torch.sum(x, -1, keepdim=True)", zeros("x"), x=X)
_further_slope(0, "WN401", "torch.atan2(x, y)", given(x=[1e-20, 1.0], y=[1e-20, 1.0]), x=X[:2], y=Y[:2])
