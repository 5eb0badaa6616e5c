"""WN204 gamma-pole: the gamma function at zero or a negative whole number.

What it is
    lgamma, digamma or polygamma meets 0 or a negative integer.

Why it breaks
    The gamma function has a pole at each of them, and so have its logarithm and its derivatives.

Example
    Bad::

        concentration = torch.tensor([0.0, 1.0])
        log_norm = torch.lgamma(concentration)

    Good::

        concentration = F.softplus(torch.tensor([0.0, 1.0])) + 1e-4
        log_norm = torch.lgamma(concentration)

Fix
    Keep the parameters of Beta, Gamma and Dirichlet distributions above 0: softplus plus a small number.

When it is fine
    Where the result is selected away, in backward too.

References
    DLMF 5.2; torch.lgamma, torch.digamma.
"""

from __future__ import annotations

from whynan.records import Finding
from whynan.rules.base import OPERATION, Explanation, Rule
from whynan.rules.facts import base, number_text, result, value
from whynan.rules.intents import guard, setting
from whynan.rules.wording import derivative, named_value_text, operand_source


def match(finding: Finding) -> Explanation | None:
    name, found = base(finding), value(finding, "self")
    if name not in ("lgamma", "digamma", "polygamma") or found is None or not (found <= 0 and found.is_integer()):
        return None
    return Explanation(
        f"{name}({number_text(found)}) is {result(finding)}{derivative(finding) or named_value_text(operand_source(finding, 'self'), number_text(found))}",
        "The gamma function has a pole at 0 and at each negative whole number. A parameter that underflowed to 0 is the usual operand.",
        OPERATION,
    )


RULE = Rule(
    "WN204",
    "gamma-pole",
    match,
    fixes=(
        *(
            guard(
                "the dtype's eps instead of 0 and negative whole numbers",
                f"{name}(x)",
                f"{name}(where(logical_and(x <= 0, x == floor(x)), finfo(x).eps, x))",
            )
            for name in ("lgamma", "digamma")
        ),
        setting("softplus(x) + 1e-4 for the parameters of a Beta, Gamma or Dirichlet distribution"),
    ),
)
