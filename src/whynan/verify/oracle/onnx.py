"""What ONNX's operators compute, by type: those that are not ATen's under another name."""

# A ball has no type here: not every version of python-flint has stubs.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# The functions of a table have one signature, of which not every one reads all.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.ops.onnx import op_type
from whynan.verify.oracle.layers import affine, along_channels, normalised
from whynan.verify.oracle.linear import matmul, transposed
from whynan.verify.oracle.movement import ONNX_MOVES, cast
from whynan.verify.oracle.rows import extreme, norm, product
from whynan.verify.oracle.tape import Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.verify.oracle.calls import Call, Operator, Step
    from whynan.verify.oracle.functions import Functions

_X = ("X", "input", "data", "x", "A")


def _of(formula: Callable[[Functions, Variable], Variable]) -> Operator:
    return lambda call: formula(call.functions, call.variable(*_X))


def _unary(name: str) -> Operator:
    return lambda call: call.functions.unary(name, call.variable(*_X))


def _binary(formula: Callable[[Functions, Variable, Variable], Variable]) -> Operator:
    return lambda call: formula(call.functions, call.variable("A", "X"), call.variable("B", "Y"))


def _folded(formula: Callable[[Functions, Variable, Variable], Variable]) -> Operator:
    """An operator of any number of tensors."""

    def operator(call: Call) -> Variable:
        first, *rest = call.variables("data_0", "data", "inputs")
        for other in rest:
            first = formula(call.functions, first, other)
        return first

    return operator


def _mean_of(call: Call) -> Variable:
    return call.functions.div(_folded(lambda f, x, y: f.add(x, y))(call), float(len(call.variables("data_0"))))  # pyright: ignore[reportArgumentType]


def _divided(call: Call) -> Variable:
    f = call.functions
    quotient = f.div(call.variable("A"), call.variable("B"))
    return f.rounded(quotient, "trunc") if "int" in call.step.dtypes[0] else quotient


def _modulo(call: Call) -> Variable:
    f, x, y = call.functions, call.variable("A"), call.variable("B")
    return f.sub(x, f.mul(y, f.rounded(f.div(x, y), "trunc" if call.flag("fmod") else "floor")))


def _compared(orders: Sequence[int]) -> Operator:
    def operator(call: Call) -> Variable:
        f = call.functions
        return f.from_mask(f.compare(call.variable("A"), call.variable("B"), orders))

    return operator


def _logical(name: str) -> Operator:
    def operator(call: Call) -> Variable:
        f = call.functions
        x, y = (f.from_mask(f.truth(call.variable(operand))) for operand in ("A", "B"))
        if name == "Xor":
            return f.from_mask(f.compare(x, y, (-1, 1)))
        return f.minimum(x, y) if name == "And" else f.maximum(x, y)

    return operator


def _not(call: Call) -> Variable:
    f = call.functions
    return f.choose(f.truth(call.variable("X")), 0.0, 1.0)


def _is_infinite(call: Call) -> Variable:
    f = call.functions
    e, up, down = f.e, call.flag("detect_positive", True), call.flag("detect_negative", True)

    def asked(x: Any) -> bool | None:
        return None if x is None else e.is_infinite(x) and (up if x > 0 else down)

    return f.from_mask(call.tape.decide(asked, call.variable("X")))


def _is_nan(call: Call) -> Variable:
    f = call.functions
    return f.from_mask(call.tape.decide(lambda x: None if x is None else f.e.is_undefined(x), call.variable("X")))


def _where(call: Call) -> Variable:
    f = call.functions
    return f.choose(f.truth(call.variable("condition")), call.variable("X"), call.variable("Y"))


def _clip(call: Call) -> Variable:
    return call.functions.clamp(call.variable("input"), call.optional("min"), call.optional("max"))


def _sign(call: Call) -> Variable:
    f, x = call.functions, call.variable("input", "X")
    zero = f.variable(0.0)
    return f.sub(f.from_mask(f.compare(x, zero, (1,))), f.from_mask(f.compare(x, zero, (-1,))))


def _leaky(call: Call) -> Variable:
    f, x = call.functions, call.variable("X")
    slope = call.variable("slope") if call.has("slope") else f.variable(call.number("alpha", 0.01))
    return f.choose(f.is_above(x, 0.0), x, f.mul(x, slope))


def _elu(call: Call) -> Variable:
    f, x = call.functions, call.variable("X")
    return f.choose(f.is_above(x, 0.0), x, f.mul(f.unary("expm1", x), call.number("alpha", 1.0)))


def _selu(call: Call) -> Variable:
    f, x = call.functions, call.variable("X")
    below = f.mul(f.unary("expm1", x), call.number("alpha", 1.6732632423543772))
    return f.mul(f.choose(f.is_above(x, 0.0), x, below), call.number("gamma", 1.0507009873554805))


def _hard(times: bool) -> Operator:
    def operator(call: Call) -> Variable:
        f, x = call.functions, call.variable("X")
        slope, shift = (1.0 / 6.0, 0.5) if times else (call.number("alpha", 0.2), call.number("beta", 0.5))
        gate = f.clamp(f.add(f.mul(x, slope), shift), 0.0, 1.0, inclusive=False)
        return f.mul(x, gate) if times else gate

    return operator


