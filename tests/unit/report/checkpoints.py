"""Checkpoints as they are met, and what was found in them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from whynan.models.checkpoint.postmortem import read_checkpoints
from whynan.records.checkpoint import Checkpoints

NAN, INF = float("nan"), float("inf")


class Config:
    """A class that is not loaded."""

    def __init__(self) -> None:
        self.scale = torch.ones(1)


def _trained(bad: bool, step: int = 400) -> dict[str, Any]:
    """A model and its optimizer after a step; some of its numbers bad."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for parameter in model.parameters():
        parameter.data = torch.linspace(-0.5, 0.25, parameter.numel()).view_as(parameter)
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, 0.125)
    if bad:
        weight = model[0].weight
        weight.data[3, :12] = NAN
        weight.data[4, :2] = -INF
        optimizer.state[weight]["momentum_buffer"].fill_(NAN)
    return {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "global_step": step}


def _bad() -> list[str]:
    torch.save(_trained(bad=True) | {"best_score": NAN, "losses": [0.5, NAN, INF]}, "ckpt-400.pt")
    return ["ckpt-400.pt"]


def _clean() -> list[str]:
    torch.save(_trained(bad=False), "ckpt-300.pt")
    return ["ckpt-300.pt"]


def _numbers() -> list[str]:
    torch.save({"w": torch.ones(3), "loss": NAN}, "loss.pt")
    return ["loss.pt"]


def _nothing() -> list[str]:
    torch.save({"epoch": 3}, "empty.pt")
    return ["empty.pt"]


def _many() -> list[str]:
    layers = {f"layers.{i}.{part}": torch.full((8, 8), NAN) for i in range(20) for part in ("weight", "bias")}
    moments = {i: {"exp_avg": torch.full((8, 8), NAN if i % 2 else 1.0)} for i in range(40)}
    torch.save({"model": layers, "optimizer": {"state": moments}}, "last.ckpt")
    return ["last.ckpt"]


def _notes() -> list[str]:
    tied = torch.ones(4, 4)
    document = {
        "attn.mask": torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), -INF),
        "embed.weight": tied,
        "head.weight": tied,
        "zero.bias": torch.zeros(8),
        "tiny": torch.tensor([1e-40, 0.0, 1.0]),
        "large": torch.tensor([1.0, 60000.0]).half(),
        "meta": torch.ones(3, device="meta"),
        "cache": torch.tensor([NAN]),
        "config": Config(),
        "max_norm": INF,
    }
    torch.save(document, "notes.pt")
    return ["notes.pt"]


def _folder() -> list[str]:
    os.mkdir("checkpoint-400")
    save_file({"lm_head.weight": torch.tensor([1.0, NAN]).bfloat16()}, "checkpoint-400/model.safetensors")
    torch.save({"state": {0: {"exp_avg": torch.tensor([INF, 1.0])}}}, "checkpoint-400/optimizer.pt")
    state = '{"global_step": 400, "log_history": [{"step": 350, "loss": NaN}, {"step": 400, "loss": NaN}]}'
    Path("checkpoint-400/trainer_state.json").write_text(state, "utf-8")
    return ["checkpoint-400"]


def _shards() -> list[str]:
    save_file({"a.weight": torch.ones(2)}, "model-00001-of-00002.safetensors")
    save_file({"b.weight": torch.tensor([NAN])}, "model-00002-of-00002.safetensors")
    held = '"a.weight": "model-00001-of-00002.safetensors", "b.weight": "model-00002-of-00002.safetensors"'
    Path("model.safetensors.index.json").write_text(f'{{"weight_map": {{{held}, "c": "{held[13:45]}"}}}}', "utf-8")
    return ["model.safetensors.index.json"]


def _several() -> list[str]:
    for step in range(100, 1300, 100):
        torch.save(_trained(bad=step >= 900, step=step), f"ckpt-{step}.pt")
    Path("ckpt-1300.pt").write_bytes(Path("ckpt-1200.pt").read_bytes()[:999])
    return [f"ckpt-{step}.pt" for step in range(100, 1400, 100)]


def _by_name() -> list[str]:
    for number in (9, 10, 11):
        torch.save({"w": torch.ones(2)} | ({"epoch": number} if number > 9 else {}), f"ckpt-{number}.pt")
    return [f"ckpt-{number}.pt" for number in (10, 11, 9)]


def _from_the_start() -> list[str]:
    for number in (1, 2):
        torch.save({"w": torch.tensor([NAN]), "epoch": number}, f"epoch{number}.pth")
    return ["epoch1.pth", "epoch2.pth"]


def _kinds() -> list[str]:
    document = {
        "f8": torch.tensor([NAN, 448.0]).to(torch.float8_e4m3fn),
        "complex": torch.tensor([complex(NAN, INF)]),
        "half": torch.tensor(INF).half(),
        "sparse": torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([NAN]), (9,)),
        "empty": torch.empty(0, 3),
        "steps": torch.tensor([1, 2**40]),
        "flags": torch.tensor([True]),
    }
    torch.save(document, "kinds.pt")
    return ["kinds.pt"]


HOSTILE = "[bold red]x[/] :smile: \x1b[31m\x07\r\n\t\u202e\u2066\u2028\udc80\x9b2J \u200d\ufe0f 入力 e\u0301"


def _hostile() -> list[str]:
    name = HOSTILE.replace("/", "").replace("\udc80", "")
    torch.save({HOSTILE: torch.tensor([NAN]), "epoch": 1, "x": {HOSTILE: NAN}, "c": Config()}, f"{name}.pt")
    torch.save({HOSTILE: torch.ones(1), "epoch": 0}, "a.pt")
    return [f"{name}.pt", "a.pt"]


WRITTEN: dict[str, Callable[[], list[str]]] = {
    "bad": _bad,
    "clean": _clean,
    "numbers": _numbers,
    "nothing": _nothing,
    "many": _many,
    "notes": _notes,
    "folder": _folder,
    "shards": _shards,
    "several": _several,
    "by name": _by_name,
    "from the start": _from_the_start,
    "kinds": _kinds,
    "hostile": _hostile,
}
"""Each writes its checkpoints into the current directory and gives their paths."""


def found(name: str, folder: Path) -> Checkpoints:
    """What is found in the checkpoints of a name, with versions and sizes that are the same everywhere."""
    before = Path.cwd()
    folder.mkdir(parents=True)
    os.chdir(folder)
    try:
        report = read_checkpoints(WRITTEN[name](), allow=("cache", "unused*") if name == "notes" else ())
    finally:
        os.chdir(before)
    checkpoints = tuple(held.model_copy(update={"size": 123_456}) for held in report.checkpoints)
    versions = {"whynan": "0.1.0", "torch": "2.13.0+cpu"}
    return report.model_copy(update={"versions": versions, "checkpoints": checkpoints})
