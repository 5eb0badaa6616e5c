"""Exact values at poles, limits and beyond ranges; what is undecided; the noise; identities of balls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.verify.oracle.programs_of import node, program_of
from whynan.verify.oracle import Unsupported, exact, noise_floors
from whynan.verify.oracle.balls import FUNCTIONS, Ball, precision, radius
from whynan.verify.oracle.calls import Program, Ref, Step


def truth(function: Any, *numbers: float, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """The exact values and gradients of a function of x at some numbers."""
    x = torch.tensor(numbers, dtype=dtype)
    program = program_of(function, x=x)
    return exact(program, {"x": x}, {program.outputs[0]: 1.0}, **options)


def values(found: Any) -> list[float]:
    """The only output's."""
    return next(iter(found.outputs.values())).midpoint().tolist()


def test_poles_are_infinite_and_their_indeterminate_forms_undefined() -> None:
    found = truth(lambda x: x.log(), 0.0, 1.0, -1.0, math.inf)
    assert values(found)[:2] == [-math.inf, 0.0]
    assert found.gradients["x"].infinite().tolist() == [True, False, False, False]
    assert next(iter(found.outputs.values())).undefined().tolist() == [False, False, True, False]
    assert math.isnan(values(truth(lambda x: x / x, 0.0))[0])
    assert values(truth(lambda x: 1 / x, 0.0, -0.0)) == [math.inf, -math.inf]
    assert truth(lambda x: x.sqrt(), 0.0).gradients["x"].infinite().all()
    assert truth(lambda x: x * x.log(), 0.0).gradients["x"].undefined().all()


def test_signed_zeros_turn_angles() -> None:
    found = truth(lambda x: torch.atan2(x, torch.full_like(x, -1.0)), 0.0, -0.0)
    assert values(found) == [math.pi, -math.pi]


def test_the_slope_of_x_log_y_is_log_y_at_0_too() -> None:
    x, y = torch.tensor([0.0, 0.0, 2.0]), torch.tensor([2.0, 0.0, 3.0])
    program = program_of(torch.xlogy, x=x, y=y)
    found = exact(program, {"x": x, "y": y}, {program.outputs[0]: 1.0})
    assert values(found)[:2] == [0.0, 0.0]
    assert found.gradients["x"].midpoint().tolist() == pytest.approx([math.log(2), -math.inf, math.log(3)])


def test_both_limits_and_subnormals() -> None:
    largest, smallest = torch.finfo(torch.float32).max, 2.0**-149
    found = truth(lambda x: x * x, largest, smallest)
    assert values(found) == [pytest.approx(largest**2, rel=1e-15), 2.0**-298]
    assert values(truth(lambda x: x.exp(), largest))[0] == math.inf


def test_what_float64_gets_wrong_is_right() -> None:
    assert values(truth(lambda x: x.sigmoid().log(), 50.0))[0] == pytest.approx(-math.exp(-50), rel=1e-12)


def test_a_branch_not_taken_has_no_gradient() -> None:
    found = truth(lambda x: torch.where(x > 0, x.sqrt(), torch.zeros_like(x)), 0.0, -1.0, 4.0)
    assert found.gradients["x"].midpoint().tolist() == [0.0, 0.0, 0.25]


def test_too_few_bits_leave_an_element_undecided_and_are_doubled() -> None:
    function = lambda x: x.sigmoid().log()
    few = truth(function, 3e4, 1.0, dtype=torch.float64, most_bits=512)
    assert next(iter(few.outputs.values())).undecided().tolist() == [True, False]
    assert few.undecided == 1
    more = truth(function, 600.0, dtype=torch.float64)
    assert (more.bits, more.undecided) == (1024, 0)
    assert values(more)[0] == pytest.approx(-math.exp(-600), rel=1e-12)


def test_a_cast_is_rounded_away() -> None:
    found = truth(lambda x: x.half().float() * 3, 0.1)
    assert values(found)[0] == 3 * float(np.float32(0.1))


def test_noise_is_that_of_the_roundoff() -> None:
    x = torch.linspace(0.5, 2.0, 50)
    program = program_of(lambda x: x.exp(), x=x)
    *fewer, noise = noise_floors(program, {"x": x}, {program.outputs[0]: 1.0})
    relative = next(iter(noise.outputs.values())) / np.exp(x.double().numpy())
    assert (relative > 2.0**-26).all()
    assert (relative < 2.0**-24 * 3.1).all()
    assert (noise.gradients["x"] > 0).all()
    assert all((one.gradients["x"] <= noise.gradients["x"]).all() for one in fewer)


def test_noise_is_repeatable_and_takes_the_exact_branches() -> None:
    x = torch.tensor([1.0, 1.0])
    program = program_of(lambda x: x.amax(), x=x)
    runs = [[*noise_floors(program, {"x": x}, {program.outputs[0]: 1.0})] for _ in range(2)]
    noisy = [run[-1].gradients["x"] for run in runs]
    assert noisy[0].tolist() == noisy[1].tolist()
    # of two equal ones each has half: noise that told them apart would give one of them all
    assert (noisy[0] < 1e-6).all()


