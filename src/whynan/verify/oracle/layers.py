"""What ATen's layers that normalise, its distances and its convolutions compute."""

# The functions of a table have one signature, of which not every one reads all.

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.verify.oracle.linear import matmul
from whynan.verify.oracle.rows import norm
from whynan.verify.oracle.tape import Variable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.verify.oracle.calls import Call, Operator
    from whynan.verify.oracle.functions import Functions


def normalised(
    f: Functions, x: Variable, dims: tuple[int, ...], eps: float, centred: bool = True
) -> tuple[Variable, Variable, Variable]:
    """Rows brought to a mean square of 1 (and, centred, to a mean of 0), their means, and 1 / their deviations."""
    mean = f.mean(x, dims, keepdim=True)
    apart = f.sub(x, mean) if centred else x
    square = f.mean(f.square(apart), dims, keepdim=True)
    factor = f.unary("inverse", f.sqrt(f.add(square, eps)))
    return f.mul(apart, factor), mean, factor


def affine(f: Functions, x: Variable, weight: Variable | None, bias: Variable | None) -> Variable:
    """The weight times x, and the bias added, where there are any."""
    scaled = x if weight is None else f.mul(x, weight)
    return scaled if bias is None else f.add(scaled, bias)


def along_channels(f: Functions, x: Variable | None, rank: int) -> Variable | None:
    """A vector laid along the second of ``rank`` dimensions."""
    if x is None:
        return None
    return f.tape.gather([x], np.arange(x.data.size).reshape(1, -1, *(1,) * (rank - 2)))


def _layer_norm(call: Call) -> Sequence[Variable]:
    f, x = call.functions, call.variable("input")
    count = len(call.integers("normalized_shape") or [])
    dims = tuple(range(x.rank - count, x.rank))
    result, mean, factor = normalised(f, x, dims, call.number("eps", 1e-5))
    return affine(f, result, call.optional("weight"), call.optional("bias")), mean, factor


def _rms_norm(call: Call) -> Sequence[Variable]:
    f, x = call.functions, call.variable("input")
    count = len(call.integers("normalized_shape") or [])
    eps = call.number("eps", _EPS.get(call.step.dtypes[0].rpartition(".")[2], 0.0))
    result, _, factor = normalised(f, x, tuple(range(x.rank - count, x.rank)), eps, centred=False)
    return affine(f, result, call.optional("weight"), None), factor


_EPS: Final = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}


