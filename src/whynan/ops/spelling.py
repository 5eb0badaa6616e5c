"""How Python spells ATen's operators: symbols, aliases, and functions that dispatch operators of other names."""

from __future__ import annotations

import ast
import re
from typing import Final

SYMBOLS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
}
COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
REFLECTED: Final = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
"""What a tensor on the right is asked for where the left is a number: ``0 < t`` is ``t.__gt__(0)``."""

COMMUTATIVE: Final = frozenset("add mul bitwise_and bitwise_or bitwise_xor eq ne".split())
"""Operators for which ``number op tensor`` dispatches the same overload as ``tensor op number``."""

UNARY: Final[dict[type[ast.unaryop], frozenset[str]]] = {
    ast.USub: frozenset({"neg"}),
    ast.Invert: frozenset({"bitwise_not", "logical_not"}),
}

BUILTINS: Final = frozenset({"abs", "pow"})
"""Python's own functions that ask a tensor for the operator of their name."""

_NONFINITE: Final = re.compile(r"(?<![^\W_])[np]?(?:nan|inf|infinity)(?!\w)(?!\s*\()", re.IGNORECASE)
"""``inf``, ``"NaN"``, ``np.NINF``, ``NEG_INF``, and neither ``info`` nor ``nan_to_num(x)``."""

_PREFIXES: Final = ("linalg_", "special_", "native_", "fused_")


def _by_alias(table: dict[str, str]) -> dict[str, str]:
    return {alias: name for name, aliases in table.items() for alias in aliases.split()}


ALIASES: Final = _by_alias(
    {
        "abs": "absolute",
        "acos": "arccos",
        "acosh": "arccosh",
        "asin": "arcsin",
        "asinh": "arcsinh",
        "atan": "arctan",
        "atan2": "arctan2",
        "atanh": "arctanh",
        "cat": "concat concatenate",
        "clamp": "clip",
        "digamma": "psi",
        "div": "divide true_divide",
        "eq": "equal_to",
        "ge": "greater_equal",
        "gt": "greater",
        "le": "less_equal",
        "lgamma": "gammaln",
        "logsigmoid": "log_sigmoid",
        "lt": "less",
        "mul": "multiply",
        "ne": "not_equal",
        "neg": "negative",
        "sigmoid": "expit",
        "sub": "subtract",
        "vector_norm": "norm",
    }
)
"""Functions of PyTorch's that have several names, by the other names."""
_DISPATCHED_NAMES: Final = _by_alias(
    {
        "add": "iadd",
        "bitwise_and": "and",
        "bitwise_or": "or",
        "bitwise_xor": "xor",
        "cdist": "cdist_forward",
        "convolution": "conv1d conv2d conv3d",
        "div": "itruediv truediv",
        "inv": "inv_ex inverse",
        "logsigmoid": "log_sigmoid_forward",
        "matmul": "imatmul",
        "mul": "imul",
        "nll_loss": "nll_loss_forward",
        "pow": "float_power ipow",
        "prelu": "prelu_kernel",
        "scaled_dot_product_attention": "scaled_dot_product_flash_attention scaled_dot_product_efficient_attention "
        "scaled_dot_product_flash_attention_for_cpu scaled_dot_product_cudnn_attention",
        "sub": "isub",
        "trunc": "fix",
    }
)
"""Operators that a function or a method of another name dispatches, by their names."""

OPERANDS: Final = frozenset(
    "A B bias batch1 batch2 condition end exponent index indices input key mask mat mat1 mat2 max min other pos_weight "
    "query running_mean running_var self source src target tensor tensor1 tensor2 tensors value values vec vec1 vec2 "
    "weight x1 x2".split()
)
"""Schema arguments that are values; the others say how to compute."""

OPERAND_METHODS: Final = frozenset(
    "add addbmm addcdiv addcmul addmm addmv addr allclose atan2 baddbmm bitwise_and bitwise_or bitwise_xor bmm "
    "clamp clamp_max clamp_min copy copysign cross dist div dot eq equal fill floor_divide fmax fmin fmod gather "
    "gcd ge ger gt heaviside hypot igamma igammac index_add index_copy index_fill index_put index_select inner "
    "isclose lcm ldexp le lerp logaddexp logaddexp2 logical_and logical_or logical_xor lshift lt masked_fill "
    "masked_scatter masked_select matmul maximum minimum mm mul mv ne nextafter pow remainder rshift scatter "
    "scatter_add scatter_reduce sub vdot xlogy".split()
)
"""Methods of a tensor that take further operands; a loss, a norm, a convolution is asked of a module."""