def _gelu(call: Call) -> Variable:
    f, x = call.functions, call.variable("X", "A")
    if call.has("B", "bias"):
        x = f.add(x, call.variable("B", "bias"))
    if call.raw("approximate") == "tanh" or op_type(call.step.op) == "FastGelu":
        inner = f.mul(f.add(x, f.mul(f.mul(f.square(x), x), 0.044715)), f.sqrt(f.div(8.0, f.pi())))
        return f.mul(x, f.sigmoid(inner))
    return f.mul(f.mul(x, 0.5), f.unary("erfc", f.neg(f.div(x, f.sqrt(f.variable(2.0))))))


def _swish(call: Call) -> Variable:
    f, x = call.functions, call.variable("X")
    return f.mul(x, f.sigmoid(f.mul(x, call.number("alpha", 1.702 if op_type(call.step.op) == "QuickGelu" else 1.0))))


def _softmax(logarithm: bool) -> Operator:
    def operator(call: Call) -> Variable:
        f, x = call.functions, call.variable("input")
        axis = int(call.number("axis", -1))
        return f.log_softmax(x, axis) if logarithm else f.softmax(x, axis)

    return operator


# -- reductions -------------------------------------------------------------------------------------------------------


def _reduction(formula: Callable[[Call, Variable, tuple[int, ...], bool], Variable]) -> Operator:
    def operator(call: Call) -> Variable:
        x, axes = call.variable("data"), call.integers("axes")
        if not axes and call.flag("noop_with_empty_axes"):
            return x
        return formula(call, x, call.functions.dims(x, axes), call.flag("keepdims", True))

    return operator


def _log_sum(call: Call, x: Variable, dims: tuple[int, ...], keepdim: bool) -> Variable:
    return call.functions.log(call.tape.sum(x, dims, keepdim))


def _sum_square(call: Call, x: Variable, dims: tuple[int, ...], keepdim: bool) -> Variable:
    return call.tape.sum(call.functions.square(x), dims, keepdim)


def _running_sum(call: Call) -> Variable:
    x = call.variable("x")
    if call.flag("exclusive") or call.flag("reverse"):
        raise call.refused("exclusive or in reverse")
    axis = int(call.number("axis", 0)) % max(1, x.rank)
    places = np.moveaxis(np.arange(x.data.size).reshape(x.shape), axis, 0)
    parts = [call.tape.gather([x], place) for place in places]
    for at in range(1, len(parts)):
        parts[at] = call.functions.add(parts[at - 1], parts[at])
    return call.tape.gather(parts, np.moveaxis(np.arange(x.data.size).reshape(places.shape), 0, axis))


def _argument(order: int) -> Operator:
    def operator(call: Call) -> Variable:
        x, e = call.variable("data"), call.functions.e
        axis = int(call.number("axis", 0)) % max(1, x.rank)
        if call.flag("select_last_index"):
            raise call.refused("the last index")

        def first() -> Any:
            rows = np.moveaxis(x.data, axis, -1)
            return np.array([_first(call, row, order) for row in rows.reshape(-1, rows.shape[-1])]).reshape(
                rows.shape[:-1]
            )

        found = e.array(call.tape.decided(first))
        return Variable(np.expand_dims(found, axis) if call.flag("keepdims", True) else found)

    return operator


def _first(call: Call, row: Any, order: int) -> int:
    best = 0
    for at in range(1, len(row)):
        found = call.functions.e.order(row[at], row[best])
        if found is None:
            raise call.refused("which is the largest is undecided")
        best = at if found == order else best
    return best


# -- products and layers ----------------------------------------------------------------------------------------------


def _gemm(call: Call) -> Variable:
    f, x, y = call.functions, call.variable("A"), call.variable("B")
    x = transposed(f, x) if call.flag("transA") else x
    y = transposed(f, y) if call.flag("transB") else y
    found = f.mul(matmul(f, x, y), call.number("alpha", 1.0))
    added = call.optional("C")
    return found if added is None else f.add(found, f.mul(added, call.number("beta", 1.0)))


def _layer_norm(centred: bool) -> Operator:
    def operator(call: Call) -> Sequence[Variable]:
        f, x = call.functions, call.variable("X")
        dims = tuple(range(int(call.number("axis", -1)) % x.rank, x.rank))
        result, mean, factor = normalised(f, x, dims, call.number("epsilon", 1e-5), centred)
        whole = affine(f, result, call.optional("Scale", "scale"), call.optional("B"))
        return (whole, mean, factor) if centred else (whole, factor)

    return operator


def _batch_norm(call: Call) -> Variable:
    f, x = call.functions, call.variable("X")
    if call.flag("training_mode"):
        raise call.refused("in training")
    scale, bias, mean, variance = (
        along_channels(f, call.variable(name), x.rank) for name in ("scale", "B", "input_mean", "input_var")
    )
    assert mean is not None
    assert variance is not None
    return affine(f, f.div(f.sub(x, mean), f.sqrt(f.add(variance, call.number("epsilon", 1e-5)))), scale, bias)


