"""Rounding is what noise makes of a stretch: little beside a sum, much beside a cancellation, nothing at a jump."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.unit.compare.models import model, numbers, ran
from whynan.compare.tolerance import Rounding, usual_size

UNIT = 2.0**-24


def rounding(nodes: list[object], weights: dict[str, object], x: object, value: str = "y") -> Rounding:
    run = ran(model(nodes, weights, list(np.shape(x))), x)  # pyright: ignore[reportArgumentType]
    return Rounding(run.side, run.stretch(value, set()), {"x": np.asarray(x, np.float32)}, UNIT)


def test_the_exact_value_is_that_of_float64() -> None:
    x = np.float32([0.1, 0.2, 0.3])
    found = rounding([helper.make_node("Exp", ["x"], ["y"])], {}, x).exact()
    assert found.value.dtype == np.float64
    assert np.allclose(found.value, np.exp(x.astype(np.float64)), rtol=1e-14)


def test_beside_a_cancellation_more_is_tolerated() -> None:
    x = np.float32([1.0, 1e6])
    nodes = [helper.make_node("Add", ["x", "c"], ["v"]), helper.make_node("Sub", ["v", "c"], ["y"])]
    found = rounding(nodes, {"c": np.float32([1e6, 1e-6])}, x).exact()
    assert found.kernel[0] > 1e5 * UNIT
    assert found.kernel[1] < 100 * UNIT * 1e6


def test_the_noise_of_two_operands_does_not_cancel() -> None:
    x = numbers(1000)
    found = rounding([helper.make_node("Sub", ["x", "c"], ["y"])], {"c": x + np.float32(1e-3)}, x).exact()
    assert bool((found.kernel >= 4 * UNIT * np.abs(x)).all())


def test_a_long_sum_is_entitled_to_the_sum_of_its_magnitudes() -> None:
    x = numbers(2, 4096)
    weight = numbers(4096, 3, seed=1)
    found = rounding([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight}, x).exact()
    magnitudes = np.abs(x) @ np.abs(weight)
    assert bool((found.kernel >= 16 * UNIT * magnitudes).all())
    assert bool((found.meaning < found.kernel / 16).all())


def test_a_jump_is_entitled_to_nothing() -> None:
    found = rounding([helper.make_node("Floor", ["x"], ["y"])], {}, np.float32([3.0, 2.9999998])).exact()
    assert float(found.kernel.max()) < 1e-5


def test_a_size_that_is_computed_is_not_rounded() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["sizes"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["sizes", "scale"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Expand", ["x", "whole"], ["y"]),
    ]
    found = rounding(nodes, {"scale": np.float32(1)}, numbers(3, 5)).exact()
    assert found.value.shape == (3, 5)
    assert float(found.kernel.max()) < 100 * UNIT * float(np.abs(found.value).max())


def test_the_fill_of_a_mask_is_of_no_usual_size() -> None:
    values = np.concatenate([numbers(50), np.full(50, -1e9, np.float32)])
    assert 0.5 < usual_size(values) < 2
    assert usual_size(np.zeros(4)) == 0
