"""ONNX models are opened without being run: what they take is told, and what is no model is refused."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from syrupy.assertion import SnapshotAssertion

from tests.selection import examples
from tests.unit.models.onnx_models import info, model_of, relu, taking, tensor, written
from whynan.errors import UsageError
from whynan.models.onnx.inputs import read_inputs
from whynan.models.onnx.model import bits_of, dtype_name
from whynan.models.onnx.opening import OnnxModel, open_model


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def opened(model: onnx.ModelProto, *, custom_ops: bool = False) -> OnnxModel:
    return open_model(written(model, Path("m.onnx")), custom_ops=custom_ops)


def test_what_a_model_takes_and_gives_is_told() -> None:
    bias = numpy_helper.from_array(np.zeros(4, np.float32), "b")
    model = model_of(
        [helper.make_node("Add", ["x", "b"], ["y"])],
        [info("x", ["N", 4]), info("b", [4])],
        [info("y", ["N", 4])],
        weights=[bias],
    )
    found = opened(model)
    assert [str(held) for held in found.inputs] == ["x: float32[N, 4]"]
    assert [str(held) for held in found.optional_inputs] == ["b: float32[4]"]
    assert [str(held) for held in found.outputs] == ["y: float32[N, 4]"]
    assert (found.path, found.folder, found.opset, found.external, found.size) == (
        "m.onnx",
        ".",
        {"ai.onnx": 17},
        (),
        16,
    )
    assert found.sha256 == hashlib.sha256(Path("m.onnx").read_bytes()).hexdigest()
    assert found.proto == model


def test_a_weight_that_an_old_model_lists_among_its_inputs_is_no_input() -> None:
    bias = numpy_helper.from_array(np.zeros(4, np.float32), "b")
    nodes = [helper.make_node("Add", ["x", "b"], ["y"])]
    found = opened(model_of(nodes, [info("b", [4]), info("x", [4])], weights=[bias], opset=8, ir=3))
    assert [str(held) for held in found.inputs] == ["x: float32[4]"]
    assert found.optional_inputs == ()


@pytest.mark.parametrize(
    ("declared", "spelled"),
    [
        (info("x", []), "x: float32[]"),
        (info("x", None), "x: float32[...]"),
        (info("x", [None, "batch", 0]), "x: float32[?, batch, 0]"),
        (info("x", [-1, 3]), "x: float32[?, 3]"),
        (info("x", [2], TensorProto.BFLOAT16), "x: bfloat16[2]"),
        (info("x", [2], TensorProto.STRING), "x: string[2]"),
        (info("x", [2], TensorProto.INT4), "x: int4[2]"),
        (info("x", [2], 99), "x: any type[2]"),
        (helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, ["N"]), "x: sequence of float32[N]"),
        (
            helper.make_value_info(
                "x",
                helper.make_optional_type_proto(
                    helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.INT64, [1]))
                ),
            ),
            "x: optional sequence of int64[1]",
        ),
        (
            helper.make_value_info(
                "x", helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(1, []))
            ),
            "x: map",
        ),
        (onnx.ValueInfoProto(name="x"), "x: unknown type"),
    ],
)
def test_every_kind_of_input_is_spelled(declared: onnx.ValueInfoProto, spelled: str) -> None:
    assert str(opened(taking(declared)).inputs[0]) == spelled


def test_every_dtype_of_onnx_has_a_name_and_a_width() -> None:
    known = [number for number in TensorProto.DataType.values() if number != TensorProto.UNDEFINED]
    assert all(dtype_name(number) is not None for number in known)
    widths = {dtype_name(number): bits_of(number) for number in known}
    assert {name: widths[name] for name in ("float64", "float32", "bfloat16", "bool", "int4", "string")} == {
        "float64": 64,
        "float32": 32,
        "bfloat16": 16,
        "bool": 8,
        "int4": 4,
        "string": None,
    }
    assert bits_of(99) is None


def test_the_size_counts_weights_wherever_they_stand() -> None:
    held = numpy_helper.from_array(np.zeros(3, np.float64), "held")
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["z"], value=numpy_helper.from_array(np.zeros(5, np.int8)))],
        "branch",
        [],
        [info("z", None)],
        [held],
    )
    texts = numpy_helper.from_array(np.array(["abc", "d"], object), "texts")
    sparse = onnx.SparseTensorProto(
        values=numpy_helper.from_array(np.zeros(2, np.float32), "s"),
        indices=numpy_helper.from_array(np.arange(2)),
        dims=[9],
    )
    model = model_of(
        [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)],
        [info("c", [], TensorProto.BOOL)],
        weights=[texts],
    )
    model.graph.sparse_initializer.append(sparse)
    assert opened(model).size == 2 * (24 + 5) + 4 + 8 + 16


def test_a_sparse_weight_is_no_input() -> None:
    values = numpy_helper.from_array(np.zeros(1, np.float32), "w")
    model = taking(info("x", [9]), info("w", [9]))
    model.graph.sparse_initializer.append(
        onnx.SparseTensorProto(values=values, indices=numpy_helper.from_array(np.arange(1)), dims=[9])
    )
    found = opened(model)
    assert [held.name for held in found.inputs] == ["x"]
    assert [held.name for held in found.optional_inputs] == ["w"]


def test_a_model_of_before_opsets_is_of_the_first() -> None:
    model = relu()
    model.ir_version = 2
    del model.opset_import[:]
    assert opened(model).opset == {"ai.onnx": 1}


# Operators.


def function(domain: str, name: str, op: str = "Relu", opset: int = 17) -> onnx.FunctionProto:
    body = [helper.make_node(op, ["a"], ["b"])]
    return helper.make_function(domain, name, ["a"], ["b"], body, [helper.make_opsetid("", opset)])


def of_op(op: str, domain: str = "", **rest: object) -> onnx.ModelProto:
    return model_of([helper.make_node(op, ["x"], ["y"], domain=domain, name="n")], [info("x", [4])], **rest)  # type: ignore[arg-type]


IMPORTS = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]


@pytest.mark.parametrize(
    "model",
    [
        of_op("FusedGelu", "com.microsoft"),
        of_op("Conv", "com.microsoft.nchwc"),
        of_op("SimplifiedLayerNormalization"),
        of_op("LayerNormalization", opset=13),
        of_op("Upsample", opset=10),
        of_op("Relu", "ai.onnx"),
        of_op("Twice", "mine", functions=[function("mine", "Twice")], opset_imports=IMPORTS),
        of_op("Relu", opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("never.seen", 99)]),
        of_op("Gelu", "", opset=13, functions=[function("", "Gelu")]),
    ],
    ids=lambda model: model.graph.node[0].op_type,
)
def test_an_operator_that_some_engine_may_know_is_let_through(model: onnx.ModelProto) -> None:
    assert opened(model).inputs


def test_an_operator_of_a_library_is_let_through_with_the_library() -> None:
    for model in (of_op("Twice", "mine", opset_imports=IMPORTS), of_op("Twice")):
        with pytest.raises(UsageError):
            opened(model)
        assert opened(model, custom_ops=True).inputs


def within_a_body(op: str) -> onnx.ModelProto:
    inner = helper.make_graph([helper.make_node(op, ["x"], ["z"])], "inner", [], [info("z", None)])
    outer = helper.make_graph(
        [helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)], "outer", [], [info("z", None)]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=outer, else_branch=outer)
    return model_of([node], [info("c", [], TensorProto.BOOL), info("x", [4])])


def unmet(version: int, domain: str = "") -> onnx.ModelProto:
    return of_op("Relu", opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, version)])


def newer_format() -> onnx.ModelProto:
    model = relu()
    model.ir_version = 999
    return model


def without(field: str) -> onnx.ModelProto:
    model = relu()
    (model if field == "opset_import" else model.graph).ClearField(field)  # type: ignore[arg-type]
    return model


REFUSED: dict[str, Callable[[], onnx.ModelProto]] = {
    "a custom domain": lambda: of_op("Twice", "mine", opset_imports=IMPORTS),
    "a domain of no version": lambda: of_op("Binarizer", "ai.onnx.ml"),
    "a function's operator": lambda: of_op(
        "Twice", "mine", functions=[function("mine", "Twice", op="Mystery")], opset_imports=IMPORTS
    ),
    "a function's version": lambda: of_op(
        "Twice", "mine", functions=[function("mine", "Twice", op="Gelu", opset=19)], opset_imports=IMPORTS
    ),
    "a future opset": lambda: unmet(999),
    "a future opset of a function": lambda: of_op(
        "Twice", "mine", functions=[function("mine", "Twice", opset=999)], opset_imports=IMPORTS
    ),
    "a future opset of another domain": lambda: unmet(999, "ai.onnx.ml"),
    "a future format": newer_format,
    "a later operator": lambda: of_op("Gelu", opset=13),
    "an opset below 1": lambda: unmet(0),
    "an unknown operator": lambda: of_op("Mystery"),
    "an unknown operator in a body": lambda: within_a_body("Mystery"),
    "hostile names": lambda: of_op("\x1b[2J\n[/bold]", "mine\x07", opset_imports=IMPORTS),
    "no nodes' names": lambda: model_of([helper.make_node("Mystery", ["x"], [""])], [info("x", [4])]),
    "no opset": lambda: without("opset_import"),
    "no outputs": lambda: without("output"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_model_that_no_engine_can_run_is_refused_in_one_line(kind: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UsageError) as caught:
        opened(REFUSED[kind]())
    assert caught.value.exit_status == 2
    assert str(caught.value).replace(f"onnx {onnx.__version__}", "onnx VERSION") == snapshot


# Files.


def deep() -> bytes:
    """Bodies in bodies, more than protobuf follows: field 1 of a graph is a node, 5 its attributes, 6 their graph."""

    def field(number: int, data: bytes) -> bytes:
        length, encoded = len(data), b""
        while length > 127:
            encoded += bytes([length & 127 | 128])
            length >>= 7
        return bytes([number << 3 | 2]) + encoded + bytes([length]) + data

    data = b""
    for _ in range(200):
        data = field(1, field(5, field(6, data)))
    return field(7, data)


def bytes_for_a_name() -> bytes:
    return relu().SerializeToString().replace(b"Relu", b"\xff\xfe\xfd\xfc")


FILES: dict[str, bytes] = {
    "a future of protobuf": b"\x08\x07",
    "a git lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    "a name of bytes": bytes_for_a_name(),
    "a NumPy array": b"\x93NUMPY\x01\x00",
    "a PyTorch file": b"PK\x03\x04" + bytes(30),
    "a tensor": tensor(np.ones(3, np.float32)),
    "a TensorFlow Lite model": b"\x1c\0\0\0TFL3" + bytes(30),
    "an ORT model": b"\x1c\0\0\0ORTM" + bytes(30),
    "compressed": gzip.compress(b"model"),
    "cut off": relu().SerializeToString()[:40],
    "cut off early": relu().SerializeToString()[:3],
    "empty": b"",
    "text": b"hello, world\n",
    "too deep": deep(),
    "zeros": bytes(100),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_no_model_is_refused_in_one_line(kind: str, snapshot: SnapshotAssertion) -> None:
    Path("m.onnx").write_bytes(FILES[kind])
    with pytest.raises(UsageError) as caught:
        open_model("m.onnx")
    assert str(caught.value) == snapshot


@pytest.mark.parametrize("length", range(1, len(relu().SerializeToString())))
def test_a_model_that_is_cut_off_anywhere_is_refused(length: int) -> None:
    Path("m.onnx").write_bytes(relu().SerializeToString()[:length])
    with pytest.raises(UsageError):
        open_model("m.onnx")


def make_folder() -> None:
    Path("m.onnx").mkdir()


def make_pipe() -> None:
    os.mkfifo("m.onnx")


def make_huge() -> None:
    with open("m.onnx", "wb") as file:
        file.truncate(3 << 30)


@pytest.mark.parametrize(
    "make", [make_folder, make_pipe, make_huge, lambda: None], ids=["folder", "pipe", "huge", "none"]
)
def test_a_path_that_leads_to_no_file_is_refused_in_one_line(
    make: Callable[[], None], snapshot: SnapshotAssertion
) -> None:
    make()
    with pytest.raises(UsageError) as caught:
        open_model("m.onnx")
    assert str(caught.value) == snapshot


def test_a_path_that_is_none_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"^a\\x00b is no path \(embedded null byte\): give the .onnx file of a model$"
    ):
        open_model("a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_model_that_may_not_be_read_is_refused() -> None:
    written(relu(), Path("m.onnx")).chmod(0)
    with pytest.raises(UsageError, match="cannot be read"):
        open_model("m.onnx")


def rich() -> bytes:
    """A model with something of everything: bodies, functions, weights, metadata, sequences, optionals."""
    body = helper.make_graph([helper.make_node("Relu", ["x"], ["z"])], "body", [], [info("z", None)])
    nodes = [
        helper.make_node("If", ["c"], ["b"], then_branch=body, else_branch=body),
        helper.make_node("Twice", ["b"], ["t"], domain="mine"),
        helper.make_node("Add", ["t", "w"], ["y"], name="/layers.0/Add", doc_string="net.py(3): forward\n"),
    ]
    nodes[2].metadata_props.add(key="pkg.torch.onnx.stack_trace", value='File "net.py", line 3, in f\n    x + w')
    inputs = [
        info("c", [], TensorProto.BOOL),
        info("x", ["N", 4]),
        helper.make_tensor_sequence_value_info("s", TensorProto.INT64, ["T"]),
        helper.make_value_info("o", helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [None]))),
    ]
    weights = [
        numpy_helper.from_array(np.ones(4, np.float32), "w"),
        numpy_helper.from_array(np.array(["a"], object), "t0"),
    ]
    return model_of(
        nodes, inputs, weights=weights, functions=[function("mine", "Twice")], opset_imports=IMPORTS
    ).SerializeToString()


@pytest.mark.breadth
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spoilt=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4))
def test_bytes_that_are_spoilt_never_raise_anything_else(spoilt: list[tuple[int, int]]) -> None:
    data = bytearray(rich())
    for place, value in spoilt:
        data[place % len(data)] = value
    Path("m.onnx").write_bytes(bytes(data))
    with suppress(UsageError):
        model = open_model("m.onnx")
        assert all(map(str, (*model.inputs, *model.outputs)))
        read_inputs(model, [], seed=0)


def test_what_is_not_spoilt_is_read() -> None:
    Path("m.onnx").write_bytes(rich())
    model = open_model("m.onnx")
    assert set(read_inputs(model, [], seed=0)[0].values) == {"c", "x", "s", "o"}
