"""What each ONNX operator means to a bad number, and under which name of ATen's vocabulary rules know it.

Only names: this room knows no framework. An operator that stands in no table is asked by experiment, by capture.
Domains are left out: what ONNX Runtime fuses keeps the names of what it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

# Output element i depends on the operands' elements at i after NumPy's broadcasting.
POINTWISE: Final = frozenset(
    """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BiasAdd BiasGelu BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr
    BitwiseXor Cast CastLike Ceil Celu Clip Cos Cosh Div Dropout Elu Equal Erf Exp FastGelu Floor Gelu Greater
    GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not
    Or PRelu Pow QuickGelu Reciprocal Relu Round Rsqrt Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum
    Swish Tan Tanh ThresholdedRelu Where Xor
    """.split()
)

# The outputs are the first operand's elements, in their order, under another shape. What ONNX Runtime keeps in blocks
# of channels is told of without its blocks, and so is not moved by what makes and unmakes them.
RESHAPES: Final = frozenset("Identity Reshape Squeeze Unsqueeze Flatten ReorderInput ReorderOutput".split())

# The outputs are the operands' elements, moved: run on label planes they move the labels.
MOVEMENT: Final = frozenset(
    """
    CenterCropPad Compress Concat ConcatFromSequence DepthToSpace Expand Gather GatherElements GatherND OneHot Optional
    OptionalGetElement Pad ReverseSequence Scatter ScatterElements ScatterND SequenceAt SequenceConstruct SequenceErase
    SequenceInsert Slice SpaceToDepth Split SplitToSequence TensorScatter Tile Transpose Trilu
    """.split()
)
REDUCING_WRITES: Final = frozenset("ScatterElements ScatterND".split())
"""Of those, what may add to an element instead of replacing it: with an attribute ``reduction``."""

CONTROL: Final = frozenset("If Loop Scan".split())
RANDOM: Final = frozenset("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli".split())

# The result does not depend on the operands' values, or on the attributes' only.
VALUE_FREE: Final = frozenset(
    "Constant ConstantOfShape EyeLike RandomNormalLike RandomUniformLike Shape Size SequenceLength "
    "OptionalHasElement".split()
)

# Asking whether a value is bad is no use of it.
PREDICATES: Final = frozenset("IsNaN IsInf".split())

# What hands on elements of its first operand.
MOVES: Final = frozenset("Transpose Reshape Squeeze Unsqueeze Flatten Slice Gather Expand".split())

# What gives an element of an operand again, besides pure movement.
COPYING: Final = frozenset(
    "Where Max Min Clip Relu TopK ReduceMax ReduceMin MaxPool GlobalMaxPool Cast CastLike Dropout Unique MaxRoiPool "
    "Constant ConstantOfShape".split()
)

# What may leave a NaN out of what it chooses from (ONNX Runtime 1.31, on the CPU).
SWALLOWS: Final = frozenset(
    "TopK ReduceMax ReduceMin Max Min MaxPool GlobalMaxPool MaxRoiPool ArgMax ArgMin Clip Relu ThresholdedRelu Shrink "
    "Sign NonMaxSuppression Hardmax Unique FusedConv FusedGemm Greater GreaterOrEqual Less LessOrEqual Equal "
    "LeakyRelu".split()
)

# What takes a number for a place to read at: of a NaN it makes some index or other, and so a number.
PLACING: Final = frozenset("GridSample RoiAlign DeformConv Resize Upsample".split())

# What casts or adds: a mask of the least finite number spills over in them.
SPILLING: Final = frozenset("Cast CastLike Add Sub Sum".split())

# What names a constant, whatever it is made of.
CONSTANTS: Final = frozenset("Constant ConstantOfShape EyeLike Range".split())

REDUCTIONS: Final = frozenset(
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceSumSquare ArgMax ArgMin".split()
)
ROWS: Final = frozenset("Softmax LogSoftmax Hardmax LpNormalization CumSum CumProd".split())
"""Each output element depends on the row of the first operand that it stands in, along ``axis``."""
PRODUCTS: Final = frozenset("MatMul FusedMatMul Gemm FusedGemm TransposeMatMul".split())
CONVOLUTIONS: Final = frozenset("Conv FusedConv".split())
SCALES: Final = frozenset("QuantizeLinear DequantizeLinear".split())
"""Each element is divided by a scale or multiplied by it, of which there may be one for each place along an axis."""
POOLS: Final = frozenset("MaxPool AveragePool LpPool".split())
GLOBAL_POOLS: Final = frozenset("GlobalAveragePool GlobalMaxPool GlobalLpPool InstanceNormalization".split())
ROW_NORMS: Final = frozenset(
    "LayerNormalization RMSNormalization SimplifiedLayerNormalization SkipLayerNormalization "
    "SkipSimplifiedLayerNormalization".split()
)

# What a birth turns on. Of the first, what their first operand holds; where they add, what is greatest in magnitude.
LEADING: Final = (
    REDUCTIONS
    | ROWS
    | POOLS
    | GLOBAL_POOLS
    | frozenset("Resize Upsample GridSample LRN DFT STFT Det QuantizeLinear BiasSoftmax".split())
)
GREATEST: Final = frozenset(
    """
    Add Sub Sum Mean BiasAdd BiasGelu FastGelu PRelu Einsum ScatterElements ScatterND RNN LSTM GRU ConvTranspose
    DeformConv Attention MultiHeadAttention GroupQueryAttention QLinearAdd QLinearMul DynamicQuantizeMatMul
    MatMulIntegerToFloat MatMulNBits DequantizeLinear
    """.split()
)
NORMS: Final = ROW_NORMS | frozenset("InstanceNormalization GroupNormalization MeanVarianceNormalization".split())
"""What brings a row to a variance of 1, and then multiplies by parameters and adds them."""
NORMALISED: Final = ("X", "input", "skip")
"""The names of the operands that these bring to it."""
QUANTISED: Final = frozenset(
    "DequantizeLinear QLinearAdd QLinearMul DynamicQuantizeMatMul MatMulIntegerToFloat MatMulNBits".split()
)
"""What makes floating-point numbers of integers that have a part in their values."""

# Exact singularities: operator -> (operand, values at which the result is infinite).
POLES: Final[Mapping[str, tuple[str, tuple[float, ...]]]] = {
    "Div": ("B", (0.0,)),
    "Reciprocal": ("X", (0.0,)),
    "Rsqrt": ("X", (0.0,)),
    "Log": ("input", (0.0,)),
    "Pow": ("X", (0.0,)),
    "Mod": ("B", (0.0,)),
    "Atanh": ("input", (1.0, -1.0)),
    "ReduceLogSum": ("data", (0.0,)),
}

# Operands of operators that ONNX's own schemas do not have: those of ONNX Runtime's domain that take part in births,
# for an ONNX Runtime that was built without its schemas.
CONTRIBUTED: Final[Mapping[str, tuple[str, ...]]] = {
    "FusedConv": ("X", "W", "B", "Z"),
    "FusedMatMul": ("A", "B"),
    "TransposeMatMul": ("A", "B"),
    "FusedGemm": ("A", "B", "C"),
    "BiasGelu": ("A", "B"),
    "FastGelu": ("X", "bias"),
    "QuickGelu": ("X",),
    "Gelu": ("X",),
    "BiasAdd": ("X", "bias", "skip"),
    "Rsqrt": ("X",),
    "SimplifiedLayerNormalization": ("X", "scale"),
    "SkipLayerNormalization": ("input", "skip", "gamma", "beta", "bias"),
    "SkipSimplifiedLayerNormalization": ("input", "skip", "gamma", "bias"),
    "BiasSoftmax": ("data", "bias"),
    "Attention": ("input", "weights", "bias", "mask_index", "past", "attention_bias"),
    "MultiHeadAttention": ("query", "key", "value", "bias", "key_padding_mask", "attention_bias"),
    "GroupQueryAttention": (
        "query",
        "key",
        "value",
        "past_key",
        "past_value",
        "seqlens_k",
        "total_sequence_length",
        "cos_cache",
        "sin_cache",
        "position_ids",
        "attention_bias",
    ),
    "QLinearAdd": ("A", "A_scale", "A_zero_point", "B", "B_scale", "B_zero_point", "C_scale", "C_zero_point"),
    "QLinearMul": ("A", "A_scale", "A_zero_point", "B", "B_scale", "B_zero_point", "C_scale", "C_zero_point"),
    "DynamicQuantizeMatMul": ("A", "B", "b_scale", "b_zero_point", "bias"),
    "MatMulIntegerToFloat": ("A", "B", "a_scale", "b_scale", "a_zero_point", "b_zero_point", "bias"),
    "MatMulNBits": ("A", "B", "scales", "zero_points", "g_idx", "bias"),
    "ReorderInput": ("X",),
    "ReorderOutput": ("X",),
}

FUNCTIONS: Final[Mapping[str, str]] = {
    **{
        op.lower(): op
        for op in "Neg Abs Sign Sqrt Exp Log Reciprocal Sigmoid Softplus Relu Tanh Sinh Cosh Asinh Acosh Atanh Sin Cos "
        "Tan Asin Acos Atan Erf Floor Ceil Round IsNaN Add Sub Mul Div Pow MatMul Where Softmax".split()
    },
    "maximum": "Max",
    "minimum": "Min",
    "lt": "Less",
    "gt": "Greater",
    "eq": "Equal",
    "clamp": "Clip",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_not": "Not",
    "log_softmax": "LogSoftmax",
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "prod": "ReduceProd",
    "logsumexp": "ReduceLogSumExp",
    "vector_norm": "ReduceL2",
}
"""Which operator is a function of PyTorch's, by the name that the function has."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """An operator by its base name in ATen's vocabulary, and what its operands are called there."""

    base: str
    operands: Mapping[str, str] = field(default_factory=lambda: {})

    def theirs(self, name: str) -> str:
        """The name in ATen's vocabulary of an operand."""
        return self.operands.get(name, name)


