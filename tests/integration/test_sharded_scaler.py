"""The loss scaler of FSDP in one process: what it skips is no finding, and a scale that falls in vain is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

pytestmark = [pytest.mark.process, pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")]

WHYNAN = Path(sys.executable).with_name("whynan")
PROGRAM = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = ShardedGradScaler(device="cpu", init_scale={scale})
for step in range(36):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (model(torch.randn(16, 8)) - 1).square().mean()
        if {spoils} and step > 5:
            spread = (loss - loss).square()
            loss = loss + spread.sqrt()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
dist.destroy_process_group()
"""


def report(folder: Path, *, scale: str, spoils: bool) -> dict[str, Any]:
    (folder / "train.py").write_text(PROGRAM.format(scale=scale, spoils=spoils))
    command = [str(WHYNAN), "run", "--quiet", "--no-proof", "--json", "r.json", "train.py"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == spoils, done.stderr
    return json.loads((folder / "r.json").read_text())


@pytest.mark.full
def test_the_steps_that_it_skips_are_counted_and_no_finding(tmp_path: Path) -> None:
    found = report(tmp_path, scale="2.0**40", spoils=False)
    assert found["verdict"] == "clean"
    assert found["coverage"]["skipped_steps"] > 10


@pytest.mark.full
def test_a_scale_that_falls_in_vain_names_what_was_born(tmp_path: Path) -> None:
    found = report(tmp_path, scale="2.0**12", spoils=True)
    finding = found["findings"][0]
    assert (finding["rule"], finding["site"]["code"]) == ("WN311", "spread.sqrt()")
    assert finding["scale_fall"]["last"] <= 1
    assert found["run"]["replay"]["faithful"]
