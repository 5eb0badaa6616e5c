"""The map from values to the source survives in a file, and a file that is none is refused."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper
from syrupy.assertion import SnapshotAssertion

from tests.unit.models.onnx_models import info, model_of, relu, written
from whynan.errors import UsageError
from whynan.models import onnx_sidecar
from whynan.models.onnx_opening import OnnxModel, open_model
from whynan.models.onnx_sidecar import Sidecar, read, sidecar_of, write
from whynan.records import Site
from whynan.source.onnx import Place


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


SOURCE = "def forward(x):\n    return x.log()\n"


def metadata(node: onnx.NodeProto, **entries: str) -> onnx.NodeProto:
    for key, value in entries.items():
        node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    return node


def exported() -> OnnxModel:
    """A model whose nodes tell a line, only a module, and nothing; and a function that tells its own."""
    source = Path("net.py")
    source.write_text(SOURCE, "utf-8")
    stack = f'File "{source.absolute()}", line 2, in forward\n    return x.log()'
    log = metadata(
        helper.make_node("Log", ["x"], ["l"], name="node_log"),
        stack_trace=stack,
        name_scopes="['', 'head', 'log']",
        fx_node="%log : [num_users=1] = call_function[target=torch.ops.aten.log.default](args = (%x,), kwargs = {})",
    )
    other = f'{stack}\n  File "/venv/lib/python3.9/site-packages/timm/block.py", line 3, in run\n    y.exp()'
    inner = metadata(helper.make_node("Exp", ["a"], ["b"], name="e"), stack_trace=other)
    function = helper.make_function("mine", "Body", ["a"], ["b"], [inner], [helper.make_opsetid("", 17)])
    nodes = [
        log,
        helper.make_node("Relu", ["l"], ["r"], name="/layers.0/fc/Relu"),
        helper.make_node("Body", ["r"], ["y"], domain="mine"),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    model = model_of(nodes, [info("x", [4])], functions=[function], opset_imports=imports)
    return open_model(written(model, Path("m.onnx")))


LOG = Site(
    file="net.py", line=2, column=12, end_line=2, end_column=19, code="x.log()", function="forward", module="head"
)


def test_what_is_written_is_read_again() -> None:
    model = exported()
    made = write(model, "map.json")
    assert read("map.json") == made == sidecar_of(model)
    assert stat.S_IMODE(Path("map.json").stat().st_mode) == 0o600
    assert (made.model, made.sha256, made.located) == ("m.onnx", model.sha256, 2)


def test_it_tells_of_every_value_what_the_model_tells() -> None:
    found = sidecar_of(exported())
    assert found.values["l"].place == Place(LOG, None, "head")
    assert (found.values["l"].node, found.values["l"].op) == ("node_log", "Log")
    assert found.values["r"].place == Place(None, None, "layers.0.fc")
    assert found.values["y"].place == Place(None, None, None)
    place = found.functions["mine::Body"]["b"].place
    assert place.site is not None
    assert place.site.line == 2
    assert place.library_site == Site(
        file="/venv/lib/python3.9/site-packages/timm/block.py", line=3, code="y.exp()", function="run"
    )


def test_its_files_are_absolute_and_are_told_from_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(exported(), "map.json")
    document = json.loads(Path("map.json").read_text("utf-8"))
    assert document["values"]["l"]["site"]["file"] == str(tmp_path / "net.py")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    site = read(tmp_path / "map.json").values["l"].place.site
    assert site is not None
    assert site.file == str(tmp_path / "net.py")


def test_an_older_map_is_replaced_as_a_whole() -> None:
    Path("map.json").write_text("{}" * 10_000, "utf-8")
    write(exported(), "map.json")
    assert read("map.json").located == 2


def test_a_map_that_cannot_be_written_leaves_nothing_behind(snapshot: SnapshotAssertion) -> None:
    model = exported()
    Path("taken").mkdir()
    before = sorted(Path().iterdir())
    for path in ("nowhere/map.json", "taken"):
        with pytest.raises(UsageError) as caught:
            write(model, path)
        assert str(caught.value) == snapshot
    assert sorted(Path().iterdir()) == before


def spoilt(change: Callable[[dict[str, Any]], Any]) -> bytes:
    document = json.loads(sidecar_of(exported()).to_json())
    changed = change(document)
    return json.dumps(document if changed is None else changed).encode()


REFUSED: dict[str, Callable[[], bytes]] = {
    "a column of text": lambda: spoilt(lambda d: d["values"]["l"]["site"].update(column="12")),
    "a key too many": lambda: spoilt(lambda d: d.update(extra=1)),
    "a line below 0": lambda: spoilt(lambda d: d["values"]["l"]["site"].update(line=-1)),
    "a list": lambda: b"[]",
    "a model": lambda: relu().SerializeToString(),
    "a name that is too long": lambda: spoilt(lambda d: d["values"]["l"].update(node="n" * 70_000)),
    "a site that is none": lambda: spoilt(lambda d: d["values"]["l"].update(site="net.py:2")),
    "another schema": lambda: spoilt(lambda d: d.update(schema="whynan.sidecar/2")),
    "cut off": lambda: sidecar_of(exported()).to_json().encode()[:-9],
    "empty": lambda: b"",
    "no sum": lambda: spoilt(lambda d: d.update(sha256="0")),
    "no values": lambda: spoilt(lambda d: d.pop("values") and None),
    "too deep": lambda: b"[" * 100_000,
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_is_no_map_is_refused_in_one_line(kind: str, snapshot: SnapshotAssertion) -> None:
    Path("map.json").write_bytes(REFUSED[kind]())
    with pytest.raises(UsageError) as caught:
        read("map.json")
    assert str(caught.value) == snapshot


def test_a_file_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    write(exported(), "map.json")
    monkeypatch.setattr(onnx_sidecar, "_LARGEST", 10)
    with pytest.raises(UsageError, match="bytes, and at most 10 can be read"):
        read("map.json")


def test_values_of_a_body_are_in_it() -> None:
    body = helper.make_graph([helper.make_node("Relu", ["x"], ["z"], name="/b/Relu")], "body", [], [info("z", None)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    model = model_of([node], [info("c", [], onnx.TensorProto.BOOL), info("x", [4])])
    found: Sidecar = sidecar_of(open_model(written(model, Path("m.onnx"))))
    assert set(found.values) == {"y", "z"}
    assert found.values["z"].module == "b"
