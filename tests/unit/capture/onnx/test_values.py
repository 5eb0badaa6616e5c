"""Values handed to ONNX Runtime and read from it again."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from whynan.capture.onnx.arrays import (
    NOTHING,
    copy_value,
    engine_message,
    give_tensor,
    make_ort_value,
    read_ort_value,
    same_bits,
    shapeless,
    type_of,
)
from whynan.capture.onnx.statistics import digest

DTYPES: list[Any] = [
    *(np.float16, np.float32, np.float64, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64),
    *(np.uint64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4),
    *(ml_dtypes.uint4, ml_dtypes.float4_e2m1fn, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.float8_e4m3fnuz),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 0)], ids=str)
def test_a_tensor_comes_back_with_its_bits(dtype: Any, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape)).reshape(shape) % 2).astype(dtype)
    assert same_bits(read_ort_value(give_tensor(array)), array)


def test_strings_come_back() -> None:
    array = np.array([["a", "é"], ["", "nan"]], object)
    assert same_bits(read_ort_value(give_tensor(array)), array)


def test_the_order_of_bytes_and_of_elements_is_put_right() -> None:
    array = np.arange(6, dtype=">f4").reshape(2, 3).T
    assert np.array_equal(read_ort_value(give_tensor(array)), array)


def test_a_numpy_array_is_shared() -> None:
    array = np.zeros(3, np.float32)
    seen: Any = read_ort_value(give_tensor(array))
    array[1] = 5
    assert seen[1] == 5


FLOATS = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["N"]))


@pytest.mark.parametrize(
    "values", [[], [np.ones(2, np.float32)], [np.zeros((0, 2), np.float32), np.ones(3, np.float32)]]
)
def test_sequences_come_back(values: list[Any]) -> None:
    assert same_bits(read_ort_value(make_ort_value(values, FLOATS)), values)
    assert same_bits(read_ort_value(make_ort_value(values, helper.make_optional_type_proto(FLOATS))), values)


def test_an_optional_that_holds_nothing_is_not_asked() -> None:
    assert make_ort_value(None, helper.make_optional_type_proto(FLOATS)) is NOTHING
    assert read_ort_value(NOTHING) is None


@pytest.mark.parametrize("text", ["tensor(bfloat16)", "seq(tensor(string))", "optional(seq(tensor(float8e4m3fn)))"])
def test_types_are_read_as_onnx_runtime_writes_them(text: str) -> None:
    assert type_of(text).ByteSize() > 0
    assert shapeless(type_of(text)) == type_of(text)


def test_a_type_that_cannot_be_handed_on_is_refused() -> None:
    with pytest.raises(RuntimeError, match="map"):
        type_of("map(int64,tensor(float))")


def test_bits_decide_what_is_the_same() -> None:
    nan = np.array([0x7FC00001], np.uint32).view(np.float32)
    other = np.array([0x7FC00002], np.uint32).view(np.float32)
    assert same_bits(nan, copy_value(nan))
    assert not same_bits(nan, other)
    assert not same_bits(np.float32(0), np.float32(-0.0))
    assert not same_bits(np.zeros(1, np.float32), np.zeros((), np.float32))
    assert not same_bits(np.zeros(1, np.float32), np.zeros(1, np.int32))
    assert not same_bits([nan], [nan, nan])
    assert not same_bits(None, nan)
    assert same_bits(None, None)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        [np.ones(2)],
        np.array(["a", "b"], object),
        np.float32(1),
        np.zeros((0, 3)),
        np.ones(2, ml_dtypes.bfloat16),
    ],
    ids=repr,
)
def test_a_digest_is_that_of_the_bits(value: Any) -> None:
    assert digest(value) == digest(copy_value(value))
    assert digest(value) != digest(np.array([np.nan], np.float32))


def test_what_onnx_runtime_says_is_one_line() -> None:
    error = RuntimeError("[ONNXRuntimeError] : 1 : FAIL : Load model failed:\n  no such thing")
    assert engine_message(error) == "Load model failed: no such thing"
