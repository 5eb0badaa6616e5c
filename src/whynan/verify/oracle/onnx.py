"""ONNX's operators by type: rows of ATen in another spelling, and what ATen has no row for."""

# A ball has no type here: not every version of python-flint has stubs.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# The functions of a table have one signature, of which not every one reads all.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from whynan.ops.names import meaning, op_type
from whynan.verify.oracle.layers import LAYERS, affine, along_channels, normalised
from whynan.verify.oracle.linear import LINEAR, matmul, transposed
from whynan.verify.oracle.movement import MOVES, ONNX_MOVES
from whynan.verify.oracle.pointwise import ACTIVATIONS, POINTWISE
from whynan.verify.oracle.rows import ROWS, norm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.verify.oracle.calls import Call, Operator
    from whynan.verify.oracle.functions import Functions
    from whynan.verify.oracle.tape import Variable

_ATEN: Final[Mapping[str, Operator]] = {**POINTWISE, **ACTIVATIONS, **ROWS, **MOVES, **LINEAR, **LAYERS}
_X = ("X", "input", "data", "x", "A")
_SPELLED: Final = {
    **dict.fromkeys(_X, "self"),
    **dict.fromkeys(("B", "Y"), "other"),
    **dict.fromkeys(("axis", "axes"), "dim"),
    "keepdims": "keepdim",
    "epsilon": "eps",
}
"""Arguments of ONNX's operators as ATen's call them, where an operator has no name of its own for them."""


def _aten(kind: str, base: str = "", names: Mapping[str, str] = {}, **defaults: Any) -> Operator:
    """ATen's row for an operator of ONNX, with what ONNX means where an attribute is not given."""
    known = meaning(kind)
    row, spelled = _ATEN[base or known.base], {**_SPELLED, **known.operands, **names}
    return lambda call: row(call.respelled(spelled, defaults))


def _of(formula: Callable[[Functions, Variable], Variable]) -> Operator:
    return lambda call: formula(call.functions, call.variable(*_X))


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


_REMAINDER, _FMOD = _aten("Mod"), _aten("Mod", "fmod")


def _modulo(call: Call) -> Any:
    return (_FMOD if call.flag("fmod") else _REMAINDER)(call)


def _is_infinite(call: Call) -> Variable:
    f = call.functions
    e, up, down = f.e, call.flag("detect_positive", True), call.flag("detect_negative", True)

    def asked(x: Any) -> bool | None:
        return None if x is None else e.is_infinite(x) and (up if x > 0 else down)

    return f.from_mask(call.tape.decide(asked, call.variable("X")))


def _hard_sigmoid(call: Call) -> Variable:
    f, x = call.functions, call.variable("X")
    return f.clamp(f.add(f.mul(x, call.number("alpha", 0.2)), call.number("beta", 0.5)), 0.0, 1.0, inclusive=False)


_GELU: Final = _aten("Gelu")
_FAST_GELU: Final = _aten("Gelu", approximate="tanh")


def _biased_gelu(call: Call) -> Any:
    f, bias = call.functions, call.optional("B", "bias")
    x = call.variable("X", "A")
    row = _FAST_GELU if op_type(call.step.op) == "FastGelu" else _GELU
    return row(call if bias is None else call.with_operand(f.add(x, bias)))


def _swish(call: Call) -> Variable:
    f, x = call.functions, call.variable("X")
    return f.mul(x, f.sigmoid(f.mul(x, call.number("alpha", 1.702 if op_type(call.step.op) == "QuickGelu" else 1.0))))


# -- reductions -------------------------------------------------------------------------------------------------------


def _reduction(row: Operator, before: Callable[[Functions, Variable], Variable] | None = None) -> Operator:
    """A reduction of the data, or of what a function makes of them."""

    def operator(call: Call) -> Any:
        x = call.variable("data")
        if not call.integers("axes") and call.flag("noop_with_empty_axes"):
            return x
        return row(call if before is None else call.with_operand(before(call.functions, x)))

    return operator


def _log_sum(call: Call) -> Variable:
    return call.functions.log(_SUM(call))  # pyright: ignore[reportArgumentType]


def _running_sum(call: Call) -> Any:
    if call.flag("exclusive") or call.flag("reverse"):
        raise call.unsupported("exclusive or in reverse")
    return _CUMSUM(call)


def _argument(row: Operator) -> Operator:
    def operator(call: Call) -> Any:
        if call.flag("select_last_index"):
            raise call.unsupported("the last index")
        return row(call)

    return operator


