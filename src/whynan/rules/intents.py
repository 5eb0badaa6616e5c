"""What mends the operations that many rules are about, and the words that fixes are written with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.floats import GREATEST_EXPONENTS
from whynan.records.intents import FixIntent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whynan.rules.base import Rule


_LISTED: Final = 6
"""So many fixes stand on a rule's page."""


def fix_titles(rule: Rule) -> tuple[str, ...]:
    """What a rule's page lists as fixes, best first: title and kind of the first few, and how many more there are."""
    told = list(dict.fromkeys(f"{fix.title} ({fix.kind})" for fix in rule.fixes))
    more = len(told) - _LISTED
    return (*told[:_LISTED], f"and {more} more") if more > 0 else tuple(told)


def reformulation(title: str, pattern: str, replacement: str, **names: str) -> FixIntent:
    """The same function, computed otherwise; ``names`` are of what it has more than once."""
    return FixIntent(title, "reformulation", pattern, replacement, tuple(names.items()))


def guard(title: str, pattern: str, replacement: str, **names: str) -> FixIntent:
    """What changes nothing but what is bad; ``names`` are of what it has more than once."""
    return FixIntent(title, "guard", pattern, replacement, tuple(names.items()))


def epsilon(title: str, pattern: str, replacement: str, **names: str) -> FixIntent:
    """A small number that moves healthy elements too; ``names`` are of what it has more than once."""
    return FixIntent(title, "epsilon", pattern, replacement, tuple(names.items()))


def setting(title: str, *dtypes: str) -> FixIntent:
    """An argument of what is no expression of the program's; for births of these dtypes, or of all."""
    return FixIntent(title, "setting", dtypes=dtypes)


def greatest(x: str) -> str:
    """The largest magnitude of each row, never 0 nor subnormal; no gradient flows through it, its dimension stays."""
    return f"detach(clamp(amax(abs({x}), dim=d, keepdim=True), min=finfo({x}).tiny))"


def times_greatest(reduced: str, x: str) -> str:
    """What a scaled row was reduced to, times what it was scaled by; the row's dimension stays as ``k`` says."""
    return f"{reduced} * amax({greatest(x)}, dim=d, keepdim=k)"


def scaled(x: str) -> str:
    """A row by its largest magnitude, so that no power of it leaves the range."""
    return f"{x} / {greatest(x)}"


def where_zero(condition: str, function: str, x: str, *, value: str = "0", safe: str = "1") -> str:
    """``function`` (a text with a place for its operand) but where the condition holds, and ``value`` there."""
    return f"where({condition}, {value}, {function.format(f'where({condition}, {safe}, {x})')})"


QUOTIENT: Final = (guard("a denominator of 1 where it is 0", "a / b", "a / where(b == 0, 1, b)", denominator="b"),)
"""A quotient is what is above the line where what is below it is 0: of 0 / 0 that is 0."""
ONLY_SHARE: Final = guard(
    "1 where the denominator is 0", "a / b", "where(b == 0, 1, a / where(b == 0, 1, b))", denominator="b"
)
"""A quotient of two that are always equal, as the share of a sum's only part is, comes to 1 where both are 0."""
_BOTH_ZERO: Final = guard(
    "a denominator of 1 where both are 0", "a / b", "a / where(logical_and(a == 0, b == 0), 1, b)", denominator="b"
)
"""Of a quotient only what is 0 / 0 is another: an Inf beside it may be what the program bounds."""


def tried_last(fixes: Sequence[FixIntent]) -> tuple[FixIntent, ...]:
    """What is tried where none of a rule's fixes holds."""
    quotients = (ONLY_SHARE, _BOTH_ZERO) if QUOTIENT[0] in fixes else ()
    return (*quotients, *(LOG_ABOVE if LOG[0] in fixes else ()))


def _in_parentheses(text: str) -> str:
    return f"({text})" if " " in text else text


