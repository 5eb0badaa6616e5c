"""What several rooms' tests start from."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Gives a module of a text, in a file of its own."""
    names: list[str] = []

    def load(text: str) -> ModuleType:
        path = tmp_path / f"loaded_{len(names)}.py"
        path.write_text(text)
        names.append(path.stem)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        del sys.modules[name]
