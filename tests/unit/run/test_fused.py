"""A function that TorchScript has fused into one kernel, as it does on a GPU, is run again operation by operation."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

FUSED = """
import torch

# what it does on a GPU
torch._C._jit_override_can_fuse_on_cpu(True)
torch._C._jit_set_texpr_fuser_enabled(True)
torch._C._jit_set_te_must_use_llvm_cpu(False)


@torch.jit.script
def score(x: torch.Tensor) -> torch.Tensor:
    return torch.log(x * x) * 2.0 + 1.0


torch.manual_seed(0)
w = torch.nn.Parameter(torch.randn(100))
optimizer = torch.optim.SGD([w], lr=1e-3)
for step in range(6):
    if step == 4:
        with torch.no_grad():
            w[7] = 0
    loss = score(w).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert "TensorExpr" in str(torch.jit.last_executed_optimized_graph())
"""


def _report(tmp_path: Path, *options: str) -> dict[str, Any]:
    (tmp_path / "fused.py").write_text(FUSED)
    command = [sys.executable, "-m", "whynan", "run", "--json", "report.json", *options, "fused.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300)
    return json.loads((tmp_path / "report.json").read_text())


@pytest.mark.full
def test_the_program_runs_fused(tmp_path: Path) -> None:
    (tmp_path / "fused.py").write_text(FUSED)
    bare = subprocess.run([sys.executable, "fused.py"], cwd=tmp_path, capture_output=True, text=True)
    assert bare.returncode == 0, bare.stderr


@pytest.mark.full
def test_a_birth_inside_of_a_fused_kernel(tmp_path: Path) -> None:
    document = _report(tmp_path)
    (finding,) = document["findings"]
    assert (finding["rule"], finding["op"], finding["step"]) == ("WN201", "aten.log.default", 5)
    assert finding["site"]["code"] == "score(w)"
    assert document["run"]["replay"]["faithful"]
    assert "eagerly" in document["run"]["replay"]["why"]
    assert "fused_kernel" not in [note["kind"] for note in document["coverage"]["typed_notes"]]


@pytest.mark.full
def test_a_trace_says_that_it_did_not_see_into_it(tmp_path: Path) -> None:
    document = _report(tmp_path, "--mode", "trace")
    assert "fused_kernel" in [note["kind"] for note in document["coverage"]["typed_notes"]]
