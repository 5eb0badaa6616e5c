"""Files of torch.save are read whatever classes they hold, and nothing of them is run."""

from __future__ import annotations

import collections
import contextlib
import enum
import io
import os
import pickle
import struct
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from whynan.errors import UsageError
from whynan.models.checkpoint.contents import walk_document
from whynan.models.checkpoint.files import form_of
from whynan.models.checkpoint.pickles import StandIn
from whynan.models.checkpoint.postmortem import read_checkpoints
from whynan.models.checkpoint.tensors import load_document

NAN = float("nan")


class Settings:
    """Any class of a user's own."""

    def __init__(self) -> None:
        self.width = 3
        self.scale = torch.tensor([1.0, NAN])
        self.best = NAN


class Slotted:
    __slots__ = ("weight",)

    def __init__(self) -> None:
        self.weight = torch.ones(2)


class Namespace(dict[str, Any]):
    """A mapping of a class of its own, as configurations often are."""


class Colour(enum.Enum):
    RED = NAN


class Picture(Tensor):
    """A tensor of a class of its own."""


Pair = collections.namedtuple("Pair", "first second")


def saved(path: Path, document: Any, **arguments: Any) -> Path:
    torch.save(document, path, **arguments)
    return path


def found(path: Path) -> dict[str, Any]:
    """Everything in a file by its name: tensors as lists, and the numbers that are not finite."""
    held = walk_document(load_document(path, form_of(path)).document)
    return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in held}


def text(held: Any) -> str:
    """What can be compared where NaN is in it."""
    return repr(held)


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_tensors_and_bad_numbers_are_found_by_their_paths(tmp_path: Path, new: bool) -> None:
    document = {
        "state_dict": collections.OrderedDict({"encoder.weight": torch.tensor([1.0, NAN])}),
        "optimizer_states": [{"state": {0: {"step": torch.tensor(3.0)}, 3: {"exp_avg": torch.zeros(1)}}}],
        "best_score": NAN,
        "losses": [0.5, NAN, 2],
        "lr": 0.1,
        "name": "run",
        None: (torch.ones(1), {"inner": -float("inf")}),
        (1, 2): torch.ones(1),
    }
    path = saved(tmp_path / "a.pt", document, _use_new_zipfile_serialization=new)
    assert text(found(path)) == text(
        {
            "state_dict.encoder.weight": [1.0, NAN],
            "optimizer_states[0].state[0].step": 3.0,
            "optimizer_states[0].state[3].exp_avg": [0.0],
            "best_score": [NAN],
            "losses": [0.5, NAN, 2],
            "[None][0]": [1.0],
            "[None][1].inner": [-float("inf")],
            "[tuple]": [1.0],
        }
    )


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_objects_of_classes_that_are_not_loaded_are_opened_up(tmp_path: Path, new: bool) -> None:
    document = {
        "settings": Settings(),
        "slots": Slotted(),
        "namespace": Namespace(weight=torch.ones(1)),
        "counts": collections.defaultdict(list, a=[torch.ones(1)]),
        "recent": collections.deque([torch.ones(1), NAN], maxlen=9),
        "colour": Colour.RED,
        "pair": Pair(torch.ones(1), 2),
        "path": Path("a"),
    }
    path = saved(tmp_path / "a.pt", document, _use_new_zipfile_serialization=new)
    assert text(found(path)) == text(
        {
            "settings.scale": [1.0, NAN],
            "settings.best": [NAN],
            "slots.weight": [1.0, 1.0],
            "namespace.weight": [1.0],
            "counts.(arguments)[0]": None,
            "counts.a[0]": [1.0],
            "recent[0]": [1.0],
            "recent[1]": [NAN],
            "colour[0]": [NAN],
            "pair[0]": [1.0],
        }
    ).replace("'counts.(arguments)[0]': None, ", "")
    unloaded = set(load_document(path, form_of(path)).unloaded)
    here = Settings.__module__
    assert {f"{here}.{name}" for name in ("Settings", "Slotted", "Namespace", "Colour", "Pair")} <= unloaded


