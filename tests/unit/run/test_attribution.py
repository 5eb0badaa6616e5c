"""What makes a step bad: replays under one other condition each say so, and what was ruled out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.selection import sampled

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.randn(64, 4)
{ahead}
for i, x in enumerate({batches}):
    loss = ({loss}).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LOADER = "torch.utils.data.DataLoader(rows, 8)"
UNWRITTEN = """
torch.utils.deterministic.fill_uninitialized_memory = True


def padded(x):
    out = torch.empty(8, 4)
    out[: 8 if i < 4 else 6] = x[: 8 if i < 4 else 6]
    torch.use_deterministic_algorithms(i >= 3)
    return out
"""
PROGRAMS = {
    "a batch": ("rows[40] = 0", LOADER, "model(x / x.norm(dim=1, keepdim=True))"),
    "entered": ("rows[40, 1] = float('nan')", LOADER, "model(x)"),
    "float16": ("", LOADER, "(model(x) * (1 if i < 4 else 300)).half().pow(2)"),
    "no loader": ("", "rows.split(8)", "model(x / 0) if i > 3 else model(x)"),
    "one batch": ("", "list(torch.utils.data.DataLoader(rows, 64)) * 6", "model(x / 0) if i > 3 else model(x)"),
    "unwritten": (UNWRITTEN, LOADER, "model(padded(x))"),
}
HOLDS: dict[str, dict[str, bool | None]] = {
    "a batch": {
        "data": True,
        "mathematics": True,
        "hardware": False,
        "precision": False,
        "memory": False,
        "order": False,
    },
    "entered": {"data": True, "hardware": False, "memory": False, "order": False},
    "float16": {"precision": True, "hardware": False, "data": False, "memory": False, "order": False},
    "no loader": {
        "mathematics": True,
        "data": None,
        "hardware": False,
        "precision": False,
        "memory": False,
        "order": False,
    },
    "one batch": {
        "mathematics": True,
        "data": None,
        "hardware": False,
        "precision": False,
        "memory": False,
        "order": False,
    },
    "unwritten": {"memory": True, "hardware": False},
}
"""Of each program what is told, what holds first."""


def reported(folder: Path, name: str, *options: str) -> tuple[str, dict[str, Any]]:
    """What is said of a program, and the report."""
    ahead, batches, loss = PROGRAMS[name]
    (folder / "bug.py").write_text(HEAD.format(ahead=ahead, batches=batches, loss=loss), encoding="utf-8")
    command = [sys.executable, "-m", "whynan", "run", "--no-proof", "--json", "r.json", *options, "bug.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr, json.loads((folder / "r.json").read_text("utf-8"))


@pytest.mark.full
@pytest.mark.parametrize("name", sampled(PROGRAMS, 2))
def test_each_condition_tells_for_a_source_or_against_it(tmp_path: Path, name: str) -> None:
    told, report = reported(tmp_path, name, "--attribute")
    found = {one["source"]: one["holds"] for one in report["findings"][0]["attributions"]}
    assert found == HOLDS[name]
    assert list(found) == list(HOLDS[name])
    first = report["findings"][0]["attributions"][0]
    assert " ".join(f"{first['evidence']}".split()) in " ".join(told.split())


@pytest.mark.full
def test_nothing_is_run_again_for_it_where_nobody_asks(tmp_path: Path) -> None:
    told, report = reported(tmp_path, "a batch")
    assert report["findings"][0]["attributions"] == []
    assert "because" not in told