def test_an_unknown_operator_is_named() -> None:
    step = Step("aten._linalg_svd.default", {"A": Ref("x")}, ("y",), ("float32",), ((2,),))
    program = Program("aten", ("x",), (step,), ("y",))
    with pytest.raises(Unsupported, match=r"aten\._linalg_svd"):
        exact(program, {"x": np.ones(2)}, {})


IDENTITIES: dict[str, Any] = {
    "inverse": lambda f, x: (f(x) * x, Ball(1)),
    "sigmoid": lambda f, x: (f(x) + f(-x), Ball(1)),
    "i0": lambda f, x: (f(x), f(-x)),
    "i1": lambda f, x: (f(x), -f(-x)),
    "lgamma": lambda f, x: (f(x + 1) - f(x), abs(x).log()),
    "digamma": lambda f, x: (f(x + 1) - f(x), 1 / x),
    "trigamma": lambda f, x: (f(x) - f(x + 1), 1 / x**2),
}


@pytest.mark.parametrize("number", [-2.25, -0.75, 0.875, 7.5])
@pytest.mark.parametrize("name", IDENTITIES)
def test_functions_of_balls_keep_their_identities(name: str, number: float) -> None:
    with precision(256):
        found, wanted = IDENTITIES[name](FUNCTIONS[name], Ball(number))
    assert found.overlaps(wanted)
    assert radius(found) < 2.0**-200


def test_onnx_nodes() -> None:
    x = np.array([[0.5, -1.0, 2.0], [1.0, 1.5, -3.0]])
    e, padded = np.exp(x), np.pad(x, ((0, 0), (1, 0)), constant_values=7.0)
    expected: dict[str, tuple[dict[str, Any], Any]] = {
        "Softmax": ({"input": x, "axis": -1}, e / e.sum(-1, keepdims=True)),
        "ReduceLogSumExp": ({"data": x, "axes": [1], "keepdims": 0}, np.log(e.sum(1))),
        "ReduceMax": ({"data": x, "axes": [0], "keepdims": 1}, x.max(0, keepdims=True)),
        "ReduceL2": ({"data": x}, np.sqrt((x**2).sum()).reshape(1, 1)),
        "Gemm": ({"A": x, "B": x, "transB": 1, "alpha": 2.0}, 2 * x @ x.T),
        "Max": ({"data_0": [x, 0 * x]}, np.maximum(x, 0)),
        "Concat": ({"inputs": [x, x], "axis": 1}, np.concatenate([x, x], 1)),
        "Slice": ({"data": x, "starts": [2], "ends": [-100], "axes": [1], "steps": [-1]}, x[:, ::-1]),
        "Clip": ({"input": x, "min": np.array(-0.5), "max": None}, np.clip(x, -0.5, None)),
        "Transpose": ({"data": x}, x.T),
        "Greater": ({"A": x, "B": 0 * x}, (x > 0).astype(float)),
        "CumSum": ({"x": x, "axis": np.array(1)}, x.cumsum(1)),
        "Gather": ({"data": x, "indices": np.array([2, 0]), "axis": 1}, x[:, [2, 0]]),
        "Mod": ({"A": x, "B": np.array(0.75)}, np.mod(x, 0.75)),
        "LpNormalization": ({"input": x}, x / np.linalg.norm(x, axis=-1, keepdims=True)),
        "Trilu": ({"input": x, "upper": 0}, np.tril(x)),
        "Pad": ({"data": x, "pads": [0, 1, 0, 0], "constant_value": np.array(7.0)}, padded),
    }  # fmt: skip
    for op, (arguments, wanted) in expected.items():
        dtype = "bool" if op == "Greater" else "float64"
        program, inputs = node(op, np.shape(wanted), dtype, **arguments)
        found = exact(program, inputs, {"y": 1.0}).outputs["y"].midpoint()
        assert found.shape == np.shape(wanted), op
        assert np.allclose(found, wanted, rtol=1e-12), op


def test_an_elimination_has_the_noise_of_the_largest_element() -> None:
    """Partial pivoting is stable by the norm of a matrix alone: what float32 gives of this one is off by 16."""
    a, b, c, d = 5.4265e-12, 5.0083e27, 2.2653e-2, 2.3814e37
    x = torch.tensor([[a, b, -a, d], [-a, -c, -a, -d], [-a, -d, -b, a], [-a, b, c, b]])
    for matrix, bounds in ((x, (1.0, 1e6)), (torch.eye(4), (0.0, 1e-5))):
        program = program_of(lambda x: torch.linalg.slogdet(x).logabsdet, x=matrix)
        *_, noise = noise_floors(program, {"x": matrix}, {program.outputs[0]: 1.0})
        assert bounds[0] <= noise.outputs[program.outputs[0]].max() < bounds[1]
