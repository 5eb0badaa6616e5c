"""``repro.py``: the failing operation as a short script that needs nothing of whynan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from whynan.capsule import document

if TYPE_CHECKING:
    from whynan.capsule.document import Packed, PackedNode

_TORCH: Final = '''"""{title}; whynan replay explains it."""

import json
import pathlib

import torch
{more}
raw = pathlib.Path(__file__).with_name("operands.safetensors").read_bytes()
begin = 8 + int.from_bytes(raw[:8], "little")
header = json.loads(raw[8:begin])
layouts = json.loads(header["__metadata__"]["layouts"])


def load(name, device="cpu"):
    dtype, shape, stride = layouts[name]
    kind, (first, last) = getattr(torch, dtype), (begin + at for at in header[name]["data_offsets"])
    flat = torch.frombuffer(bytearray(raw[first:last]), dtype=kind) if last > first else torch.empty(0, dtype=kind)
    stored = [1 if step == 0 and size > 1 else size for size, step in zip(shape, stride)]
    return torch.empty_strided(stored, stride, dtype=kind, device=device).copy_(flat.view(stored)).expand(shape)


{state}
args, kwargs = {args}, {kwargs}
with {mode}():
    out = torch.ops.{op}(*args, **kwargs)
results = [t for t in [{written}] if t is not None]
bad = ~torch.isfinite(results[{number}])
print("{shown} is", results[{number}][{index}].item(), "and", int(bad.sum()), "of", bad.numel(), "are NaN or Inf")
'''
_ONNX: Final = '''"""{title}; whynan replay explains it."""

import json
import pathlib

import numpy as np
import {library}

here = pathlib.Path(__file__).parent
raw = (here / "operands.safetensors").read_bytes()
begin = 8 + int.from_bytes(raw[:8], "little")
header = json.loads(raw[8:begin])
layouts = json.loads(header["__metadata__"]["layouts"])


def load(name):
    dtype, shape, _ = layouts[name]
    first, last = (begin + at for at in header[name]["data_offsets"])
    return np.frombuffer(raw[first:last], dtype=dtype).reshape(shape)


{session}
result = session.run(None, {{name: load(name) for name in {inputs}}})[{number}]
bad = ~np.isfinite(result)
print("{shown} is", result[{index}], "and", int(bad.sum()), "of", bad.size, "are NaN or Inf")
'''


_SESSIONS: Final = {
    "onnxruntime": """options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(here / "node.onnx", options, providers=["CPUExecutionProvider"])""",
    "onnx.reference": """session = onnx.reference.ReferenceEvaluator(str(here / "node.onnx"))""",
}


def torch_script(
    packed: Packed,
    number: int,
    index: tuple[int, ...],
    devices: dict[str, str],
    changed: tuple[str, ...],
    *,
    many: bool,
) -> str:
    """The script of an operation of PyTorch.

    `number`: which of its results is bad, and at which `index`. `devices`: of the tensors by name, where it is not the
    CPU. `changed`: the arguments that it changes, as expressions. `many`: it returns several tensors.
    """
    library = packed.op.partition(".")[0]
    returned = "*out" if many else "out"
    needed = () if library in ("aten", "prims") else (f"# first import what registers the operators of {library}",)
    written = changed if _only_changes(packed, changed) else (*changed, returned)
    return _TORCH.format(
        title=f"The operation {packed.op} as it ran, alone",
        more="".join(f"{line}\n" for line in needed),
        state=_state(packed),
        args=_sequence([_code(value, devices) for value in packed.args]),
        kwargs="{" + ", ".join(f"{name!r}: {_code(value, devices)}" for name, value in packed.kwargs.items()) + "}",
        mode="torch.inference_mode" if packed.state.inference else "torch.no_grad",
        op=packed.op,
        written=", ".join(written),
        number=number,
        index=", ".join(map(str, index)) or "()",
        shown=f"element {list(index)} of result {number}",
    )


def onnx_script(packed: PackedNode, fed: list[str], number: int, index: tuple[int, ...]) -> str:
    """The script of a node of an ONNX model, to which the tensors of these names are fed."""
    library = "onnx.reference" if packed.runner == "reference" else "onnxruntime"
    return _ONNX.format(
        library=library,
        session=_SESSIONS[library],
        title=f"The node {ascii(packed.op)[1:-1]} as it ran, alone",
        inputs=ascii(fed),
        number=number,
        index=", ".join(map(str, index)) or "()",
        shown=f"element {list(index)} of result {number}",
    )


def _only_changes(packed: Packed, changed: tuple[str, ...]) -> bool:
    """Whether an operation returns nothing but what it has changed."""
    spread = any(expression.startswith("*") for expression in changed)
    return bool(changed) and (spread or len(packed.results) == len(changed))


def _state(packed: Packed) -> str:
    state = packed.state
    lines = [f"torch.set_num_threads({state.threads})"]
    if state.flush_denormal:
        lines.append("torch.set_flush_denormal(True)")
    if state.matmul_precision != "highest":
        lines.append(f'torch.set_float32_matmul_precision("{state.matmul_precision}")')
    if packed.random is not None:
        lines.append("generator = torch.default_generator")
        lines.append(f'generator.set_state(load("{packed.random}"))')
    return "; ".join(lines)


def _sequence(codes: list[str]) -> str:
    return f"[{', '.join(codes)}]"


def _code(value: Any, devices: dict[str, str]) -> str:
    """The Python expression of an argument."""
    match value:
        case document.Tensor():
            device = devices.get(value.name)
            return f'load("{value.name}")' if device is None else f'load("{value.name}", "{device}")'
        case document.Real():
            real = float(value.value)
            return repr(real) if math.isfinite(real) else f'float("{real}")'
        case document.Complex():
            return f'complex(float("{value.real}"), float("{value.imag}"))'
        case document.Whole() | document.Truth():
            return repr(value.value)
        case document.Nothing():
            return "None"
        case document.Generator():
            return "generator"
        case document.Several():
            codes = [_code(each, devices) for each in value.values]
            return f"tuple({_sequence(codes)})" if value.kind == "tuple" else _sequence(codes)
        case document.Text(kind="str"):
            return ascii(value.value)
        case document.Text(kind="device"):
            return f'torch.device("{value.value}")'
        case document.Text():
            return f"torch.{value.value}"
        case _:
            raise TypeError(f"{value!r} is no argument")