_QUOTIENT_LIMITS: Final = {
    **dict.fromkeys(("sin(x)", "tan(x)", "asin(x)", "atan(x)", "sinh(x)", "tanh(x)", "asinh(x)", "atanh(x)"), "1"),
    "exp(x) - 1": "1 + x / 2",
    "1 - exp(-x)": "1 - x / 2",
    "log(1 + x)": "1 - x / 2",
    "1 - cos(x)": "x / 2",
}
"""What is 0 at 0: over x it comes to this, with this slope."""
_INVERSE_LIMITS: Final = {
    **dict.fromkeys(("sin(x)", "tan(x)", "asin(x)", "atan(x)", "sinh(x)", "tanh(x)", "asinh(x)", "atanh(x)"), "1"),
    "exp(x) - 1": "1 - x / 2",
    "1 - exp(-x)": "1 + x / 2",
    "log(1 + x)": "1 + x / 2",
}
_SCALED_LIMITS: Final = {
    **dict.fromkeys(("sin(a * x)", "sinh(a * x)", "tan(a * x)", "tanh(a * x)"), "a"),
    **dict.fromkeys(("sin(a * x / c)", "sinh(a * x / c)", "tan(a * x / c)", "tanh(a * x / c)"), "a / c"),
    "exp(a * x) - 1": "a * (1 + a * x / 2)",
    "1 - exp(-a * x)": "a * (1 - a * x / 2)",
    "1 - cos(a * x)": "a * a * x / 2",
}
"""The same of what is scaled before, as a wave number times a distance is."""
SCALED_LIMITS: Final = (
    *(
        reformulation(
            f"the limit of {_in_parentheses(of(above))} / x where x is 0",
            f"({of(above)}) / x",
            f"where(x == 0, {of(limit)}, ({of(above)}) / where(x == 0, 1, x))",
        )
        for above, limit in _SCALED_LIMITS.items()
        # in the order in which the factors are multiplied, which decides about the last digits
        for of in (str, "b * ({})".format)
    ),
    *(
        reformulation(
            f"the limit of x / {_in_parentheses(f'a * {_in_parentheses(below)}')} where x is 0",
            f"x / (a * ({below}))",
            f"where(x == 0, ({limit}) / a, x / where(x == 0, 1, a * ({below})))",
        )
        for below, limit in _INVERSE_LIMITS.items()
    ),
    *(
        reformulation(
            f"the limit of {name}(a * x) / {name}(x) where x is 0",
            f"{name}(a * x) / {name}(x)",
            f"where(x == 0, a, {name}(a * x) / {name}(where(x == 0, 1, x)))",
        )
        for name in ("sin", "sinh")
    ),
)
LIMITS: Final = (
    *(
        reformulation(
            f"the limit of {_in_parentheses(above)} / x where x is 0",
            f"({above}) / x",
            f"where(x == 0, {limit}, ({above}) / where(x == 0, 1, x))",
        )
        for above, limit in _QUOTIENT_LIMITS.items()
    ),
    *(
        reformulation(
            f"the limit of x / {_in_parentheses(below)} where x is 0",
            f"x / ({below})",
            f"where(x == 0, {limit}, x / where(x == 0, 1, {below}))",
        )
        for below, limit in _INVERSE_LIMITS.items()
    ),
    reformulation(
        "(sin(x / 2) / (x / 2)) ** 2 / 2 instead of (1 - cos(x)) / x ** 2, and its limit where x is 0",
        "(1 - cos(x)) / x ** 2",
        "0.5 * where(x == 0, 1, sin(x / 2) / (where(x == 0, 1, x) / 2)) ** 2",
    ),
    reformulation(
        "the limit of (x - sin(x)) / x ** 3 where x is 0",
        "(x - sin(x)) / x ** 3",
        "where(x ** 3 == 0, 1 / 6, (x - sin(x)) / where(x ** 3 == 0, 1, x ** 3))",
        cube="x ** 3",
    ),
    reformulation(
        "the limit of (x ** p - 1) / p where p is 0: a logarithm",
        "(x ** p - 1) / p",
        "where(p == 0, log(x) * (1 + p * log(x) / 2), (x ** p - 1) / where(p == 0, 1, p))",
        logarithm="log(x)",
    ),
    reformulation(
        "the limit of log(x) / (x - 1) where x is 1",
        "log(x) / (x - 1)",
        "where(x == 1, (3 - x) / 2, log(x) / where(x == 1, 1, x - 1))",
    ),
    reformulation(
        "the limit of acos(x) / sqrt(1 - x ** 2) where x is 1",
        "acos(x) / sqrt(1 - x ** 2)",
        "where(x == 1, (4 - x) / 3, acos(where(x == 1, 0, x)) / sqrt(1 - where(x == 1, 0, x) ** 2))",
        inside="where(x == 1, 0, x)",
    ),
)
"""A quotient that has a limit where it is 0 / 0, as sin(x) / x does."""
POLE: Final = (
    guard("0 where the denominator is 0", "a / b", "where(b == 0, 0, a / where(b == 0, 1, b))", denominator="b"),
    guard("0 where the operand is 0", "rsqrt(b)", where_zero("b == 0", "rsqrt({})", "b")),
    guard("0 where the base is 0", "b ** p", where_zero("b == 0", "{} ** p", "b"), base="b"),
    guard(
        "0 where the base is 0 and its exponent below 0",
        "b ** p",
        where_zero("logical_and(b == 0, isinf(b ** p))", "{} ** p", "b"),
        base="b",
        at_pole="logical_and(b == 0, isinf(b ** p))",
    ),
)
"""A quotient, and what has a pole at 0 as it has, is 0 there."""
ANGLE: Final = (
    guard(
        "atan2(a, b) where the denominator is 0",
        "atan(a / b)",
        "where(b == 0, atan2(where(b == 0, a, 1), where(b == 0, b, 1)), atan(a / where(b == 0, 1, b)))",
        vertical="b == 0",
    ),
)
"""The angle of a quotient is a right one where its denominator is 0, and atan2 has its slope there."""
LARGE_QUOTIENT: Final = (
    guard(
        "the smallest normal number instead of a denominator of 0",
        "a / b",
        "a / where(b == 0, finfo(b).tiny, b)",
        denominator="b",
    ),
)
"""A quotient is large where its denominator is 0."""


