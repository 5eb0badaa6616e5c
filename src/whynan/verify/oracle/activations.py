"""What ATen's activation functions compute, by base name."""

# pyright: strict
# A ball has no type here: not every version of python-flint has stubs.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# The formulas of a table have one signature, of which not every one reads all.

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from whynan.verify.oracle.pointwise import one, operand, two

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.verify.oracle.calls import Call, Operator
    from whynan.verify.oracle.functions import Functions
    from whynan.verify.oracle.tape import Variable


def _hardtanh(call: Call) -> Variable:
    low, high = call.number("min_val", -1.0), call.number("max_val", 1.0)
    return call.functions.clamp(operand(call), low, high, inclusive=False)


def _softplus(call: Call) -> Variable:
    f, beta = call.functions, call.number("beta", 1)
    return f.div(f.softplus(f.mul(operand(call), beta)), beta)


def _log_sigmoid(f: Functions, x: Variable) -> Variable:
    return f.neg(f.softplus(f.neg(x)))


def _gelu(call: Call) -> Variable:
    f, x = call.functions, operand(call)
    if call.raw("approximate") == "tanh":
        inner = f.mul(f.add(x, f.mul(f.mul(f.square(x), x), 0.044715)), f.sqrt(f.div(8.0, f.pi())))
        return f.mul(x, f.sigmoid(inner))
    return f.mul(f.mul(x, 0.5), f.unary("erfc", f.neg(f.div(x, f.sqrt(f.variable(2.0))))))


def _leaky_relu(call: Call) -> Variable:
    f, x = call.functions, operand(call)
    return f.choose(f.is_above(x, 0.0), x, f.mul(x, call.number("negative_slope", 0.01)))


def _prelu(f: Functions, x: Variable, weight: Variable) -> Variable:
    return f.choose(f.is_above(x, 0.0), x, f.mul(x, weight))


def _elu(call: Call) -> Variable:
    f, x = call.functions, operand(call)
    alpha, scale = call.number("alpha", 1), call.number("scale", 1)
    below = f.mul(f.unary("expm1", f.mul(x, call.number("input_scale", 1))), alpha)
    return f.mul(f.choose(f.is_above(x, 0.0), x, below), scale)


def _celu(call: Call) -> Variable:
    f, x = call.functions, operand(call)
    alpha = call.number("alpha", 1)
    return f.choose(f.is_above(x, 0.0), x, f.mul(f.unary("expm1", f.div(x, alpha)), alpha))


def _threshold(call: Call) -> Variable:
    f, x = call.functions, operand(call)
    return f.choose(f.is_above(call.number("threshold", 0), x, or_equal=True), call.variable("value"), x)


def _shrunk(soft: bool) -> Operator:
    def operator(call: Call) -> Variable:
        f, x = call.functions, operand(call)
        reach = call.number("lambd", 0.5)
        far = (f.sub(x, reach), f.add(x, reach)) if soft else (x, x)
        low = f.choose(f.is_above(-reach, x), far[1], f.zeros(x))
        return f.choose(f.is_above(x, reach), far[0], low)

    return operator


def _hard(times: bool) -> Operator:
    """Hard sigmoid, ``clamp(x + 3, 0, 6) / 6``, or x times it."""

    def operator(call: Call) -> Variable:
        f, x = call.functions, operand(call)
        gate = f.div(f.clamp(f.add(x, 3.0), 0.0, 6.0, inclusive=False), 6.0)
        return f.mul(x, gate) if times else gate

    return operator


def _gated(call: Call) -> Variable:
    """``glu``: one half of a dimension times the sigmoid of the other."""
    f, x = call.functions, operand(call)
    places = np.arange(x.data.size).reshape(x.shape)
    halves = np.split(places, 2, axis=int(call.number("dim", -1)))
    value, gate = (call.tape.gather([x], half) for half in halves)
    return f.mul(value, f.sigmoid(gate))


def _dropout(call: Call) -> Sequence[Variable]:
    f, kept = call.functions, call.given(1)
    x, share = call.variable("input"), call.number("p", 0.5)
    if call.raw("train") is False or share == 0:
        return x, f.tape.full(x.shape, f.e.one)
    if kept is None:
        raise call.refused("random, and its mask was not kept")
    return f.div(f.mul(x, kept), 1.0 - share), kept


ACTIVATIONS: Final[Mapping[str, Operator]] = {
    "softplus": _softplus,
    "log_sigmoid_forward": one(lambda f, x: (_log_sigmoid(f, x), f.zeros(x))),
    "log_sigmoid": one(_log_sigmoid),
    "relu": one(lambda f, x: f.relu(x)),
    "relu6": one(lambda f, x: f.clamp(x, 0.0, 6.0, inclusive=False)),
    "leaky_relu": _leaky_relu,
    "_prelu_kernel": two(_prelu, "weight"),
    "elu": _elu,
    "celu": _celu,
    "silu": one(lambda f, x: f.mul(x, f.sigmoid(x))),
    "mish": one(lambda f, x: f.mul(x, f.unary("tanh", f.softplus(x)))),
    "gelu": _gelu,
    "hardtanh": _hardtanh,
    "hardsigmoid": _hard(times=False),
    "hardswish": _hard(times=True),
    "softshrink": _shrunk(soft=True),
    "hardshrink": _shrunk(soft=False),
    "threshold": _threshold,
    "glu": _gated,
    "native_dropout": _dropout,
}
