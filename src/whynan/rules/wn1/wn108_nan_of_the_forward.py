"""WN108 nan-of-the-forward: a NaN that was masked away in the forward comes back in the backward.

What it is
    Data, or a constant of the program, holds a NaN or an Inf that a nansum or a mask left out, and the loss is finite. A
    derivative is computed from that value. Where what left it out is known, it is WN510; what an operation has made is
    told at that operation.

Why it breaks
    Where the value was left out, the gradient that comes in is 0; and 0 times NaN, or 0 times Inf, is NaN.

Example
    Bad::

        labels = torch.tensor([1.0, torch.nan])
        guess = torch.zeros(2, requires_grad=True)
        loss = ((guess - labels) ** 2).nansum()
        loss.backward()

    Good::

        labels = torch.tensor([1.0, torch.nan])
        guess = torch.zeros(2, requires_grad=True)
        known = ~labels.isnan()
        loss = ((guess[known] - labels[known]) ** 2).sum()
        loss.backward()

Fix
    Change the operand before the operation, so that it never makes the NaN: mask what goes in, not what comes out.

When it is fine
    Where no gradient flows through it.

References
    pytorch #68425; the double-where trick in jax's documentation of jnp.where.
"""

from __future__ import annotations

from whynan.records import Finding, Note
from whynan.rules.base import GENERAL, Explanation, Rule
from whynan.rules.facts import INF, forward_base
from whynan.rules.wording import readable


def _made(said: Note) -> bool:
    """Whether an operation bore a bad number, or something held one."""
    operator = said.values.get("operator")
    return said.kind == "holds" or (said.kind == "bears" and isinstance(operator, str) and "." in operator)


def match(finding: Finding) -> Explanation | None:
    if finding.phase != "backward" or finding.birth != "invalid":
        return None
    if not any(_bad(v) for o in finding.element.operands for v in (o.value, o.min, o.max)):
        return None
    made = next((c for c in finding.chain if c.role == "cause" and _made(c.typed_summary)), None)
    if made is None:
        return None
    value = made.typed_summary.values["bad"]
    where = f" at line {made.site.line}" if made.site is not None else ""
    of = f"the derivative of {readable(forward_base(finding))}" if forward_base(finding) else "the backward"
    source = f"{readable(_base(made.op))}{where} made {value} in the forward" if made.op else made.summary
    what = "what goes into that operation, not what comes out" if made.op else "it before anything is computed from it"
    return Explanation(
        f"{source}, and {of} is computed from it",
        f"What masks {value} in the forward gives it a gradient of 0, and 0 times {value} is NaN. Mask {what}.",
        GENERAL,
    )


def _bad(value: object) -> bool:
    return isinstance(value, float) and (value != value or value in (INF, -INF))


def _base(op: str) -> str:
    return op.split(".")[1] if "." in op else op


RULE = Rule("WN108", "nan-of-the-forward", match)
