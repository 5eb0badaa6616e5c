"""How the operators of the language of fixes are written in ONNX, and which node is which of them."""

# pyright: strict

from __future__ import annotations

from typing import Final

UNARY: Final = {
    "neg": "Neg",
    "abs": "Abs",
    "sign": "Sign",
    "sqrt": "Sqrt",
    "exp": "Exp",
    "log": "Log",
    "reciprocal": "Reciprocal",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "relu": "Relu",
    "tanh": "Tanh",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "erf": "Erf",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "isnan": "IsNaN",
    "logical_not": "Not",
}
BINARY: Final = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "pow": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "lt": "Less",
    "gt": "Greater",
    "eq": "Equal",
    "logical_and": "And",
    "logical_or": "Or",
    "matmul": "MatMul",
}
COMMUTATIVE: Final = frozenset({"add", "mul", "maximum", "minimum", "eq", "logical_and", "logical_or"})
REDUCTIONS: Final = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "amax": "ReduceMax",
    "max": "ReduceMax",
    "amin": "ReduceMin",
    "min": "ReduceMin",
    "prod": "ReduceProd",
    "logsumexp": "ReduceLogSumExp",
    "norm": "ReduceL2",
    "vector_norm": "ReduceL2",
}
AXES_ARE_AN_INPUT: Final = {"ReduceSum": 13}
"""Since which opset; all other reductions since 18."""
AXES_OTHERWISE: Final = 18
NORMALISED: Final = {"softmax": "Softmax", "log_softmax": "LogSoftmax"}
ONE_AXIS: Final = 13
"""The opset since which a softmax is one over its axis, and no longer over all axes from it on."""
MOVES: Final = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather", "Expand"})
"""What hands on elements of its first operand."""
ELEMENTWISE: Final = frozenset(
    {
        *UNARY.values(),
        *(BINARY[name] for name in BINARY if name != "matmul"),
        *("Where", "Clip", "Cast", "Identity", "IsInf", "GreaterOrEqual", "LessOrEqual", "Mod", "Elu", "Selu"),
        *("LeakyRelu", "HardSigmoid", "HardSwish", "Gelu", "Softsign", "Xor", "Sum", "Mean", "Mish"),
    }
)
MARK: Final = "whynan_"
"""How the names of the nodes begin that a fix has made."""
