"""The operators as PyTorch names them: their parameters, their other names, and where they are found."""

from __future__ import annotations

from typing import Final

from whynan.ops.spelling import ALIASES

_REDUCED: Final = "input dim keepdim"
SIGNATURES: Final = {
    name: tuple(parameters.split())
    for names, parameters in {
        "softmax log_softmax softmin": "input dim",
        "sum mean prod amax amin max min nansum nanmean logsumexp all any argmax argmin median": _REDUCED,
        "std var": "input dim correction keepdim",
        "vector_norm": "input ord dim keepdim",
        "cumsum cumprod logcumsumexp unsqueeze squeeze": "input dim",
        "pow": "input exponent",
        "atan2 hypot maximum minimum xlogy xlog1py logaddexp logaddexp2 fmod remainder copysign matmul mm bmm dot mv": (
            "input other"
        ),
        "eq ne lt le gt ge logical_and logical_or": "input other",
        "add sub rsub mul div": "input other",
        "clamp": "input min max",
        "clamp_min": "input min",
        "clamp_max": "input max",
        "where": "condition input other",
        "masked_fill": "input mask value",
        "nan_to_num": "input nan posinf neginf",
        "logit": "input eps",
        "normalize": "input p dim eps",
        "cosine_similarity": "x1 x2 dim eps",
        "pairwise_distance": "x1 x2 p eps",
        "layer_norm": "input normalized_shape weight bias eps",
        "rms_norm": "input normalized_shape weight eps",
        "group_norm": "input num_groups weight bias eps",
        "batch_norm": "input running_mean running_var weight bias training momentum eps",
        "cross_entropy": "input target weight size_average ignore_index reduce reduction label_smoothing",
        "nll_loss": "input target weight size_average ignore_index reduce reduction",
        "binary_cross_entropy binary_cross_entropy_with_logits": "input target weight size_average reduce reduction",
        "mse_loss l1_loss smooth_l1_loss": "input target size_average reduce reduction",
        "kl_div": "input target size_average reduce reduction log_target",
        "poisson_nll_loss": "input target log_input full size_average eps reduce reduction",
        "gaussian_nll_loss": "input target var full eps reduction",
        "ctc_loss": "log_probs targets input_lengths target_lengths blank reduction zero_infinity",
        "softplus": "input beta threshold",
        "leaky_relu": "input negative_slope",
        "elu": "input alpha",
        "diff": "input n dim",
        "index_select": "input dim index",
        "stack cat": "tensors dim",
        "transpose": "input dim0 dim1",
    }.items()
    for name in names.split()
}
"""The parameters of a function, in PyTorch's order; the first is what its method is called on."""

KEYWORDS: Final = {
    "axis": "dim",
    "keepdims": "keepdim",
    "p": "ord",
    "unbiased": "correction",
    "self": "input",
    "A": "input",
    "x": "input",
}
"""Other names of parameters, where a signature has the second and not the first."""
DEFAULTS: Final[dict[str, object]] = {
    "keepdim": False,
    "dtype": None,
    "correction": 1,
    "alpha": 1,
    "ord": 2,
    "out": None,
}
"""What an argument is where it is not given, as a constant."""

UNARY: Final = frozenset(
    "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 "
    "expm1 floor frac lgamma log log10 log1p log2 neg reciprocal relu round rsqrt sgn sigmoid sign "
    "sin sinc sinh sqrt square tan tanh trunc silu gelu logsigmoid ndtri ndtr entr i0 detach clone "
    "positive isnan isinf isfinite logical_not float double half bfloat16 contiguous trace logdet det "
    "diagonal t zeros_like ones_like empty_like".split()
)
CASTS: Final = frozenset({"float", "double", "half", "bfloat16", "to", "type", "type_as"})
"""Methods that give the same elements in another dtype or on another device."""
VIEWS: Final = frozenset(
    "unsqueeze squeeze view reshape flatten contiguous expand expand_as view_as reshape_as clone "
    "permute transpose t".split()
)
"""Methods that give the same elements in another shape."""

ELEMENTWISE: Final = frozenset(
    "add sub rsub mul div pow atan2 hypot maximum minimum xlogy xlog1py logaddexp logaddexp2 fmod "
    "remainder copysign eq ne lt le gt ge logical_and logical_or clamp clamp_min clamp_max where "
    "masked_fill nan_to_num logit softplus leaky_relu elu".split()
) | (UNARY - {"trace", "logdet", "det", "diagonal", "t"})
"""Operators each of whose elements depends on the elements of its operands at the same place."""

