"""Pointwise operators and activation functions of ATen, by base name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from whynan.verify.oracle.calls import Call
from whynan.verify.oracle.tape import Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.verify.oracle.calls import Operator, Outcome
    from whynan.verify.oracle.functions import Functions


# -- What ATen's pointwise operators compute, by base name -------------------------------------------------------------


# A ball has no type here: not every version of python-flint has stubs.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# The functions of a table have one signature, of which not every one reads all.
# ruff: noqa: ARG005


def operand(call: Call) -> Variable:
    """The first operand of an operator."""
    return call.variable("self", "input")


def _unary(name: str) -> Operator:
    return lambda call: call.functions.unary(name, operand(call))


def one(formula: Callable[[Functions, Variable], Outcome]) -> Operator:
    """An operator of one tensor, written as a formula of functions."""
    return lambda call: formula(call.functions, operand(call))


def two(formula: Callable[[Functions, Variable, Variable], Outcome], second: str = "other") -> Operator:
    """An operator of two tensors or numbers, written as a formula of functions."""
    return lambda call: formula(call.functions, operand(call), call.variable(second))


def _scaled(call: Call, x: Variable) -> Variable:
    alpha = call.number("alpha", 1)
    return x if alpha == 1 else call.functions.mul(x, alpha)


def _add(call: Call) -> Variable:
    return call.functions.add(operand(call), _scaled(call, call.variable("other")))


def _sub(call: Call) -> Variable:
    return call.functions.sub(operand(call), _scaled(call, call.variable("other")))


def _rsub(call: Call) -> Variable:
    return call.functions.sub(call.variable("other"), _scaled(call, operand(call)))


def _div(call: Call) -> Variable:
    quotient = call.functions.div(operand(call), call.variable("other"))
    how = call.raw("rounding_mode")
    return quotient if how is None else call.functions.rounded(quotient, how)


def _remainder(how: str) -> Operator:
    def operator(call: Call) -> Variable:
        f = call.functions
        x, y = operand(call), call.variable("other")
        return f.sub(x, f.mul(y, f.rounded(f.div(x, y), how)))

    return operator


def _compared(orders: Sequence[int], of_nan: bool = False) -> Operator:
    def operator(call: Call) -> Variable:
        found = call.functions.compare(operand(call), call.variable("other"), orders, of_nan)
        return call.functions.from_mask(found)

    return operator


def _asked(question: Callable[[Any, Any], bool]) -> Operator:
    """A question to each element that is itself never undecided but where the element is."""

    def operator(call: Call) -> Variable:
        e = call.functions.e
        return call.functions.from_mask(
            call.tape.decide(lambda x: None if x is None else question(e, x), operand(call))
        )

    return operator


def _logical(rule: Callable[[bool, bool], bool]) -> Operator:
    def operator(call: Call) -> Variable:
        if call.step.dtypes[0].rpartition(".")[2] != "bool":
            raise call.unsupported("of integers")
        f = call.functions
        one, other = f.truth(operand(call)), f.truth(call.variable("other"))

        # where both answers of an undecided operand come to the same, it does not matter
        def value(x: bool | None, y: bool | None) -> bool | None:
            answers = {rule(a, b) for a in _either(x) for b in _either(y)}
            return answers.pop() if len(answers) == 1 else None

        return f.from_mask(call.tape.decide(value, Variable(one), Variable(other)))

    return operator


def _either(asked: bool | None) -> tuple[bool, ...]:
    return (True, False) if asked is None else (asked,)


def _logical_not(call: Call) -> Variable:
    f = call.functions
    if call.step.dtypes[0].rpartition(".")[2] != "bool":
        raise call.unsupported("of integers")
    return f.choose(f.truth(operand(call)), 0.0, 1.0)


def _where(call: Call) -> Variable:
    f = call.functions
    return f.choose(f.truth(call.variable("condition")), operand(call), call.variable("other"))


def _masked_fill(call: Call) -> Variable:
    f = call.functions
    return f.choose(f.truth(call.variable("mask")), call.variable("value"), operand(call))


def _clamp(call: Call) -> Variable:
    return call.functions.clamp(operand(call), call.optional("min"), call.optional("max"))


def _rounded(how: str) -> Operator:
    def operator(call: Call) -> Variable:
        f, decimals = call.functions, call.number("decimals", 0)
        if not decimals:
            return f.rounded(operand(call), how)
        return f.div(f.rounded(f.mul(operand(call), 10.0**decimals), how), 10.0**decimals)

    return operator


def _sign(call: Call) -> Variable:
    e = call.functions.e

    def value(x: Any) -> Any:
        sign = e.sign(x)
        return x if e.is_undefined(x) else None if sign is None else e.from_number(sign)

    return Variable(call.tape.decide(value, operand(call)))


def _copysign(call: Call) -> Variable:
    f, other = call.functions, call.variable("other")
    e = f.e

    def negative(y: Any) -> bool | None:
        if type(y) is float:
            return math.copysign(1.0, y) < 0
        sign = e.sign(y)
        return None if sign is None else sign < 0

    size = f.abs(operand(call))
    return f.choose(call.tape.decide(negative, other), f.neg(size), size)


def _nan_to_num(call: Call) -> Variable:
    f, x = call.functions, operand(call)
    largest = _LARGEST.get(call.step.dtypes[0], 0.0)
    nan, high = call.number("nan", 0.0), call.number("posinf", largest)
    low = call.number("neginf", -largest)
    e = f.e
    for mask, instead in (
        (lambda x: e.is_undefined(x), nan),
        (lambda x: e.is_infinite(x) and x > 0, high),
        (lambda x: e.is_infinite(x) and x < 0, low),
    ):
        x = f.choose(call.tape.decide(mask, x), instead, x)
    return x


_LARGEST: Final = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "bfloat16": 3.3895313892515355e38,
    "float16": 65504.0,
}


def _heaviside(call: Call) -> Variable:
    f, x = call.functions, operand(call)
    other = f.from_mask(f.is_above(x, 0.0))
    return f.choose(f.compare(x, f.variable(0.0), (0,)), call.variable("values"), other)


def _xlogy(f: Functions, x: Variable, y: Variable) -> Variable:
    nothing = f.tape.decide(lambda x, y: None if x is None else f.e.sign(x) == 0 and not f.e.is_undefined(y), x, y)
    product = f.mul(x, f.log(y))
    value = f.choose(nothing, 0.0, f.tape.stop(product))
    # it is 0 there, and its slope that of the product all the same
    return f.tape.derived(value.data, (product,), lambda gradient: ((product, gradient),))


def _sinc(f: Functions, x: Variable) -> Variable:
    e = f.e
    scaled = f.mul(x, f.pi())
    zero = f.compare(x, f.variable(0.0), (0,))
    return f.choose(zero, f.variable(e.one), f.div(f.unary("sin", scaled), f.choose(zero, 1.0, scaled)))


def _logaddexp(f: Functions, x: Variable, y: Variable) -> Variable:
    # the formula is symmetrical: which of two about equal ones is taken for the larger does not matter
    first = f.tape.decide(lambda x, y: f.e.order(x, y) == 1, x, y)
    high, low = f.choose(first, x, y), f.choose(first, y, x)
    same = f.tape.decide(lambda x, y: f.e.is_infinite(x) and x == y, x, y)
    return f.choose(same, x, f.add(high, f.softplus(f.choose(same, 0.0, f.sub(low, high)))))


def _logaddexp2(f: Functions, x: Variable, y: Variable) -> Variable:
    two = f.log(f.variable(2.0))
    return f.div(_logaddexp(f, f.mul(x, two), f.mul(y, two)), two)


def _log_base(base: float) -> Operator:
    return one(lambda f, x: f.div(f.log(x), f.log(f.variable(base))))


def _but_nan(larger: bool) -> Operator:
    """The larger or the smaller of two, of which one may be no number."""

    def operator(call: Call) -> Variable:
        f, x, y = call.functions, operand(call), call.variable("other")
        e = f.e
        first = call.tape.decide(lambda x, y: e.is_undefined(y), x, y)
        second = call.tape.decide(lambda x, y: e.is_undefined(x), x, y)
        both = f.maximum(x, y) if larger else f.minimum(x, y)
        return f.choose(first, x, f.choose(second, y, both))

    return operator


def _decayed(name: str) -> Callable[[Functions, Variable], Variable]:
    return lambda f, x: f.mul(f.unary(name, x), f.exp(f.neg(f.abs(x))))


_NAMES: Final = (
    "exp expm1 log log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv "
    "lgamma digamma i0 i1"
)

POINTWISE: Final[Mapping[str, Operator]] = {
    **{name: _unary(name) for name in _NAMES.split()},
    "reciprocal": _unary("inverse"),
    "add": _add,
    "sub": _sub,
    "rsub": _rsub,
    "mul": two(lambda f, x, y: f.mul(x, y)),
    "div": _div,
    **dict.fromkeys(("neg", "_neg_view"), one(lambda f, x: f.neg(x))),
    "abs": one(lambda f, x: f.abs(x)),
    "sign": _sign,
    "sgn": _sign,
    "pow": two(lambda f, x, y: f.pow(x, y), "exponent"),
    "rsqrt": one(lambda f, x: f.unary("inverse", f.sqrt(x))),
    "exp2": one(lambda f, x: f.pow(2.0, x)),
    "log2": _log_base(2.0),
    "log10": _log_base(10.0),
    "atan2": two(lambda f, y, x: f.atan2(y, x)),
    "xlogy": two(_xlogy),
    "xlog1py": two(lambda f, x, y: _xlogy(f, x, f.add(y, 1.0))),
    "entr": one(lambda f, x: f.neg(_xlogy(f, x, x))),
    "sinc": one(_sinc),
    "hypot": two(lambda f, x, y: f.sqrt(f.add(f.square(x), f.square(y)))),
    "logaddexp": two(_logaddexp),
    "logaddexp2": two(_logaddexp2),
    "maximum": two(lambda f, x, y: f.maximum(x, y)),
    "minimum": two(lambda f, x, y: f.minimum(x, y)),
    "fmax": _but_nan(larger=True),
    "fmin": _but_nan(larger=False),
    "ldexp": two(lambda f, x, y: f.mul(x, f.pow(2.0, y))),
    "deg2rad": one(lambda f, x: f.mul(x, f.div(f.pi(), 180.0))),
    "rad2deg": one(lambda f, x: f.div(f.mul(x, 180.0), f.pi())),
    **{f"{name}e": one(_decayed(name)) for name in ("i0", "i1")},
    "ndtr": one(lambda f, x: f.mul(f.unary("erfc", f.neg(f.div(x, f.sqrt(f.variable(2.0))))), 0.5)),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "where": _where,
    "masked_fill": _masked_fill,
    "remainder": _remainder("floor"),
    "fmod": _remainder("trunc"),
    "floor_divide": two(lambda f, x, y: f.rounded(f.div(x, y), "floor")),
    "floor": _rounded("floor"),
    "ceil": _rounded("ceil"),
    "round": _rounded("round"),
    "trunc": _rounded("trunc"),
    "frac": one(lambda f, x: f.sub(x, f.rounded(x, "trunc"))),
    "copysign": _copysign,
    "nan_to_num": _nan_to_num,
    "heaviside": _heaviside,
    "eq": _compared((0,)),
    "ne": _compared((-1, 1), of_nan=True),
    "lt": _compared((-1,)),
    "le": _compared((-1, 0)),
    "gt": _compared((1,)),
    "ge": _compared((0, 1)),
    "logical_and": _logical(lambda x, y: x and y),
    "logical_or": _logical(lambda x, y: x or y),
    "logical_xor": _logical(lambda x, y: x != y),
    "bitwise_and": _logical(lambda x, y: x and y),
    "bitwise_or": _logical(lambda x, y: x or y),
    "bitwise_xor": _logical(lambda x, y: x != y),
    "logical_not": _logical_not,
    "bitwise_not": _logical_not,
    "isnan": _asked(lambda e, x: e.is_undefined(x)),
    "isinf": _asked(lambda e, x: e.is_infinite(x)),
    "isposinf": _asked(lambda e, x: e.is_infinite(x) and x > 0),
    "isneginf": _asked(lambda e, x: e.is_infinite(x) and x < 0),
}


# -- What ATen's activation functions compute, by base name ------------------------------------------------------------


# A ball has no type here: not every version of python-flint has stubs.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# The formulas of a table have one signature, of which not every one reads all.


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


def _hard(times: bool) -> Operator:
    """Hard sigmoid, ``clamp(x + 3, 0, 6) / 6``, or x times it."""

    def operator(call: Call) -> Variable:
        f, x = call.functions, operand(call)
        gate = f.div(f.clamp(f.add(x, 3.0), 0.0, 6.0, inclusive=False), 6.0)
        return f.mul(x, gate) if times else gate

    return operator


def _dropout(call: Call) -> Sequence[Variable]:
    f, kept = call.functions, call.recorded_output(1)
    x, share = call.variable("input"), call.number("p", 0.5)
    if call.raw("train") is False or share == 0:
        return x, f.tape.full(x.shape, f.e.one)
    if kept is None:
        raise call.unsupported("random, and its mask was not kept")
    return f.div(f.mul(x, kept), 1.0 - share), kept


ACTIVATIONS: Final[Mapping[str, Operator]] = {
    "softplus": _softplus,
    "log_sigmoid_forward": one(lambda f, x: (_log_sigmoid(f, x), f.zeros(x))),
    "relu": one(lambda f, x: f.relu(x)),
    "leaky_relu": _leaky_relu,
    "_prelu_kernel": two(_prelu, "weight"),
    "elu": _elu,
    "silu": one(lambda f, x: f.mul(x, f.sigmoid(x))),
    "gelu": _gelu,
    "hardtanh": _hardtanh,
    "hardsigmoid": _hard(times=False),
    "hardswish": _hard(times=True),
    "native_dropout": _dropout,
}