def test_a_whole_module_has_the_names_of_its_state_dict(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    path = saved(tmp_path / "module.pt", module)
    names = [name for name in found(path) if not name.startswith("_")]
    assert sorted(names) == sorted(module.state_dict())
    assert "torch.nn.modules.linear.Linear" in load_document(path, "zip").unloaded


def test_numpy_arrays_and_scalars_are_tensors(tmp_path: Path) -> None:
    document = {
        "mean": np.array([[1.0, NAN], [2.0, 3.0]]),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "half": np.array([NAN], dtype=np.float16),
        "score": np.float64(NAN),
        "swapped": np.array([1.5], dtype=">f4"),
        "words": np.array(["a"]),
        "objects": np.array([NAN, None], dtype=object),
        "state": np.random.RandomState(0).get_state(),
    }
    held = found(saved(tmp_path / "a.pt", document))
    assert held.pop("state[1]")[:1] == [np.random.RandomState(0).get_state()[1][0]]
    assert text(held) == text(
        {
            "mean": [[1.0, NAN], [2.0, 3.0]],
            "columns": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
            "half": [NAN],
            "score": NAN,
            "swapped": [1.5],
            "objects.state[4][0]": [NAN],
        }
    )


def test_tensors_of_other_classes_are_their_elements(tmp_path: Path) -> None:
    picture = torch.tensor([NAN]).as_subclass(Picture)
    # attributes of this name would be asked by whoever counts
    picture.numel = "hostile"  # type: ignore[assignment]
    jagged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    document = {"picture": picture, "two": TwoTensor(torch.ones(2), torch.full((2,), NAN)), "jagged": jagged}
    held = dict(walk_document(load_document(saved(tmp_path / "a.pt", document), "zip").document))
    assert torch.Tensor.as_subclass(held["picture"], Tensor).isnan().all()
    assert held["two.a"].tolist() == [1, 1]
    assert held["two.b"].isnan().all()
    assert held["jagged._values"].tolist() == [1, 1, 1]


def test_what_a_container_holds_twice_is_entered_once_and_cycles_end(tmp_path: Path) -> None:
    shared: list[Any] = [torch.ones(1)]
    shared.append(shared)
    for _ in range(60):
        shared = [shared, shared]
    held = list(walk_document(load_document(saved(tmp_path / "a.pt", shared), "zip").document))
    assert len(held) == 1


def test_deep_nesting_needs_no_deep_stack(tmp_path: Path) -> None:
    depth = sys.getrecursionlimit() * 3
    # what no pickler would write: so many lists, each in the one before
    path = tmp_path / "a.pt"
    pickled = b"\x80\2" + b"]" * depth + b"G" + struct.pack(">d", NAN) + b"a" * depth + b"."
    _zip(path, **{"a/data.pkl": pickled, "a/version": b"3\n"})
    ((name, numbers),) = walk_document(load_document(path, "zip").document)
    assert name == "[0]" * (depth - 1)
    assert len(numbers) == 1


def test_a_name_that_is_no_unicode_is_spelled_out(tmp_path: Path) -> None:
    assert list(found(saved(tmp_path / "a.pt", {"w\udc80": torch.ones(1)}))) == ["w\\udc80"]


class Attack:
    """What makes a file as it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def attacks(target: Path) -> dict[str, Any]:
    command = f"touch {target}"
    code = f"open({str(target)!r}, 'w')"
    return {
        "os.system": Attack(os.system, command),
        "exec": Attack(exec, code),
        "eval": Attack(eval, code),
        "getattr": Attack(getattr, Path, "touch"),
        "Path.touch": Attack(Path.touch, target),
        "numpy": Attack(np.save, str(target), [1]),
        "torch.save": Attack(torch.save, [1], str(target)),
        "nested": {"a": [Attack(exec, code)], "b": torch.ones(1)},
    }


@pytest.mark.parametrize("form", ["zip", "legacy", "pickle"])
@pytest.mark.parametrize("name", attacks(Path()))
def test_a_hostile_file_runs_nothing(tmp_path: Path, name: str, form: str) -> None:
    target = tmp_path / "made"
    path = tmp_path / "evil.pt"
    document = attacks(target)[name]
    if form == "pickle":
        path.write_bytes(pickle.dumps(document))
    else:
        saved(path, document, _use_new_zipfile_serialization=form == "zip")
    before = set(tmp_path.iterdir())
    # some are refused, others are read: what matters is that nothing comes of it
    with contextlib.suppress(UsageError):
        list(walk_document(load_document(path, form_of(path)).document))
    assert set(tmp_path.iterdir()) == before


def test_the_attacks_are_real(tmp_path: Path) -> None:
    """The twin of the test above: what is opened without care does make the file."""
    worked: list[str] = []
    for name in attacks(tmp_path):
        target = tmp_path / name
        torch.load(saved(tmp_path / "evil.pt", attacks(target)[name]), weights_only=False)
        worked += [file.name for file in (target, tmp_path / f"{name}.npy") if file.exists()]
    assert worked == ["os.system", "exec", "eval", "Path.touch", "numpy.npy", "torch.save", "nested"]


METHODS = dict.fromkeys(("numel", "untyped_storage", "stride", "is_conj", "is_complex", "detach", "item"), "hostile")


def _attributed(kind: type[Tensor], tensor: Tensor) -> Any:
    """A tensor with attributes that hide its methods, as no program writes it."""
    function, arguments = Tensor._reduce_ex_internal(tensor, 2)
    return Attack(torch._tensor._rebuild_from_type_v2, function, kind, arguments, METHODS)


@pytest.mark.parametrize("kind", [Tensor, nn.Parameter, Picture, TwoTensor])
def test_attributes_that_hide_the_methods_of_a_tensor_are_not_used(tmp_path: Path, kind: type[Tensor]) -> None:
    held = {
        "step": _attributed(kind, torch.tensor(3)),
        "weight": _attributed(kind, torch.tensor([1.0, NAN])),
        "sparse": _attributed(Tensor, torch.tensor([1.0, 0.0]).to_sparse()),
    }
    (checkpoint,) = read_checkpoints([str(saved(tmp_path / "a.pt", held))]).checkpoints
    assert checkpoint.steps == {"step": 3}
    assert [(stored.name, stored.n, stored.n_nan) for stored in checkpoint.tensors] == [
        ("step", 1, 0),
        ("weight", 2, 1),
        ("sparse", 1, 0),
    ]


def test_attributes_that_hide_the_methods_of_a_mapping_are_not_used(tmp_path: Path) -> None:
    class Hidden:
        def __reduce__(self) -> Any:
            state = {"items": "hostile", "get": "hostile"}
            return collections.OrderedDict, (), state, None, iter([("weight", torch.ones(1))])

    module = nn.Linear(1, 1)
    module.__dict__["get"] = "hostile"
    module.__dict__["_parameters"] = Hidden()
    held = {"a": Hidden(), "module": module}
    assert found(saved(tmp_path / "a.pt", held)) == {"a.weight": [1.0], "module.weight": [1.0]}


def test_what_others_allow_is_not_allowed_here(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.pt", Settings())
    with torch.serialization.safe_globals([Settings]):
        before = set(torch.serialization.get_safe_globals())
        assert isinstance(load_document(path, "zip").document, StandIn)
        assert set(torch.serialization.get_safe_globals()) == before >= {Settings}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not tell what is mapped")
@pytest.mark.parametrize(("new", "mapped"), [(True, True), (False, False)], ids=["zip", "legacy"])
def test_tensors_stay_on_the_disk_where_the_format_allows_it(tmp_path: Path, new: bool, mapped: bool) -> None:
    path = saved(tmp_path / "a.pt", {"a": torch.ones(8)}, _use_new_zipfile_serialization=new)
    document = load_document(path, form_of(path)).document
    assert (str(path) in Path("/proc/self/maps").read_text("utf-8")) is mapped
    assert document["a"].sum() == 8


def _zip(path: Path, compression: int = zipfile.ZIP_STORED, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _torchscript(path: Path) -> None:
    torch.jit.save(torch.jit.script(nn.Linear(1, 1)), str(path))


def _repacked(path: Path) -> None:
    torch.save({"a": torch.ones(999)}, path)
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in held.items():
            archive.writestr(name, content)


def _cut(path: Path, new: bool = True, at: float = 0.5) -> None:
    torch.save({"a": torch.ones(999)}, path, _use_new_zipfile_serialization=new)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * at)])


def _tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("pickle")
        archive.addfile(member, io.BytesIO())


def _broken_pickle(path: Path) -> None:
    torch.save({"a": torch.ones(3)}, path)
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    inside = next(name for name in held if name.endswith("data.pkl"))
    held[inside] = held[inside][:-20] + b"\x85R."
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in held.items():
            archive.writestr(name, content)


def _missing_record(path: Path) -> None:
    torch.save({"a": torch.ones(3)}, path)
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if "/data/" not in name}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in held.items():
            archive.writestr(name, content)


def _later_protocol(path: Path) -> None:
    torch.save({"a": torch.ones(3)}, path, pickle_protocol=4)


UNREADABLE: dict[str, Any] = {
    "nothing": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"import torch\n"),
    "one byte": lambda path: path.write_bytes(b"\x80"),
    "a plain pickle": lambda path: path.write_bytes(pickle.dumps({"a": 1})),
    "a pointer of Git LFS": lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:"),
    "gzip": lambda path: path.write_bytes(b"\x1f\x8b\x08rest"),
    "GGUF": lambda path: path.write_bytes(b"GGUF\3\0\0\0"),
    "a NumPy array": lambda path: np.save(path.open("wb"), np.ones(1)),
    "NumPy arrays": lambda path: np.savez(path.open("wb"), np.ones(1)),
    "a tar archive": _tar,
    "a zip archive": lambda path: _zip(path, a=b"1"),
    "TorchScript": _torchscript,
    "packed anew": _repacked,
    "cut off": _cut,
    "old and cut off": lambda path: _cut(path, new=False),
    "old and cut off early": lambda path: _cut(path, new=False, at=0.02),
    "a broken pickle": _broken_pickle,
    "a missing record": _missing_record,
    "a later protocol": _later_protocol,
    "a command": lambda path: torch.save(Attack(os.system, "true"), path),
    "old, with a command": lambda path: torch.save(
        Attack(os.system, "true"), path, _use_new_zipfile_serialization=False
    ),
    "code": lambda path: torch.save([Attack(exec, "1")], path),
    "old, with a module": lambda path: torch.save(nn.Linear(1, 1), path, _use_new_zipfile_serialization=False),
}


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_read_is_told_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("last.pt")
    UNREADABLE[name](path)
    with pytest.raises(UsageError) as refused:
        load_document(path, form_of(path))
    assert str(refused.value) == snapshot
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_a_file_cut_off_anywhere_is_refused_or_read_whole(tmp_path: Path, new: bool) -> None:
    whole = saved(tmp_path / "a.pt", {"a": torch.ones(40)}, _use_new_zipfile_serialization=new).read_bytes()
    path = tmp_path / "b.pt"
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(UsageError):
            load_document(path, form_of(path))


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
@pytest.mark.filterwarnings("ignore")
def test_a_file_with_any_byte_changed_is_refused_or_read(tmp_path: Path, new: bool) -> None:
    document = {"a": torch.ones(2), "b": Settings()}
    whole = bytearray(saved(tmp_path / "a.pt", document, _use_new_zipfile_serialization=new).read_bytes())
    path = tmp_path / "b.pt"
    refused = 0
    for place in range(0, len(whole), 11):
        changed = whole.copy()
        changed[place] ^= 0x51
        path.write_bytes(changed)
        try:
            list(walk_document(load_document(path, form_of(path)).document))
        except UsageError:
            refused += 1
    assert refused
