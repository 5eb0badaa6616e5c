"""The arguments of constructors that mend a hazard: one row for each, of a class of PyTorch's."""

from __future__ import annotations

from typing import Final

from whynan.records.intents import ArgumentIntent

_OPTIMIZERS: Final = tuple(
    f"torch.optim.{name}" for name in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad")
)
_LEAST: Final = (("float16", "1e-7"), ("float64", "1e-150"), ("", "1e-20"))
"""Numbers that the dtype holds, that no healthy update notices, and over which the root of what rounds to 0 is none."""

_USUAL: Final = (("float16", "1e-4"), ("", "1e-8"))
_NORMS: Final = (
    ("torch.nn.LayerNorm", ("normalized_shape", "eps")),
    ("torch.nn.RMSNorm", ("normalized_shape", "eps")),
    ("torch.nn.GroupNorm", ("num_groups", "num_channels", "eps")),
)


def _module_eps(
    rules: tuple[str, ...], cls: str, parameters: tuple[str, ...], values: tuple[tuple[str, str], ...] = _USUAL
) -> ArgumentIntent:
    return ArgumentIntent(rules, (cls,), "eps", "epsilon", values=values, parameters=parameters)


ARGUMENTS: Final = (
    # 0 / (0 + eps): a gradient that is 0, or whose square is
    ArgumentIntent(("WN801",), _OPTIMIZERS, "eps", "epsilon", owner="optimizer", values=_LEAST),
    ArgumentIntent(("WN801",), _OPTIMIZERS, "eps", "epsilon", owner="optimizer", values=_USUAL),
    # minus the logarithm of the probability of no alignment
    ArgumentIntent(
        ("WN603",),
        ("torch.nn.CTCLoss",),
        "zero_infinity",
        "guard",
        parameters=("blank", "reduction", "zero_infinity"),
        values=(("", "True"),),
        instead="a target that has no alignment with its input has a loss of 0 and no gradient",
    ),
    # a vector of 0 over the greater of its length and eps
    _module_eps(("WN109", "WN110", "WN101", "WN704"), "torch.nn.CosineSimilarity", ("dim", "eps")),
    # a row without variance over the root of that and eps
    *(
        _module_eps(("WN107", "WN109", "WN704"), cls, parameters, values)
        for values in ((("float16", "1e-6"), ("", "1e-12")), (("", "1e-5"),))
        for cls, parameters in _NORMS
    ),
    # the logarithm of a rate of 0 and eps
    _module_eps(("WN201", "WN704"), "torch.nn.PoissonNLLLoss", ("log_input", "full", "size_average", "eps")),
    # the logarithm of the greater of a variance of 0 and eps, and a square over it
    _module_eps(("WN201", "WN101", "WN102"), "torch.nn.GaussianNLLLoss", (), (("float16", "1e-2"), ("", "1e-6"))),
)


def arguments_of(rule: str) -> tuple[ArgumentIntent, ...]:
    """The rows that mend what a rule is about, the best first."""
    return tuple(row for row in ARGUMENTS if rule in row.rules)