FRESH: Final = (
    frozenset(
        "softmax log_softmax sum mean prod amax amin logsumexp std var vector_norm cumsum cumprod "
        "logcumsumexp matmul mm bmm dot mv stack cat normalize cosine_similarity layer_norm cross_entropy "
        "nll_loss mse_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits diff argmax "
        "argmin all any clone trace det logdet einsum addmm outer linear zeros ones full full_like tensor".split()
    )
    | (ELEMENTWISE - {"detach", "positive", "contiguous", "nan_to_num"})
) - {"float", "double", "half", "bfloat16"}
"""Operators whose result shares no memory with an operand."""

PURE: Final = (
    frozenset(SIGNATURES)
    | UNARY
    | CASTS
    | VIEWS
    | frozenset(
        "finfo size dim numel gather arange full full_like zeros ones linspace eye tensor as_tensor mish "
        "hardswish hardtanh relu6 one_hot cholesky cholesky_ex eigh eigvalsh svd svdvals inv inv_ex solve "
        "slogdet diag diag_embed outer einsum tril triu flip roll sort topk cdist cross addmm linear lerp "
        "addcmul addcdiv index_add scatter_add bincount broadcast_to tile repeat repeat_interleave chunk "
        "split unbind movedim swapaxes isclose bitwise_not threshold".split()
    )
)
"""Operators that give the same for the same operands, and change nothing."""

METHODS: Final = (
    frozenset(
        "softmax log_softmax sum mean prod amax amin max min nansum nanmean logsumexp all any argmax "
        "argmin median std var cumsum cumprod logcumsumexp unsqueeze squeeze pow atan2 hypot maximum "
        "minimum xlogy logaddexp logaddexp2 fmod remainder copysign matmul mm bmm dot mv eq ne lt le gt "
        "ge logical_and logical_or add sub mul div clamp clamp_min clamp_max masked_fill nan_to_num logit "
        "index_select transpose diff gather flatten reshape view expand".split()
    )
    | UNARY
) - {"silu", "gelu", "logsigmoid", "ndtri", "ndtr", "entr", "i0", "zeros_like", "ones_like", "empty_like"}
"""Operators that a tensor has as a method of the same name."""

FUNCTIONAL: Final = frozenset(
    "logsigmoid softplus normalize cosine_similarity pairwise_distance layer_norm rms_norm group_norm "
    "batch_norm cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits mse_loss "
    "l1_loss smooth_l1_loss kl_div poisson_nll_loss gaussian_nll_loss ctc_loss gelu silu elu "
    "leaky_relu softmin hardtanh threshold relu6 one_hot mish hardswish".split()
)
"""Operators that are found in ``torch.nn.functional``."""
LINALG: Final = frozenset("vector_norm cholesky cholesky_ex eigh eigvalsh svd svdvals solve inv inv_ex slogdet".split())
SPECIAL: Final = frozenset({"ndtri", "ndtr", "entr", "xlog1py", "log_ndtr"})
TENSOR_ONLY: Final = frozenset(
    "float double half bfloat16 to type type_as view view_as reshape_as expand expand_as contiguous "
    "size dim numel".split()
)
"""What only a method does."""

MODULES: Final = {
    "Softmax": ("softmax", "dim"),
    "LogSoftmax": ("log_softmax", "dim"),
    "Sigmoid": ("sigmoid", ""),
    "LogSigmoid": ("logsigmoid", ""),
    "Tanh": ("tanh", ""),
    "ReLU": ("relu", "inplace"),
    "Softplus": ("softplus", "beta threshold"),
    "SiLU": ("silu", "inplace"),
    "GELU": ("gelu", "approximate"),
}
"""Classes of ``torch.nn`` without parameters: the function that an instance calls, and the constructor's parameters."""


def canonical(name: str) -> tuple[str, bool]:
    """An operator's one name, and whether it is the spelling that writes in place."""
    in_place = name.endswith("_") and not name.endswith("__")
    base = name.rstrip("_") if in_place else name
    return ALIASES.get(base, base), in_place
