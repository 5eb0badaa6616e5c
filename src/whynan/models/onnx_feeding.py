"""Inputs of a model on their way to the process that runs it: files that nothing is executed from."""

# pyright: strict

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
from onnx import numpy_helper

from whynan.traces.private import private

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PLAIN = "fiub"


def write_feeds(values: Mapping[str, Any], folder: Path) -> list[dict[str, str]]:
    """Write inputs into a new folder; gives the name, kind and file of each."""
    folder.mkdir(mode=0o700)
    told: list[dict[str, str]] = []
    for number, (name, value) in enumerate(values.items()):
        kind = _kind(value)
        file = f"{number}.{'npy' if kind == 'array' else 'pb'}"
        with open(folder / file, "wb", opener=private) as out:
            if kind == "array":
                np.save(out, value, allow_pickle=False)
            elif kind != "none":
                out.write(_proto(value, name).SerializeToString())
        told.append({"name": name, "kind": kind, "file": file})
    return told


def read_feeds(folder: Path, told: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The inputs that were written."""
    return {entry["name"]: _read(folder / entry["file"], entry["kind"]) for entry in told}


def _kind(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return "sequence"
    dtype: np.dtype[Any] = value.dtype
    return "array" if dtype.kind in _PLAIN and dtype.isbuiltin else "tensor"


def _proto(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return numpy_helper.from_list(cast("list[Any]", value), name)
    return numpy_helper.from_array(value, name)


def _read(path: Path, kind: str) -> Any:
    if kind == "none":
        return None
    if kind == "array":
        return np.load(path, allow_pickle=False)
    if kind == "sequence":
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(path.read_bytes())
        return numpy_helper.to_list(sequence)
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)
