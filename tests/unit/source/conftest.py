"""Probes: objects that say at which site they are used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from whynan.records import Site
from whynan.source import resolve


@dataclass
class Recorder:
    """The instructions, of code from one file, at which a probe was used."""

    filename: str
    instructions: list[tuple[CodeType, int]] = field(default_factory=list)

    def here(self) -> None:
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_filename != self.filename:
            frame = frame.f_back
        assert frame is not None
        self.instructions.append((frame.f_code, frame.f_lasti))

    @property
    def sites(self) -> list[Site]:
        return [resolve(code, lasti) for code, lasti in self.instructions]


class Probe:
    """An operand that records every use and answers with itself."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def use(self, *args: object, **kwargs: object) -> Probe:
        self.recorder.here()
        return self

    __truediv__ = __itruediv__ = __add__ = __matmul__ = __neg__ = __lt__ = __getitem__ = __call__ = use
    sqrt = log = größe = __enter__ = use
    __hash__ = object.__hash__

    @property
    def T(self) -> Probe:  # noqa: N802
        return self.use()

    def __setitem__(self, key: object, value: object) -> None:
        self.use()

    def __exit__(self, *args: object) -> None:
        pass

    def __iter__(self) -> Any:
        self.use()
        return iter((self,))

    def __format__(self, spec: str) -> str:
        self.use()
        return ""

    def __bool__(self) -> bool:
        self.use()
        return True


Sites = Callable[..., list[Site]]


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sites:
    """Write a program, run it with the probes x and y, and give the sites at which they were used."""
    monkeypatch.chdir(tmp_path)

    def run(text: str | bytes, name: str = "program.py") -> list[Site]:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return run_code(path.read_bytes(), str(path)).sites

    return run


def run_code(text: str | bytes, filename: str) -> Recorder:
    """Run a program under a filename, whether there is such a file or not."""
    recorder = Recorder(filename)
    namespace = {"x": Probe(recorder), "y": Probe(recorder), "__name__": "program"}
    exec(compile(text, filename, "exec"), namespace)
    return recorder


@pytest.fixture
def probed() -> Callable[[str, str], Recorder]:
    """Run a program under any filename, and give what was recorded."""
    return run_code


@pytest.fixture
def probe_of() -> Callable[[str], Probe]:
    """A probe for code of one file."""
    return lambda filename: Probe(Recorder(filename))
