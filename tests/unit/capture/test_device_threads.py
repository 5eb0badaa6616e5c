"""On a device the engine runs in threads of its own, without a frame of Python above them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import device
from tests.unit.capture import device_programs

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.process


def _python(*arguments: str, status: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stderr
    return done.stdout


def _told(at: str) -> dict[str, Any]:
    return json.loads(_python("-m", device_programs.__name__, at))


def test_what_is_told_is_told_on_a_device_too() -> None:
    on_host, on_device = _told("cpu"), _told(device.NAME)
    assert [name for name, findings in on_host.items() if not findings] == ["healthy"]
    assert on_device == on_host


TRAINING = f"""
import torch
from torch import nn
from tests import device
device.install()
torch.manual_seed(0)
table = nn.Embedding(50, 16).to("{device.NAME}")
optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
for step in range(8):
    a, b = torch.randint(0, 50, (64,)), torch.randint(0, 50, (64,))
    b = torch.where(a == b, (a + 1) % 50, b)
    if step == 4:
        b[5] = a[5]
    d = (table(a.to("{device.NAME}")) - table(b.to("{device.NAME}"))).square().sum(-1)
    distance = torch.sqrt(d)
    loss = torch.relu(1.0 - distance).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""


@pytest.mark.proof
def test_a_bad_step_on_a_device_is_run_again_and_its_fix_is_proved(tmp_path: Path) -> None:
    program, report = tmp_path / "train.py", tmp_path / "report.json"
    program.write_text(TRAINING)
    bare = _python("-c", f"exec(compile({TRAINING!r}, 'train.py', 'exec'))")
    command = ["-m", "whynan", "run", "--json", str(report), str(program)]
    assert bare.startswith(_python(*command, status=1))
    document = json.loads(report.read_text())
    (finding,) = document["findings"]
    assert (finding["step"], finding["phase"], finding["rule"]) == (5, "backward", "WN308")
    assert finding["site"]["code"] == "torch.sqrt(d)"
    assert document["run"]["replay"]["faithful"]
    assert finding["fixes"][0]["verdict"]["status"] == "guarded"
