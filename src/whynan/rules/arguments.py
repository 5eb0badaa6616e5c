"""The arguments of constructors that mend a hazard: one row for each, of a class of PyTorch's."""

from __future__ import annotations

from typing import Final

from whynan.records.intents import ArgumentIntent

_OPTIMIZERS: Final = tuple(
    f"torch.optim.{name}" for name in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad")
)
_LEAST: Final = (("float16", "1e-7"), ("float64", "1e-150"), ("", "1e-20"))
"""Numbers that the dtype holds, that no healthy update notices, and over which the root of what rounds to 0 is none."""

ARGUMENTS: Final = (
    ArgumentIntent(("WN801",), _OPTIMIZERS, "eps", "epsilon", owner="optimizer", values=_LEAST),
    ArgumentIntent(
        ("WN801",), _OPTIMIZERS, "eps", "epsilon", owner="optimizer", values=(("float16", "1e-4"), ("", "1e-8"))
    ),
    ArgumentIntent(
        ("WN603",),
        ("torch.nn.CTCLoss",),
        "zero_infinity",
        "guard",
        parameters=("blank", "reduction", "zero_infinity"),
        values=(("", "True"),),
        instead="a target that has no alignment with its input has a loss of 0 and no gradient",
    ),
    ArgumentIntent(
        ("WN109", "WN110", "WN101", "WN704"),
        ("torch.nn.CosineSimilarity",),
        "eps",
        "epsilon",
        parameters=("dim", "eps"),
        values=(("float16", "1e-4"), ("", "1e-8")),
    ),
    *(
        ArgumentIntent(("WN107", "WN109", "WN704"), (cls,), "eps", "epsilon", values=values, parameters=parameters)
        for values in ((("float16", "1e-6"), ("", "1e-12")), (("", "1e-5"),))
        for cls, parameters in (
            ("torch.nn.LayerNorm", ("normalized_shape", "eps")),
            ("torch.nn.RMSNorm", ("normalized_shape", "eps")),
            ("torch.nn.GroupNorm", ("num_groups", "num_channels", "eps")),
        )
    ),
    ArgumentIntent(
        ("WN201", "WN704"),
        ("torch.nn.PoissonNLLLoss",),
        "eps",
        "epsilon",
        parameters=("log_input", "full", "size_average", "eps"),
        values=(("float16", "1e-4"), ("", "1e-8")),
    ),
)


def arguments_of(rule: str) -> tuple[ArgumentIntent, ...]:
    """The rows that mend what a rule is about, the best first."""
    return tuple(row for row in ARGUMENTS if rule in row.rules)
