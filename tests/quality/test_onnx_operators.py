"""A bad number handed to any operator of ONNX is carried by it, not born in it; only a NaN made of an Inf is."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper
from onnx.backend.test.loader import load_node_model_tests

from tests.onnx_engine import bare
from tests.quality.onnx_planting import traced
from whynan.capture.onnx.counts import is_bad, is_floating, nan_mask, tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.quality.conftest import Tally
    from whynan.analysis import Findings

SAMPLED = """
    test_add_bcast test_matmul_3d test_conv_with_strides_padding test_softmax_axis_1 test_layer_normalization_2d_axis1
    test_lstm_defaults test_gather_1 test_concat_2d_axis_1 test_reduce_mean_keepdims_random test_where_example
    test_maxpool_2d_default test_averagepool_2d_pads test_gemm_all_attributes test_einsum_batch_matmul test_top_k
    test_resize_upsample_scales_linear test_scatternd_add test_batchnorm_example test_instancenorm_example
    test_attention_4d test_cumsum_2d_axis_1 test_transpose_all_permutations_3 test_constant_pad test_slice
    test_loop11 test_if test_scan9_sum test_split_to_sequence_1 test_unique_sorted_without_axis test_dft
    test_gridsample_bilinear test_roialign_aligned_true test_convtranspose_pads test_gru_defaults test_clip_example
    test_argmax_keepdims_random test_quantizelinear test_dequantizelinear test_lrn test_prelu_broadcast
    test_depthtospace_example test_reversesequence_batch test_onehot_with_axis test_triu_one_row test_tile
""".split()
NOT_BY_RULE = ("cast", "empty_set")
"""Cases that are bad without being poisoned."""


@cache
def _cases() -> dict[str, Any]:
    with warnings.catch_warnings():
        # some cases are about what overflows
        warnings.simplefilter("ignore", RuntimeWarning)
        return {case.name: case for case in load_node_model_tests()}


def _value(given: Any) -> Any:
    if isinstance(given, TensorProto):
        return numpy_helper.to_array(given)
    if isinstance(given, SequenceProto):
        return numpy_helper.to_list(given)
    return numpy_helper.to_optional(given) if isinstance(given, OptionalProto) else given


def _runnable(name: str) -> tuple[onnx.ModelProto, dict[str, Any]] | None:
    """A case as ONNX Runtime takes it; None for one that it does not run, or that is bad by itself."""
    case = _cases()[name]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = min(model.ir_version, 10)
    for opset in model.opset_import:
        opset.version = min(opset.version, 26) if not opset.domain else opset.version
    feeds = {i.name: _value(v) for i, v in zip(model.graph.input, case.data_sets[0][0], strict=False)}
    if any(isinstance(v, list) for v in feeds.values()):
        # the engine of these tests hands no sequences on
        return None
    try:
        outputs = bare(model, feeds)
    except Exception:
        # whatever a kernel that is not there raises
        return None
    return None if any(_bad(v) for v in outputs.values()) else (model, feeds)


def _bad(value: Any) -> bool:
    return any(is_floating(t) and is_bad(t) for _, t in tensors(value, ()))


def _nan(value: Any) -> bool:
    return any(is_floating(t) and bool(nan_mask(t).any()) for _, t in tensors(value, ()))


def _poisoned(name: str) -> Iterator[tuple[str, str | None]]:
    """For each floating input of a case and each bad number: the kind of it, and what is wrong with what is found."""
    found = _runnable(name)
    if found is None or _has_batches(found[0]):
        return
    model, feeds = found
    random = np.random.default_rng(len(name))
    for key, value in feeds.items():
        if not isinstance(value, np.ndarray) or not is_floating(value) or not value.size or value.dtype.kind == "c":
            continue
        for number in (np.nan, np.inf):
            spoilt = np.array(value)
            spoilt.reshape(-1)[int(random.integers(spoilt.size))] = number
            given = {**feeds, key: spoilt}
            try:
                outputs = bare(model, given)
            except Exception:
                # a size that is NaN
                continue
            kind = "NaN" if number != number else "Inf"
            yield kind, judged(traced(model, given), outputs, kind)


def _has_batches(model: onnx.ModelProto) -> bool:
    """Whether it has a Scan of before opset 9, which the engine of these tests does not run."""
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    return opset < 9 and any(node.op_type == "Scan" for node in model.graph.node)


def judged(found: Findings, outputs: dict[str, Any], kind: str) -> str | None:
    """What is wrong with the findings of a run into which one bad number was handed; None where nothing is."""
    births = [f.birth for f in found.escaped]
    told = f"{found.verdict} {[(f.birth, f.op, f.element.index) for f in found.escaped]}"
    if kind == "NaN":
        right = births == ["entered"] if any(map(_bad, outputs.values())) else not births
    else:
        # an Inf that was handed in and leaves is no error; a NaN that was made of it is
        made = any(map(_nan, outputs.values()))
        right = found.verdict == "nonfinite" if made else not births
    return None if right else told


def _poison_all(names: list[str], tally: Tally) -> None:
    missed: list[str] = []
    for name in names:
        for kind, wrong in _poisoned(name):
            tally.count(f"{kind} handed to a node: carried", int(wrong is None), 1)
            if wrong is not None:
                missed.append(f"{name}: {wrong}")
    assert not missed, "\n".join(missed)


def test_a_bad_operand_is_carried_by_a_sample_of_operators(tally: Tally) -> None:
    _poison_all([name for name in SAMPLED if name in _cases()], tally)


@pytest.mark.full
def test_a_bad_operand_is_carried_by_every_operator(tally: Tally) -> None:
    _poison_all([n for n in _cases() if not any(word in n for word in NOT_BY_RULE)], tally)


def test_most_of_the_sample_is_there_and_runs() -> None:
    assert sum(name in _cases() and _runnable(name) is not None for name in SAMPLED) >= 35


def test_one_that_finds_a_birth_in_the_node_is_a_miss() -> None:
    found = _runnable("test_add_bcast")
    assert found is not None
    model, feeds = found
    given = {**feeds, "x": np.full_like(feeds["x"], np.nan)}
    right, outputs = traced(model, given), bare(model, given)
    assert judged(right, outputs, "NaN") is None
    born = tuple(f.model_copy(update={"birth": "invalid"}) for f in right.escaped)
    assert judged(replace(right, escaped=born), outputs, "NaN") is not None
    assert judged(replace(right, escaped=()), outputs, "NaN") is not None
