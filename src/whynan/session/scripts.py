"""The script of a capsule, run because its user says so."""

# pyright: strict

from __future__ import annotations

import os
import subprocess
import sys

from whynan.capsule import open_capsule
from whynan.capsule.folders import SCRIPT
from whynan.errors import UsageError


def run_script(directory: str) -> None:
    """Run the ``repro.py`` of a capsule in a Python of its own; raises ``UsageError`` where that fails."""
    capsule = open_capsule(directory)
    path = os.path.join(capsule.directory, SCRIPT)
    if not capsule.script:
        raise UsageError(f"there is no {path}", "leave out --run-script")
    sys.stdout.flush()
    status = subprocess.run([sys.executable, path], check=False).returncode
    if status:
        raise UsageError(f"{path} ended with status {status}", "leave out --run-script, or see what it printed")
