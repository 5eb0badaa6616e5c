"""WN115 quotient-with-limit: f(x) / x at 0, where f(0) is 0 and the quotient has a limit.

What it is
    sin(x) / x, (exp(x) - 1) / x, log(1 + x) / x, tanh(x) / x, (1 - cos(x)) / x and the like, in whatever spelling, at x = 0.

Why it breaks
    The limit is finite, but both sides of the quotient are 0, and 0/0 has no value.

Example
    Bad::

        x = torch.tensor([0.0, 1.0])
        y = torch.sin(x) / x

    Good::

        x = torch.tensor([0.0, 1.0])
        y = torch.sinc(x / torch.pi)

Fix
    Use torch.sinc for sin(pi x) / (pi x); else put a safe x in its place and select the limit (double where).

When it is fine
    Where x cannot be 0.

References
    torch.sinc; TorchFix TOR107.
"""

from __future__ import annotations

import re
from typing import Final

from whynan.expr.structure import Bindings, fits
from whynan.ops.table import TORCH
from whynan.records import Finding
from whynan.records.intents import FixIntent, FixKind
from whynan.rules.base import STRUCTURE, Explanation, Rule
from whynan.rules.expressions import quotient_message, quotients_by_zero
from whynan.rules.intents import QUOTIENT, SCALED_LIMITS, reformulation

_SPELLED: Final = {name: f"{name}(x) / x" for name in TORCH.having("WN115")} | {
    "exp": "(exp(x) - 1) / x",
    "cos": "(1 - cos(x)) / x",
    "log": "log(1 + x) / x",
}
_FUNCTIONS: Final = {name: f"{name}(x ** Q * ...)" for name in _SPELLED} | {
    "exp": "A * exp(x ** Q * ...) - A",
    "cos": "A * cos(x ** Q * ...) - A",
    "log": "log(1 + x ** Q * ...)",
}
"""Functions that are 0 at 0, of what may be a root, as a norm is, and scaled."""


def match(finding: Finding) -> Explanation | None:
    at = quotients_by_zero(finding)
    if at is None:
        return None
    quotients = ((name, f"({above}) ** P * x ** N * ...") for name, above in _FUNCTIONS.items())
    name = next((n for n, quotient in quotients if fits(quotient, at[1][0], where=_is_of_one_x)), None)
    if name is None:
        return None
    return Explanation(
        quotient_message(finding, f"the x of {_SPELLED[name]}"),
        "The quotient has a limit at 0, but both its sides are 0 there. Give it another x where x is 0, before the division, and "
        "select the limit there" + ("; torch.sinc does both for sin(πx) / (πx)." if name == "sin" else "."),
        STRUCTURE,
    )


def _is_of_one_x(found: Bindings) -> bool:
    """Whether a function is of what it is divided by, or of another power of that than the first."""
    return found.numbers["Q"] in (1, -found.numbers["N"])


_LIMITS: Final[tuple[tuple[FixKind, str, int], ...]] = (
    ("guard", "sin(x)", 1),
    ("guard", "tanh(x)", 1),
    ("guard", "1 - cos(x)", 0),
    ("reformulation", "expm1(x)", 1),
    ("reformulation", "log1p(x)", 1),
    ("guard", "exp(x) - 1", 1),
    ("guard", "log(1 + x)", 1),
)
"""What is divided by x, and the limit at 0; with expm1 and log1p also what is written without them."""


def _limited(kind: FixKind, above: str, limit: int) -> FixIntent:
    inside = re.sub(r"\bx\b", "where(x == 0, 1, x)", above)
    title = f"the limit {limit} of ({above}) / x at 0"
    safe = "where(x == 0, 1, x)"
    return FixIntent(
        title, kind, f"({above}) / x", f"where(x == 0, {limit}, ({inside}) / {safe})", (("nonzero", safe),)
    )


RULE = Rule(
    "WN115",
    "quotient-with-limit",
    match,
    fixes=(
        *(_limited(*limit) for limit in _LIMITS),
        reformulation("sinc(x / pi) instead of sin(x) / x", "sin(x) / x", "sinc(x / 3.141592653589793)"),
        *SCALED_LIMITS,
        *QUOTIENT,
    ),
)
