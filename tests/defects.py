"""ONNX models with a defect each that ends in NaN or Inf, an input that shows it, and one on which all is well."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from whynan.records.intents import FixIntent

if TYPE_CHECKING:
    from collections.abc import Callable

N = helper.make_node
Feeds = dict[str, Any]


@dataclass(frozen=True)
class Defect:
    """A model, an input that fails, a healthy one, the intents that would mend it, and what runs it."""

    model: onnx.ModelProto
    failing: Feeds
    healthy: Feeds
    intents: tuple[FixIntent, ...] = ()
    engine: str = "onnxruntime"
    extra: dict[str, Any] = field(default_factory=dict)


def model_of(
    nodes: list[Any],
    feeds: Feeds,
    outputs: list[str],
    held: dict[str, Any] | None = None,
    *,
    opset: int = 20,
    functions: tuple[Any, ...] = (),
    domains: tuple[str, ...] = (),
    dtype: int | None = None,
) -> onnx.ModelProto:
    """A model of these nodes whose inputs are as the feeds are."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    kind = dtype or inputs[0].type.tensor_type.elem_type
    graph = helper.make_graph(
        nodes,
        "defect",
        inputs,
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (held or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


LOG_SOFTMAX = FixIntent(
    "log_softmax(x) instead of log(softmax(x))", "reformulation", "log(softmax(x, d))", "log_softmax(x, d)"
)
LOG_SIGMOID = FixIntent("logsigmoid(x) instead of log(sigmoid(x))", "reformulation", "log(sigmoid(x))", "logsigmoid(x)")
LOGSUMEXP = FixIntent(
    "logsumexp(x) instead of log(sum(exp(x)))", "reformulation", "log(sum(exp(x), d, k))", "logsumexp(x, d, k)"
)
DIVISION = FixIntent("1 where the denominator is 0", "guard", "a / b", "a / where(b == 0, 1, b)")
LOGARITHM = FixIntent(
    "the least normal number where x is not positive", "guard", "log(x)", "log(where(x > 0, x, finfo(x).tiny))"
)
ROOT = FixIntent("0 where x is negative", "guard", "sqrt(x)", "sqrt(where(x < 0, 0, x))")
POWER = FixIntent(
    "the least normal number where x is not positive", "guard", "x ** p", "where(x > 0, x, finfo(x).tiny) ** p"
)
RECIPROCAL = FixIntent("1 where x is 0", "guard", "1 / x", "1 / where(x == 0, 1, x)")


def _rows(*rows: list[float], dtype: Any = np.float32) -> Any:
    return np.array(rows, dtype)


def log_softmax() -> Defect:
    nodes = [N("Softmax", ["x"], ["p"], name="softmax", axis=-1), N("Log", ["p"], ["y"], name="log")]
    bad = {"x": _rows([0, 200, 1], [1, 2, 3])}
    good = {"x": _rows([0, 2, 1], [1, 2, 3])}
    return Defect(model_of(nodes, bad, ["y"]), bad, good, (LOG_SOFTMAX, LOGARITHM))


def log_sigmoid() -> Defect:
    nodes = [N("Sigmoid", ["x"], ["p"], name="sigmoid"), N("Log", ["p"], ["y"], name="log")]
    bad, good = {"x": _rows([-200, 3])}, {"x": _rows([-2, 3])}
    return Defect(model_of(nodes, bad, ["y"]), bad, good, (LOG_SIGMOID, LOGARITHM))


def logsumexp() -> Defect:
    nodes = [
        N("Exp", ["x"], ["e"], name="exp"),
        N("ReduceSum", ["e", "axes"], ["s"], name="sum", keepdims=0),
        N("Log", ["s"], ["y"], name="log"),
    ]
    bad, good = {"x": _rows([100, 1, 2], [1, 2, 3])}, {"x": _rows([1, 1, 2], [1, 2, 3])}
    return Defect(model_of(nodes, bad, ["y"], {"axes": np.array([1])}), bad, good, (LOGSUMEXP,))


def norm() -> Defect:
    nodes = [
        N("Mul", ["x", "x"], ["q"], name="square"),
        N("ReduceSum", ["q", "axes"], ["s"], name="sum", keepdims=1),
        N("Sqrt", ["s"], ["n"], name="root"),
        N("Div", ["x", "n"], ["y"], name="div"),
    ]
    bad, good = {"x": _rows([0, 0, 0], [1, 2, 3])}, {"x": _rows([1, 1, 2], [1, 2, 3])}
    return Defect(model_of(nodes, bad, ["y"], {"axes": np.array([1])}), bad, good, (DIVISION,))


def mask_in_fp16() -> Defect:
    """A mask of -1e9 that was converted to float16, and a row of which nothing is left."""
    nodes = [
        N("Cast", ["fill"], ["low"], name="narrow", to=TensorProto.FLOAT16),
        N("Where", ["keep", "x", "low"], ["m"], name="mask"),
        N("Softmax", ["m"], ["y"], name="softmax", axis=-1),
    ]
    x = _rows([1, 2, 3], [1, 2, 3], dtype=np.float16)
    bad = {"x": x, "keep": np.array([[True, True, False], [False, False, False]])}
    good = {"x": x, "keep": np.array([[True, True, False], [False, True, False]])}
    held = {"fill": np.array(-1e9, np.float32)}
    return Defect(model_of(nodes, bad, ["y"], held), bad, good)


def power_in_fp16() -> Defect:
    """A row of 300 is squared in float16, where 90000 is beyond the greatest number, and divided by the mean."""
    nodes = [
        N("Pow", ["x", "two"], ["q"], name="square"),
        N("ReduceMean", ["q", "axes"], ["m"], name="mean", keepdims=1),
        N("Add", ["m", "eps"], ["a"], name="add"),
        N("Div", ["q", "a"], ["y"], name="share"),
    ]
    bad, good = {"x": _rows([300, 1, 2, 4], dtype=np.float16)}, {"x": _rows([3, 1, 2, 4], dtype=np.float16)}
    held = {"two": np.array(2, np.float16), "axes": np.array([-1]), "eps": np.array(1e-5, np.float16)}
    return Defect(model_of(nodes, bad, ["y"], held), bad, good, engine="reference")


def norm_in_fp16() -> Defect:
    """The same squares below a root: what is divided by it is 0, a wrong number that nobody sees is wrong."""
    nodes = [
        N("Pow", ["x", "two"], ["q"], name="square"),
        N("ReduceMean", ["q", "axes"], ["m"], name="mean", keepdims=1),
        N("Add", ["m", "eps"], ["a"], name="add"),
        N("Sqrt", ["a"], ["r"], name="root"),
        N("Div", ["x", "r"], ["y"], name="share"),
        N("Mul", ["y", "w"], ["z"], name="scale"),
    ]
    bad, good = ({"x": _rows([300, 400, -500, 6], dtype=np.float16) / np.float16(by)} for by in (1, 100))
    held = {
        "two": np.array(2, np.float16),
        "axes": np.array([-1]),
        "eps": np.array(1e-5, np.float16),
        "w": np.array([1, 2, 0.5, 1], np.float16),
    }
    return Defect(model_of(nodes, bad, ["z"], held), bad, good, engine="reference")


def root_of_negative() -> Defect:
    nodes = [N("Sub", ["x", "y"], ["d"], name="less"), N("Sqrt", ["d"], ["z"], name="root")]
    y = _rows([1, 1, 1])
    bad, good = {"x": _rows([1, 0.5, 4]), "y": y}, {"x": _rows([2, 3, 4]), "y": y}
    return Defect(model_of(nodes, bad, ["z"]), bad, good, (ROOT,))


def power_of_zero() -> Defect:
    nodes = [N("Relu", ["x"], ["r"], name="relu"), N("Pow", ["r", "p"], ["y"], name="power")]
    bad, good = {"x": _rows([-1, 2, 3])}, {"x": _rows([1, 2, 3])}
    return Defect(model_of(nodes, bad, ["y"], {"p": np.array(-0.5, np.float32)}), bad, good, (POWER,))


def logarithm_of_zero() -> Defect:
    nodes = [N("Relu", ["x"], ["r"], name="relu"), N("Log", ["r"], ["y"], name="log")]
    bad, good = {"x": _rows([-1, 2, 3])}, {"x": _rows([1, 2, 3])}
    return Defect(model_of(nodes, bad, ["y"]), bad, good, (LOGARITHM,))


def masked_softmax() -> Defect:
    """A row of which a mask of -Inf leaves nothing."""
    nodes = [
        N("Where", ["keep", "x", "low"], ["m"], name="mask"),
        N("Softmax", ["m"], ["y"], name="softmax", axis=-1),
    ]
    x = _rows([1, 2, 3], [1, 2, 3])
    bad = {"x": x, "keep": np.array([[True, True, False], [False, False, False]])}
    good = {"x": x, "keep": np.array([[True, True, False], [False, True, False]])}
    return Defect(model_of(nodes, bad, ["y"], {"low": np.array(-np.inf, np.float32)}), bad, good)


def in_branch() -> Defect:
    """The logarithm of a softmax in a branch of an If."""
    info = helper.make_tensor_value_info
    nodes = [N("Softmax", ["x"], ["p"], name="softmax", axis=-1), N("Log", ["p"], ["l"], name="log")]
    then = helper.make_graph(nodes, "then", [], [info("l", TensorProto.FLOAT, None)])
    other = helper.make_graph(
        [N("Identity", ["x"], ["same"], name="same")], "other", [], [info("same", TensorProto.FLOAT, None)]
    )
    held = [N("If", ["asked"], ["y"], name="choose", then_branch=then, else_branch=other)]
    asked = np.array(True)
    bad = {"x": _rows([0, 200, 1]), "asked": asked}
    good = {"x": _rows([0, 2, 1]), "asked": asked}
    return Defect(model_of(held, bad, ["y"]), bad, good, (LOG_SOFTMAX,))


def in_loop() -> Defect:
    """A division by a state of a Loop that becomes 0."""
    info, real = helper.make_tensor_value_info, TensorProto.FLOAT
    body = helper.make_graph(
        [
            N("Sub", ["state", "one"], ["less"], name="less"),
            N("Div", ["x", "less"], ["part"], name="div"),
            N("Identity", ["going"], ["on"], name="on"),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("going", TensorProto.BOOL, []), info("state", real, [1, 2])],
        [
            info("on", TensorProto.BOOL, []),
            info("less", real, [1, 2]),
            info("part", real, [1, 2]),
        ],
    )
    nodes = [N("Loop", ["count", "true", "start"], ["last", "y"], name="loop", body=body)]
    held = {"count": np.array(3), "true": np.array(True), "one": np.array(1, np.float32)}
    bad = {"x": _rows([1, 2]), "start": _rows([2, 7])}
    good = {"x": _rows([1, 2]), "start": _rows([9, 7])}
    return Defect(model_of(nodes, bad, ["y"], held), bad, good, (DIVISION,))


def in_function() -> Defect:
    """The logarithm of a sigmoid in a local function that is called twice."""
    body = [N("Sigmoid", ["a"], ["s"], name="sigmoid"), N("Log", ["s"], ["b"], name="log")]
    function = helper.make_function("here", "LogOfSigmoid", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    nodes = [
        N("LogOfSigmoid", ["x"], ["h"], name="first", domain="here"),
        N("LogOfSigmoid", ["h"], ["y"], name="second", domain="here"),
    ]
    bad, good = {"x": _rows([-200, 3])}, {"x": _rows([-2, 3])}
    model = model_of(nodes, bad, ["y"], functions=(function,), domains=("here",))
    return Defect(model, bad, good, (LOG_SIGMOID,))


DEFECTS: dict[str, Callable[[], Defect]] = {
    made.__name__: made
    for made in (
        log_softmax,
        log_sigmoid,
        logsumexp,
        norm,
        mask_in_fp16,
        power_in_fp16,
        root_of_negative,
        power_of_zero,
        logarithm_of_zero,
        masked_softmax,
        in_branch,
        in_loop,
        in_function,
    )
}
