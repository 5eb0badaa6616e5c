"""Of every expression that a fix looks for: operands on which it is bad, and operands on which it is healthy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch

from tests.quality.variants.hazards import INF, flat, gap, least, narrow, root, steep
from tests.rules.evaluating import MISSING

Values = dict[str, Any]
"""Operands by name: lists of floats become tensors of the dtype, other lists of their own; the rest is as it is."""
Bad = Callable[[torch.finfo], Values]

OPERANDS: Final[dict[str, tuple[Bad, Values]]] = {}
"""By the pattern."""
GIVEN: Final[Values] = {"d": -1, "k": False}
"""What stands for a dimension and for keepdim, where no operand says another."""
X: Final = [0.5, 1.0, 2.0]
Y: Final = [1.5, 0.75, 0.25]
P: Final = [0.25, 0.5, 0.125]
Q: Final = [0.5, 0.25, 0.25]


def of(pattern: str, bad: Values | Bad, /, **good: Any) -> None:
    """Note the operands of a pattern."""
    OPERANDS[pattern] = (bad if callable(bad) else lambda _: bad), good


# -- one operand ------------------------------------------------------------------------------------------------------
for _name in ("log", "log2", "log10", "sqrt", "rsqrt"):
    of(f"{_name}(x)", {"x": [0.0, 1.0]}, x=[0.5, 2.0])
for _name in ("exp", "exp2", "expm1", "sinh", "cosh"):
    of(f"{_name}(x)", lambda f: {"x": [1.6 * steep(f), 1.0]}, x=[-0.5, 2.0])
for _name in ("sin", "cos", "tan"):
    of(f"{_name}(x)", {"x": [INF, 1.0]}, x=[0.5, -2.0])
for _name in ("silu", "gelu", "mish", "hardswish"):
    of(f"{_name}(x)", {"x": [-INF, 1.0]}, x=[0.5, -2.0])
for _name in ("acos", "asin", "atanh", "erfinv"):
    of(f"{_name}(x)", {"x": [1.0, -1.0, 0.5]}, x=[0.5, -0.25])
for _name in ("lgamma", "digamma"):
    of(f"{_name}(x)", {"x": [0.0, -1.0, 2.5]}, x=[0.5, 2.5])
for _name in ("logit", "ndtri"):
    of(f"{_name}(x)", {"x": [0.0, 1.0, 0.5]}, x=[0.25, 0.5])
for _name in ("log", "log2", "log10"):
    of(f"{_name}(1 - x)", {"x": [1.0, 0.5]}, x=[0.25, -3.0])
of("x / (1 - x)", {"x": [1.0, 0.5]}, x=[0.25, -3.0])
of("log1p(x)", {"x": [-1.0, 1.0]}, x=[-0.5, 2.0])
for _name in ("log(1 - exp(x))", "log1p(-exp(x))"):
    of(_name, lambda f: {"x": [-f.eps / 8, -1.0]}, x=[-0.5, -2.0])
of("acosh(x)", {"x": [1.0, 0.5, 2.0]}, x=[1.5, 3.0])
of("rsqrt(b)", {"b": [0.0, 1.0]}, b=[0.5, 2.0])

# -- quotients and products -------------------------------------------------------------------------------------------
of("x * log(x / y)", {"x": [0.0, 0.5], "y": [0.5, 0.5]}, x=P, y=Q)
of("a / b", {"a": [0.0, 1.0], "b": [0.0, 0.0]}, a=[0.5, -1.0], b=[2.0, -0.25])
of("atan(a / b)", {"a": [1.0, -1.0, 1.0], "b": [0.0, 0.0, 2.0]}, a=[0.5, -1.0], b=[2.0, -0.25])
for _name in ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh"):
    of(f"({_name}(x)) / x", {"x": [0.0, 0.5]}, x=[0.5, -0.25])
    of(f"x / ({_name}(x))", {"x": [0.0, 0.5]}, x=[0.5, -0.25])
for _name in ("exp(x) - 1", "1 - exp(-x)", "log(1 + x)"):
    of(f"({_name}) / x", {"x": [0.0, 0.5]}, x=[0.5, -0.25])
    of(f"x / ({_name})", {"x": [0.0, 0.5]}, x=[0.5, -0.25])
for _below in (
    *(f"{_name}(x)" for _name in ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh")),
    *("exp(x) - 1", "1 - exp(-x)", "log(1 + x)"),
):
    of(f"x / (a * ({_below}))", {"a": [2.0, 0.5], "x": [0.0, 0.5]}, a=[2.0, 0.5], x=[0.5, -0.25])
of("(1 - cos(x)) / x", {"x": [0.0, 0.5]}, x=[0.5, -1.5])
of("(1 - cos(x)) / x ** 2", {"x": [0.0, 0.5]}, x=[0.5, -1.5])
for _above in (
    *(f"{_name}(a * x)" for _name in ("sin", "sinh", "tan", "tanh")),
    *("exp(a * x) - 1", "1 - exp(-a * x)", "1 - cos(a * x)"),
):
    of(f"({_above}) / x", {"a": [1.5, 2.0], "x": [0.0, 0.5]}, a=[1.5, 2.0], x=[0.5, -0.25])
    of(
        f"(b * ({_above})) / x",
        {"a": [1.5, 2.0], "b": [0.5, 3.0], "x": [0.0, 0.5]},
        a=[1.5, 2.0],
        b=[0.5, 3.0],
        x=[0.5, -0.25],
    )
for _name in ("sin", "sinh"):
    of(f"{_name}(a * x) / {_name}(x)", {"a": [1.5, 0.25], "x": [0.0, 0.5]}, a=[1.5, 0.25], x=[0.5, -0.25])
for _above in (f"{_name}(a * x / c)" for _name in ("sin", "sinh", "tan", "tanh")):
    of(f"({_above}) / x", {"a": [1.5, 2.0], "c": 2.5, "x": [0.0, 0.5]}, a=[1.5, 2.0], c=2.5, x=[0.5, -0.25])
    of(
        f"(b * ({_above})) / x",
        {"a": [1.5, 2.0], "b": [0.5, 3.0], "c": 2.5, "x": [0.0, 0.5]},
        a=[1.5, 2.0],
        b=[0.5, 3.0],
        c=2.5,
        x=[0.5, -0.25],
    )
of("(x - sin(x)) / x ** 3", {"x": [0.0, 0.5]}, x=[1.5, -2.5])
of("(x ** p - 1) / p", {"x": [2.0, 3.0], "p": [0.0, 1.0]}, x=[2.0, 3.0], p=[0.5, -1.0])
of("log(x) / (x - 1)", {"x": [1.0, 2.0]}, x=[0.5, 2.0])
of("acos(x) / sqrt(1 - x ** 2)", {"x": [1.0, 0.5]}, x=[0.5, -0.25])
for _part in ("softmax(x, d)", "exp(x)"):
    of(
        f"y * {_part} / sum(y * {_part}, d, True)",
        lambda f: {
            "x": [-steep(f), -1.5 * steep(f), 0.0],
            "y": torch.tensor([1.0, 1.0, 0.0], dtype=getattr(torch, f.dtype)),
        },
        x=X,
        y=[1.0, 0.5, 1.0],
    )
of("nanmedian(x, d, k)", {"x": [[INF - INF, INF - INF], [1.0, INF - INF]]}, x=[[0.5, 2.0, 1.0]])
of("sqrt(a * b)", lambda f: {"a": [least(f) * 16, 1.0], "b": [least(f) * 16, 2.0]}, a=[0.5, 2.0], b=[0.25, 3.0])
of(
    "c / sqrt(a * b)",
    lambda f: {"a": [f.tiny, 1.0], "b": [f.tiny, 2.0], "c": [f.tiny, 1.0]},
    a=[0.5, 2.0],
    b=[0.25, 3.0],
    c=[1.0, 3.0],
)
of("a / abs(b)", {"a": [0.0, 1.0], "b": [0.0, 0.0]}, a=[0.5, -1.0], b=[2.0, -0.25])
of("a / (b + e)", lambda f: {"a": [1.0], "b": [0.0], "e": least(f) / 8}, a=[0.5, 1.0], b=[16.0, 8.0], e=0.0)
for _name in ("fmod", "remainder"):
    of(f"{_name}(a, b)", {"a": [1.0, 2.0], "b": [0.0, 1.5]}, a=[1.0, 2.0], b=[0.75, 1.5])
of("b ** p", {"b": [0.0, 2.0], "p": -1.5}, b=[0.5, 2.0], p=-1.5)
of("x ** p", {"x": [0.0, 2.0], "p": 0.3}, x=[0.5, 2.0], p=0.3)
of("WN304 x ** p", {"x": [-1.0, 2.0], "p": 0.3}, x=[0.5, 2.0], p=0.3)
of("WN305 x ** p", {"x": [-1.0, 2.0], "p": [2.0, 2.0]}, x=[0.5, 2.0], p=[2.0, 0.5])
of("WN117 a / b", lambda f: {"a": 1.0, "b": [least(f), -least(f), 0.0]}, a=1.0, b=[2.0, -0.25])
of("WN202 log1p(x)", {"x": [-2.0, 1.0]}, x=[0.5, 2.0])
for _name in ("log", "log2", "log10"):
    of(f"WN202 {_name}(x)", {"x": [-2.0, 0.0, 1.0]}, x=[0.5, 2.0])
for _name in ("sqrt", "rsqrt"):
    of(f"WN302 {_name}(x)", {"x": [-2.0, 0.0, 1.0]}, x=[0.5, 2.0])
of("a * b", {"a": [0.0, 1.0], "b": [INF, 1.0]}, a=[0.0, -1.0], b=[2.0, 3.0])
of("x * m", {"x": [INF, 1.0], "m": [0.0, 1.0], "data": ("m",)}, x=[2.0, 3.0], m=[0.0, -1.0], data=("m",))
of("WN506 m * c", {"m": [0.0, 0.0], "c": -INF}, m=[1.0], c=-math.inf)
of("WN508 m * c", lambda f: {"m": [1.5, 0.0], "c": f.min, "data": ("m",)}, m=[0.5], c=-2.0)
of("x - amax(x, d, k)", {"x": [-INF, -INF]}, x=[0.5, 2.0])
of("a - b", {"a": [INF, 1.0], "b": [INF, 2.0]}, a=[0.5, 2.0], b=[0.5, 3.0])
of("exp(a - b)", {"a": [-INF, 1.0], "b": [-INF, 2.0]}, a=[0.5, 2.0], b=[0.5, 3.0])
of("a + b", lambda f: {"a": [f.min, 1.0], "b": [f.min, 2.0], "data": ("a", "b")}, a=[0.5, 2.0], b=[0.5, 3.0])
of("log(v) + a / v", {"v": [0.0, 1.0], "a": [0.0, 2.0]}, v=[0.5, 2.0], a=[1.0, 0.25])
of("(x - a) / (b - a)", {"x": [1.0, 1.0], "a": [1.0, 1.0], "b": [1.0, 1.0]}, x=X, a=[0.5] * 3, b=[2.0] * 3)
for _name, _shape in {"matmul": 2, "mm": 2, "bmm": 3, "mv": 1, "dot": 0}.items():
    _row: Any = [[0.0, 1.0]] if _shape else [0.0, 1.0]
    _column: Any = [[INF], [1.0]] if _shape > 1 else [INF, 1.0]
    _other: Any = [[2.0], [3.0]] if _shape > 1 else [2.0, 3.0]
    _bad, _good = {"a": _row, "b": _column}, {"a": _row, "b": _other}
    if _shape == 3:
        _bad, _good = ({k: [v] for k, v in held.items()} for held in (_bad, _good))
    of(f"{_name}(a, b)", _bad, **_good)
for _name in ("matmul", "bmm"):
    for _by, _s in (("/", 8.0), ("*", 0.125)):
        _deep = (lambda v: [v]) if _name == "bmm" else (lambda v: v)
        of(
            f"{_name}(a, b) {_by} s",
            lambda f, _deep=_deep, _s=_s: {n: _deep([[narrow(f)] * 2] * 2) for n in "ab"} | {"s": _s},
            a=_deep([[0.5, 1.0], [2.0, 4.0]]),
            b=_deep([[1.5, 0.75], [0.25, 3.0]]),
            s=_s,
        )

# -- norms, deviations, roots of sums ---------------------------------------------------------------------------------
for _norm in ("vector_norm(x, 2, d, True)", "sqrt(sum(x**2, d, True))"):
    of(f"x / {_norm}", {"x": [0.0, 0.0, 0.0]}, x=X)
for _pattern in (
    "sum(a * b, d) / (vector_norm(a, 2, d) * vector_norm(b, 2, d))",
    "sum(a * b, d) / (sqrt(sum(a**2, d)) * sqrt(sum(b**2, d)))",
    "sum(a * b, d) / sqrt(sum(a**2, d) * sum(b**2, d))",
):
    of(_pattern, {"a": [0.0, 0.0, 0.0], "b": Y}, a=X, b=Y)
for _pattern in (
    "(x - mean(x, d, True)) / std(x, d, correction=c, keepdim=True)",
    "(x - mean(x, d, True)) / sqrt(var(x, d, correction=c, keepdim=True))",
    "(x - mean(x, d, True)) / sqrt(mean((x - mean(x, d, True)) ** 2, d, True))",
):
    of(_pattern, {"x": [1.0, 1.0, 1.0], "c": 1}, x=X, c=1)
of("a / std(x, d, correction=c, keepdim=k)", {"a": [0.0], "x": [1.0, 1.0], "c": 1}, a=[1.0], x=X, c=1)
of("vector_norm(x, 2, d, k)", {"x": [0.0, 0.0]}, x=X)
for _pattern in ("sqrt(sum(x**2, d, k))", "sqrt(mean(x**2, d, k))"):
    of(_pattern, {"x": [0.0, 0.0, 0.0]}, x=X)
of("log(mean(x**2, d, k))", {"x": [0.0, 0.0, 0.0]}, x=X)
for _pattern in ("sqrt(a**2 + b**2)", "hypot(a, b)"):
    of(_pattern, {"a": [0.0, 1.0], "b": [0.0, 0.0]}, a=[0.5, -1.0], b=[2.0, 0.25])
for _name, _q in (("mean", 0.25), ("sum", 0.25)):
    of(f"{_name}(x ** p, d, k) ** q", {"x": [0.0, 0.0], "p": 4.0, "q": _q}, x=X, p=4.0, q=_q)
for _pattern in (
    "sqrt(var(x, d, correction=c, keepdim=k))",
    "sqrt(mean((x - mean(x, d, True)) ** 2, d, k))",
    "sqrt(mean(x**2, d, k) - mean(x, d, k) ** 2)",
):
    of(_pattern, {"x": [1.0, 1.0, 1.0], "c": 1}, x=X, c=1)
for _name in ("std", "var", "std_mean", "var_mean"):
    of(f"{_name}(x, d, correction=c, keepdim=k)", {"x": [1.0], "c": 1}, x=X, c=1)
    of(f"{_name}(x, d, keepdim=k)", {"x": [3.0]}, x=X)
of("sign(x) * sqrt(abs(x))", {"x": [0.0, 1.0]}, x=[0.5, -2.0])
of("atan2(y, x)", lambda f: {"y": [math.sqrt(f.tiny) / 8], "x": [math.sqrt(f.tiny) / 8]}, y=[0.5, -1.0], x=[-1.0, 2.0])
for _name in ("layer_norm", "group_norm"):
    _extra: Values = {"s": (3,) if _name == "layer_norm" else 1, "w": None, "b": None}
    of(f"{_name}(x, s, w, b, eps=e)", _extra | {"x": [[1.0] * 3], "e": 0.0}, x=[X], e=0.0, **_extra)

# -- logarithms and exponentials --------------------------------------------------------------------------------------
for _above in ("sin(x)", "tanh(x)", "expm1(x)", "log1p(x)", "1 - cos(x)", "exp(x) - 1", "log(1 + x)"):
    of(f"({_above}) / x", {"x": [0.0, 1.0]}, x=[0.5, 2.0])
of("sin(x) / x", {"x": [0.0, 1.0]}, x=[0.5, 2.0])
of("a / exp(x)", lambda f: {"a": 1, "x": [1.01 * math.log(least(f))]}, a=1, x=[0.5, -2.0])
for _dim, _later, _earlier in (("-1", "..., 1:", "..., :-1"), ("0", "1:", ":-1")):
    of(f"cumprod(x, {_dim})[{_later}] / cumprod(x, {_dim})[{_earlier}]", {"x": [0.0, 0.5, 0.5]}, x=[0.5, 2.0, 0.25])
of("exp(sum(log(x), d, k))", {"x": [0.0, 2.0]}, x=X)
of("xlogy(y, x)", {"y": [1.0, 1.0], "x": [0.0, 1.0]}, y=[0.0, 0.5], x=[0.5, 2.0])
of("log(exp(x))", lambda f: {"x": [-gap(f), 0.0]}, x=[0.5, -1.0])
for _of in ("exp(x) / a", "a * exp(x)"):
    of(f"log({_of})", lambda f: {"x": [-gap(f), 0.0], "a": [2.0, 1.5]}, x=[0.5, -1.0], a=[1.5, 0.5])
of("log(softmax(x, d))", lambda f: {"x": [0.0, gap(f)]}, x=[0.5, 1.0])
of("xlogy(y, softmax(x, d))", lambda f: {"y": [0.5, 1.0], "x": [0.0, gap(f)]}, y=[0.5, 1.0], x=[0.5, 1.0])
for _sum in ("sum(exp(x), d, True)", "sum(exp(x))", "unsqueeze(sum(exp(x), d), d)"):
    of(f"exp(x) / {_sum}", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
    if "unsqueeze" in _sum:
        continue
    of(f"log(exp(x) / {_sum})", lambda f: {"x": [steep(f), 1.0]}, x=[0.5, 1.0])
of("log(sigmoid(x))", lambda f: {"x": [-gap(f), 0.0]}, x=[0.5, -1.0])
of("log(1 / (1 + exp(-x)))", lambda f: {"x": [-steep(f), 0.0]}, x=[0.5, -1.0])
of("log(0.5 * (1 + tanh(x)))", lambda f: {"x": [-gap(f), 0.0]}, x=[0.5, -1.0])
of("log(1 - sigmoid(x))", lambda f: {"x": [flat(f), 0.0]}, x=[0.5, -1.0])
of("log(c - sigmoid(x))", lambda f: {"x": [flat(f), 0.0], "c": 1 - f.eps}, x=[0.5, -1.0], c=1.0)
for _pattern in ("log(1 - tanh(x) ** 2)", "log((1 - tanh(x)) * (1 + tanh(x)))"):
    of(_pattern, lambda f: {"x": [flat(f), -flat(f), 0.0]}, x=[0.5, -1.0])
of("x * log(x)", {"x": [0.0, 1.0]}, x=[0.5, 2.0])
of("log(1 + exp(x))", lambda f: {"x": [steep(f), 0.0]}, x=[0.5, -1.0])
for _reduced in ("sum", "mean"):
    of(f"log({_reduced}(exp(x), d, k))", lambda f: {"x": [steep(f), 0.0]}, x=[0.5, -1.0])
of("exp(x) / (1 + exp(x))", lambda f: {"x": [steep(f), 0.0]}, x=[0.5, -1.0])
of("a / (1 + exp(x))", lambda f: {"a": 1, "x": [steep(f), 0.0]}, a=1, x=[0.5, -1.0])
for _pattern in (
    "(exp(x) - exp(-x)) / (exp(x) + exp(-x))",
    "(exp(2 * x) - 1) / (exp(2 * x) + 1)",
    "sinh(x) / cosh(x)",
    "log(cosh(x))",
    "log((exp(x) + exp(-x)) / 2)",
    "log(0.5 * exp(x) + 0.5 * exp(-x))",
):
    of(_pattern, lambda f: {"x": [1.6 * steep(f), 1.0]}, x=[0.5, -1.0])
of("(1 - exp(-2 * x)) / (1 + exp(-2 * x))", lambda f: {"x": [-steep(f), 1.0]}, x=[0.5, -1.0])
for _pattern in ("p * (log(p) - log(q))", "p * log(p / q)"):
    of(_pattern, {"p": [0.0, 0.5, 0.0], "q": [0.5, 0.0, 0.0]}, p=P, q=Q)
of("y * log(p) + (1 - y) * log(1 - p)", {"y": [1.0, 0.0], "p": [0.0, 1.0]}, y=Q, p=P)
of(
    "y * log(sigmoid(x)) + (1 - y) * log(1 - sigmoid(x))",
    lambda f: {"y": [1.0, 0.0], "x": [-gap(f), flat(f)]},
    y=Q,
    x=X,
)
_KL: Final[Values] = {"r": "sum", "t": MISSING, "data": ("y",)}
of(
    "kl_div(x, y, reduction=r, log_target=t)",
    _KL | {"x": [-INF, -1.0], "y": [0.0, 1.0]},
    x=[-0.5, -1.0],
    y=[0.5, 0.5],
    **_KL,
)
of("xlogy(x, x) - x * y", {"x": [0.0, 1.0], "y": [-INF, 1.0]}, x=[0.5, 1.0], y=[-2.0, 1.0])

# -- softmax, masks ---------------------------------------------------------------------------------------------------
for _name in ("softmax", "log_softmax"):
    of(f"{_name}(x, d)", {"x": [-INF, -INF]}, x=[0.5, 1.0])
of("logsumexp(x, d, k)", {"x": [-INF, -INF]}, x=[0.5, 1.0])
of("logcumsumexp(x, d, k)", {"x": [-INF, -INF], "k": MISSING}, x=[0.5, 1.0], k=MISSING)
of("logaddexp(a, b)", {"a": [-INF, 1.0], "b": [-INF, 1.0]}, a=[0.5, 1.0], b=[0.25, 2.0])
of("softmax(x, d) * log_softmax(x, d)", {"x": [-INF, 1.0, 2.0]}, x=X)
of("exp(l) * l", {"l": [-INF, 1.0, 2.0]}, l=X)
of("t * log_softmax(x, d)", {"t": [0.0, 1.0], "x": [-INF, 1.0]}, t=Q, x=X)
_LOSS: Final[Values] = {"w": MISSING, "i": MISSING, "r": MISSING, "s": MISSING}
of(
    "cross_entropy(x, t, weight=w, ignore_index=i, reduction=r, label_smoothing=s)",
    _LOSS | {"x": [[-INF, 1.0]], "t": [[0.0, 1.0]]},
    x=[[0.5, 1.0]],
    t=[[0.0, 1.0]],
    **_LOSS,
)
of("softmax(x / t, d)", {"x": [1.0, 2.0], "t": [0.0]}, x=X, t=[0.5])
of(
    "masked_fill(x, m, c)",
    lambda f: {"x": [1.0, 2.0], "m": [True, False], "c": -math.inf},
    x=X,
    m=[False] * 3,
    c=-math.inf,
)
of("where(m, x, c)", {"x": X, "m": [False, True, False], "c": -INF}, x=X, m=[True] * 3, c=-INF)
of("binary_cross_entropy_with_logits(x, y)", {"x": [INF, 1.0], "y": [1.0, 1.0]}, x=[2.0, 1.0], y=[1.0, 0.5])
_ENDS: Final = (
    dict.fromkeys(("log", "log2", "log10", "rsqrt", "reciprocal", "logit", "sqrt"), 0.0)
    | dict.fromkeys(("acos", "asin", "atanh", "erfinv", "acosh"), 1.0)
    | {"log1p": -1.0}
)
"""Where a function or its derivative is infinite."""
for _name in (*_ENDS, "exp", "exp2", "expm1", "sinh", "cosh"):

    def _made(f: torch.finfo, _name: str = _name) -> list[float]:
        return [_ENDS.get(_name, 1.6 * steep(f)), 1.5 if _name == "acosh" else 0.5]

    _ok = [1.5, 3.0] if _name == "acosh" else [0.25, 0.5]
    _is: Values = {"c": [False, True], "y": [1.0, 2.0]}
    of(f"where(c, {_name}(x), y)", lambda f, m=_made, i=_is: {"x": m(f), **i}, x=_ok, **_is)
    of(f"where(c, y, {_name}(x))", lambda f, m=_made, i=_is: {"x": m(f), **i, "c": [True, False]}, x=_ok, **_is)
    _is = {"c": [True, False], "v": 0.0}
    of(f"masked_fill({_name}(x), c, v)", lambda f, m=_made, i=_is: {"x": m(f), **i}, x=_ok, **_is)
    _is = {"n": 0.0, "p": 0.0, "m": 0.0}
    # what has a finite value at the end of its domain is left alone there: beyond it
    _far = {"sqrt": -1.0, "acos": 2.0, "asin": 2.0, "acosh": 0.5}
    of(
        f"nan_to_num({_name}(x), nan=n, posinf=p, neginf=m)",
        lambda f, m=_made, i=_is, n=_name, far=_far: {"x": [far.get(n, m(f)[0]), m(f)[1]], **i},
        x=_ok,
        **_is,
    )
_SIDES: Final[Values] = {"a": [0.0, 1.0], "b": [0.0, 1.0], "y": [1.0, 2.0]}
_BOTH: Final[Values] = {"c": [False, True], "a": P[:2], "b": Q[:2], "x": X[:2], "y": X[:2]}
of("where(c, a / b, y)", {"c": [False, True], **_SIDES}, **_BOTH)
of("where(c, y, a / b)", {"c": [True, False], **_SIDES}, **_BOTH)
of("where(c, y, exp(x) - 1)", lambda f: {"c": [True, False], "x": [1.6 * steep(f), 1.0], "y": [1.0, 2.0]}, **_BOTH)
of("where(c, exp(x) - 1, y)", lambda f: {"c": [False, True], "x": [1.6 * steep(f), 1.0], "y": [1.0, 2.0]}, **_BOTH)

# -- reductions and losses --------------------------------------------------------------------------------------------
of("mean(x)", {"x": []}, x=X)
for _name in ("mse_loss", "l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"):
    of(f"WN601 {_name}(x, y)", {"x": [], "y": []}, x=P, y=Q)
for _name, _number in (("smooth_l1_loss", "beta"), ("huber_loss", "delta")):
    of(f"WN601 {_name}(x, y)", {"x": [], "y": []}, x=P, y=Y)
    of(f"WN601 {_name}(x, y, {_number}=b)", {"x": [], "y": [], "b": 0.5}, x=P, y=Y, b=0.5)
of("mean(x, d, k)", {"x": [[], []]}, x=[X, Y])
for _name in ("cross_entropy", "nll_loss"):
    of(f"{_name}(x, t)", {"x": [X, Y], "t": [-100, -100]}, x=[[-0.5, -1.0, -2.0], [-1.5, -0.75, -0.25]], t=[0, -100])
    of(
        f"{_name}(x, t, ignore_index=i)",
        {"x": [X, Y], "t": [2, 2], "i": 2},
        x=[[-0.5, -1.0, -2.0], [-1.5, -0.75, -0.25]],
        t=[0, 2],
        i=2,
    )
_STEPS: Final[Values] = {"b": MISSING, "r": "sum", "t": [[1, 2, 1]], "n": [2], "p": [[[-0.5, -1.0, -2.0]]] * 2}
of("ctc_loss(p, t, n, s, blank=b, reduction=r)", _STEPS | {"s": [3]}, **_STEPS, s=[2])

# -- precision --------------------------------------------------------------------------------------------------------
_ROWS: Final = ("x * rsqrt(mean(x**2, d, k) + e)", "x / sqrt(mean(x**2, d, k) + e)")
for _pattern in _ROWS:
    of(_pattern, lambda f: {"x": [root(f), root(f) / 2], "e": 1e-6, "k": True}, x=X, e=1e-6, k=True)
for _name in ("sqrt", "log", "rsqrt"):
    of(f"{_name}(x + e)", lambda f: {"x": [0.0, 1.0], "e": least(f) / 8}, x=X, e=1e-8)
of("normalize(x, p, d, eps=e)", {"x": [0.0, 0.0], "p": 2.0, "e": 0.0}, x=X, p=2.0, e=0.0)
of("cosine_similarity(a, b, d, eps=e)", {"a": [0.0, 0.0], "b": [1.0, 0.0], "e": 0.0}, a=X, b=Y, e=0.0)
for _inner in ("log(1 - {})", "logit({})", "atanh({})", "acos({})", "asin({})"):
    of(
        _inner.format("clamp(x, min=a, max=b)"),
        lambda f: {"x": [1.0, 0.5], "a": 0.125, "b": 1 - f.eps / 8},
        x=[0.25, 0.5],
        a=0.125,
        b=0.875,
    )

# -- matrices ---------------------------------------------------------------------------------------------------------
_ONES: Final = [[1.0, 1.0], [1.0, 1.0]]
_FINE: Final = [[2.0, 0.5], [0.5, 1.0]]
for _name in ("logdet", "slogdet", "inv_ex"):
    of(f"{_name}(a)", {"a": _ONES}, a=_FINE)
# of equal columns a library may round what is left of the second
of("qr(a)", {"a": [[1.0, 0.0], [0.0, 0.0]]}, a=_FINE)
for _pattern in ("log(det(a))", "log(abs(det(a)))"):
    of(_pattern, lambda f: {"a": [[f.tiny, 0.0], [0.0, f.eps**2]]}, a=_FINE)
for _name in ("eigh", "svd"):
    of(f"{_name}(a)", {"a": [[1.0, 0.0], [0.0, 1.0]]}, a=_FINE)
of("cholesky_ex(a)", {"a": _ONES}, a=_FINE)
of("clamp(x, min=a, max=b)", {"x": [1.0], "a": 0.0, "b": 1.0}, x=X[:2], a=0.0, b=1.0)
of("solve_ex(a, b)", {"a": _ONES, "b": [1.0, 2.0]}, a=_FINE, b=[1.0, 2.0])

WITHOUT_HAZARD: Final = {
    "vector_norm(x, 2, d, k)": "bad only where it is differentiated twice",
    **dict.fromkeys(_ROWS, "what overflows comes to 0, which is finite"),
    "clamp(x, min=a, max=b)": "its bound is bad in what follows",
    "cholesky_ex(a)": "what it leaves is finite, and bad in the logarithm of its diagonal",
}
"""What is not bad by itself, nor in its gradient."""
SHORT: Final = frozenset({"sqrt(x + e)", "log(x + e)", "rsqrt(x + e)"})
"""What vanishes in a dtype, and not in float64."""
