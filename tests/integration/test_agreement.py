"""``whynan run`` and ``explain`` say the same of one program; what `explain`'s target returns is a sink besides."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

import whynan

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

FULL = pytest.mark.full
BODIES = {
    "a number that is read": "x = torch.zeros(3)\nprint((x / x).mean().item())",
    "a tensor that is printed": "x = torch.zeros(3)\nprint(x / x)",
    "an array": "x = torch.zeros(3)\nprint((x / x).numpy())",
    "what is dropped": "x = torch.zeros(3)\ny = x / x\ny = None",
    "a gradient that stays": "w = torch.zeros(3, requires_grad=True)\nw.sqrt().sum().backward()",
    "a gradient that is printed": (
        "w = torch.zeros(3, requires_grad=True)\nprint(torch.autograd.grad(w.sqrt().sum(), w))"
    ),
    "a loop by hand": (
        "w = torch.zeros(3, requires_grad=True)\nfor _ in range(2):\n    w.sqrt().sum().backward()\n"
        "    with torch.no_grad():\n        w -= 0.1 * w.grad\n        w.grad = None"
    ),
    "a training": (
        "m = torch.nn.Linear(2, 2)\no = torch.optim.SGD(m.parameters(), lr=0.1)\nfor i in range(3):\n"
        "    x = torch.ones(4, 2) * (i != 1)\n    loss = (m(x) / x.sum(1, keepdim=True)).mean()\n"
        "    o.zero_grad()\n    loss.backward()\n    o.step()"
    ),
    "an output of a module": "torch.nn.Linear(2, 2)(torch.zeros(4, 2) * float('nan'))",
    "a literal": "print(torch.full((3,), float('nan')).mean().item())",
}
SAMPLE = "a loop by hand"
RETURNED = "x = torch.zeros(3)\nreturn x / x"


def both(body: str, folder: Path) -> list[tuple[str, list[tuple[str, int]]]]:
    """What `run` and `explain` say of a program: the verdict, and rule and line of each finding."""
    path = folder / "program.py"
    text = f"import torch\n\n\ndef main():\n    torch.manual_seed(0)\n{textwrap.indent(body, ' ' * 4)}\n"
    path.write_text(f'{text}\n\nif __name__ == "__main__":\n    main()\n', "utf-8")
    command = [sys.executable, "-m", "whynan", "run", "--quiet", "--no-proof", "--json", "report.json", path.name]
    subprocess.run(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, check=False)
    spec = importlib.util.spec_from_file_location("program", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    explained = json.loads(whynan.explain(module.main).to_json())
    return [_said(json.loads((folder / "report.json").read_text("utf-8"))), _said(explained)]


def _said(document: dict[str, Any]) -> tuple[str, list[tuple[str, int]]]:
    found = [*document["findings"], *document["damaging"]]
    return document["verdict"], [(f["rule"], f["site"]["line"]) for f in found]


@pytest.mark.parametrize("name", [n if n == SAMPLE else pytest.param(n, marks=FULL) for n in BODIES])
def test_they_agree(name: str, tmp_path: Path) -> None:
    by_run, by_explain = both(BODIES[name], tmp_path)
    assert by_run == by_explain


@pytest.mark.full
def test_what_the_target_returns_leaves_it(tmp_path: Path) -> None:
    """The twin, and the one difference: nobody has what a script's function gives."""
    assert both(RETURNED, tmp_path) == [("clean", []), ("nonfinite", [("WN101", 7)])]
