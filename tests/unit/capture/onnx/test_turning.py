"""Which operand a birth turns on: what the operator means decides, not which number is the greatest or a zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.capture.onnx.looking import N, f32, look


def full(value: float, *shape: int) -> Any:
    return np.full(shape, value, np.float32)


BATCH = {"x": full(1, 1, 2, 2), "s": f32(1, 1), "b": f32(0, 0), "m": f32(0, 0), "v": f32(1, 1)}
ROW = {"x": np.arange(3, dtype=np.float32).reshape(1, 1, 3), "s": f32(1), "b": f32(0)}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "a quotient of a small denominator": ("Div", {"a": f32(1e10), "b": f32(1e-30)}, {}, "b[0] is 1e-30"),
    "a quotient of a great numerator": ("Div", {"a": f32(1e38), "b": f32(1e-2)}, {}, "a[0] is 1e38"),
    "0 / 0": ("Div", {"a": f32(0), "b": f32(0)}, {}, "b[0] is 0"),
    "a great base": ("Pow", {"x": f32(1e30), "y": f32(2)}, {}, "x[0] is 1e30"),
    "a small base": ("Pow", {"x": f32(1e-30), "y": f32(-2)}, {}, "x[0] is 1e-30"),
    "a great exponent": ("Pow", {"x": f32(2), "y": f32(1000)}, {}, "y[0] is 1000"),
    "a negative base": ("Pow", {"x": f32(-0.5), "y": f32(2.5)}, {}, "x[0] is -0.5"),
    "a base of 0": ("Pow", {"x": f32(0), "y": f32(-2)}, {}, "x[0] is 0"),
    "a sum with a zero": ("Sum", {"a": f32(3e38), "b": f32(2e38), "c": f32(0)}, {}, "a[0] is 3e38"),
    "a product": ("Gemm", {"a": full(1e37, 1, 4), "b": full(100, 4, 4), "c": f32(0)}, {}, "a"),
    "the other factor": ("Gemm", {"a": full(100, 1, 4), "b": full(1e37, 4, 4), "c": f32(0)}, {}, "b"),
    "the greatest product, not the greatest factor": (
        "MatMul",
        {"a": np.array([[1e30, 2]], np.float32), "b": np.array([[1e-30], [3e38]], np.float32)},
        {},
        "b",
    ),
    "what is added to a product": (
        "Gemm",
        {"a": full(1, 1, 4), "b": full(9e37, 4, 4), "c": f32(3e38)},
        {},
        "c[0] is 3e38",
    ),
    "a convolution": ("Conv", {"x": full(1e20, 1, 1, 3, 3), "w": full(1e19, 1, 1, 2, 2), "b": f32(0)}, {}, "x"),
    "a window that lies outside": (
        "Conv",
        {"x": full(1e19, 1, 1, 3, 3), "w": full(1e20, 1, 1, 2, 2), "b": f32(0)},
        {"pads": [1, 1, 1, 1]},
        "w",
    ),
    "a negative variance": ("BatchNormalization", {**BATCH, "v": f32(-1, 1)}, {}, "v[0] is -1"),
    "a small variance": (
        "BatchNormalization",
        {**BATCH, "v": f32(1e-36, 1), "x": full(1e17, 1, 2, 2), "s": f32(1e15, 1)},
        {"epsilon": 0.0},
        "v[0] is 1e-36",
    ),
    "a great scale of a batch": (
        "BatchNormalization",
        {**BATCH, "x": full(1e4, 1, 2, 2), "s": f32(1e36, 1)},
        {},
        "s[0] is 1e36",
    ),
    "a row of one number": (
        "InstanceNormalization",
        {**ROW, "x": full(1, 1, 1, 3), "b": f32(5)},
        {"epsilon": 0.0},
        "x",
    ),
    "a great scale of a row": ("InstanceNormalization", {**ROW, "s": f32(3e38)}, {}, "s[0] is 3e38"),
    "a row and its axes": ("ReduceProd", {"x": full(1e30, 2, 2), "axes": np.array([0], np.int64)}, {}, "x"),
    "a scale of 1e38": (
        "DequantizeLinear",
        {"x": np.array([[0, 100]], np.int8), "s": f32(1, 1e38), "z": np.array([0, 0], np.int8)},
        {"axis": 1},
        "s[1] is 1e38",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_birth_is_led_back_to_the_operand_that_it_turns_on(name: str) -> None:
    op, values, attributes, expected = CASES[name]
    node = N(op, list(values), ["out"], **attributes)
    # tensors of integers are what they are from the beginning
    fed = {key: value for key, value in values.items() if value.dtype == np.float32}
    seen = look([node], fed, ["out"], {key: value for key, value in values.items() if key not in fed})
    assert seen.chain[0] == ("cause", f"input {expected}")


@pytest.mark.parametrize(("zero", "point"), [(0, " and zero point 0"), (3, " and zero point 3")])
def test_what_was_quantised_to_its_zero_is_led_back_to_what_it_was(zero: int, point: str) -> None:
    nodes = [
        N("QuantizeLinear", ["x", "s", "z"], ["q"]),
        N("DequantizeLinear", ["q", "s", "z"], ["d"]),
        N("Log", ["d"], ["y"]),
    ]
    held = {"s": f32(1, 0.5), "z": np.array([zero, zero], np.int8)}
    seen = look(nodes, {"x": np.array([[1, 0.125]], np.float32)}, ["y"], held)
    assert [said for role, said in seen.chain if role == "cause"] == [
        "input x[0, 1] is 0.125",
        f"QuantizeLinear of 0.125 with scale 0.5{point} is {zero}",
        f"DequantizeLinear of {zero} with scale 0.5{point} is 0",
    ]


def test_a_row_is_followed_through_what_only_gives_it_another_shape() -> None:
    nodes = [N("Flatten", ["x"], ["f"], name="flat"), N("MatMul", ["f", "w"], ["y"], name="mm")]
    seen = look(nodes, {"x": full(1e30, 1, 2, 2)}, ["y"], {"w": full(1e10, 4, 1)})
    assert [said for role, said in seen.chain if role == "cause"] == ["input x"]
