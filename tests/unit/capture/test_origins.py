"""Files that are read, arrays and lists that become tensors; and what is kept of all that."""

from __future__ import annotations

import gc
import io
import pickle
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import whynan
from tests.unit.capture.seen import only, traced
from whynan.capture.torch import Capture
from whynan.capture.torch.provenance.origins import MOST_VIEWS, ORIGIN
from whynan.records import Data

NAN = float("nan")


def weights(*bad: str) -> dict[str, Tensor]:
    """The state of a small model, some of it bad."""
    state = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)).state_dict()
    for name in bad:
        state[name].view(-1)[0] = NAN
    return state


def data_of(program: Callable[[], Any]) -> Data:
    finding = only(traced(program))
    assert finding.birth == "entered"
    assert finding.data is not None
    return finding.data


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))


def used(net: nn.Module) -> Any:
    return net(torch.ones(1, 2)).tolist()


@pytest.mark.parametrize("assign", [False, True])
def test_a_checkpoint_is_named_with_the_place_in_it(assign: bool, tmp_path: Path) -> None:
    path = str(tmp_path / "last.pt")
    torch.save(weights("1.weight"), path)
    net = model()

    def program() -> None:
        net.load_state_dict(torch.load(path), assign=assign)
        used(net)

    data = data_of(program)
    assert (data.kind, data.file, data.name, data.rows) == ("file", path, "1.weight", ())