# One operator a line: its type, the base name, and its operands as `ONNX=ATen`.
_TABLE: Final = """
Add add A=self B=other
Sub sub A=self B=other
Sum add data_0[0]=self data_0[1]=other
Mul mul A=self B=other
Div div A=self B=other
Mod remainder A=self B=other
Pow pow X=self Y=exponent
Reciprocal reciprocal X=self
Sqrt sqrt X=self
Rsqrt rsqrt X=self
Exp exp input=self
Log log input=self
Neg neg X=self
Sin sin input=self
Cos cos input=self
Tan tan input=self
Sinh sinh input=self
Cosh cosh input=self
Asin asin input=self
Acos acos input=self
Asinh asinh input=self
Acosh acosh input=self
Atanh atanh input=self
Softplus softplus X=self
Softsign softsign input=self
Gelu gelu X=self
QuickGelu gelu X=self
FastGelu gelu X=self
BiasGelu gelu A=self
Mish mish X=self
HardSwish hardswish X=self
Swish silu X=self
PRelu _prelu_kernel X=self slope=weight
Elu elu X=self
Cast _to_copy input=self
CastLike _to_copy input=self
MatMul mm A=self B=mat2
FusedMatMul addmm A=mat1 B=mat2
TransposeMatMul addmm A=mat1 B=mat2
Gemm addmm A=mat1 B=mat2 C=self
FusedGemm addmm A=mat1 B=mat2 C=self
MatMulIntegerToFloat einsum A=self B=mat2
DynamicQuantizeMatMul einsum A=self B=mat2
MatMulNBits einsum A=self B=mat2
Einsum einsum Inputs[0]=self Inputs[1]=mat2
Conv convolution X=input W=weight B=bias
FusedConv convolution X=input W=weight B=bias
ConvTranspose convolution X=input W=weight B=bias
DeformConv convolution X=input W=weight B=bias
CausalConvWithState convolution
DFT dft input=self
STFT dft signal=self
RNN rnn X=input
LSTM lstm X=input
GRU gru X=input
Softmax _softmax input=self
BiasSoftmax _softmax data=self
LogSoftmax _log_softmax input=self
ReduceSum sum data=self
ReduceMean mean data=self
ReduceProd prod data=self
ReduceMax amax data=self
ReduceMin amin data=self
ReduceL1 norm data=self
ReduceL2 linalg_vector_norm data=self
ReduceSumSquare linalg_vector_norm data=self
ReduceLogSum reducelogsum data=self
ReduceLogSumExp logsumexp data=self
Mean mean_of data_0[0]=self
CumSum cumsum x=self
CumProd cumprod x=self
LpNormalization lp_normalization input=self
BatchNormalization native_batch_norm X=input scale=weight B=bias epsilon=eps input_mean=running_mean \
    input_var=running_var
InstanceNormalization native_group_norm scale=weight B=bias epsilon=eps
GroupNormalization native_group_norm X=input scale=weight epsilon=eps
LayerNormalization native_layer_norm X=input Scale=weight B=bias epsilon=eps
RMSNormalization native_layer_norm X=input scale=weight epsilon=eps
SimplifiedLayerNormalization native_layer_norm X=input scale=weight epsilon=eps
SkipLayerNormalization native_layer_norm gamma=weight beta=bias epsilon=eps
SkipSimplifiedLayerNormalization native_layer_norm gamma=weight epsilon=eps
MeanVarianceNormalization native_layer_norm X=input
AveragePool avg_pool2d X=self
LpPool avg_pool2d X=self
GlobalAveragePool _adaptive_avg_pool2d X=self
GlobalLpPool _adaptive_avg_pool2d X=self
LRN avg_pool2d X=self
Resize upsample_bilinear2d X=self
Upsample upsample_bilinear2d X=self
GridSample upsample_bilinear2d X=self
NegativeLogLikelihoodLoss nll_loss_forward input=self
SoftmaxCrossEntropyLoss nll_loss_forward scores=self labels=target weights=weight
ScatterElements scatter_add data=self updates=src
ScatterND scatter_add data=self updates=src
DequantizeLinear mul x=self x_scale=other
Det det X=self
Attention attention
MultiHeadAttention attention attention_bias=attn_mask
GroupQueryAttention attention attention_bias=attn_mask
"""


def _read(line: str) -> tuple[str, Meaning]:
    op, base, *pairs = line.split()
    return op, Meaning(base, dict(pair.split("=", 1) for pair in pairs))


@cache
def _meanings() -> Mapping[str, Meaning]:
    return dict(_read(line) for line in _TABLE.replace("\\\n", "").strip().splitlines())


def op_type(op: str) -> str:
    """``Div`` of ``Div``, and of ``com.microsoft.Div``.

    >>> op_type("com.microsoft.FusedConv")
    'FusedConv'
    """
    return op.rpartition(".")[2]


@cache
def meaning(op: str) -> Meaning:
    """What an operator is in ATen's vocabulary; one that stands in no table has its own name in small letters."""
    kind = op_type(op)
    return _meanings().get(kind) or Meaning(kind.lower())
