"""Files of arrays that strangers wrote: nothing is unpickled, and no more memory is taken than the file has."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto, helper, numpy_helper
from syrupy.assertion import SnapshotAssertion

from tests.selection import examples
from tests.unit.models.onnx_models import info, tensor
from whynan.errors import UsageError
from whynan.models.onnx import arrays as onnx_arrays
from whynan.models.onnx.arrays import read_npy, read_npz, read_pb
from whynan.models.onnx.model import signature_of

X = signature_of(info("x", None))
SEQUENCE = signature_of(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None))
OPTIONAL = signature_of(
    helper.make_value_info("x", helper.make_optional_type_proto(helper.make_tensor_type_proto(1, None)))
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def npy(array: Any, **rest: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **rest)
    return file.getvalue()


def headed(header: str, data: bytes = b"", version: int = 1) -> bytes:
    """A file of ``numpy.save`` with a header of one's own."""
    encoded = header.encode()
    length = struct.pack("<H" if version == 1 else "<I", len(encoded))
    return b"\x93NUMPY" + bytes([version, 0]) + length + encoded + data


def header(descr: str, shape: str) -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


def npz(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "."), data)
    return file.getvalue()


def twice() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", npy(np.ones(1)))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", npy(np.ones(1)))
    return file.getvalue()


def encrypted() -> bytes:
    data = bytearray(npz(x__npy=npy(np.ones(1))))
    place = data.index(b"PK\x01\x02")
    data[place + 8] |= 1
    data[6] |= 1
    return bytes(data)


def bomb() -> bytes:
    """An archive that says of its only member that it unpacks to more than there is memory."""
    data = bytearray(npz(x__npy=npy(np.ones(1))))
    place = data.index(b"PK\x01\x02")
    data[place + 24 : place + 28] = struct.pack("<I", 0xFFFFFFFE)
    return bytes(data)


