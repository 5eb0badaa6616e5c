"""The examples as a person runs them, plainly and under whynan.

``python -m tests.integration.examples`` writes the blocks of their READMEs anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.readme import ROOT, blocks

NAMES = ("gem_pooling", "phase_head", "dirty_masks", "rmsnorm_fp16", "underflow_cosine")
EXPORTED = {
    "istft_export": {
        "torchscript": ("torchscript.onnx", "inputs.npz"),
        "default": ("default.onnx", "inputs.npz", "--all"),
    },
    "onnx_precision": {
        "emulated": ("float16.onnx", "float16.npz"),
        "reference": ("float16.onnx", "float16.npz", "--engine", "reference"),
    },
}
"""The examples that export a model, and how whynan is asked for what their READMEs show."""
_BLOCK = re.compile(r"(<!-- (?P<name>\w+) -->\n)(?P<body>.*?)(<!-- /(?P=name) -->)", re.DOTALL)


class Run(NamedTuple):
    """What a run printed, its exit status, and the report as a document; none of a run without whynan."""

    out: str
    err: str
    status: int
    document: dict[str, Any]


def plain(name: str, *options: str) -> Run:
    """The program alone."""
    return _run([sys.executable, f"examples/{name}/train.py", *options])


def watched(name: str, *options: str, strict: bool = False) -> Run:
    """The program under ``whynan run``."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "report.json")
        whynan = [sys.executable, "-m", "whynan", "run", "--json", str(file), *(["--strict"] if strict else [])]
        run = _run([*whynan, f"examples/{name}/train.py", *options])
        # the folder is another one each time
        told = run.err.replace(str(file), file.name)
        return run._replace(err=told, document=json.loads(file.read_text(encoding="utf-8")))


def exported(name: str, *options: str) -> Run:
    """The program that exports its models."""
    return _run([sys.executable, f"examples/{name}/export.py", *options])


def inferred(name: str, model: str, inputs: str, *options: str) -> Run:
    """What ``whynan onnx`` says of a model that was exported."""
    models = f"examples/{name}/models"
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "report.json")
        whynan = [sys.executable, "-m", "whynan", "onnx", "--json", str(file)]
        run = _run([*whynan, f"{models}/{model}", "--inputs", f"{models}/{inputs}", *options])
        return run._replace(document=json.loads(file.read_text(encoding="utf-8")))


def _run(command: list[str]) -> Run:
    # NumPy's warning in a worker stands on the same stream as the report, with the absolute path of the script
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return Run(done.stdout, done.stderr, done.returncode, {})


def readme(name: str) -> str:
    """The README of an example."""
    return (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8")


def shown(name: str) -> dict[str, str]:
    """What the README of an example shows."""
    return blocks(readme(name))


def main() -> None:
    """Write the blocks of all READMEs anew."""
    for name in NAMES:
        _renew(name, {"plain": plain(name).out, "report": watched(name).err})
    for name, ways in EXPORTED.items():
        _renew(name, {"plain": exported(name).out} | {way: inferred(name, *asked).out for way, asked in ways.items()})


def _renew(name: str, made: dict[str, str]) -> None:
    text = _BLOCK.sub(lambda m: f"{m[1]}```text\n{made[m['name']]}```\n{m[4]}", readme(name))
    (ROOT / "examples" / name / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