_SUM: Final = _aten("ReduceSum", keepdim=True)
_CUMSUM: Final = _aten("CumSum", dim=0)


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


_NORM_OF_BATCH: Final = _aten(
    # the names before opset 15, too
    "BatchNormalization",
    "_native_batch_norm_legit_no_training",
    {"mean": "running_mean", "var": "running_var"},
)


def _batch_norm(call: Call) -> Any:
    if call.flag("training_mode"):
        raise call.unsupported("in training")
    return _NORM_OF_BATCH(call)


def _instance_norm(call: Call) -> Variable:
    f, x = call.functions, call.variable("input")
    result, _, _ = normalised(f, x, tuple(range(2, x.rank)), call.number("epsilon", 1e-5))
    return affine(f, result, *(along_channels(f, call.variable(name), x.rank) for name in ("scale", "B")))


def _lp_normalization(call: Call) -> Variable:
    f, x = call.functions, call.variable("input")
    dims = f.dims(x, int(call.number("axis", -1)))
    size = norm(call, x, call.number("p", 2), dims, keepdim=True)
    return f.choose(f.compare(size, f.variable(0.0), (0,)), 0.0, f.div(x, size))


_SAME: Final = """
    Exp Log Sqrt Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Sigmoid Erf Reciprocal Rsqrt Neg Abs Sign
    Floor Ceil Round Softplus Relu Elu PRelu Gelu HardSwish Add Sub Mul Pow MatMul Cast CastLike Where Atan2
"""
"""Those that do what ATen's row does of the name that rules know them by."""
_NAMED: Final = {
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Equal": "eq",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "Not": "logical_not",
    "IsNaN": "isnan",
    "Clip": "clamp",
}

ONNX: Final[Mapping[str, Operator]] = {
    **{kind: _aten(kind) for kind in _SAME.split()},
    **{kind: _aten(kind, base) for kind, base in _NAMED.items()},
    **ONNX_MOVES,
    "Mish": _of(lambda f, x: f.mul(x, f.unary("tanh", f.softplus(x)))),
    "Softsign": _of(lambda f, x: f.div(x, f.add(f.abs(x), 1.0))),
    "LeakyRelu": _aten("LeakyRelu", "leaky_relu", {"alpha": "negative_slope"}),
    "Selu": _aten("Selu", "elu", {"gamma": "scale"}, alpha=1.6732632423543772, scale=1.0507009873554805),
    "HardSigmoid": _hard_sigmoid,
    "FastGelu": _biased_gelu,
    "BiasGelu": _biased_gelu,
    "QuickGelu": _swish,
    "Swish": _swish,
    "Div": _divided,
    "Mod": _modulo,
    "Sum": _folded(lambda f, x, y: f.add(x, y)),
    "Mean": _mean_of,
    "Max": _folded(lambda f, x, y: f.maximum(x, y)),
    "Min": _folded(lambda f, x, y: f.minimum(x, y)),
    "IsInf": _is_infinite,
    "Softmax": _aten("Softmax", dim=-1),
    "LogSoftmax": _aten("LogSoftmax", dim=-1),
    "ReduceSum": _reduction(_SUM),
    "ReduceMean": _reduction(_aten("ReduceMean", keepdim=True)),
    "ReduceProd": _reduction(_aten("ReduceProd", keepdim=True)),
    "ReduceMax": _reduction(_aten("ReduceMax", keepdim=True)),
    "ReduceMin": _reduction(_aten("ReduceMin", keepdim=True)),
    "ReduceL1": _reduction(_aten("ReduceL1", keepdim=True, p=1.0)),
    "ReduceL2": _reduction(_aten("ReduceL2", keepdim=True)),
    "ReduceSumSquare": _reduction(_SUM, lambda f, x: f.square(x)),
    "ReduceLogSum": _reduction(_log_sum),
    "ReduceLogSumExp": _reduction(_aten("ReduceLogSumExp", keepdim=True)),
    "CumSum": _running_sum,
    "ArgMax": _argument(_aten("ArgMax", names={"data": "self"}, dim=0, keepdim=True)),
    "ArgMin": _argument(_aten("ArgMin", names={"data": "self"}, dim=0, keepdim=True)),
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm(centred=True),
    "RMSNormalization": _layer_norm(centred=False),
    "SimplifiedLayerNormalization": _layer_norm(centred=False),
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "LpNormalization": _lp_normalization,
}