def _logarithms(title: str, operand: str, of: str = "x") -> tuple[FixIntent, ...]:
    """A guard of the operand of each logarithm."""
    return tuple(guard(title, f"{log}({of})", f"{log}({operand})") for log in _LOGARITHMS)


_LOGARITHMS: Final = ("log", "log2", "log10")
LOG_AT_ZERO: Final = _logarithms(
    "the smallest normal number instead of 0 in the logarithm", "where(x == 0, finfo(x).tiny, x)"
)
LOG: Final = (
    *_logarithms(
        "the least that 1 - x can be, instead of 0 in the logarithm", "where(x == 1, finfo(x).eps / 2, 1 - x)", "1 - x"
    ),
    *LOG_AT_ZERO,
    *_logarithms("the smallest normal number as the least operand of the logarithm", "clamp(x, min=finfo(x).tiny)"),
)
"""A logarithm is large and negative at 0, and its gradient 0; so is that of what is 0 by the rounding of 1."""
LOG_ABOVE: Final = _logarithms(
    "the smallest normal number instead of 0 and below in the logarithm", "where(x <= 0, finfo(x).tiny, x)"
)
"""A logarithm is large and negative at 0 and below, and its gradient 0."""
LOG_BY_ROUNDING: Final = (
    *_logarithms("the rounding of 1 instead of 0 and below in the logarithm", "where(x <= 0, finfo(x).eps, x)"),
    epsilon("logsigmoid(-x) instead of log(1 - sigmoid(x) - eps)", "log(c - sigmoid(x))", "logsigmoid(-x)"),
)
"""A difference of what is about 1 that is 0 or below by its own rounding is about as large as that is."""
LOG_OF_ONE: Final = _logarithms("1 instead of 0 in the logarithm", "where(x == 0, 1, x)")
"""A logarithm is 0 at 0: for products with what is 0 there."""
LOG1MEXP: Final = (
    reformulation("log(-expm1(x)) instead of log(1 - exp(x))", "log(1 - exp(x))", "log(-expm1(x))"),
    reformulation(
        "log(-expm1(x)) instead of log1p(-exp(x)) near 0",
        "log1p(-exp(x))",
        "where(x > -0.7, log(-expm1(x)), log1p(-exp(clamp(x, max=-0.7))))",
    ),
)
"""1 - exp(x) of a small x has no digit left, but for expm1, and log1p the digits of a large one.

Source: M. Maechler, Accurately computing log(1 - exp(-|a|)), the Rmpfr package of R, 2012.
"""
LOG1P: Final = (
    guard(
        "the number next to -1 instead of -1 and below in log1p",
        "log1p(x)",
        "log1p(where(x <= -1, finfo(x).eps / 2 - 1, x))",
    ),
)
LOG_EPSILON: Final = tuple(
    epsilon("a small number as the least operand of the logarithm", f"{log}(x)", f"{log}(clamp(x, min=1e-10))")
    for log in _LOGARITHMS
)
ROOT: Final = (
    guard("a gradient of 0 where the root is 0", "sqrt(x)", where_zero("x == 0", "sqrt({})", "x")),
    guard("a gradient of 0 where the power is 0", "x ** p", where_zero("x == 0", "{} ** p", "x"), base="x"),
)
"""A root is 0 at 0, and so is its gradient."""
ROOT_ABOVE: Final = (
    guard("0 where the operand is 0 or below", "sqrt(x)", where_zero("x <= 0", "sqrt({})", "x")),
    guard("0 where the operand is 0 or below", "rsqrt(x)", where_zero("x <= 0", "rsqrt({})", "x")),
)
"""A root is 0 below 0 too."""
ABOVE: Final = {ROOT[0]: ROOT_ABOVE[0], **dict(zip(LOG_AT_ZERO, LOG_ABOVE, strict=True))}
"""Of a guard at 0 the one at 0 and below: for what comes to 0 by its own rounding."""
ROOT_EPSILON: Final = (epsilon("a small number inside the root", "sqrt(x)", "sqrt(x + 1e-12)"),)
ROOT_OF_PRODUCT: Final = tuple(
    reformulation(
        "sqrt(a) * sqrt(b) instead of sqrt(a * b)", of.format("sqrt(a * b)"), of.format("(sqrt(a) * sqrt(b))")
    )
    for of in ("c / {}", "{}")
)
"""The root of a product that has no room, of factors that have; with what it divides its slope is known, too."""
SOFTMAX: Final = (
    reformulation("softmax(x) instead of exp(x) / sum(exp(x))", "exp(x) / sum(exp(x), d, True)", "softmax(x, d)"),
    reformulation(
        "softmax(x) instead of exp(x) / sum(exp(x))", "exp(x) / unsqueeze(sum(exp(x), d), d)", "softmax(x, d)"
    ),
    reformulation(
        "softmax(x) of all elements instead of exp(x) / sum(exp(x))",
        "exp(x) / sum(exp(x))",
        "view_as(softmax(flatten(x), 0), x)",
    ),
)
"""A softmax by hand."""
MASKED_SOFTMAX: Final = tuple(
    reformulation(
        "softmax(x + log(mask)) instead of the masked softmax over its sum",
        f"y * {part} / sum(y * {part}, d, True)",
        "softmax(x + log(y), d)",
    )
    for part in ("softmax(x, d)", "exp(x)")
)
"""A softmax of some logits, taken of all and normalised again: none of those that are left may be more than 0."""
NORM: Final = (
    reformulation(
        "vector_norm(x) instead of sqrt(sum(x**2))", "sqrt(sum(x**2, d, k))", "vector_norm(x, dim=d, keepdim=k)"
    ),
    reformulation(
        "vector_norm of the row over its largest magnitude, times that",
        "sqrt(sum(x**2, d, k))",
        times_greatest(f"vector_norm({scaled('x')}, dim=d, keepdim=k)", "x"),
        scale=greatest("x"),
    ),
)
"""The length of a vector by hand."""
_MEAN_SQUARE: Final = f"mean(({scaled('x')}) ** 2, dim=d, keepdim=k)"
MEAN_ROOT: Final = (
    reformulation(
        "the root of the mean square of the row over its largest magnitude, times that",
        "sqrt(mean(x**2, d, k))",
        times_greatest(where_zero(f"{_MEAN_SQUARE} == 0", "sqrt({})", _MEAN_SQUARE), "x"),
        scale=greatest("x"),
        mean_square=_MEAN_SQUARE,
    ),
)
"""The root of a mean square by hand."""
_ORIGIN: Final = "logical_and(a == 0, b == 0)"
_HYPOT: Final = f"where({_ORIGIN}, 0, hypot(where({_ORIGIN}, 1, a), b))"
MAGNITUDE: Final = (
    reformulation("hypot(a, b) instead of sqrt(a**2 + b**2)", "sqrt(a**2 + b**2)", _HYPOT, at_origin=_ORIGIN),
    guard("a gradient of 0 where both are 0", "hypot(a, b)", _HYPOT, at_origin=_ORIGIN),
)
"""The length of a vector of two."""
_UNIT: Final = scaled("x")
_LENGTH: Final = f"vector_norm({_UNIT}, dim=d, keepdim=True)"
UNIT: Final = tuple(
    reformulation(
        "the row over its largest magnitude before its norm, and 0 where all of it is 0",
        pattern,
        f"where({_LENGTH} == 0, 0, ({_UNIT}) / where({_LENGTH} == 0, 1, {_LENGTH}))",
        scale=greatest("x"),
        scaled=_UNIT,
        norm=_LENGTH,
    )
    for pattern in (
        "x / vector_norm(x, 2, d, True)",
        "x / sqrt(sum(x**2, d, True))",
    )
)
"""A vector over its length."""
MASKED_FACTOR: Final = (
    guard("a factor of 0 instead of what the other one takes away", "x * m", "where(m == 0, 0, x) * m"),
)
"""What is multiplied by 0 is taken away before it is."""
BELOW_ONE: Final = "1 - finfo(x).eps / 2"
"""The greatest number below 1."""
_NOTHING_LEFT: Final = "amax(x, dim=d, keepdim=True) < finfo(x).min"
MASKED: Final = (
    *(
        guard(
            f"the most negative finite number instead of -Inf in {name}",
            f"{name}(x, d)",
            f"{name}(clamp(x, min=finfo(x).min), d)",
        )
        for name in ("softmax", "log_softmax")
    ),
    *(
        guard(
            f"{name} of zeros where a row is of -Inf only",
            f"{name}(x, d)",
            f"{name}(where({_NOTHING_LEFT}, 0, x), d)",
            nothing_left=_NOTHING_LEFT,
        )
        for name in ("softmax", "log_softmax")
    ),
)
"""A row of -Inf has equal probabilities."""
_GREATEST_OPERANDS: Final = {
    "exp": GREATEST_EXPONENTS,
    "exp2": {"float16": "15.99", "bfloat16": "127.5", "float32": "127.99999", "float64": "1023.9999999999999"},
    "expm1": GREATEST_EXPONENTS,
}
"""The greatest number of a dtype whose exponential is finite, by the function."""
BOUNDED: Final = (
    *(
        FixIntent(
            "the largest operand with a finite exponential",
            "guard",
            f"{name}(x)",
            f"{name}(clamp(x, max={most}))",
            dtypes=(dtype,),
        )
        for name, operands in _GREATEST_OPERANDS.items()
        for dtype, most in operands.items()
    ),
    *(
        guard(
            f"the largest number where {name} exceeds it",
            f"{name}(x)",
            where_zero(f"{name}(x) > finfo(x).max", f"{name}({{}})", "x", value="finfo(x).max", safe="0"),
            exceeds=f"{name}(x) > finfo(x).max",
        )
        for name in ("exp", "exp2", "expm1", "cosh")
    ),
    guard(
        "the largest number where sinh exceeds it",
        "sinh(x)",
        where_zero("abs(sinh(x)) > finfo(x).max", "sinh({})", "x", value="sign(x) * finfo(x).max", safe="0"),
        exceeds="abs(sinh(x)) > finfo(x).max",
    ),
)
"""An exponential ends at the largest number of the dtype, with a gradient of 0."""
BOUNDED_EXPONENT: Final = (
    FixIntent(
        "20 as the largest exponent",
        "epsilon",
        "exp(x)",
        "exp(clamp(x, max=20))",
        dtypes=("float32", "bfloat16", "float64"),
    ),
    epsilon("10 as the largest exponent", "exp(x)", "exp(clamp(x, max=10))"),
)
"""An exponential ends where sums and squares of it have room still, with a gradient of 0."""
OVER_COUNT_TITLE: Final = "the sum over the number of elements, or over 1 where there is none"
OVER_COUNT: Final = (
    reformulation(OVER_COUNT_TITLE, "mean(x)", "sum(x / count(x))"),
    reformulation(OVER_COUNT_TITLE, "mean(x, d, k)", "sum(x / count(x, d), dim=d, keepdim=k)"),
)
"""A mean of nothing is 0."""
NUMPY: Final = (*QUOTIENT, *POLE, *LOG, *LOG_ABOVE, *LOG_OF_ONE, *ROOT_ABOVE, *OVER_COUNT)
"""What mends the expressions of NumPy's that data are prepared with."""
