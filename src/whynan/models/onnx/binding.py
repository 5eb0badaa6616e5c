"""Whether values fit the inputs of a model, and the files that hand them to the process that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from whynan.errors import UsageError
from whynan.models.listing import excerpt
from whynan.models.onnx.model import STRING, Signature, dtype_of, name_of, spelled_dims
from whynan.models.onnx.opening import OnnxModel
from whynan.models.onnx.specs import Filled, Generated
from whynan.traces.writer import open_private

# -- Whether values fit what a model takes: dtype, rank, fixed dimensions, and those that several inputs share ---------


_SHOWN: Final = 12
_UNSAID: Final = 1
"""The length of a dimension of which nothing is said."""


def signatures_text(signatures: tuple[Signature, ...]) -> str:
    """Signatures on one line: ``x: float32[N, 4], mask: bool[N]``."""
    return excerpt([str(signature) for signature in signatures], _SHOWN)


def shape_of(value: Any) -> str:
    """``float64[2, 4]`` of an array; of a sequence how many it holds."""
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        return f"{name_of(array.dtype)}{spelled_dims(array.shape)}"
    if isinstance(value, list):
        return f"sequence of {len(cast('list[Any]', value))}"
    return "none"


def check_sizes(model: OnnxModel, sizes: Mapping[str, int]) -> None:
    """Raise ``UsageError`` for the size of a dimension that no input leaves open by that name."""
    held = (dim for signature in (*model.inputs, *model.optional_inputs) for dim in signature.dims or ())
    found = list(dict.fromkeys(dim for dim in held if isinstance(dim, str)))
    for name, size in sizes.items():
        if name not in found:
            known = f"those left open are {excerpt(found, _SHOWN)}" if found else "none of its dimensions has a name"
            raise UsageError(f"--free-dimension {name}={size}: no input of the model has a dimension {name}", known)


class Binding:
    """The lengths of the dimensions that inputs share, as one value after another settles them.

    ``sizes`` are settled before any value is.
    """

    def __init__(self, model: OnnxModel, given: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        self._model = model
        self._given = given
        self._lengths = {name: (size, f"--free-dimension {name}") for name, size in sizes.items()}

    def bind_value(self, signature: Signature, value: Any, origin: str) -> Any:
        """A value that was read, in the dtype that the model takes; raises ``UsageError`` where it does not fit."""
        held = signature.holds and replace(signature.holds, name=signature.name)
        if signature.kind == "optional":
            return None if value is None or held is None else self.bind_value(held, value, origin)
        if signature.kind == "sequence":
            if not isinstance(value, list):
                raise self._unfit(signature, value, origin)
            values = cast("list[Any]", value)
            # the elements of a sequence need not agree with one another
            return values if held is None else [self._element(held, v, origin) for v in values]
        if not isinstance(value, np.ndarray):
            raise self._unfit(signature, value, origin)
        array = self._typed(signature, cast("NDArray[Any]", value), origin)
        self._check_dims(signature, array.shape, f"{signature.name} is {shape_of(array)} ({origin})", shares=True)
        return array

    def _element(self, signature: Signature, value: Any, origin: str) -> Any:
        if signature.kind != "tensor" or not isinstance(value, np.ndarray):
            return self.bind_value(signature, value, origin)
        array = self._typed(signature, cast("NDArray[Any]", value), origin)
        what = f"{signature.name} holds {shape_of(array)} ({origin})"
        self._check_dims(signature, array.shape, what, shares=False)
        return array

    def dims(self, signature: Signature, spec: Generated | Filled) -> tuple[int, ...]:
        """The dimensions of what is to be made: as said, else as the model declares them, else 1."""
        if spec.dims is not None:
            what = f"{signature.name}={spec.text}"
            self._check_dims(signature, spec.dims, what, shares=True)
            return spec.dims
        if signature.dims is None:
            raise UsageError(
                f"the model does not declare the dimensions of {signature}",
                f"say them: {signature.name}={spec.text}[2,3]",
            )
        return tuple(self._length(dim, signature.name) for dim in signature.dims)

    def _length(self, dim: int | str | None, name: str) -> int:
        if isinstance(dim, int):
            return dim
        return _UNSAID if dim is None else self._lengths.setdefault(dim, (_UNSAID, name))[0]

    def _typed(self, signature: Signature, array: NDArray[Any], origin: str) -> NDArray[Any]:
        wanted = signature.dtype
        if wanted is None or name_of(array.dtype) == wanted:
            return array
        # numpy.save knows no dtypes but its own, and writes the bytes of others
        if array.dtype.kind == "V" and wanted != STRING and array.dtype.itemsize == dtype_of(wanted).itemsize:
            return array.view(dtype_of(wanted))
        cast_to = f"; array.astype('{wanted}') would be it" if _converts(array, wanted) else ""
        raise self._unfit(signature, array, origin, cast_to)

    def _unfit(self, signature: Signature, value: Any, origin: str, more: str = "") -> UsageError:
        what = f"{signature.name} is {shape_of(value)} ({origin}), and the model takes {signature.type}"
        return UsageError(what, f"{self._beside()}{more}")

    def _check_dims(self, signature: Signature, shape: tuple[int, ...], what: str, *, shares: bool) -> None:
        if signature.dims is None:
            return
        fits = len(signature.dims) == len(shape) and all(
            not isinstance(dim, int) or dim == length for dim, length in zip(signature.dims, shape, strict=True)
        )
        if not fits:
            raise UsageError(f"{what}, and the model takes {signature.type}", self._beside())
        if not shares:
            return
        for dim, length in zip(signature.dims, shape, strict=True):
            if isinstance(dim, str):
                known, first = self._lengths.setdefault(dim, (length, signature.name))
                if known != length:
                    raise UsageError(f"{what}, where {dim} is {length}, and in {first} it is {known}", self._beside())

    def _beside(self) -> str:
        taken = signatures_text(self._model.inputs)
        return f"the model takes {taken}; it was given {excerpt(list(self._given.values()), _SHOWN)}"


def _converts(array: NDArray[Any], wanted: str) -> bool:
    """Whether NumPy can make the one dtype of the other."""
    return wanted != STRING and array.dtype.kind in "biufc" and dtype_of(wanted).kind in "biufc"


# -- Inputs of a model on their way to the process that runs it: files that nothing is executed from -------------------


_PLAIN = "fiub"


def write_feeds(values: Mapping[str, Any], folder: Path) -> list[dict[str, str]]:
    """Write inputs into a new folder; gives the name, kind and file of each."""
    folder.mkdir(mode=0o700)
    told: list[dict[str, str]] = []
    for number, (name, value) in enumerate(values.items()):
        kind = _kind(value)
        file = f"{number}.{'npy' if kind == 'array' else 'pb'}"
        with open(folder / file, "wb", opener=open_private) as out:
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
