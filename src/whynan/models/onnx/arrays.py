"""Arrays from strangers' files, ``.npy``, ``.npz`` and the ``.pb`` of ONNX test data; nothing is unpickled."""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import numpy as np
import onnx
from numpy.lib import format as npy
from numpy.typing import NDArray
from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper

from whynan.errors import UsageError
from whynan.models.onnx.model import STRING, Signature, bits_of, dtype_name, dtype_of, parse_message, read_file, text_of

_AGAIN: Final = "write it again with numpy.save or numpy.savez"
_AGAIN_PB: Final = "write it again with onnx.numpy_helper.from_array(array).SerializeToString()"
_FILE: Final = "give a file of numpy.save or numpy.savez, or an ONNX test data set"
_LARGEST_PB: Final = (1 << 31) - 1
_LONGEST_HEADER: Final = 10_000
_MOST_PER_ENTRY: Final = 4
"""Elements that one byte, or one entry of a field, can hold: those of 2 bits."""


_Message = TypeVar("_Message", onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto)


class _DamagedError(Exception):
    """An array is not as it was written; the text says why."""


def most_bytes() -> int:
    """The machine's memory: no array is larger."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 36


def read_npy(path: Path) -> NDArray[Any]:
    """The array in a file of ``numpy.save``; raises ``UsageError`` for anything else."""
    data = read_file(path, _FILE, most=most_bytes())
    try:
        return _array(io.BytesIO(data), len(data))
    except _DamagedError as error:
        raise UsageError(f"{path} {error}", _AGAIN) from error


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays in a file of ``numpy.savez`` by name; raises ``UsageError`` for anything else."""
    data = read_file(path, _FILE, most=most_bytes())
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _members(archive)
    except _DamagedError as error:
        raise UsageError(f"{path} {error}", _AGAIN) from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, zlib.error) as error:
        raise UsageError(f"{path} is no .npz file, or is cut off", _AGAIN) from error


def _members(archive: zipfile.ZipFile) -> dict[str, NDArray[Any]]:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if sum(entry.file_size for entry in entries) > most_bytes():
        raise _DamagedError("would unpack to more than this machine's memory")
    found: dict[str, NDArray[Any]] = {}
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        if name == entry.filename:
            raise _DamagedError(f"holds {entry.filename}, which is no array")
        if name in found:
            raise _DamagedError(f"holds {name} twice")
        with archive.open(entry) as member:
            try:
                found[name] = _array(member, entry.file_size)
            except _DamagedError as error:
                raise _DamagedError(f"is damaged: its {name} {error}") from error
    return found


def _array(file: IO[bytes], size: int) -> NDArray[Any]:
    """One array; no memory is taken that the file does not have."""
    try:
        shape, fortran, dtype = _header(file)
    except _DamagedError:
        raise
    except Exception as error:
        # NumPy tokenizes and evaluates what it finds, and raises whatever that does
        raise _DamagedError("is no .npy file, or is cut off") from error
    if dtype.hasobject:
        raise _DamagedError("holds Python objects, which could only be read by running code")
    if dtype.names is not None or dtype.subdtype is not None or not dtype.itemsize or dtype.kind in "mM":
        raise _DamagedError("holds what is no array of numbers")
    needed = math.prod(shape) * dtype.itemsize
    if any(dim < 0 for dim in shape) or needed > size:
        raise _DamagedError("is cut off")
    data = bytearray(needed)
    filled = 0
    while filled < needed and (taken := file.read(min(needed - filled, 1 << 24))):
        data[filled : filled + len(taken)] = taken
        filled += len(taken)
    if filled < needed:
        raise _DamagedError("is cut off")
    flat = np.frombuffer(data, dtype)
    try:
        array = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
        return _strings(array) if dtype.kind in "US" else _native(array)
    except (ValueError, UnicodeDecodeError) as error:
        raise _DamagedError("holds what is no array of numbers") from error


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and dtype."""
    known = {(1, 0): (2, npy.read_array_header_1_0), (2, 0): (4, npy.read_array_header_2_0)}
    # the third form is for records with names, which are no numbers
    version: tuple[int, int] = npy.read_magic(file)
    if version not in known:
        raise _DamagedError("holds what is no array of numbers")
    width, read = known[version]
    length = file.read(width)
    header = file.read(min(int.from_bytes(length, "little"), _LONGEST_HEADER))
    # so NumPy writes float8_e5m2, and does not read it
    with warnings.catch_warnings():
        # what NumPy has to say of old files is for those who write them
        warnings.simplefilter("ignore")
        return read(io.BytesIO(length + header.replace(b"'<f1'", b"'|V1'")))


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, in the order of this machine's bytes and of rows."""
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")


