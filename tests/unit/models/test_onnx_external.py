"""External data lie in the model's folder, are reached by no detour, and are long enough; else nothing opens them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from syrupy.assertion import SnapshotAssertion

from tests.unit.models.onnx_models import external, info, model_of, stored, written
from whynan.errors import UsageError
from whynan.models.onnx import opening
from whynan.models.onnx.opening import check_external, open_model


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder ``home`` for the model, the working directory; beside it a secret."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (tmp_path / "secret").write_bytes(bytes(16))
    return folder


def test_external_data_are_found_and_not_loaded(home: Path) -> None:
    stored(home)
    found = open_model(written(external(offset="0", length="16"), home / "m.onnx"))
    assert (found.external, found.size, found.folder) == (("weights.bin",), 16, str(home))
    assert not found.proto.graph.initializer[0].raw_data


def test_a_model_of_more_than_two_gigabytes_is_opened(home: Path) -> None:
    with open("weights.bin", "wb") as file:
        file.truncate(3 << 30)
    assert open_model(written(external(n=3 << 28), home / "m.onnx")).size == 3 << 30


def test_data_may_be_in_a_folder_below_and_linked_within() -> None:
    Path("data").mkdir()
    stored(Path("data"))
    os.symlink("data/weights.bin", "link.bin")
    assert check_external(external("data/weights.bin"), ".") == ("data/weights.bin",)
    assert check_external(external("./link.bin"), ".") == ("./link.bin",)


def cache(home: Path) -> Path:
    """A model as the cache of Hugging Face keeps it: links to what lies beside."""
    blobs, folder = home / "blobs", home / "snapshots" / "f00" / "onnx"
    blobs.mkdir()
    folder.mkdir(parents=True)
    stored(blobs).rename(blobs / "abc")
    written(external(), blobs / "def")
    os.symlink("../../../blobs/abc", folder / "weights.bin")
    os.symlink("../../../blobs/def", folder / "m.onnx")
    return folder


def test_the_cache_of_hugging_face_is_no_detour(home: Path) -> None:
    assert open_model(cache(home) / "m.onnx").external == ("weights.bin",)


def test_a_link_out_of_that_cache_is_refused(home: Path) -> None:
    folder = cache(home)
    os.remove(folder / "weights.bin")
    os.symlink("../../../../secret", folder / "weights.bin")
    with pytest.raises(UsageError, match="which is a link out of the model's folder"):
        open_model(folder / "m.onnx")


def test_data_of_no_elements_and_of_half_bytes_fit() -> None:
    Path("weights.bin").write_bytes(b"\x21\x03")
    packed = onnx.TensorProto(name="w", data_type=TensorProto.INT4, dims=[3], data_location=TensorProto.EXTERNAL)
    packed.external_data.add(key="location", value="weights.bin")
    empty = onnx.TensorProto(name="e", data_type=TensorProto.FLOAT, dims=[0, 7], data_location=TensorProto.EXTERNAL)
    empty.external_data.add(key="location", value="weights.bin")
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [info("x", [1])], weights=[packed, empty])
    assert check_external(model, ".") == ("weights.bin",)


def link() -> onnx.ModelProto:
    os.symlink("../secret", "weights.bin")
    return external()


def linked_folder() -> onnx.ModelProto:
    os.symlink("..", "up")
    return external("up/secret")


def hard_link() -> onnx.ModelProto:
    os.link("../secret", "weights.bin")
    return external()


def pipe() -> onnx.ModelProto:
    os.mkfifo("weights.bin")
    return external()


def there(**entries: str) -> onnx.ModelProto:
    stored(Path())
    return external(**entries)


def dims(*given: int, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    model = there()
    weight = model.graph.initializer[0]
    weight.data_type = dtype
    weight.dims[:] = given
    return model


def without_location() -> onnx.ModelProto:
    model = external()
    del model.graph.initializer[0].external_data[:]
    return model


def memory() -> onnx.ModelProto:
    Path("*").mkdir()
    Path("*/_ORT_MEM_ADDR_").mkdir()
    Path("*/_ORT_MEM_ADDR_/*").write_bytes(bytes(16))
    return external("*/_ORT_MEM_ADDR_/*")


def directory() -> onnx.ModelProto:
    Path("weights.bin").mkdir()
    return external()


REFUSED: dict[str, Callable[[], onnx.ModelProto]] = {
    "a hard link": hard_link,
    "a length that is too short": lambda: there(length="12"),
    "a length that is too long": lambda: there(length="17"),
    "a link": link,
    "a linked folder": linked_folder,
    "a negative dimension": lambda: dims(-4),
    "a negative offset": lambda: there(offset="-4"),
    "a Windows drive": lambda: external("C:\\secret"),
    "a Windows way up": lambda: external("data\\..\\..\\secret"),
    "absolute": lambda: external("/etc/passwd"),
    "an address": memory,
    "an offset behind the end": lambda: there(offset="999999999999"),
    "an offset of words": lambda: there(offset="first"),
    "an unknown type": lambda: dims(4, dtype=99),
    "an URL": lambda: external("https://example.org/weights.bin"),
    "dimensions beyond counting": lambda: dims(1 << 40, 1 << 40),
    "directory": directory,
    "empty": lambda: external(""),
    "hostile": lambda: external("\x1b[2J[/bold]\n.bin"),
    "missing": external,
    "missing folder": lambda: external("data/weights.bin"),
    "no location": without_location,
    "NUL": lambda: external("a\0b"),
    "pipe": pipe,
    "strings": lambda: dims(4, dtype=TensorProto.STRING),
    "the folder itself": lambda: external("."),
    "up": lambda: external("../secret"),
    "up and down again": lambda: external("data/../weights.bin"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_beside_the_model_is_refused_in_one_line(kind: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UsageError) as caught:
        check_external(REFUSED[kind](), ".")
    assert str(caught.value) == snapshot


@pytest.mark.parametrize("place", ["attribute", "list", "sparse", "body", "function", "training"])
def test_a_tensor_is_checked_wherever_it_hides(place: str) -> None:
    bad = external("/etc/passwd").graph.initializer[0]
    node = helper.make_node("Constant", [], ["y"], value=bad)
    indices = numpy_helper.from_array(np.arange(4))
    branch = helper.make_graph([], "branch", [], [info("y", None)], [bad])
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [info("x", [4])])
    match place:
        case "attribute":
            model.graph.node.append(node)
        case "list":
            listed = onnx.AttributeProto(name="all", type=onnx.AttributeProto.TENSORS, tensors=[bad])
            model.graph.node[0].attribute.append(listed)
        case "sparse":
            model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=bad, indices=indices, dims=[9]))
        case "body":
            inner = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
            outer = helper.make_graph([inner], "outer", [], [info("y", None)])
            model.graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=outer, else_branch=outer))
        case "function":
            model.functions.append(helper.make_function("d", "f", [], ["y"], [node], [helper.make_opsetid("", 17)]))
        case _:
            model.training_info.add().algorithm.node.append(node)
    with pytest.raises(UsageError, match="which is an absolute path"):
        check_external(model, ".")
    model.ClearField("graph")
    model.ClearField("functions")
    model.ClearField("training_info")
    assert check_external(model, ".") == ()


def test_what_only_onnx_ir_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stored(Path())

    def refuse(*_: object) -> None:
        raise ValueError("onnx-ir says so")

    monkeypatch.setattr(opening, "_check_with_onnx_ir", refuse)
    with pytest.raises(UsageError, match=r"^w is in weights\.bin, which onnx-ir refuses: it may be an attack"):
        check_external(external(), ".")


def test_onnx_ir_refuses_a_link_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were our own check of links not there."""
    monkeypatch.setattr(opening, "_check_links", lambda *_: None)
    with pytest.raises(UsageError, match="which onnx-ir refuses"):
        check_external(link(), ".")