def test_a_nested_checkpoint_is_named_by_the_way_to_the_tensor(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    torch.save({"epoch": 3, "model": {"net": weights("0.bias")}}, path)
    net = model()

    def program() -> None:
        net.load_state_dict(torch.load(f=path, map_location="cpu")["model"]["net"])
        used(net)

    data = data_of(program)
    assert (data.file, data.name) == (str(path), "model.net['0.bias']")


def test_the_file_is_the_argument_of_that_name_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    torch.save(weights("0.bias"), path)
    data = data_of(lambda: (torch.load(map_location="cpu", f=path)["0.bias"] * 2).tolist())
    assert data.file == str(path)


def test_an_open_file_has_its_name_and_a_buffer_has_none(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    torch.save(weights("0.bias"), path)
    with path.open("rb") as file:
        assert data_of(lambda: (torch.load(file)["0.bias"] * 2).tolist()).file == str(path)
    buffer = io.BytesIO(path.read_bytes())
    assert only(traced(lambda: (torch.load(buffer)["0.bias"] * 2).tolist())).data is None


def test_a_file_that_is_mapped_into_memory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    torch.save(weights("0.bias"), path)
    data = data_of(lambda: (torch.load(path, mmap=True)["0.bias"] * 2).tolist())
    assert (data.file, data.name) == (str(path), "0.bias")


def test_a_whole_model_in_a_file_is_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    net = model()
    net.load_state_dict(weights("1.bias"))
    torch.save(net, path)
    data = data_of(lambda: used(torch.load(path, weights_only=False)))
    assert (data.file, data.name) == (str(path), "1.bias")


def test_safetensors_are_named(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    path = tmp_path / "model.safetensors"
    save_file(weights("0.weight"), path)
    net = model()

    def program() -> None:
        # as a program does that begins under the trace
        from safetensors.torch import load_file

        net.load_state_dict(load_file(path))
        used(net)

    data = data_of(program)
    assert (data.file, data.name) == (str(path), "0.weight")


def test_an_array_of_a_file_is_named_when_it_becomes_a_tensor(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([[1.0, NAN], [2.0, 3.0]]))

    def program() -> None:
        rows = np.load(path)
        (torch.from_numpy(rows)[0] * 2).tolist()

    data = data_of(program)
    assert (data.kind, data.file, data.name) == ("file", str(path), "rows")
    assert data.site is not None
    assert data.site.code == "torch.from_numpy(rows)"


def test_an_archive_of_arrays_may_be_opened(tmp_path: Path) -> None:
    """It holds an object that has not even a class for who asks."""
    path = tmp_path / "x.npz"
    np.savez(path, x=np.array([1.0, NAN]))

    def program() -> None:
        (torch.from_numpy(np.load(path)["x"]) * 2).tolist()

    assert data_of(program).kind == "numpy"


@pytest.mark.parametrize("to", [torch.from_numpy, torch.as_tensor, torch.asarray], ids=lambda to: to.__name__)
def test_a_part_of_an_array_of_a_file_is_of_the_file(to: Callable[[Any], Tensor], tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([[1.0, 2.0], [2.0, NAN]]))

    def program() -> None:
        rows = np.load(path)
        for row in rows:
            (to(row) * 2).tolist()

    assert data_of(program).file == str(path)


def test_an_array_is_named_by_its_expression_and_the_place_where_it_became_a_tensor() -> None:
    table = {"income": np.array([1.0, NAN])}

    def program() -> None:
        x = torch.from_numpy(table["income"])
        (x[1:] * 2).tolist()

    data = data_of(program)
    assert (data.kind, data.name, data.file) == ("numpy", 'table["income"]', None)
    assert data.site is not None
    assert data.site.code == 'torch.from_numpy(table["income"])'


def test_the_site_of_an_array_is_not_carried_into_another_trace() -> None:
    kept: list[Tensor] = []
    array = np.array([1.0, NAN])
    traced(lambda: kept.append(torch.from_numpy(array)))
    assert only(traced(lambda: (kept[0] * 2).tolist())).data is None


def test_a_list_is_named_by_its_expression() -> None:
    rows = [1.0, NAN]
    data = data_of(lambda: (torch.tensor(rows) * 2).tolist())
    assert (data.kind, data.name) == ("value", "rows")


def test_a_number_of_a_greater_tensor_is_no_constant() -> None:
    targets = torch.tensor([1.0, NAN])

    def program() -> None:
        (targets[1] * 2).item()

    finding = only(traced(program))
    assert (finding.birth, finding.rule) == ("entered", "WN001")


def test_what_was_copied_over_is_not_what_came_in() -> None:
    array = np.array([NAN, NAN])

    def program() -> None:
        x = torch.from_numpy(array)
        x.fill_(-1.0)
        x.sqrt().tolist()

    finding = only(traced(program))
    assert (finding.birth, finding.data) == ("invalid", None)


# -- what is kept ----------------------------------------------------------------------------------------------------


class Held:
    """Something of the program's that can be seen to live."""


def test_neither_a_batch_nor_its_arrays_nor_its_indices_are_kept_alive() -> None:
    gone: list[weakref.ref[Any]] = []

    class Entries(torch.utils.data.Dataset[Any]):
        def __getitem__(self, index: Any) -> Any:
            return np.ones(3)

    def collate(rows: list[Any]) -> Any:
        batch = {"held": Held(), "array": np.stack(rows), "tensor": torch.ones(2)}
        gone.extend(weakref.ref(v) for v in batch.values())
        return batch

    with whynan.trace():
        key = Held()
        gone.append(weakref.ref(key))
        loader = DataLoader(Entries(), sampler=[key], batch_size=1, collate_fn=collate)
        for _ in range(2):
            for batch in loader:
                gone.append(weakref.ref(batch["tensor"].untyped_storage()))
        gone += [weakref.ref(loader), weakref.ref(loader.batch_sampler)]
        del loader, batch, key
        gc.collect()
        # the last of a loader's iterator that is left is the loop's own
        assert [g() for g in gone] == [None] * len(gone)


def test_what_is_kept_does_not_grow_with_the_batches() -> None:
    table = torch.ones(3 * MOST_VIEWS, 2)

    with Capture() as capture:
        for _ in range(3):
            for row in DataLoader(table, batch_size=None):  # type: ignore[arg-type]
                assert row.shape == (2,)
        for _ in range(1000):
            capture.tracer.origins.note([np.ones(4), np.ones(5)], _source())
        assert len(getattr(table.untyped_storage(), ORIGIN).known) == MOST_VIEWS
        assert capture.tracer.origins._arrays.values() == []


def test_a_great_batch_is_looked_through_only_so_far() -> None:
    from whynan.capture.torch.provenance.origins import MOST, parts_of

    great = [*range(3 * MOST), torch.ones(1)]
    assert [len(list(parts_of(b, ""))) for b in (great, great[-10:])] == [0, 1]
    deep: Any = torch.ones(1)
    for _ in range(3 * MOST):
        deep = [deep, 1]
    assert len(list(parts_of(deep, ""))) == 0
    around: list[Any] = [torch.ones(1)]
    around.append(around)
    assert len(list(parts_of(around, ""))) == 1


def test_nothing_of_a_programs_containers_is_called() -> None:
    class Touchy(dict[str, Any]):
        """A dictionary that makes its values when it is asked for them."""

        def items(self) -> Any:
            raise AssertionError("asked")

        __iter__ = __getitem__ = keys = values = get = items

    class List(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("asked")

        __getitem__ = __len__ = __iter__

    class Plain:
        def __init__(self, x: Any) -> None:
            self.__dict__["x"] = x

        def __getattr__(self, name: str) -> Any:
            raise AssertionError("asked")

    from whynan.capture.torch.provenance.origins import format_path, parts_of

    x = torch.ones(1)
    found = parts_of([Touchy(a=x), List([x]), Plain(x)], "b")
    assert [format_path(way) for way, _ in found] == ["b[0].a", "b[1][0]", "b[2].x"]


def test_doors_are_found_by_pickle_and_gone_after_the_trace() -> None:
    import safetensors.torch

    def doors() -> list[Any]:
        return [
            *(torch.load, torch.serialization.load, torch.from_numpy, np.load, safetensors.torch.load_file),
            torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
        ]

    before = doors()
    with whynan.trace():
        assert all(a is not b for a, b in zip(before, doors(), strict=True))
        for door in (torch.load, torch.from_numpy, safetensors.torch.load_file):
            assert pickle.loads(pickle.dumps(door)) is door
            assert door.__doc__
    assert doors() == before


def test_errors_of_reading_are_the_programs_own(tmp_path: Path) -> None:
    with whynan.trace():
        with pytest.raises(FileNotFoundError):
            torch.load(tmp_path / "none.pt")
        with pytest.raises(TypeError, match="ndarray"):
            torch.from_numpy([1.0])  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            torch.load()  # type: ignore[call-arg]


def test_no_module_is_needed_that_the_program_has_not() -> None:
    done = {name: sys.modules[name] for name in ("safetensors", "safetensors.torch") if name in sys.modules}
    with pytest.MonkeyPatch.context() as patch:
        for name in done:
            patch.delitem(sys.modules, name)
        # an import that fails
        patch.setitem(sys.modules, "safetensors", None)
        assert traced(lambda: torch.ones(1).tolist()).verdict == "clean"


def _source() -> Any:
    from whynan.capture.torch.provenance.origins import Source

    return Source(Data(kind="batch", batch=0), (0, 1, 2), in_rows=True)
