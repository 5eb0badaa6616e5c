"""What makes up a checkpoint: shards that stay in their folder, and the files of a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from syrupy.assertion import SnapshotAssertion

from whynan.errors import UsageError
from whynan.models.checkpoint.files import members
from whynan.models.checkpoint.postmortem import read_checkpoints

NAN = float("nan")
INDEX = "model.safetensors.index.json"


def index(folder: Path, **shard_of: Any) -> Path:
    path = folder / INDEX
    path.write_text(json.dumps({"metadata": {"total_size": 8}, "weight_map": shard_of}), "utf-8")
    return path


def sharded(folder: Path) -> Path:
    """A checkpoint of two shards, the second of them bad."""
    folder.mkdir(exist_ok=True)
    save_file({"a": torch.ones(2)}, folder / "model-00001-of-00002.safetensors")
    save_file({"b": torch.tensor([NAN])}, folder / "model-00002-of-00002.safetensors")
    return index(folder, a="model-00001-of-00002.safetensors", b="model-00002-of-00002.safetensors")


@pytest.mark.parametrize("whole", [True, False], ids=["folder", "index"])
def test_shards_are_one_checkpoint(tmp_path: Path, whole: bool) -> None:
    path = sharded(tmp_path / "model")
    (held,) = read_checkpoints([str(path.parent if whole else path)]).checkpoints
    assert [(stored.name, stored.file, stored.bad) for stored in held.tensors] == [
        ("a", "model-00001-of-00002.safetensors", False),
        ("b", "model-00002-of-00002.safetensors", True),
    ]
    assert held.form == ("folder" if whole else "sharded")
    assert held.notes == ()


def test_shards_of_torch_save_too(tmp_path: Path) -> None:
    torch.save({"a": torch.tensor([NAN])}, tmp_path / "pytorch_model-00001-of-00001.bin")
    path = tmp_path / "pytorch_model.bin.index.json"
    path.write_text(json.dumps({"weight_map": {"a": "pytorch_model-00001-of-00001.bin"}}), "utf-8")
    assert read_checkpoints([str(path)]).checkpoints[0].n_bad == 1


def test_a_tensor_that_the_index_promises_and_no_shard_holds_is_told(tmp_path: Path) -> None:
    sharded(tmp_path)
    names = dict.fromkeys(("a", "c", "d", "e", "f"), "model-00001-of-00002.safetensors")
    (held,) = read_checkpoints([str(index(tmp_path, **names))]).checkpoints
    assert held.notes == ("the index names tensors that no shard holds: c, d, e and 1 more",)


OUTSIDE = "secret.safetensors"


@pytest.mark.parametrize(
    "name",
    ["../secret.safetensors", "inner/../../secret.safetensors", "..", ".", "", "link.safetensors", "a\0b", "..\\x"],
)
@pytest.mark.parametrize("whole", [True, False], ids=["folder", "index"])
def test_an_index_leads_nowhere_out_of_its_folder(tmp_path: Path, name: str, whole: bool) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / OUTSIDE)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.safetensors").symlink_to(tmp_path / OUTSIDE)
    path = index(folder, a=name)
    with pytest.raises(UsageError, match="names a shard outside its folder"):
        members(folder if whole else path)


def test_an_absolute_path_is_outside_even_where_it_leads_back(tmp_path: Path) -> None:
    sharded(tmp_path)
    with pytest.raises(UsageError, match="outside its folder"):
        members(index(tmp_path, a=str(tmp_path / "model-00001-of-00002.safetensors")))


def test_a_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    sharded(tmp_path)
    (tmp_path / "link.safetensors").symlink_to("model-00002-of-00002.safetensors")
    assert read_checkpoints([str(index(tmp_path, b="link.safetensors"))]).checkpoints[0].n_bad == 1


def test_the_cache_of_hugging_face_keeps_its_files_beside_the_folder(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--x" / "snapshots" / "abc"
    blobs = tmp_path / "models--x" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    save_file({"a": torch.tensor([NAN])}, blobs / "123")
    (snapshot / "model-00001-of-00001.safetensors").symlink_to("../../blobs/123")
    index(snapshot, a="model-00001-of-00001.safetensors")
    assert read_checkpoints([str(snapshot)]).checkpoints[0].n_bad == 1
    # the same from a folder that is no cache
    snapshot.parent.rename(tmp_path / "models--x" / "others")
    with pytest.raises(UsageError, match="outside its folder"):
        members(tmp_path / "models--x" / "others" / "abc")


def test_a_pipe_among_the_shards_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(UsageError, match="is no regular file"):
        members(index(tmp_path, a="pipe.safetensors"))
    with pytest.raises(UsageError, match="is no regular file"):
        members(tmp_path / "pipe.safetensors")


def test_a_folder_is_all_of_its_checkpoints(tmp_path: Path) -> None:
    save_file({"w": torch.tensor([NAN])}, tmp_path / "model.safetensors")
    torch.save({"state": {0: {"exp_avg": torch.tensor([NAN])}}}, tmp_path / "optimizer.pt")
    torch.save([torch.tensor(1)], tmp_path / "rng_state.pth")
    torch.save({"x": object()}, tmp_path / "training_args.bin")
    (tmp_path / "tokens.bin").write_bytes(b"1234")
    (tmp_path / "config.json").write_text("{}", "utf-8")
    (tmp_path / "old.pt").mkdir()
    (tmp_path / "global_step4").mkdir()
    torch.save({}, tmp_path / "global_step4" / "zero.pt")
    (held,) = read_checkpoints([str(tmp_path)]).checkpoints
    assert held.files == ("model.safetensors", "optimizer.pt", "rng_state.pth")
    assert [(s.file, s.name) for s in held.tensors if s.bad] == [
        ("model.safetensors", "w"),
        ("optimizer.pt", "state[0].exp_avg"),
    ]
    assert held.notes == (
        f"not read: {tmp_path / 'tokens.bin'} is no checkpoint that whynan reads",
        "not looked at: the folder global_step4, which may hold more of it",
    )


def _state(**state: Any) -> str:
    return json.dumps(state)


def test_the_trainers_log_tells_the_step_and_what_it_logged(tmp_path: Path) -> None:
    save_file({"w": torch.ones(1)}, tmp_path / "model.safetensors")
    history = [
        {"step": 1, "loss": 2.0, "grad_norm": 1.0},
        {"step": 2, "loss": 2.0, "grad_norm": float("inf")},
        {"step": 3, "loss": NAN, "grad_norm": NAN},
        {"step": 4, "loss": NAN},
        "no entry",
    ]
    state = _state(global_step=4, epoch=0.5, best_metric=NAN, log_history=history)
    (tmp_path / "trainer_state.json").write_text(state, "utf-8")
    (held,) = read_checkpoints([str(tmp_path)]).checkpoints
    assert held.steps == {"global_step": 4, "epoch": 0.5}
    logged = {entry.name: (entry.n, entry.n_bad, str(entry.first), entry.step) for entry in held.logged}
    assert logged == {"loss": (4, 2, "nan", 3), "grad_norm": (3, 2, "inf", 2)}
    # what was logged is the past; what the state holds is the checkpoint's own
    assert [(number.name, number.bad) for number in held.numbers] == [("best_metric", True)]


@pytest.mark.parametrize("history", [None, 3, {"loss": NAN}, [[NAN]], [{"step": "x", "loss": NAN}]])
def test_a_log_of_another_form_is_no_error(tmp_path: Path, history: Any) -> None:
    save_file({"w": torch.ones(1)}, tmp_path / "model.safetensors")
    (tmp_path / "trainer_state.json").write_text(_state(log_history=history), "utf-8")
    assert read_checkpoints([str(tmp_path)]).verdict == "clean"


def _folder_of_folders(path: Path) -> None:
    for name in ("checkpoint-1", "checkpoint-2"):
        (path / name).mkdir(parents=True)
        torch.save({}, path / name / "model.pt")


def _distributed(path: Path) -> None:
    path.mkdir()
    (path / "__0_0.distcp").write_bytes(b"x")


def _bad_log(path: Path) -> None:
    path.mkdir()
    save_file({"w": torch.ones(1)}, path / "model.safetensors")
    (path / "trainer_state.json").write_text("{", "utf-8")


def _indexed(path: Path, content: str) -> None:
    path.mkdir()
    (path / INDEX).write_text(content, "utf-8")


REFUSED: dict[str, Any] = {
    "nothing there": lambda path: None,
    "an empty folder": lambda path: path.mkdir(),
    "a folder of folders": _folder_of_folders,
    "distributed": _distributed,
    "only a stranger": lambda path: (path.mkdir(), (path / "a.bin").write_bytes(b"1234")),
    "an empty file in it": lambda path: (path.mkdir(), (path / "a.pt").write_bytes(b"")),
    "a broken log": _bad_log,
    "an index of no JSON": lambda path: _indexed(path, "{"),
    "an index of a list": lambda path: _indexed(path, "[]"),
    "an index without a map": lambda path: _indexed(path, '{"metadata": {}}'),
    "an index of nothing": lambda path: _indexed(path, '{"weight_map": {}}'),
    "an index of numbers": lambda path: _indexed(path, '{"weight_map": {"a": 1}}'),
    "an index too deep": lambda path: _indexed(path, "[" * 100_000),
    "a missing shard": lambda path: _indexed(path, '{"weight_map": {"a": "a.safetensors"}}'),
    "a hostile name": lambda path: _indexed(path, r'{"weight_map": {"a": "../\u001b[2J"}}'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_checkpoint_is_told_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(tmp_path)
    REFUSED[name](Path("run"))
    with pytest.raises(UsageError) as refused:
        read_checkpoints(["run"])
    assert str(refused.value) == snapshot
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "file/below"])
def test_a_path_that_can_name_nothing_is_refused(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x", "utf-8")
    with pytest.raises(UsageError):
        read_checkpoints([path])


@pytest.mark.skipif(not hasattr(os, "seteuid") or os.geteuid() != 0, reason="only root can become nobody")
def test_what_may_not_be_read_is_told_as_root_becomes_nobody(tmp_path: Path) -> None:
    path = sharded(tmp_path / "model")
    folder = tmp_path / "model"
    folder.chmod(0o700)
    os.seteuid(65534)
    try:
        for wanted in (folder, path, folder / "model-00001-of-00002.safetensors"):
            with pytest.raises(UsageError, match="cannot be read \\(Permission denied\\)"):
                members(wanted)
    finally:
        os.seteuid(0)


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save({}, path)
    path.chmod(0)
    with pytest.raises(UsageError, match="cannot be read \\(Permission denied\\)"):
        members(path)
