"""What each ATen operator means to a bad number: what it carries, drops, overwrites or makes of nothing.

Only names: this room knows no framework. An operator that stands in no table is asked by experiment, by capture.
"""

from __future__ import annotations

# Output element i depends on the operands' elements at i after broadcasting. `torch.Tag.pointwise` marks most;
# these are pointwise and carry no tag (checked against native_functions.yaml of torch 2.13).
POINTWISE = frozenset(
    """
    _to_copy copy copy_ clone fill fill_ where lerp lerp_ addcmul addcdiv native_dropout masked_fill masked_fill_
    threshold_backward gelu_backward silu_backward mish_backward softplus softplus_backward elu_backward
    hardtanh_backward hardswish hardswish_ hardswish_backward hardsigmoid_backward leaky_relu_backward
    log_sigmoid_forward log_sigmoid_backward mse_loss_backward smooth_l1_loss_backward huber_loss_backward
    binary_cross_entropy_backward soft_margin_loss_backward _prelu_kernel _prelu_kernel_backward
    sub sub_ rsub mul mul_ div div_ add add_ neg pow pow_ real imag complex polar view_as_complex_copy
    bernoulli dropout feature_dropout rrelu_with_noise rrelu_with_noise_backward
    logaddexp logaddexp2 xlogy special_xlog1py nan_to_num special_entr to type_as _autocast_to_reduced_precision
    _autocast_to_full_precision _conj_physical conj_physical resolve_conj resolve_neg alias_copy contiguous
    detach_copy zero zero_ sqrt_ isclose softshrink_backward hardshrink_backward glu_jvp
    """.split()
)

# The outputs are the operands' elements, moved: run on label planes they move the labels.
MOVEMENT = frozenset(
    """
    cat stack index index_select gather select_backward slice_backward constant_pad_nd repeat roll flip expand_copy
    tril triu take masked_select unfold_backward diagonal_backward permute_copy view_copy transpose_copy select_copy
    slice_copy t_copy squeeze_copy unsqueeze_copy split_copy split_with_sizes_copy unbind_copy _reshape_copy
    diag_embed trace_backward reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle channel_shuffle repeat_interleave
    unfold_copy as_strided_copy rot90 block_diag
    """.split()
)

# New memory whose content is whatever was there: no birth until something reads it.
UNINITIALISED = frozenset(
    """
    empty empty_like new_empty empty_strided new_empty_strided empty_permuted empty_quantized
    _empty_affine_quantized _efficientzerotensor
    """.split()
)

# The result does not depend on the operands' values, only on shape and dtype.
VALUE_FREE = frozenset(
    """
    zeros_like ones_like full_like rand_like randn_like randint_like new_zeros new_ones new_full zeros ones full
    arange linspace eye scalar_tensor zero zero_ fill fill_ normal_ uniform_ random_ bernoulli_ exponential_
    geometric_ log_normal_ cauchy_ size stride sym_size sym_numel sym_stride sym_storage_offset numel dim is_same_size
    _local_scalar_dense item record_stream set_ resize_ _resize_output_
    """.split()
)

# In place, and the old content of `self` is not read.
OVERWRITES = frozenset(
    """
    zero_ fill_ copy_ normal_ uniform_ random_ exponential_ geometric_ log_normal_ cauchy_ set_ eye
    _foreach_zero_ _foreach_copy_ bernoulli_
    """.split()
)

# Asking whether a value is bad is no use of it.
PREDICATES = frozenset("isnan isinf isfinite isposinf isneginf".split())
# `x == x` and `x.abs() != inf`: what `isfinite` itself is made of
COMPARISONS = frozenset("eq ne".split())

# A literal that passes one of these is named there when it arrives in a loss, a gradient or a parameter.
REDUCTIONS_AND_SELECTIONS = frozenset(
    """
    sum mean max min amax amin gather index index_select take masked_select nll_loss_forward nll_loss2d_forward
    logsumexp prod norm linalg_vector_norm dot mm bmm addmm baddbmm mv cumsum cumprod var std var_mean std_mean
    nansum aminmax median nanmedian topk sort embedding nll_loss_nd convolution _softmax _log_softmax scatter_add
    index_add segment_reduce trace vdot einsum mse_loss smooth_l1_loss huber_loss binary_cross_entropy
    _ctc_loss kthvalue mode
    """.split()
)

# Operators that change an argument which their schema does not mark, by position (pytorch 2.13).
HIDDEN_MUTATION: dict[str, tuple[int, ...]] = {
    "native_batch_norm": (3, 4),
    "cudnn_batch_norm": (3, 4),
    "miopen_batch_norm": (3, 4),
}

# Outputs, by number, that a kernel keeps for its derivative: -Inf in them stands for what cannot be, and some elements
# are never written (pytorch 2.13).
WORKSPACES: dict[str, tuple[int, ...]] = {"_ctc_loss": (1,)}

# These compute vectors too while any dispatch mode is on, and the values of `eigvalsh`, `svdvals`, `cond` and the
# matrix norms by another routine (isTensorSubclassLike, pytorch 2.13).
COMPUTE_VECTORS = frozenset("_linalg_eigh _linalg_svd".split())

# Foreach operators that reduce each entry of their list.
OF_WHOLE_ENTRIES = frozenset("norm max powsum".split())

# Where a value leaves the tensors for Python.
LEAVES = frozenset("_local_scalar_dense item is_nonzero equal".split())

# Views that their schema does not declare.
UNDECLARED_VIEWS = frozenset("_unsafe_view _reshape_alias lift_fresh lift _conj _neg_view".split())

# Operators that read a condition to choose between operands.
SELECTS = frozenset(["where"])

# What gives an element of an operand again, besides pure movement.
COPYING = frozenset(
    """
    where masked_fill index_put copy lift_fresh masked_scatter scatter index_copy index_fill slice_scatter
    select_scatter diagonal_scatter as_strided_scatter fill max min amax amin maximum minimum fmax fmin clamp
    clamp_min clamp_max relu sort topk kthvalue median nanmedian mode gather index index_select take masked_select
    aminmax cummax cummin embedding max_pool2d_with_indices _to_copy clone detach contiguous
    """.split()
)


def base_name(name: str) -> str:
    """``aten.add.Tensor`` -> ``add``; a foreach operator gives the name of what it does to each tensor.

    >>> base_name("aten._foreach_add_.List")
    'add_'
    """
    parts = name.split(".")
    base = parts[1] if len(parts) > 1 else name
    return base.removeprefix("_foreach_")


def is_foreach(name: str) -> bool:
    """Whether the operator works on lists of tensors, entry by entry."""
    base = name.split(".")[1] if "." in name else name
    return base.startswith(("_foreach_", "_fused_", "_amp_foreach_"))
