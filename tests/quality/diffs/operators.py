"""PyTorch's own operator samples as modules, and what a direct comparison with float64 says of their exports."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db

LEFT_OUT = (
    *("random", "rand", "normal", "dropout", "empty", "multinomial", "bernoulli", "cauchy", "exponential"),
    *("geometric", "log_normal", "uniform", "new_", "_like", "jiterator", "ops.", "signal", "masked.", "fft"),
    *("linalg", "svd", "eig", "lstsq", "sparse", "nn.functional.scaled"),
)
"""Parts of names: random, made of nothing, without an export, or long to compute."""
MOST = 20_000
FAR = 1e-4
LAST = 4e-6
"""Of a number of float32 the last five or six bits."""


class Sample(nn.Module):
    """An operator with the arguments of a sample, whose tensors are inputs."""

    def __init__(self, operator: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__()
        self.operator, self.arguments, self.named = operator, arguments, named

    def forward(self, x: Tensor, y: Tensor | None = None, z: Tensor | None = None) -> Any:
        given = iter([one for one in (x, y, z) if one is not None])
        return self.operator(*(next(given) if isinstance(a, Tensor) else a for a in self.arguments), **self.named)


class Exported(NamedTuple):
    """An operator that was exported: its name, module, inputs by name, and whether its export is right.

    ``exact``: right to the last digits of each element, where it is right for the size of all of them.
    """

    name: str
    module: nn.Module
    inputs: dict[str, Tensor]
    right: bool
    exact: bool

    def operators(self) -> set[str]:
        """The operators of its program."""
        graph = torch.export.export(self.module, tuple(self.inputs.values())).graph
        return {str(node.target) for node in graph.nodes if node.op == "call_function"}


def exports(part: int, parts: int, path: Path) -> Iterator[Exported]:
    """One sample of each operator of a part that can be exported; the model is at the path until the next one."""
    for info in op_db[part::parts]:
        if info.variant_test_name or any(word in info.name for word in LEFT_OUT) or torch.float32 not in info.dtypes:
            continue
        for sample in list(info.sample_inputs("cpu", torch.float32))[:6]:
            found = _exported(info, sample, path)
            if found is not None:
                yield found
                break


def _exported(info: Any, sample: Any, path: Path) -> Exported | None:
    arguments = (sample.input, *sample.args)
    tensors = [one.detach().clone() for one in arguments if isinstance(one, Tensor)]
    nested = any(isinstance(one, list | tuple) and any(isinstance(i, Tensor) for i in one) for one in arguments)
    if not isinstance(sample.input, Tensor) or len(tensors) > 3 or nested:
        return None
    if any(isinstance(one, Tensor) for one in sample.kwargs.values()):
        return None
    if any(one.numel() == 0 or one.numel() > MOST for one in tensors):
        return None
    module = Sample(info.op, arguments, sample.kwargs).eval()
    inputs = dict(zip("xyz", tensors, strict=False))
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = _leaves(module(*tensors))
            torch.onnx.export(
                module,
                tuple(tensors),
                str(path),
                input_names=list(inputs),
                dynamo=True,
                verbose=False,
                external_data=False,
            )
            session = onnxruntime.InferenceSession(str(path))
            given = {one.name: inputs[one.name].numpy() for one in session.get_inputs()}
            theirs = session.run(None, given)
    except Exception:
        return None
    if len(ours) != len(theirs) or any(one.dtype.is_complex for one in ours):
        return None
    exact = _exact(info, arguments, sample.kwargs, tensors) or ours
    threes = list(zip(ours, theirs, exact, strict=True))
    right = all(_right(*three) for three in threes)
    return Exported(info.name, module, inputs, right, right and all(_is_exact(*three) for three in threes))


def _exact(info: Any, arguments: tuple[Any, ...], named: dict[str, Any], tensors: list[Tensor]) -> list[Tensor] | None:
    wide = [one.double() if one.is_floating_point() else one for one in tensors]
    try:
        with torch.no_grad():
            return _leaves(Sample(info.op, arguments, named)(*wide))
    except Exception:
        return None


def _leaves(made: Any) -> list[Tensor]:
    return [one for one in (made if isinstance(made, tuple | list) else [made]) if isinstance(one, Tensor)]


def _is_exact(ours: Tensor, theirs: Any, exact: Tensor) -> bool:
    """Whether no element of an export has lost digits that PyTorch's has."""
    x, y, z = (np.asarray(one, np.float64) for one in (ours.numpy(), theirs, exact.numpy()))
    with np.errstate(all="ignore"):
        lost = np.abs(y - z) > 10 * np.abs(x - z) + LAST * np.abs(z)
    return not bool((lost & np.isfinite(y - z)).any())


def _right(ours: Tensor, theirs: Any, exact: Tensor) -> bool:
    """Whether an output of an export is about as near to the exact value as PyTorch's."""
    x, y, z = (np.asarray(one, np.float64) for one in (ours.numpy(), theirs, exact.numpy()))
    if x.shape != y.shape or not np.array_equal(np.isfinite(x), np.isfinite(y)):
        return False
    with np.errstate(all="ignore"):
        mine, other = (np.where(np.isfinite(one - z), np.abs(one - z), 0.0) for one in (x, y))
        scale = float(np.max(np.where(np.isfinite(z), np.abs(z), 0.0), initial=0.0))
    return float(other.max(initial=0.0)) <= FAR * max(scale, 1e-6) + 10 * float(mine.max(initial=0.0))