def _group_norm(call: Call) -> Sequence[Variable]:
    f, x = call.functions, call.variable("input")
    groups = int(call.number("group" if call.has("group") else "num_groups", 1))
    places = np.arange(x.data.size)
    rows = f.tape.gather([x], places.reshape(x.shape[0], groups, x.data.size // max(1, x.shape[0] * groups)))
    result, mean, factor = normalised(f, rows, (2,), call.number("eps", 1e-5))
    whole = f.tape.gather([result], places.reshape(x.shape))
    weight, bias = (along_channels(f, call.optional(name), x.rank) for name in ("weight", "bias"))
    flat = np.arange(mean.data.size).reshape(mean.shape[:2])
    return affine(f, whole, weight, bias), *(f.tape.gather([found], flat) for found in (mean, factor))


def _batch_norm(training: bool | None = None) -> Operator:
    def operator(call: Call) -> Sequence[Variable]:
        f, x = call.functions, call.variable("input")
        weight, bias = (along_channels(f, call.optional(name), x.rank) for name in ("weight", "bias"))
        train = call.flag("training" if call.has("training") else "train") if training is None else training
        eps = call.number("eps", 1e-5)
        if train or not call.has("running_mean"):
            dims = tuple(axis for axis in range(x.rank) if axis != 1)
            result, mean, factor = normalised(f, x, dims, eps)
            places = np.arange(mean.data.size)
            return affine(f, result, weight, bias), *(f.tape.gather([m], places) for m in (mean, factor))
        mean, variance = (along_channels(f, call.variable(f"running_{n}"), x.rank) for n in ("mean", "var"))
        assert mean is not None
        assert variance is not None
        result = f.div(f.sub(x, mean), f.sqrt(f.add(variance, eps)))
        empty = f.tape.full((0,), f.e.zero)
        return affine(f, result, weight, bias), *([empty] * (len(call.step.outputs) - 1))

    return operator


# -- distances --------------------------------------------------------------------------------------------------------


def _distances(call: Call) -> Variable:
    """The norm of the difference of each row of one with each row of another."""
    f, x, y = call.functions, call.variable("x1"), call.variable("x2")
    one = f.tape.gather([x], np.expand_dims(np.arange(x.data.size).reshape(x.shape), -2))
    other = f.tape.gather([y], np.expand_dims(np.arange(y.data.size).reshape(y.shape), -3))
    apart = f.sub(one, other)
    return norm(call, apart, call.number("p", 2.0), (apart.rank - 1,), keepdim=False)


# -- sequences --------------------------------------------------------------------------------------------------------


def _ctc_loss(call: Call) -> Sequence[Variable]:
    """Minus the logarithm of the probability of each target: of all its alignments, without which it is 0."""
    f, tape = call.functions, call.tape
    probabilities = f.exp(call.variable("log_probs"))
    _, batch, symbols = probabilities.shape
    blank, targets = int(call.number("blank", 0)), call.places(call.variable("targets"))
    lengths = call.integers("target_lengths") or []
    starts = np.cumsum([0, *lengths]) if targets.ndim == 1 else np.arange(batch) * targets.shape[-1]
    losses: list[Variable] = []
    for n, steps in enumerate(call.integers("input_lengths") or []):
        path = np.full(2 * lengths[n] + 1, blank)
        path[1::2] = targets.reshape(-1)[starts[n] : starts[n] + lengths[n]]
        places = np.arange(path.size)
        # between two symbols that differ no blank is needed
        jumps = (path != blank) & (path != np.concatenate([path[:2], path[:-2]]))
        ways = tape.constant((places == 0).astype(float))
        for step in range(steps):
            onward, over = (tape.gather([ways], index) for index in (places - 1, np.where(jumps, places - 2, -1)))
            there = tape.gather([probabilities], (step * batch + n) * symbols + path)
            ways = f.mul(f.add(f.add(ways, onward), over), there)
        losses.append(f.neg(f.log(tape.sum(tape.gather([ways], places[-2:]), (0,), False))))
    return (tape.gather(losses, np.arange(batch)),)


# -- convolutions and pools -------------------------------------------------------------------------------------------


def _windows(
    sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Any:
    """The flat place in a plane of ``sizes`` of every element of every window, -1 in the padding: (windows, kernel)."""
    counts = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
    ]
    found = np.zeros((1, 1), dtype=np.int64)
    outside = np.zeros((1, 1), dtype=bool)
    for axis, count in enumerate(counts):
        places = np.arange(count)[:, None] * stride[axis] - padding[axis] + np.arange(kernel[axis]) * dilation[axis]
        bad = (places < 0) | (places >= sizes[axis])
        shape = (found.shape[0] * count, found.shape[1] * kernel[axis])
        found = (found[:, None, :, None] * sizes[axis] + places[None, :, None, :]).reshape(shape)
        outside = (outside[:, None, :, None] | bad[None, :, None, :]).reshape(shape)
    return np.where(outside, -1, found), counts


def _each(call: Call, name: str, count: int, default: int) -> list[int]:
    found = call.integers(name) or [default]
    return found * count if len(found) == 1 else found


def _convolution(call: Call) -> Variable:
    f, x, weight = call.functions, call.variable("input"), call.variable("weight")
    if call.flag("transposed"):
        raise call.unsupported("transposed")
    planes, groups = x.rank - 2, int(call.number("groups", 1))
    stride, padding, dilation = (_each(call, n, planes, d) for n, d in (("stride", 1), ("padding", 0), ("dilation", 1)))
    windows, counts = _windows(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    size, each = int(np.prod(x.shape[2:])), weight.shape[0] // groups
    flat = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], groups, -1, 1, 1) * size
    index = np.where(windows < 0, -1, flat + windows)  # batch, group, channel, window, kernel
    columns = np.moveaxis(index, 2, 3).reshape(x.shape[0], groups, windows.shape[0], -1)
    kernels = np.arange(weight.data.size).reshape(groups, each, -1)
    found = matmul(f, f.tape.gather([x], columns), f.tape.gather([weight], np.swapaxes(kernels, -1, -2)))
    order = np.arange(found.data.size).reshape(found.shape)  # batch, group, window, channel
    shape = (x.shape[0], weight.shape[0], *counts)
    result = f.tape.gather([found], np.swapaxes(order, -1, -2).reshape(shape))
    return affine(f, result, None, along_channels(f, call.optional("bias"), x.rank))


def _average_pool(call: Call) -> Variable:
    f, x = call.functions, call.variable("self")
    kernel = call.integers("kernel_size") or []
    planes = len(kernel)
    stride = call.integers("stride") or kernel
    padding = _each(call, "padding", planes, 0)
    if (
        call.flag("ceil_mode")
        or call.has("divisor_override")
        or (any(padding) and not call.flag("count_include_pad", True))
    ):
        raise call.unsupported("with such a divisor")
    sizes = x.shape[x.rank - planes :]
    windows, counts = _windows(sizes, kernel, stride, padding, [1] * planes)
    flat = np.arange(int(np.prod(x.shape[: x.rank - planes]))).reshape(*x.shape[: x.rank - planes], 1, 1)
    index = np.where(windows < 0, -1, flat * int(np.prod(sizes)) + windows)
    found = f.mean(f.tape.gather([x], index), (index.ndim - 1,))
    order = np.arange(found.data.size).reshape(*x.shape[: x.rank - planes], *counts)
    return f.tape.gather([found], order)


def _adaptive_pool(call: Call) -> Variable:
    f, x = call.functions, call.variable("self")
    sizes = call.integers("output_size") or []
    lead = x.shape[: x.rank - len(sizes)]
    places = np.arange(x.data.size).reshape(x.shape)
    parts: list[Variable] = []
    for at in itertools.product(*(range(size) for size in sizes)):
        inside = [
            slice(i * n // size, -((-(i + 1) * n) // size))
            for i, n, size in zip(at, x.shape[len(lead) :], sizes, strict=True)
        ]
        part = places[(..., *inside)]
        window = part.reshape(*lead, math.prod(part.shape[len(lead) :]))
        parts.append(f.mean(f.tape.gather([x], window), (len(lead),)))
    order = np.arange(len(parts) * parts[0].data.size).reshape(*sizes, *lead)
    return f.tape.gather(parts, np.moveaxis(order, range(len(sizes)), range(-len(sizes), 0)))


LAYERS: Final[Mapping[str, Operator]] = {
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": _rms_norm,
    "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm(),
    "_native_batch_norm_legit": _batch_norm(),
    "_native_batch_norm_legit_no_training": _batch_norm(training=False),
    "_euclidean_dist": _distances,
    "_cdist_forward": _distances,
    "_ctc_loss": _ctc_loss,
    "convolution": _convolution,
    "_convolution": _convolution,
    "avg_pool2d": _average_pool,
    "avg_pool3d": _average_pool,
    "_adaptive_avg_pool2d": _adaptive_pool,
    "_adaptive_avg_pool3d": _adaptive_pool,
}
