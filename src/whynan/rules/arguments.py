"""The arguments that mend a hazard, of constructors and of calls: one row for each, of classes of PyTorch's."""

from __future__ import annotations

from typing import Final, Literal

from whynan.records.intents import ArgumentIntent, OperandIntent

_OPTIMIZERS: Final = tuple(
    f"torch.optim.{name}" for name in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad")
)
_LEAST: Final = (("float16", "1e-7"), ("float64", "1e-150"), ("", "1e-20"))
"""Numbers that the dtype holds, that no healthy update notices, and over which the root of what rounds to 0 is none."""

LEARNING_RATES: Final = tuple(
    (f"torch.optim.{name}", rate)
    for rate, names in (
        ("1e-3", "SGD Adam AdamW RAdam SparseAdam"),
        ("2e-3", "NAdam Adamax"),
        ("1e-2", "RMSprop Adagrad Rprop ASGD Adafactor"),
        ("1.0", "Adadelta"),
    )
    for name in names.split()
)
"""What each optimizer takes where it is given no learning rate."""

PEAK_RATES: Final = (
    ("torch.optim.lr_scheduler.OneCycleLR", ("optimizer", "max_lr")),
    ("torch.optim.lr_scheduler.CyclicLR", ("optimizer", "base_lr", "max_lr")),
)
"""The schedules that set a rate of their own, whatever the optimizer was given, and their parameters up to it."""

LARGEST_NORMS: Final = ("1.0", "10.0", "100.0", "1000.0")
"""What the norm of the gradients may be clipped to."""

_NO_ALIGNMENT: Final = "a target that has no alignment with its input has a loss of 0 and no gradient"
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
        instead=_NO_ALIGNMENT,
    ),
    ArgumentIntent(
        ("WN603",),
        ("transformers",),
        "ctc_zero_infinity",
        "guard",
        owner="config",
        values=(("", "True"),),
        instead=_NO_ALIGNMENT,
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
_ATTENTION: Final = ("torch.nn.MultiheadAttention",)
_MASKS: Final = (("key_padding_mask", 3), ("attn_mask", 5))
_UNMASKED: Final[tuple[tuple[Literal["bool", "float"], str, str], ...]] = (
    ("bool", "a row that {} masks whole stays unmasked", "masked_fill(x, all(x, dim=-1, keepdim=True), False)"),
    ("float", "the most negative finite number instead of -Inf in {}", "clamp(x, min=finfo(x).min)"),
)
_BELOW_ONE: Final = "1 - finfo(x).eps / 2"
_INSIDE: Final = "torch.distributions"
_ENDS: Final = ("WN201", "WN209", "WN402", "WN102", "WN101")

OPERANDS: Final = (
    # a row of which the mask leaves nothing
    *(
        OperandIntent(
            ("WN501",),
            _ATTENTION,
            "forward",
            name,
            position,
            dtype,
            title.format(name),
            replacement,
            "what a row that is masked whole attends to is no number of any meaning",
        )
        for dtype, title, replacement in _UNMASKED
        for name, position in _MASKS
    ),
    # a row of which two masks together leave nothing: beside -Inf it counts as nothing, alone it is a number
    OperandIntent(
        ("WN501",),
        _ATTENTION,
        "forward",
        "attn_mask",
        5,
        "bool",
        "a large negative number instead of -Inf in attn_mask",
        "where(x, -3e38, 0.0)",
        "a row of which the masks together leave nothing attends to what attn_mask leaves out",
    ),
    # a sample at the end of what the distribution is of, as actions are that were clipped or written as 8 bits
    OperandIntent(
        _ENDS,
        tuple(f"{_INSIDE}.{name}" for name in ("Beta", "Kumaraswamy", "ContinuousBernoulli")),
        "log_prob",
        "value",
        0,
        "float",
        "a sample between 0 and 1, at neither",
        # as far from the one end as a number below 1 is from the other
        f"where(x == 0, finfo(x).eps / 2, where(x == 1, {_BELOW_ONE}, x))",
    ),
    OperandIntent(
        _ENDS,
        tuple(
            f"{_INSIDE}.{name}"
            for name in ("Gamma", "InverseGamma", "LogNormal", "Weibull", "Dirichlet", "Chi2", "FisherSnedecor")
        ),
        "log_prob",
        "value",
        0,
        "float",
        "a sample above 0",
        "where(x == 0, finfo(x).tiny, x)",
    ),
    OperandIntent(
        _ENDS,
        (f"{_INSIDE}.TransformedDistribution",),
        "log_prob",
        "value",
        0,
        "float",
        "a sample between -1 and 1, at neither",
        f"where(abs(x) == 1, sign(x) * ({_BELOW_ONE}), x)",
    ),
)


def operands_of(rule: str) -> tuple[OperandIntent, ...]:
    """The rows of calls that mend what a rule is about, the best first."""
    return tuple(row for row in OPERANDS if rule in row.rules)


def arguments_of(rule: str) -> tuple[ArgumentIntent, ...]:
    """The rows that mend what a rule is about, the best first."""
    return tuple(row for row in ARGUMENTS if rule in row.rules)
