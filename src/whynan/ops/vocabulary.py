"""Which names are PyTorch's own, and so tell nothing of the program that uses them.

By shape and by table, and when in doubt they are not: a report that leaves names out leaves out what stands in neither.
"""

# pyright: strict

from __future__ import annotations

import re
from typing import Final

_OPERATOR: Final = re.compile(
    r"(aten|prims|prim|quantized|_quantized|c10d|_c10d_functional|_c10d_functional_autograd|mkldnn|onednn)"
    r"\.[A-Za-z_]\w*(\.[A-Za-z_]\w*)?",
    re.ASCII,
)
# A program's own autograd.Function gives a node that ends in `Backward`; only PyTorch's generated ones are numbered.
_NODE: Final = re.compile(r"[A-Z][A-Za-z0-9]*(_[A-Za-z0-9]+)*Backward\d{1,2}", re.ASCII)
_NODES: Final = frozenset(
    """
    AccumulateGrad CopySlices CopyBackwards CheckpointFunctionBackward CompiledFunctionBackward GraphRoot
    """.split()
)
_DTYPE: Final = re.compile(
    r"bool|bits\d{1,2}(x\d)?|b?float\d{1,3}(_e\d+m\d+\w{0,6})?|complex\d{1,3}|q?u?int\d{1,2}(x\d)?", re.ASCII
)
_ARGUMENT: Final = re.compile(r"(?P<name>\w+)(\[\d+\])?", re.ASCII)
_NUMBERED: Final = re.compile(r"arg\d+", re.ASCII)

# Arguments of aten's operators that are tensors or numbers (torch 2.13).
_ARGUMENTS: Final = frozenset(
    """
    A B L LD LU LU_data LU_pivots M P Q R S U V Vh X a abs addends alibi_slopes alpha anchor angle atol attn_bias
    attn_mask averaging_const b b_hh b_ih bag_size base batch1 batch2 batch_sizes beta beta1 beta2 bias bin_edges bins
    boundaries buffer ccol_indices coefficients col_indices compressed_indices condition correction count counts
    crow_indices cum_seq_k cum_seq_q cx cy dampening data delta dense diagonals dropout dropout_mask dropout_p
    dropout_state dst dual dx eigenvalues eigenvectors eigvals eigvecs el element elements end eps epsilon exp_avg_sqs
    exp_avgs exponent exponential_average_factor fill fill_value flat found_inf from fweights aweights grad grad_bias
    grad_cy grad_factor grad_glu grad_hy grad_in grad_input grad_out grad_output grad_outputs grad_scale grad_tensors
    grad_w grad_weight grad_x grad_y gradient grads grid growth_tracker hidden_bias hidden_gates high hist hx idx imag
    index indices info initial inp input input1 input2 input3 input_bias input_gates input_lengths input_scale inputs
    inv_scale inverse invstd is_target item k key l label_smoothing lambd lengths list log_alpha log_probs logabsdet
    logsumexp low lower lr lr_decay mantissa margin mask mat mat1 mat2 matrices max max_exp_avg_sqs max_norm max_val
    max_values maxnorm mean median meta min min_indices min_val momentum momentum_buffer_list n nan negative_slope
    neginf noise norm_type offset2bag offsets ord other out out0 out1 out2 out3 output output_scale outputs p padding
    padding_value params pdist per_sample_weights pivots pos_weight posinf prob q quasi query random_samples range rank
    ratio rcond real repeats reserve result rng_state rstd rtol running_max running_mean running_min running_var s
    save_invstd save_mean save_var scalar scalar1 scalar2 scalars scale scale_a scale_b scale_factor scale_factors
    scales self shape sigma sign singular_values size solution sorted_indices sorted_sequence sorter source spacing src
    start state_steps state_sums std step t tangent target target_lengths targets tau tensor tensor1 tensor2 tensors
    tensors1 test_element test_elements theta threshold to to_add tol total total_weight upper v val value values var
    vec vec1 vec2 w_hh w_ih weight weight_decay weights window workspace x x1 x2 y z zero_point
    """.split()
)


def is_torch_operator(name: str) -> bool:
    """Whether an overload is one of PyTorch's namespaces: ``aten.log.default``, not ``mylib.op.default``."""
    return _OPERATOR.fullmatch(name) is not None


def is_torch_node(name: str) -> bool:
    """Whether a node of the graph is one that PyTorch made: ``LogBackward0``, ``AccumulateGrad``."""
    return name in _NODES or _NODE.fullmatch(name) is not None


def is_dtype(name: str) -> bool:
    """Whether this is the name of a type of numbers: ``bfloat16``."""
    return _DTYPE.fullmatch(name) is not None


def is_torch_argument(name: str) -> bool:
    """Whether an aten operator calls an argument so: ``self``, ``tensors[2]``, ``exp_avg`` of the list ``exp_avgs``."""
    parts = _ARGUMENT.fullmatch(name)
    if parts is None:
        return False
    base = parts["name"]
    return base in _ARGUMENTS or f"{base}s" in _ARGUMENTS or _NUMBERED.fullmatch(base) is not None