MOST_POSITIONAL: Final = {"addcdiv": 3, "addcmul": 3}
"""How many arguments a method takes by position, the tensor included, where its schema has more."""

OPTIONAL: Final = frozenset({"clamp"})
"""Operators all of whose operands after the first may be left out."""

Signature = tuple[tuple[str, ...], dict[str, dict[str, str]]]

# Function: its parameters in Python, and for each operator that it dispatches on them (not on something computed from
# them) which of the operator's arguments is which parameter.
DISPATCHED: Final[dict[str, Signature]] = {
    name: (tuple(parameters.split()), operators)
    for name, parameters, operators in (
        ("square", "input", {"pow": {"self": "input"}}),
        ("max", "input other", {"maximum": {"self": "input", "other": "other"}}),
        ("min", "input other", {"minimum": {"self": "input", "other": "other"}}),
        # mm and mv are absent: a matrix times a batch may be computed as the product of the transposed, swapped
        (
            "matmul",
            "input other",
            {"bmm": {"self": "input", "mat2": "other"}, "dot": {"self": "input", "tensor": "other"}},
        ),
        (
            "linear",
            "input weight bias",
            {
                "addmm": {"self": "bias", "mat1": "input", "mat2": "weight"},
                "mm": {"self": "input", "mat2": "weight"},
                "bmm": {"self": "input", "mat2": "weight"},
                "linear": {"input": "input", "weight": "weight", "bias": "bias"},
            },
        ),
        ("logdet", "input", {"slogdet": {"A": "input"}}),
        ("outer", "input vec2", {"mul": {"self": "input", "other": "vec2"}}),
        (
            "cross_entropy",
            "input target weight",
            {"log_softmax": {"self": "input"}, "nll_loss": {"target": "target", "weight": "weight"}},
        ),
        ("l1_loss", "input target", {"sub": {"self": "input", "other": "target"}}),
        ("pairwise_distance", "x1 x2", {"sub": {"self": "x1", "other": "x2"}}),
        ("kl_div", "input target", {"xlogy": {"self": "target", "other": "target"}}),
        ("normalize", "input", {"vector_norm": {"self": "input"}, "div": {"self": "input"}}),
        ("softmin", "input", {"neg": {"self": "input"}}),
        ("rms_norm", "input normalized_shape weight", {"pow": {"self": "input"}}),
        ("embedding", "input weight", {"embedding": {"weight": "weight", "indices": "input"}}),
        (
            "batch_norm",
            "input running_mean running_var weight bias",
            {"batch_norm": {n: n for n in ("input", "weight", "bias", "running_mean", "running_var")}},
        ),
        (
            "group_norm",
            "input num_groups weight bias",
            {"group_norm": {n: n for n in ("input", "weight", "bias")}},
        ),
        (
            "binary_cross_entropy_with_logits",
            "input target weight size_average reduce reduction pos_weight",
            {
                "binary_cross_entropy_with_logits": {
                    "self": "input",
                    "target": "target",
                    "weight": "weight",
                    "pos_weight": "pos_weight",
                }
            },
        ),
        (
            "scaled_dot_product_attention",
            "query key value",
            {"scaled_dot_product_attention": {n: n for n in ("query", "key", "value")}},
        ),
    )
}

METHODS: Final = frozenset("logdet square max min matmul outer".split())
"""Those of them that tensors have as methods."""


def base_of(op_name: str) -> str:
    """``aten.div_.Tensor`` -> ``div_``; a name without namespace and overload is its own."""
    parts = op_name.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def canonical(name: str) -> str:
    """One name for all spellings of an operator: ``div`` for ``true_divide``, ``div_`` and ``__truediv__``."""
    name = name.strip("_")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return ALIASES.get(name) or _DISPATCHED_NAMES.get(name, name)


def spells_nonfinite(text: str) -> bool:
    """Whether an expression names a NaN or an Inf."""
    return _NONFINITE.search(text) is not None
