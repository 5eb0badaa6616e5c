"""Public names of PyTorch, ONNX and ONNX Runtime, which tell nothing of a program."""

from __future__ import annotations

import re
from typing import Final

from whynan.ops.table import ONNX

# -- Which names are PyTorch's own, and so tell nothing of the program that uses them ----------------------------------
#
# By shape and by table, and when in doubt they are not: a report that leaves names out leaves out what stands in
# neither.


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


# -- Which names are those of ONNX and of ONNX Runtime, and so tell nothing of a model (onnx 1.23, onnxruntime 1.31)


ARGUMENTS: Final = frozenset(
    """
    A AW A_scale A_zero_point B B_scale B_shape B_zero_point C C_scale C_zero_point Grid I Inputs K K_bias
    K_weight M MW P Pads Q QW Q_bias Q_weight R R_scale R_zero_point Scale Sequence Sum T V V_bias V_weight W
    W_scale W_zero_point X X_scale X_zero_point Y Y_scale Y_zero_point Z a a_log a_scale a_zero_point absmax
    additional_inputs attention_bias attention_mask attention_metadata attn_mask auxiliary_key auxiliary_lengths
    auxiliary_value axes axis b b_scale b_zero_point batch_indices beam_width beta beta_quant beta_scale
    beta_zero_point bias bias_table block_col_indices block_output block_row_indices block_shape block_table
    boxes cache_indirection capture_count cond condition constant_value conv_norm_scale cos_cache crop_size
    cross_qk_layer_head cu_seqlens cumulative_sequence_length cumulative_sequence_lengths cur_tokens data data_0
    data_scale data_zero_point decay decay_scale decoder_input_ids delta depth dft_length dt_bias eco_a emb
    encoded_stream ends eos_token_id extra_decoding_ids fc1_act_block_scale fc1_act_scale fc1_experts_bias
    fc1_experts_weights fc1_global_scale fc1_scales fc1_zero_points fc2_act_block_scale fc2_act_scale
    fc2_experts_bias fc2_experts_weights fc2_global_scale fc2_scales fc2_zero_points fc3_experts_bias
    fc3_experts_weights fc3_scales fc3_zero_points frame_length frame_step g_idx gamma gamma_quant gamma_scale
    gamma_zero_point gate gate_B gate_bias gate_scales global global_bias global_weight grid
    has_key_padding_mask has_layer_state head_offsets head_sink head_weights image_shape indices initial_c
    initial_h initial_state initial_state_and_scan_inputs input input_data input_ids input_mean input_scale
    input_sequence input_var input_zero_point inputs iou_threshold k k_B k_bias k_norm_weight k_rot k_scale
    k_scales key key_cache key_length key_norm_scale key_norm_weight key_padding_mask key_total_sequence_lengths
    kv_weight labels length_penalty limit logits_processor lower_edge_hertz mask mask_index max max_length
    max_output_boxes_per_class mean memory_seq_lens min min_length multipliers nonpad_kv_seqlen norm_scale
    num_beams num_mel_bins num_return_sequences offset output_shape padding_idx pads past past_cache
    past_gate_buffer past_ids past_key past_key_state past_kv_buffer past_proj_buffer past_segment_ids
    past_seqlens past_sequence_length past_sequence_lengths past_state past_state_lengths past_value position
    position_bias position_embedding position_embedding_quant position_embedding_scale
    position_embedding_zero_point position_ids post_mix pre_mix pred_tokens prefix_vocab_mask presence_mask
    prev_suffix_match_idx q q_B q_bias q_norm_weight q_rot q_scales q_weight query query_bias query_layer
    query_length query_norm_scale query_norm_weight ratio reduced_scale reduced_zero_point rel_pos repeats
    repetition_penalty residual roi rois router_probs router_weights sample_rate scale scaleA scaleB scaleY
    scale_A scale_B scale_C scale_K_gemm scale_K_weight scale_QKT_gemm scale_QKT_softmax scale_Q_gemm
    scale_Q_weight scale_V_gemm scale_V_weight scale_X scale_Y scale_bias scale_global_gemm scale_global_weight
    scale_grad_by_freq scale_input scale_output scale_qkv_gemm scale_values_gemm scale_weight scales
    score_threshold scores seed segment_embedding segment_embedding_scale segment_embedding_zero_point
    segment_ids selected_counts selected_indices seqlens_k sequence_lens sequence_token_count shape signal
    sin_cache size sizes skip slope slot_mapping split src_tokens start starts state_update_active
    state_update_capture_count static_kv steps stream_mix streams strides target target_type temperature tensor
    theta tiles token_offset total_sequence_length training_mode up_B up_bias up_scales update updates
    upper_edge_hertz use_past v_B v_bias v_initial v_scale v_scales value value_cache values var vocab_mask
    vocab_sizes w w_scale w_zero_point weight weight_scale weight_scale_2 weight_zero_point weights window
    word_embedding word_embedding_quant word_embedding_scale word_embedding_zero_point write_indices x x_scale
    x_zero_point y_scale y_zero_point z_scale z_zero_point zero_points
    """.split()
)
"""The names of their inputs."""


def is_onnx_operator(name: str) -> bool:
    """Whether an op type is one that everybody has."""
    return name in ONNX.rows and name not in ONNX.having("kernel")


def is_onnx_argument(name: str) -> bool:
    """Whether a name is that of an input of such an operator; one of several by its number: ``inputs[2]``."""
    return name.partition("[")[0] in ARGUMENTS