def _strings(array: NDArray[Any]) -> NDArray[Any]:
    made = np.empty(array.shape, object)
    for index, text in np.ndenumerate(array):
        made[index] = text.decode() if isinstance(text, bytes) else str(text)
    return made


def read_pb(path: Path, signature: Signature) -> Any:
    """The value of one input in a file of ONNX test data; raises ``UsageError`` for anything else."""
    data = read_file(path, _FILE, most=_LARGEST_PB)
    try:
        return _value(data, signature)
    except _DamagedError as error:
        raise UsageError(f"{path} {error}", _AGAIN_PB) from error


def name_in_pb(path: Path) -> str | None:
    """The name that a tensor in a file of test data bears; None where it has none, or is no tensor."""
    tensor = onnx.TensorProto()
    return (text_of(tensor.name) or None) if parse_message(tensor, read_file(path, _FILE, most=_LARGEST_PB)) else None


def _value(data: bytes, signature: Signature) -> Any:
    match signature.kind:
        case "sequence":
            return _sequence(_message(onnx.SequenceProto(), data, "sequence"))
        case "optional":
            return _optional(_message(onnx.OptionalProto(), data, "optional"))
        case _:
            return _tensor(_message(onnx.TensorProto(), data, "tensor"))


def _message(message: _Message, data: bytes, what: str) -> _Message:
    # an empty file is an empty message, but no tensor
    if not parse_message(message, data) or (not data and what == "tensor"):
        raise _DamagedError(f"holds no {what}, or is cut off")
    return message


def _sequence(sequence: SequenceProto) -> list[Any]:
    kinds = onnx.SequenceProto
    if sequence.elem_type == kinds.TENSOR:
        return [_tensor(tensor) for tensor in sequence.tensor_values]
    if sequence.elem_type == kinds.SEQUENCE:
        return [_sequence(held) for held in sequence.sequence_values]
    if sequence.elem_type == kinds.OPTIONAL:
        return [_optional(held) for held in sequence.optional_values]
    raise _DamagedError("holds a sequence of what is neither tensors nor sequences")


def _optional(optional: OptionalProto) -> Any:
    kinds = onnx.OptionalProto
    if optional.elem_type == kinds.UNDEFINED:
        return None
    if optional.elem_type == kinds.TENSOR:
        return _tensor(optional.tensor_value) if optional.HasField("tensor_value") else None
    if optional.elem_type == kinds.SEQUENCE:
        return _sequence(optional.sequence_value) if optional.HasField("sequence_value") else None
    raise _DamagedError("holds an optional of what is neither a tensor nor a sequence")


def _tensor(tensor: TensorProto) -> NDArray[Any]:
    dtype = dtype_name(tensor.data_type)
    if dtype is None:
        raise _DamagedError("holds a tensor of no type that is known")
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.HasField("segment"):
        raise _DamagedError("holds a tensor that is in another file")
    n = math.prod(tensor.dims)
    if any(dim < 0 for dim in tensor.dims) or n > _MOST_PER_ENTRY * _entries(tensor):
        raise _DamagedError("is cut off or damaged")
    shape = tuple(tensor.dims)
    try:
        if dtype == STRING:
            texts = np.empty(n, object)
            texts[:] = [text.decode() for text in tensor.string_data]
            return texts.reshape(shape)
        if tensor.HasField("raw_data") and len(tensor.raw_data) != -(-n * (bits_of(tensor.data_type) or 8) // 8):
            raise _DamagedError("is cut off or damaged")
        # what is unpacked from protobuf's memory can be read, and not be written
        return np.array(numpy_helper.to_array(tensor), dtype_of(dtype)).reshape(shape)
    except (ValueError, TypeError, OverflowError, IndexError) as error:
        raise _DamagedError("is cut off or damaged") from error


def _entries(tensor: TensorProto) -> int:
    """How much there is of a tensor, in whatever field."""
    fields = (
        tensor.raw_data,
        tensor.float_data,
        tensor.int32_data,
        tensor.int64_data,
        tensor.uint64_data,
        tensor.double_data,
        tensor.string_data,
    )
    return sum(map(len, fields))
