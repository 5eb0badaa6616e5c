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


HEAD = f"""
import torch
from torch import nn
from tests import device
device.install()
torch.manual_seed(0)
at = "{device.NAME}"
"""
DISTANCES = (
    HEAD
    + """
table = nn.Embedding(50, 16).to(at)
optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
for step in range(8):
    a, b = torch.randint(0, 50, (64,)), torch.randint(0, 50, (64,))
    b = torch.where(a == b, (a + 1) % 50, b)
    if step == 4:
        b[5] = a[5]
    d = (table(a.to(at)) - table(b.to(at))).square().sum(-1)
    distance = torch.sqrt(d)
    loss = torch.relu(1.0 - distance).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""
)
LIKELIHOODS = (
    HEAD
    + """
torch.set_default_device(at)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
    if step == 4:
        x[3] = 1e4
    p = model(x).softmax(-1)
    loss = -torch.log(p[torch.arange(32), y]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "rule", "phase", "code", "status"),
    [
        (DISTANCES, "WN308", "backward", "torch.sqrt(d)", "guarded"),
        # a fix is tried on rows of which the index is out of range, which ends all work of a device
        (LIKELIHOODS, "WN206", "forward", "torch.log(p[torch.arange(32), y])", "verified"),
    ],
    ids=["distances", "likelihoods"],
)
def test_a_bad_step_on_a_device_is_run_again_and_its_fix_is_proved(
    text: str, rule: str, phase: str, code: str, status: str, tmp_path: Path
) -> None:
    program, report = tmp_path / "train.py", tmp_path / "report.json"
    program.write_text(text)
    bare = _python(str(program))
    assert bare.startswith(_python("-m", "whynan", "run", "--json", str(report), str(program), status=1))
    document = json.loads(report.read_text())
    (finding,) = document["findings"]
    assert (finding["step"], finding["phase"], finding["rule"]) == (5, phase, rule)
    assert finding["site"]["code"] == code
    assert document["run"]["replay"]["faithful"]
    assert finding["fixes"][0]["verdict"]["status"] == status
