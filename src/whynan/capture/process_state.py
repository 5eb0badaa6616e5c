"""The state of warnings and the environment variables of the process, put back."""

# pyright: strict

from __future__ import annotations

import os
import sys
import warnings
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def warning_state() -> Generator[None]:
    """What has been warned of stays so, and what the body warns of is not: `catch_warnings` forgets the first."""
    filters, shows = list(warnings.filters), warnings.showwarning
    begun = _version()
    known = {id(r): (r, dict(r)) for r in _registries()}
    try:
        yield
    finally:
        warnings.showwarning = shows
        if list(warnings.filters) != filters:
            warnings.filters[:] = filters  # type: ignore[index]
            getattr(warnings, "_filters_mutated", lambda: None)()
        now = _version()
        for registry in _registries():
            before = known.get(id(registry), (registry, {"version": begun}))[1]
            registry.clear()
            registry.update(before)
            if before.get("version") == begun:
                registry["version"] = now


def _registries() -> list[dict[Any, Any]]:
    modules: list[Any] = list(sys.modules.values())
    found = (vars(m).get("__warningregistry__") for m in modules if isinstance(m, ModuleType))
    return [r for r in found if type(r) is dict]


def _version() -> object:
    """The number of the filters' state: a registry with another is emptied at its next warning."""
    registry: dict[Any, Any] = {}
    shows = warnings.showwarning
    warnings.showwarning = _shown
    try:
        with suppress(Warning):
            warnings.warn_explicit("", Warning, "", 0, registry=registry)
    finally:
        warnings.showwarning = shows
    return registry.get("version")


def _shown(*_args: object, **_keywords: object) -> None:
    """Show no warning."""


@contextmanager
def environment() -> Generator[None]:
    """The environment variables are put back."""
    before = dict(os.environ)
    try:
        yield
    finally:
        if dict(os.environ) != before:
            os.environ.clear()
            os.environ.update(before)
