"""WN201 log-of-zero: the logarithm of zero.

What it is
    log, log2 or log10 meets exactly 0 (log1p exactly -1, logit exactly 0 or 1, also written log(p) - log(1 - p)).

Why it breaks
    The logarithm has a pole there: -Inf, and the gradient 1/x is Inf.

Example
    Bad::

        counts = torch.tensor([3.0, 0.0])
        scores = torch.log(counts)

    Good::

        counts = torch.tensor([3.0, 0.0])
        scores = torch.log(counts.clamp_min(1))

Fix
    Compute the logarithm of the whole expression (log_softmax, logsigmoid, logsumexp); else clamp the operand
    to the dtype's smallest normal number.

When it is fine
    Where the -Inf is selected away, in backward too.

References
    torch.nn.functional.log_softmax, logsigmoid.
"""

from __future__ import annotations

import ast

from whynan.expr.structure import fits
from whynan.records import Finding
from whynan.rules.base import DERIVATIVE, OPERATION, STRUCTURE, Explanation, Rule
from whynan.rules.expressions import is_exact_zero, logarithms_of_zero, quotients_by_zero
from whynan.rules.facts import (
    base,
    forward_base,
    forward_is_zero,
    forward_value,
    is_onnx,
    is_zero,
    number_text,
    result,
    row,
    value,
)
from whynan.rules.intents import BELOW_ONE, LOG, LOG1MEXP, LOG1P, LOG_EPSILON, epsilon, guard, reformulation
from whynan.rules.wording import (
    derivative,
    forward_operand_source,
    named_value_text,
    operand_source,
    operator_text,
    readable,
)

_EXACT = (
    "The 0 is exact: it comes from a logit of -Inf, and log_softmax and logsigmoid are -Inf there as well. Leave such places out, "
    "or mask with a finite number."
)
_LOGIT = "log(p) - log(1 - p) is the logit of p, which has a pole at both ends; bound p away from 0 and 1, as torch.logit(p, eps) does."
_POLES = (
    "The logit is log(p / (1 - p)), which has a pole at both ends; a probability that rounds to 0 or 1 lies on one."
)
_LOGS = ("log", "log2", "log10")
_BELOW_ONE = {"float64": "1 - 1.1e-16", "float32": "1 - 6e-8", "float16": "1 - 4.9e-4", "bfloat16": "1 - 3.9e-3"}
"""The greatest number below 1."""


def match(finding: Finding) -> Explanation | None:
    if finding.phase == "backward" and (found := _derivative(finding)) is not None:
        return found
    if _of_odds(finding):
        return Explanation(
            f"p / (1 - p) is 1 / 0 here, which is {result(finding)}: the logit of 1 has no finite value",
            _POLES,
            STRUCTURE,
        )
    name, found = base(finding), value(finding, "self")
    out = result(finding)
    if (name in _LOGS and is_zero(finding, "self")) or (name == "log1p" and found == -1):
        at = "-1" if name == "log1p" else "0"
        finite = f"is {out}" if found is not None else "has no finite value"
        return Explanation(
            f"{name}({at}) {finite}{derivative(finding) or named_value_text(operand_source(finding, 'self'), at)}",
            _complement(operand_source(finding, "self"), finding)
            or (_EXACT if is_exact_zero(finding) else None)
            or (_LOGIT if _in_a_logit(finding) else None)
            or _usual(finding),
            OPERATION,
        )
    if name == "xlogy" and is_zero(finding, "other"):
        return Explanation(
            f"{number_text(value(finding, 'self'))} × log(0) is {out}{named_value_text(operand_source(finding, 'other'), '0')}",
            "xlogy is 0 where both operands are 0, and infinite where only the second is.",
            OPERATION,
        )
    if name == "reducelogsum" and row(finding, "self") == (0, 0):
        return Explanation(
            f"{operator_text(finding)} of a row of zeros is log(0), which is {out}",
            "Where nothing is left of a row its sum is 0, and the logarithm has a pole there.",
            OPERATION,
        )
    if name == "logit" and found in (0.0, 1.0):
        return Explanation(
            f"logit({number_text(found)}) is {out}{named_value_text(operand_source(finding, 'self'), number_text(found))}",
            _POLES,
            OPERATION,
        )
    return None


def _usual(finding: Finding) -> str:
    """What a 0 usually is, where the chain does not tell what this one is."""
    told = any(link.role == "cause" for link in finding.chain)
    usual = "" if told else "A probability that underflowed or a count of 0 is the usual operand. "
    slope = "" if is_onnx(finding) else ", and its gradient 1/x is Inf there as well"
    return f"{usual}The logarithm has a pole at 0{slope}."


