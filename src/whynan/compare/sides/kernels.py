"""Kernels in float64 that neither ONNX Runtime has nor the reference evaluator runs in a useful time."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from whynan.compare.sides.double import attributes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whynan.compare.sides.operations import Array

Kernel: TypeAlias = "Callable[[Any, Sequence[Array | None]], list[Array] | None]"
"""The outputs of a node on operands of float64; None where it does not know that form of the operator."""


def _conv(node: Any, operands: Sequence[Array | None]) -> list[Array] | None:
    """A convolution as products of slices, one for each place of the filter."""
    said = attributes_of(node)
    x, weight = operands[0], operands[1]
    if x is None or weight is None or len(operands) > 3:
        return None
    rank = x.ndim - 2
    kernel = weight.shape[2:]
    strides, dilations = said.get("strides", [1] * rank), said.get("dilations", [1] * rank)
    pads = _pads(said, x.shape[2:], kernel, strides, dilations)
    if pads is None:
        return None
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    sizes = [(padded.shape[2 + n] - (kernel[n] - 1) * dilations[n] - 1) // strides[n] + 1 for n in range(rank)]
    groups = int(said.get("group", 1))
    batch, channels = x.shape[0], x.shape[1]
    filters = weight.shape[0] // groups
    parts = weight.reshape(groups, filters, channels // groups, *kernel)
    grouped = padded.reshape(batch, groups, channels // groups, *padded.shape[2:])
    out = np.zeros((batch, groups, filters, math.prod(sizes)))
    for place in itertools.product(*map(range, kernel)):
        window = tuple(
            slice(p * d, p * d + (size - 1) * s + 1, s)
            for p, d, s, size in zip(place, dilations, strides, sizes, strict=True)
        )
        taken = grouped[(slice(None), slice(None), slice(None), *window)].reshape(batch, groups, channels // groups, -1)
        out += np.matmul(parts[(slice(None), slice(None), slice(None), *place)][None], taken)
    made = out.reshape(batch, groups * filters, *sizes)
    if len(operands) == 3 and operands[2] is not None:
        made += operands[2].reshape(1, -1, *[1] * rank)
    return [made]


def _pads(
    said: Mapping[str, Any],
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int] | None:
    """The padding before and after each dimension."""
    mode = said.get("auto_pad", b"NOTSET")
    if mode in (b"NOTSET", b""):
        return list(said.get("pads", [0] * 2 * len(sizes)))
    if mode == b"VALID":
        return [0] * 2 * len(sizes)
    before: list[int] = []
    after: list[int] = []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        whole = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        less = whole // 2
        before.append(whole - less if mode == b"SAME_LOWER" else less)
        after.append(less if mode == b"SAME_LOWER" else whole - less)
    return before + after


def _fused_conv(node: Any, operands: Sequence[Array | None]) -> list[Array] | None:
    """A convolution, an addend, and an activation."""
    said = attributes_of(node)
    made = _conv(node, operands[:3])
    if made is None:
        return None
    if len(operands) > 3 and operands[3] is not None:
        made[0] = made[0] + operands[3]
    return _activated(made[0], said)


def _fused_gemm(node: Any, operands: Sequence[Array | None]) -> list[Array] | None:
    """A product, an addend, and an activation."""
    said, (one, other, *more) = attributes_of(node), operands
    if one is None or other is None:
        return None
    product = (one.T if said.get("transA") else one) @ (other.T if said.get("transB") else other)
    made = said.get("alpha", 1.0) * product
    return _activated(made if not more or more[0] is None else made + said.get("beta", 1.0) * more[0], said)


def _activated(x: Array, said: Mapping[str, Any]) -> list[Array] | None:
    match said.get("activation", b""):
        case b"":
            return [x]
        case b"Relu":
            return [np.maximum(x, 0.0)]
        case b"Sigmoid":
            return [_sigmoid(x)]
        case b"Tanh":
            return [np.tanh(x)]
        case _:
            return None


def _erf(x: Array) -> Array:
    flat = np.fromiter(map(math.erf, x.reshape(-1).tolist()), np.float64, x.size)
    return flat.reshape(x.shape)


def _normal(x: Array) -> Array:
    """The distribution function of the normal distribution, true to its last digits far to the left as well."""
    flat = np.fromiter((0.5 * math.erfc(-one / math.sqrt(2)) for one in x.reshape(-1).tolist()), np.float64, x.size)
    return flat.reshape(x.shape)


def _gelu_of(x: Array, approximate: bool) -> Array:
    if approximate:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return np.where(np.isneginf(x), np.nan, x * _normal(x))


def _gelu(node: Any, operands: Sequence[Array | None]) -> list[Array] | None:
    x = operands[0]
    if x is None:
        return None
    if len(operands) > 1 and operands[1] is not None:
        x = x + operands[1]
    tanh = node.op_type == "FastGelu" or attributes_of(node).get("approximate") == b"tanh"
    return [_gelu_of(x, tanh)]


def _quick_gelu(node: Any, operands: Sequence[Array | None]) -> list[Array] | None:
    x, alpha = operands[0], float(attributes_of(node).get("alpha", 1.702))
    return None if x is None else [x / (1 + np.exp(-alpha * x))]


def _fused_matmul(node: Any, operands: Sequence[Array | None]) -> list[Array] | None:
    said = attributes_of(node)
    x, y = operands[0], operands[1]
    if x is None or y is None or said.get("transBatchA") or said.get("transBatchB"):
        return None
    x = np.swapaxes(x, -1, -2) if said.get("transA") else x
    y = np.swapaxes(y, -1, -2) if said.get("transB") else y
    return [float(said.get("alpha", 1.0)) * np.matmul(x, y)]


def _layer_norm(node: Any, operands: Sequence[Array | None]) -> list[Array] | None:
    """Two outputs more, the mean and the factor, are only had from the engine."""
    said = attributes_of(node)
    if len([name for name in node.output if name]) > 1 or operands[0] is None:
        return None
    x = operands[0]
    if node.op_type == "SkipLayerNormalization":
        parts = [o for o in (*operands[:2], operands[4] if len(operands) > 4 else None) if o is not None]
        return [_normalised(sum(parts, start=np.zeros(1)), -1, float(said.get("epsilon", 1e-12)), *operands[2:4])]
    axis = int(said.get("axis", -1))
    return [_normalised(x, axis, float(np.float32(said.get("epsilon", 1e-5))), *operands[1:3])]


def _normalised(x: Array, axis: int, epsilon: float, scale: Array | None = None, bias: Array | None = None) -> Array:
    dims = tuple(range(axis % x.ndim, x.ndim))
    centred = x - x.mean(dims, keepdims=True)
    made = centred / np.sqrt((centred * centred).mean(dims, keepdims=True) + epsilon)
    made = made if scale is None else made * scale
    return made if bias is None else made + bias


def _batch_norm(node: Any, operands: Sequence[Array | None]) -> list[Array] | None:
    said = attributes_of(node)
    x = operands[0]
    if said.get("training_mode") or x is None or len(node.output) > 1 or any(o is None for o in operands[:5]):
        return None
    scale, bias, mean, var = (np.asarray(o).reshape(1, -1, *[1] * (x.ndim - 2)) for o in operands[1:5])
    return [(x - mean) / np.sqrt(var + float(said.get("epsilon", 1e-5))) * scale + bias]


def _lstm(node: Any, operands: Sequence[Array | None]) -> list[Array] | None:
    return _recurrent(node, operands, 4)


def _gru(node: Any, operands: Sequence[Array | None]) -> list[Array] | None:
    return _recurrent(node, operands, 3)


def _recurrent(node: Any, operands: Sequence[Array | None], gates: int) -> list[Array] | None:
    """An LSTM or a GRU with the usual activations and sequences of one length."""
    said = attributes_of(node)
    x, weight, recurrence = operands[:3]
    unusual = said.get("activations") or said.get("clip") or said.get("input_forget") or said.get("layout")
    if x is None or weight is None or recurrence is None or unusual:
        return None
    bias, lengths, *first = (*operands[3:8], *[None] * (8 - len(operands)))[:5]
    if (lengths is not None and bool((lengths != x.shape[0]).any())) or first[2:] != [None]:
        return None
    size, batch = recurrence.shape[-1], x.shape[1]
    ways = {b"forward": (False,), b"reverse": (True,), b"bidirectional": (False, True)}
    sequences: list[Array] = []
    states: list[list[Array]] = []
    for way, backwards in enumerate(ways[said.get("direction", b"forward")]):
        both = np.zeros(2 * gates * size) if bias is None else bias[way]
        state = [np.zeros((batch, size)) if one is None else one[way] for one in first[:2]]
        steps: list[Array] = []
        for step in x[::-1] if backwards else x:
            inner = step @ weight[way].T + both[: gates * size]
            state = (
                _lstm_step(inner, state, recurrence[way], both[gates * size :])
                if gates == 4
                else _gru_step(inner, state, recurrence[way], both[3 * size :], said.get("linear_before_reset", 0))
            )
            steps.append(state[0])
        sequences.append(np.stack(steps[::-1] if backwards else steps))
        states.append(state)
    made = [np.stack(sequences, 1), np.stack([state[0] for state in states]), np.stack([s[1] for s in states])]
    return [one for name, one in zip(node.output, made, strict=False) if name]


def _lstm_step(inner: Array, state: list[Array], recurrence: Array, bias: Array) -> list[Array]:
    hidden, cell = state
    i, o, f, c = np.split(inner + hidden @ recurrence.T + bias, 4, -1)
    cell = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(c)
    return [_sigmoid(o) * np.tanh(cell), cell]


def _gru_step(inner: Array, state: list[Array], recurrence: Array, bias: Array, linear: int) -> list[Array]:
    hidden = state[0]
    z, r, h = np.split(inner, 3, -1)
    of_z, of_r, of_h = np.split(recurrence, 3, 0)
    add_z, add_r, add_h = np.split(bias, 3)
    z = _sigmoid(z + hidden @ of_z.T + add_z)
    r = _sigmoid(r + hidden @ of_r.T + add_r)
    kept = r * (hidden @ of_h.T + add_h) if linear else (r * hidden) @ of_h.T + add_h
    return [(1 - z) * np.tanh(h + kept) + z * hidden, state[1]]


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))


KERNELS: Final[Mapping[str, Kernel]] = {
    "Conv": _conv,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "Erf": lambda _, operands: None if operands[0] is None else [_erf(operands[0])],
    "Gelu": _gelu,
    "BiasGelu": _gelu,
    "FastGelu": _gelu,
    "QuickGelu": _quick_gelu,
    "FusedMatMul": _fused_matmul,
    "LayerNormalization": _layer_norm,
    "SkipLayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "LSTM": _lstm,
    "GRU": _gru,
}