class Runs:
    """Whoever unpickles it runs a function."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("ran"),)


OBJECTS = npy(np.array([Runs()], object), allow_pickle=True)

NPY: dict[str, bytes] = {
    "a dtype of dates": npy(np.array(["2026-01-01"], "M8[D]")),
    "a dtype of no size": headed(header("'<U0'", "(1000000000000,)")),
    "a dtype that is none": headed(header("'<f99'", "(1,)")),
    "a header of code": headed("__import__('os').mkdir('ran')\n"),
    "a header that goes on": headed(header("'<f4'", "(" + "1, " * 40_000 + ")"), version=2),
    "a header too deep": headed(header("'<f4'", "(" * 300 + ")" * 300)),
    "a model": b"\x08\x07\x12\x07pytorch",
    "a negative dimension": headed(header("'<f4'", "(-1,)"), bytes(16)),
    "a shape beyond the file": headed(header("'<f4'", "(1000000000000,)"), bytes(16)),
    "a shape beyond numbers": headed(header("'<f4'", f"({1 << 70}, 0)"), bytes(16)),
    "a third version": headed(header("'<f4'", "(1,)"), bytes(4), version=3),
    "bytes that are no text": npy(np.array([b"\xff\xfe"])),
    "cut off": npy(np.ones(4))[:-1],
    "cut off in its header": npy(np.ones(4))[:50],
    "empty": b"",
    "objects": OBJECTS,
    "records": npy(np.zeros(2, [("a", "f4")])),
}


@pytest.mark.parametrize("kind", NPY)
def test_a_file_that_is_no_array_is_refused_in_one_line(kind: str, snapshot: SnapshotAssertion) -> None:
    Path("x.npy").write_bytes(NPY[kind])
    with pytest.raises(UsageError) as caught:
        read_npy(Path("x.npy"))
    assert str(caught.value) == snapshot
    assert not Path("ran").exists()


NPZ: dict[str, Callable[[], bytes]] = {
    "a bomb": bomb,
    "a file that is none": lambda: npz(x__npy=npy(np.ones(1)), readme__txt=b"hello"),
    "cut off": lambda: npz(x__npy=npy(np.ones(1)))[:-5],
    "encrypted": encrypted,
    "hostile name": lambda: npz(**{"\x1b[2J": b""}),
    "no archive": lambda: npy(np.ones(1)),
    "objects": lambda: npz(x__npy=OBJECTS),
    "twice": twice,
    "wrong checksum": lambda: npz(x__npy=npy(np.ones(1))).replace(np.ones(1).tobytes(), np.zeros(1).tobytes()),
}


@pytest.mark.parametrize("kind", NPZ)
def test_an_archive_that_is_none_is_refused_in_one_line(
    kind: str, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("x.npz").write_bytes(NPZ[kind]())
    monkeypatch.setattr(onnx_arrays, "most_bytes", lambda: 1 << 30)
    with pytest.raises(UsageError) as caught:
        read_npz(Path("x.npz"))
    assert str(caught.value) == snapshot
    assert not Path("ran").exists()


def proto(**fields: Any) -> bytes:
    return TensorProto(**fields).SerializeToString()


PB: dict[str, tuple[bytes, Any]] = {
    "a negative dimension": (proto(data_type=1, dims=[-1], raw_data=bytes(8)), X),
    "a segment": (proto(data_type=1, dims=[2], raw_data=bytes(8), segment=TensorProto.Segment(begin=0, end=1)), X),
    "a sequence of maps": (onnx.SequenceProto(elem_type=onnx.SequenceProto.MAP).SerializeToString(), SEQUENCE),
    "a type that is none": (proto(data_type=99, dims=[1], raw_data=bytes(4)), X),
    "an optional map": (onnx.OptionalProto(elem_type=onnx.OptionalProto.MAP).SerializeToString(), OPTIONAL),
    "empty": (b"", X),
    "half bytes beyond the file": (proto(data_type=TensorProto.INT4, dims=[1 << 40], raw_data=bytes(4)), X),
    "in another file": (
        proto(
            data_type=1,
            dims=[1],
            data_location=TensorProto.EXTERNAL,
            external_data=[onnx.StringStringEntryProto(key="location", value="/etc/passwd")],
        ),
        X,
    ),
    "more than its dimensions": (proto(data_type=1, dims=[1], raw_data=bytes(8)), X),
    "no sequence": (b"\xff\xff\xff", SEQUENCE),
    "no optional": (b"\xff\xff\xff", OPTIONAL),
    "no tensor": (b"hello, world\n", X),
    "nothing of a type": (proto(dims=[1]), X),
    "numbers of another field": (proto(data_type=1, dims=[4], int64_data=[1, 2, 3, 4]), X),
    "text that is none": (proto(data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff\xfe"]), X),
    "too few": (proto(data_type=1, dims=[4], float_data=[1.0]), X),
    "too few of one in a sequence": (
        onnx.SequenceProto(
            elem_type=onnx.SequenceProto.TENSOR, tensor_values=[TensorProto(data_type=1, dims=[4])]
        ).SerializeToString(),
        SEQUENCE,
    ),
}


@pytest.mark.parametrize("kind", PB)
def test_test_data_that_are_none_are_refused_in_one_line(kind: str, snapshot: SnapshotAssertion) -> None:
    data, signature = PB[kind]
    Path("input_0.pb").write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_pb(Path("input_0.pb"), signature)
    assert str(caught.value) == snapshot


def test_what_is_in_a_sequence_of_sequences_and_of_optionals_is_read() -> None:
    kinds = onnx.SequenceProto
    inner = kinds(elem_type=kinds.TENSOR, tensor_values=[numpy_helper.from_array(np.ones(1))])
    nothing = onnx.OptionalProto(elem_type=onnx.OptionalProto.TENSOR)
    held = onnx.OptionalProto(elem_type=onnx.OptionalProto.SEQUENCE, sequence_value=inner)
    outer = kinds(elem_type=kinds.SEQUENCE, sequence_values=[inner, inner])
    optionals = kinds(elem_type=kinds.OPTIONAL, optional_values=[nothing, held])
    for name, value in (("outer", outer), ("optionals", optionals)):
        Path(name).write_bytes(value.SerializeToString())
    assert [[array.tolist() for array in each] for each in read_pb(Path("outer"), SEQUENCE)] == [[[1.0]], [[1.0]]]
    first, second = read_pb(Path("optionals"), SEQUENCE)
    assert (first, second[0].tolist()) == (None, [1.0])


def test_scalars_and_empty_arrays_keep_their_shape() -> None:
    for array in (
        np.float32(3),
        np.zeros((0, 3), np.int8),
        np.zeros((2, 0), bool),
        np.array("text"),
        np.ones((1, 1, 1)),
    ):
        given_ = np.asarray(array)
        Path("x.npy").write_bytes(npy(given_))
        Path("x.pb").write_bytes(tensor(given_.astype(object) if given_.dtype.kind == "U" else given_))
        for found in (read_npy(Path("x.npy")), read_pb(Path("x.pb"), X)):
            assert found.shape == given_.shape
            assert found.tolist() == given_.tolist()


def test_what_is_read_may_be_written_to() -> None:
    Path("x.npy").write_bytes(npy(np.ones(2)))
    Path("x.npz").write_bytes(npz(x__npy=npy(np.ones(2))))
    Path("x.pb").write_bytes(tensor(np.ones(2)))
    for array in (read_npy(Path("x.npy")), read_npz(Path("x.npz"))["x"], read_pb(Path("x.pb"), X)):
        array[0] = 7


QUICK = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(array=arrays.arrays(arrays.scalar_dtypes().filter(lambda t: t.kind in "biufc"), arrays.array_shapes(min_dims=0)))
def test_arrays_are_read_as_numpy_reads_them(array: Any) -> None:
    for order in ("C", "F"):
        Path("x.npy").write_bytes(npy(np.asarray(array, order=order)))
        found, expected = read_npy(Path("x.npy")), np.load("x.npy")
        assert found.dtype == expected.dtype.newbyteorder("=")
        assert found.tobytes() == expected.astype(found.dtype).tobytes()


@QUICK
@given(place=st.integers(0, 1 << 16), value=st.integers(0, 255), kind=st.sampled_from(["npy", "npz", "pb"]))
def test_a_byte_that_is_spoilt_never_raises_anything_else(place: int, value: int, kind: str) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    data = bytearray({"npy": npy(array), "npz": npz(x__npy=npy(array)), "pb": tensor(array)}[kind])
    data[place % len(data)] = value
    path = Path(f"x.{kind}")
    path.write_bytes(bytes(data))
    with suppress(UsageError):
        {"npy": read_npy, "npz": read_npz, "pb": lambda path: read_pb(path, X)}[kind](path)
