"""WN003 literal-in-sink: a constant Inf or NaN arrived in a loss, a gradient or a parameter.

What it is
    An infinity that the program itself writes (a mask, an initial minimum) was carried into a fatal sink.

Why it breaks
    A masked place was selected or reduced although it should have been left out.

Example
    Bad::

        logits = torch.zeros(2, 3, requires_grad=True)
        blocked = torch.tensor([False, False, True])
        target = torch.tensor([0, 2])                   # a blocked class is a target
        loss = F.cross_entropy(logits.masked_fill(blocked, -inf), target)
        loss.backward()

    Good::

        logits = torch.zeros(2, 3, requires_grad=True)
        blocked = torch.tensor([False, False, True])
        target = torch.tensor([0, 2]).masked_fill(torch.tensor([False, True]), -100)
        loss = F.cross_entropy(logits.masked_fill(blocked, -inf), target, ignore_index=-100)
        loss.backward()

Fix
    Keep masked places out of the reduction: select only valid targets, or weight them with where, not by
    multiplication.

When it is fine
    Scores that merely leave (generate returns -inf by design) are not reported.

References
    torch.nn.functional.cross_entropy, ignore_index.
"""

from __future__ import annotations

import math

from whynan.records import Finding
from whynan.rules.base import GENERAL, SETTING, Explanation, Rule
from whynan.rules.facts import base, is_in_library_step, number_text, result
from whynan.rules.wording import data_text, operator_text, origin_kind

_SINKS = {
    "loss": "the loss",
    "gradient": "the gradient",
    "parameter": "the parameter",
    "buffer": "the buffer",
    "output": "the output",
    "observed": "a value that is read",
}


_SUPPORT = (
    "What the density was asked at lies outside of the values that the distribution can take, where it is 0 and its "
    "logarithm -Inf: look at what is given to log_prob. With validate_args=True the distribution raises there."
)


_HELD = (
    "It was held already where this began: the program has put it there, or an earlier step has. --mode trace tells what "
    "made it."
)


def match(finding: Finding) -> Explanation | None:
    if finding.birth != "literal":
        return _number_of_the_update(finding)
    if _of_the_update(finding):
        return _setting(finding, result(finding))
    known = data_text(finding.data)
    source = known or finding.message or "a constant that the program writes"
    arrives = f"{source}, {result(finding)}, arrives in {_sink(finding)}"
    through = f" through {operator_text(finding)}" if base(finding) else ""
    if not known and origin_kind(finding) == "outside_support":
        return Explanation(f"{arrives}{through}", _SUPPORT, GENERAL)
    held = finding.origin is not None and finding.origin.values.get("sort") in ("buffer", "parameter")
    if not known and held:
        return Explanation(f"{arrives}{through}", _HELD, GENERAL)
    return Explanation(
        f"{arrives}{through}",
        f"The value {'came in from there' if known else 'was not computed but handed in or written on purpose'}, and was "
        "then selected or reduced where it should have been left out.",
        GENERAL,
    )


def _of_the_update(finding: Finding) -> bool:
    """Whether an operation of the optimizer's own was given the value as a Python number."""
    causes = [link for link in finding.chain if link.role == "cause"]
    sources = causes or [link for link in finding.chain if link.role == "birth"]
    return bool(sources) and all(link.phase == "optimizer" and link.op is not None for link in sources)


def _number_of_the_update(finding: Finding) -> Explanation | None:
    """A NaN that an optimizer's own operation makes of a Python number which is Inf, where the gradient is 0."""
    numbers = (o.value for o in finding.element.operands if not o.index and not o.shape)
    bad = next((number for number in numbers if isinstance(number, float) and math.isinf(number)), None)
    if bad is None or finding.birth != "invalid" or not is_in_library_step(finding):
        return None
    return _setting(finding, number_text(bad))


def _setting(finding: Finding, number: str) -> Explanation:
    """The numbers that an update is made with are the optimizer's settings, and its count of steps."""
    return Explanation(
        f"the optimizer's update is made with {number}, a Python number, in {operator_text(finding)}: a setting such as lr, "
        "weight_decay or a beta, or what is computed of them, is Inf or NaN in this step",
        "Neither the gradient nor the parameter is at fault. A scheduler that divides by 0 is the usual source: print "
        "optimizer.param_groups before the step.",
        SETTING,
    )


def _sink(finding: Finding) -> str:
    if not finding.reaches:
        return "a result"
    reach = finding.reaches[0]
    named = reach.name if reach.name and reach.kind in ("gradient", "parameter", "buffer") else ""
    joint = " of" if reach.kind == "gradient" else ""
    return f"{_SINKS[reach.kind]}{joint} {named}" if named else _SINKS[reach.kind]


RULE = Rule("WN003", "literal-in-sink", match)
