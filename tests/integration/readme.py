"""The blocks of output in the README and the page on fixes, and how each is made; run as a script to renew them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "README.md"
PAGES = (FILE, ROOT / "docs" / "fixes.md")
DEMO = ("run", "examples/gem_pooling/train.py")
_BLOCK = re.compile(r"(<!-- (?P<name>\w+) -->\n)(?P<body>.*?)(<!-- /(?P=name) -->)", re.DOTALL)


def blocks(text: str) -> dict[str, str]:
    """The fenced output between each pair of markers."""
    return {m["name"]: m["body"].removeprefix("```text\n").removesuffix("```\n") for m in _BLOCK.finditer(text)}


def shown(name: str) -> str:
    """What the pages show under a name."""
    (found,) = [made[name] for made in (blocks(page.read_text(encoding="utf-8")) for page in PAGES) if name in made]
    return found


def demo() -> str:
    """What ``make demo`` prints."""
    return _told(sys.executable, "-m", "whynan", *DEMO)


def explain() -> str:
    """What the README's program with ``explain`` prints, saved as ``phase.py``."""
    programs = re.findall(r"```python\n(.*?)```", FILE.read_text(encoding="utf-8"), re.DOTALL)
    (program,) = [p for p in programs if "whynan.explain(train" in p]
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "phase.py").write_text(program, encoding="utf-8")
        return _printed(sys.executable, "phase.py", cwd=Path(directory))


def run() -> str:
    """The report of ``whynan run`` on an example; the example's own output stands on another stream."""
    return _told(sys.executable, "-m", "whynan", "run", "--rerun", "examples/phase_head/train.py")


def _told(*command: str) -> str:
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False).stderr


def _printed(*command: str, cwd: Path = ROOT) -> str:
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout


# What a Fourier transform leaves of a silent signal is its rounding, which is another on another processor: the values,
# the counts of a thousand and more, and which element is the first. Lengths of numbers decide where a line is folded.
_ROUNDED = re.compile(r"(?<![\w:.])-?(?:\d+(?:\.\d+)?e[-+]\d+|\d+\.\d+(?![.\d])|\d{1,3}(?:,\d{3})+|0(?= is))")
_FIRST_ELEMENT = re.compile(r"(?<=element )\[[\d, ]+\]")


def without_rounding(text: str) -> str:
    """The words of a report, without the numbers that the processor's own rounding makes, and without its folds."""
    return " ".join(_FIRST_ELEMENT.sub("[...]", _ROUNDED.sub("#", " ".join(text.split()))).split())


PRODUCERS: dict[str, Callable[[], str]] = {"demo": demo, "run": run, "explain": explain}


def renewed(text: str) -> str:
    """A page with every block made anew."""
    return _BLOCK.sub(lambda m: f"{m[1]}```text\n{PRODUCERS[m['name']]()}```\n{m[4]}", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
