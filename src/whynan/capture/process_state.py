"""State of the process that is put back: attributes, warning filters, environment variables, the profile function."""

# pyright: strict

from __future__ import annotations

import os
import sys
import warnings
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Generator[None]:
    """Have an attribute be another value."""
    before: Any = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def profiled(function: Any) -> Generator[None]:
    """Have a profile function; the program's own is back afterwards."""
    before: Any = sys.getprofile()
    sys.setprofile(function)
    try:
        yield
    finally:
        # one that is written in C installs itself
        enable = getattr(before, "enable", None)
        sys.setprofile(None if enable else before)
        if enable:
            enable()


@contextmanager
def warning_filters() -> Generator[None]:
    """Put the filters of warnings back; their version stays, for by another one Python forgets what it has shown."""
    filters = list(warnings.filters)
    names = [n for n in ("_filters_mutated", "_filters_mutated_lock_held") if n in vars(warnings)]
    try:
        with ExitStack() as entered:
            for name in ("filters", "showwarning"):
                entered.enter_context(replaced(warnings, name, vars(warnings)[name]))
            for name in names:
                entered.enter_context(replaced(warnings, name, lambda: None))
            yield
    finally:
        warnings.filters[:] = filters  # type: ignore[index]


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
