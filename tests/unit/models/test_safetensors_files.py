"""Files of safetensors are read in the order of the file, and refused where their header lies."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from syrupy.assertion import SnapshotAssertion

from whynan.errors import UsageError
from whynan.models.checkpoint.contents import Unread
from whynan.models.checkpoint.postmortem import read_checkpoints
from whynan.models.checkpoint.tensors import open_safetensors

NAN = float("nan")


def header(**tensors: Any) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text


def entry(dtype: str, shape: Any, *offsets: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def test_every_type_that_it_writes_is_read(tmp_path: Path) -> None:
    tensors = {
        "bf16": torch.tensor([1.0, NAN]).bfloat16(),
        "f8": torch.tensor([1.0, NAN]).to(torch.float8_e4m3fn),
        "e8": torch.tensor([1.0, NAN]).to(torch.float8_e8m0fnu),
        "f4": torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        "complex": torch.tensor([complex(1, NAN)]),
        "u64": torch.tensor([2**64 - 1], dtype=torch.uint64),
        "bool": torch.tensor([True]),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(NAN),
    }
    save_file(tensors, tmp_path / "a.safetensors")
    (checkpoint,) = read_checkpoints([str(tmp_path / "a.safetensors")]).checkpoints
    bad = {stored.name: stored.n_nan for stored in checkpoint.tensors if stored.bad}
    assert bad == {"bf16": 1, "f8": 1, "e8": 1, "complex": 1, "scalar": 1}
    assert {stored.name for stored in checkpoint.tensors} == set(tensors)


def test_tensors_come_in_the_order_in_which_they_lie(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    names = {"z": entry("F32", [1], 0, 4), "a": entry("F32", [1], 8, 12), "m": entry("F32", [1], 4, 8)}
    path.write_bytes(header(**names) + struct.pack("<fff", 1, 2, 3))
    with open_safetensors(path) as file:
        found = [(name, tensor.item()) for name, tensor in file.contents() if isinstance(tensor, torch.Tensor)]
    assert found == [("z", 1), ("m", 2), ("a", 3)]


def test_metadata_may_tell_the_step(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors", metadata={"step": "400", "epoch": "many"})
    with open_safetensors(tmp_path / "a.safetensors") as file:
        assert file.steps() == {"step": 400}


def test_a_type_that_torch_lacks_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(header(a=entry("F6_E2M3", [4], 0, 3), b=entry("F32", [1], 3, 7)) + b"abc" + struct.pack("<f", NAN))
    with open_safetensors(path) as file:
        assert dict(file.contents())["a"] == Unread("F6_E2M3", (4,), "Dtype not understood: F6_E2M3")
    assert read_checkpoints([str(path)]).checkpoints[0].n_bad == 1


HOSTILE: dict[str, bytes] = {
    "short": b"abc",
    "a huge header": struct.pack("<Q", 2**63) + b"{}",
    "no JSON": struct.pack("<Q", 4) + b"abcd",
    "a list": struct.pack("<Q", 3) + b"[1]",
    "zeros": b"\0" * 1000,
    "an unknown type": header(a=entry("F99", [1], 0, 4)) + b"1234",
    "a negative size": header(a=entry("F32", [-1], 0, 4)) + b"1234",
    "an enormous size": header(a=entry("F32", [2**40, 2**40], 0, 4)) + b"1234",
    "sizes of text": header(a=entry("F32", "12", 0, 4)) + b"1234",
    "an overlap": header(a=entry("F32", [1], 0, 4), b=entry("F32", [1], 0, 4)) + b"1234",
    "beyond the end": header(a=entry("F32", [2], 0, 8)) + b"1234",
    "more than it says": header(a=entry("F32", [1], 0, 4)) + b"12345",
    "backwards": header(a=entry("F32", [1], 4, 0)) + b"1234",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_header_that_lies_is_refused_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("model.safetensors")
    path.write_bytes(HOSTILE[name])
    with pytest.raises(UsageError) as refused, open_safetensors(path):
        pass
    # the library's own wording differs between its versions
    assert str(refused.value).partition(" (")[0] == "model.safetensors is cut off or damaged"
    assert str(refused.value).rpartition("): ")[2] == snapshot
    assert str(refused.value).isprintable()
