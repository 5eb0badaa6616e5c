"""Whose code a file is: the user's, a library's, torch's, the standard library's or ours."""

from __future__ import annotations

import importlib.util
import os
import re
import site
import sys
import sysconfig
from enum import IntEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from types import CodeType


class Owner(IntEnum):
    """Whose a frame is; an integer, because every traced event asks."""

    USER = 0
    LIBRARY = 1
    TORCH = 2
    STDLIB = 3
    WHYNAN = 4


_TORCH_PACKAGES: Final = frozenset({"torch", "torchgen", "functorch"})
"""What a torch wheel installs."""

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})

# Code that has no file is the user's (`<stdin>`, `<string>`, `<ipython-input-3-f00>`, `<doctest ...>`), but for what
# these make up at run time.
_GENERATED: Final = (
    ("<frozen ", Owner.STDLIB),
    ("<eval_with_key>", Owner.TORCH),  # torch.fx
    ("<attrs generated", Owner.LIBRARY),
    ("<@beartype", Owner.LIBRARY),
    ("<decorator-gen", Owner.LIBRARY),
    ("<boltons.funcutils", Owner.LIBRARY),
    ("<makefun-gen", Owner.LIBRARY),
    ("<__array_function__ internals>", Owner.LIBRARY),  # numpy before 1.25
    ("<template>", Owner.LIBRARY),  # jinja2
)

_ZIPPED_STDLIB: Final = re.compile(r"python3\d+\.zip")


def _folder(path: str) -> str:
    return os.path.join(os.path.normcase(os.path.abspath(path)), "")


def _both(*paths: str) -> tuple[str, ...]:
    """Folders as they are written and as their links resolve."""
    return tuple(dict.fromkeys(f for p in paths for f in (_folder(p), _folder(os.path.realpath(p)))))


def _locations(package: str) -> list[str]:
    """Where a package lies, found without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):  # a module without __spec__, a broken finder
        return []
    return list(spec.submodule_search_locations or ()) if spec is not None else []


@cache
def _places() -> tuple[tuple[Owner, tuple[str, ...]], ...]:
    """The folders of whynan, of torch, of what is installed and of the standard library, in order of asking."""
    installed = [p for n in ("purelib", "platlib") if (p := sysconfig.get_path(n))]
    return (
        (Owner.WHYNAN, _both(os.path.dirname(os.path.dirname(__file__)))),
        (Owner.TORCH, _both(*(p for package in sorted(_TORCH_PACKAGES) for p in _locations(package)))),
        (Owner.LIBRARY, _both(*installed, site.getusersitepackages())),
        # platstdlib is left out: in a virtual environment it is the environment's own lib/python3.x
        (Owner.STDLIB, _both(sysconfig.get_path("stdlib"), os.path.dirname(os.__file__))),
    )


@cache
def _scripts() -> tuple[str, ...]:
    return _both(sysconfig.get_path("scripts"))


def _owner_of_path(filename: str) -> Owner:
    try:
        path = os.path.normcase(os.path.abspath(filename))
    except OSError:  # the working directory was removed
        path = os.path.normcase(filename)
    parts = path.split(os.sep)
    for owner, folders in _places():
        if path.startswith(folders):
            return owner
        # asked before the standard library, which may hold a site-packages of its own
        if owner is Owner.TORCH and not _INSTALLED.isdisjoint(parts):
            last = max(i for i, part in enumerate(parts) if part in _INSTALLED)
            return Owner.TORCH if parts[last + 1] in _TORCH_PACKAGES else Owner.LIBRARY
    if any(part.startswith("torchinductor_") for part in parts):
        return Owner.TORCH  # what torch.compile wrote
    if any(_ZIPPED_STDLIB.fullmatch(part) for part in parts):
        return Owner.STDLIB
    if not path.endswith(".py") and any(p.startswith(_scripts()) for p in (path, without_links(path))):
        return Owner.LIBRARY  # `pytest`, `torchrun`, as pip writes them, also through a link
    return _owner_in_target(path)


def without_links(path: str) -> str:
    """Where a path leads to; the path itself where it is a name that no file can have."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def _owner_in_target(path: str) -> Owner:
    """Whose a file is that ``pip install --target`` may have put into any folder of ``sys.path``."""
    # Python passes over what is no text
    for entry in cast("list[object]", sys.path):
        try:
            folder = _folder(entry) if isinstance(entry, str) and entry else None
            if folder is None or not path.startswith(folder):
                continue
            name = path[len(folder) :]
            if name in _installed_files(folder):
                return Owner.TORCH if name.partition(os.sep)[0] in _TORCH_PACKAGES else Owner.LIBRARY
        except (OSError, ValueError):  # the working directory was removed, a record that cannot be read
            continue
    return Owner.USER


@cache
def _installed_files(folder: str) -> frozenset[str]:
    """The files in a folder that the records of its distributions name; none of a plain folder."""
    import importlib.metadata

    records = (one.read_text("RECORD") or "" for one in importlib.metadata.distributions(path=[folder]))
    # what is installed for editing has left nothing but its metadata
    lines = (line.partition(",")[0] for record in records for line in record.splitlines())
    return frozenset(os.path.normcase(line.replace("/", os.sep)) for line in lines)


@lru_cache(maxsize=65_536)  # of all modules of a process, which are gone through one after the other
def owner_of(filename: str) -> Owner:
    """Whose the code of a file is, by the ``co_filename`` of its code.

    The user's is whatever is neither installed (``site-packages``, ``dist-packages``, a folder that pip was given as
    ``--target``) nor part of Python: scripts, packages installed for editing, notebook cells, code without a file.
    """
    if filename.startswith("<"):
        return next((owner for start, owner in _GENERATED if filename.startswith(start)), Owner.USER)
    return _owner_of_path(filename)


def owner_of_code(code: CodeType) -> Owner:
    """Whose a code object is: as its file, but for the methods that ``dataclasses`` writes as ``<string>``."""
    if code.co_filename == "<string>" and code.co_qualname.startswith("__create_fn__.<locals>."):
        return Owner.STDLIB
    return owner_of(code.co_filename)
