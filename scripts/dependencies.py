"""Print what each dependency costs: its version, its size on disk and the time that importing it takes.

python scripts/dependencies.py
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = {
    "pydantic": "pydantic.main",
    "python-flint": "flint",
    "rich": "rich.console",
    "safetensors": "safetensors.numpy",
    "onnx-ir": "onnx_ir",
}
"""The module that whynan uses first, where it is not the distribution's name."""
ROUNDS = 5


def required() -> list[str]:
    """The distributions that whynan and its extras need, in the order of ``pyproject.toml``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = (project["optional-dependencies"][extra] for extra in ("torch", "onnx", "ort"))
    return [re.split(r"[<>=\[]", line)[0] for line in [*project["dependencies"], *(line for e in extras for line in e)]]


def megabytes(name: str) -> float:
    """The size of a distribution's files."""
    found = metadata.distribution(name)
    paths = (Path(str(found.locate_file(file))) for file in found.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def seconds(module: str) -> float:
    """The least time of several imports, each in a fresh interpreter; with all that the module itself imports."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    times = [subprocess.run(command, capture_output=True, text=True, check=True).stderr for _ in range(ROUNDS)]
    return min(int(text.strip().splitlines()[-1].split("|")[1]) for text in times) / 1e6


def main() -> None:
    """Print a row for each that is installed."""
    print(f"{'':14} {'version':>12} {'MB':>7} {'import':>8}")
    for name in required():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            print(f"{name:14} {'not installed':>12}")
            continue
        print(f"{name:14} {version:>12} {megabytes(name):7.1f} {seconds(MODULES.get(name, name)):6.2f} s")


if __name__ == "__main__":
    main()