def _instance_norm(call: Call) -> Variable:
    f, x = call.functions, call.variable("input")
    result, _, _ = normalised(f, x, tuple(range(2, x.rank)), call.number("epsilon", 1e-5))
    return affine(f, result, *(along_channels(f, call.variable(name), x.rank) for name in ("scale", "B")))


def _lp_normalization(call: Call) -> Variable:
    f, x = call.functions, call.variable("input")
    dims = f.dims(x, int(call.number("axis", -1)))
    size = norm(call, x, call.number("p", 2), dims, keepdim=True)
    return f.choose(f.compare(size, f.variable(0.0), (0,)), 0.0, f.div(x, size))


_UNARY: Final = "Exp Log Sqrt Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Sigmoid Erf"

ONNX: Final[Mapping[str, Operator]] = {
    **{name: _unary(name.lower()) for name in _UNARY.split()},
    **ONNX_MOVES,
    "Reciprocal": _unary("inverse"),
    "Rsqrt": _of(lambda f, x: f.unary("inverse", f.sqrt(x))),
    "Neg": _of(lambda f, x: f.neg(x)),
    "Abs": _of(lambda f, x: f.abs(x)),
    "Sign": _sign,
    "Softplus": _of(lambda f, x: f.softplus(x)),
    "Softsign": _of(lambda f, x: f.div(x, f.add(f.abs(x), 1.0))),
    "Mish": _of(lambda f, x: f.mul(x, f.unary("tanh", f.softplus(x)))),
    "Relu": _of(lambda f, x: f.relu(x)),
    "LeakyRelu": _leaky,
    "PRelu": _leaky,
    "Elu": _elu,
    "Selu": _selu,
    "HardSigmoid": _hard(times=False),
    "HardSwish": _hard(times=True),
    "Gelu": _gelu,
    "FastGelu": _gelu,
    "BiasGelu": _gelu,
    "QuickGelu": _swish,
    "Swish": _swish,
    "Floor": _of(lambda f, x: f.rounded(x, "floor")),
    "Ceil": _of(lambda f, x: f.rounded(x, "ceil")),
    "Round": _of(lambda f, x: f.rounded(x, "round")),
    "Add": _binary(lambda f, x, y: f.add(x, y)),
    "Sub": _binary(lambda f, x, y: f.sub(x, y)),
    "Mul": _binary(lambda f, x, y: f.mul(x, y)),
    "Div": _divided,
    "Pow": _binary(lambda f, x, y: f.pow(x, y)),
    "Mod": _modulo,
    "Sum": _folded(lambda f, x, y: f.add(x, y)),
    "Mean": _mean_of,
    "Max": _folded(lambda f, x, y: f.maximum(x, y)),
    "Min": _folded(lambda f, x, y: f.minimum(x, y)),
    "Clip": _clip,
    "Where": _where,
    "Greater": _compared((1,)),
    "GreaterOrEqual": _compared((0, 1)),
    "Less": _compared((-1,)),
    "LessOrEqual": _compared((-1, 0)),
    "Equal": _compared((0,)),
    "And": _logical("And"),
    "Or": _logical("Or"),
    "Xor": _logical("Xor"),
    "Not": _not,
    "IsNaN": _is_nan,
    "IsInf": _is_infinite,
    "Cast": cast,
    "CastLike": cast,
    "Softmax": _softmax(logarithm=False),
    "LogSoftmax": _softmax(logarithm=True),
    "ReduceSum": _reduction(lambda call, x, dims, keep: call.tape.sum(x, dims, keep)),
    "ReduceMean": _reduction(lambda call, x, dims, keep: call.functions.mean(x, dims, keep)),
    "ReduceProd": _reduction(product),
    "ReduceMax": _reduction(lambda call, x, dims, keep: extreme(call, x, dims, keep, 1)),
    "ReduceMin": _reduction(lambda call, x, dims, keep: extreme(call, x, dims, keep, -1)),
    "ReduceL1": _reduction(lambda call, x, dims, keep: norm(call, x, 1.0, dims, keep)),
    "ReduceL2": _reduction(lambda call, x, dims, keep: norm(call, x, 2.0, dims, keep)),
    "ReduceSumSquare": _reduction(_sum_square),
    "ReduceLogSum": _reduction(_log_sum),
    "ReduceLogSumExp": _reduction(lambda call, x, dims, keep: call.functions.logsumexp(x, dims, keep)),
    "CumSum": _running_sum,
    "ArgMax": _argument(1),
    "ArgMin": _argument(-1),
    "MatMul": _binary(matmul),
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm(centred=True),
    "RMSNormalization": _layer_norm(centred=False),
    "SimplifiedLayerNormalization": _layer_norm(centred=False),
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "LpNormalization": _lp_normalization,
}  # fmt: skip


def name_of(step: Step) -> str:
    """The type of a node, without its domain."""
    return op_type(step.op)