def _of_odds(finding: Finding) -> bool:
    """Whether it is the division by 0 in ``log(p / (1 - p))``."""
    at = quotients_by_zero(finding) if finding.phase != "backward" and finding.birth == "pole" else None
    return at is not None and fits("p / (1 - p)", at[1][0]) and fits("log(x)", *at[1], x=at[1][0])


def _in_a_logit(finding: Finding) -> bool:
    return fits("A * log(p) - A * log(1 - p) + ...", *logarithms_of_zero(finding))


def _derivative(finding: Finding) -> Explanation | None:
    of, behind = forward_base(finding), forward_value(finding, "self")
    name = forward_operand_source(finding, "self")
    if base(finding) == "div" and is_zero(finding, "other") and _at_pole(finding, of) is not None:
        divisor = f"1 + {name or 'x'}" if of == "log1p" else (name or "its operand")
        return Explanation(
            f"the derivative of {of} divides by {divisor}, which is 0 here{_outcome(finding)}",
            _complement(name, finding)
            or "The gradient of a logarithm divides by its operand: Inf at 0, or NaN where the gradient that comes in is 0.",
            DERIVATIVE,
        )
    if of == "logit" and behind in (0.0, 1.0):
        p = name or "p"
        return Explanation(
            f"the derivative of logit divides by {p} × (1 - {p}), which is 0 here, where {p} is {number_text(behind)}: the gradient is {result(finding)}",
            "The gradient of a logit divides by p (1 - p), which is 0 at both ends.",
            DERIVATIVE,
        )
    if readable(of) == "xlogy" and base(finding) == "div" and is_zero(finding, "other"):
        return Explanation(
            f"the derivative of xlogy divides by {forward_operand_source(finding, 'other') or 'its second operand'}, which is 0 here{_outcome(finding)}",
            "x log(y) is 0 where both are 0, but its slope along y is x / y.",
            DERIVATIVE,
        )
    return None


def _outcome(finding: Finding) -> str:
    """``: 1 / 0 is Inf``; of a complex number, whose parts are not told, only what it is."""
    above = value(finding, "self")
    return (
        f": the gradient is {result(finding)}" if above is None else f": {number_text(above)} / 0 is {result(finding)}"
    )


def _complement(operand: str | None, finding: Finding) -> str | None:
    """What is to be known of log(1 - p): p is 1 long before its logit is infinite."""
    p, below = _subtracted_from_one(operand), _BELOW_ONE.get(finding.element.dtype)
    if p is None or below is None:
        return None
    return (
        f"{p} is 1 here: {finding.element.dtype} has no number between {below} and 1, and a probability closer to 1 rounds to it. "
        "Of a sigmoid of x, logsigmoid(-x) is the same logarithm and stays finite; so does a loss that takes logits."
    )


def _subtracted_from_one(operand: str | None) -> str | None:
    """The p of ``1 - p``."""
    try:
        tree = ast.parse(operand or "", mode="eval").body
    except SyntaxError:
        return None
    match tree:
        case ast.BinOp(left=ast.Constant(value=1), op=ast.Sub(), right=right):
            return ast.get_source_segment(operand or "", right)
        case _:
            return None


def _at_pole(finding: Finding, of: str) -> str | None:
    """The logarithm whose forward operand lay on its pole."""
    if of in _LOGS and forward_is_zero(finding, "self"):
        return of
    return of if of == "log1p" and forward_value(finding, "self") == -1 else None


RULE = Rule(
    "WN201",
    "log-of-zero",
    match,
    torch="all",
    fixes=(
        reformulation("x instead of log(exp(x))", "log(exp(x))", "x"),
        reformulation("x - log(a) instead of log(exp(x) / a)", "log(exp(x) / a)", "x - log(a)"),
        reformulation("log(a) + x instead of log(a * exp(x))", "log(a * exp(x))", "log(a) + x"),
        reformulation("prod(x) instead of exp(sum(log(x)))", "exp(sum(log(x), d, k))", "prod(x, d, k)"),
        guard(
            "a variance of 1 where it is 0",
            "log(v) + a / v",
            "log(where(v == 0, 1, v)) + a / where(v == 0, 1, v)",
            variance="where(v == 0, 1, v)",
        ),
        guard(
            "the least that 1 - x can be, instead of 0 in the odds",
            "x / (1 - x)",
            "x / where(x == 1, finfo(x).eps / 2, 1 - x)",
        ),
        *LOG1MEXP,
        *LOG,
        *LOG1P,
        guard("the smallest normal number instead of 0", "xlogy(y, x)", "xlogy(y, where(x == 0, finfo(x).tiny, x))"),
        guard(
            "the numbers next to 0 and 1",
            "logit(x)",
            f"logit(where(x == 0, finfo(x).tiny, where(x == 1, {BELOW_ONE}, x)))",
        ),
        epsilon("logit(x, eps=1e-6)", "logit(x)", "logit(x, eps=1e-6)"),
        *LOG_EPSILON,
    ),
)
