"""A Python program as the command line names it, refused at the door where Python could not run it."""

# pyright: strict

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from whynan.errors import UsageError

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

Kind = Literal["script", "module", "code"]


@dataclass(frozen=True, slots=True)
class Program:
    """A script (or a folder or archive with a ``__main__``), a module (``-m``) or code (``-c``), with its arguments."""

    kind: Kind
    what: str
    arguments: tuple[str, ...] = ()

    @property
    def command_line(self) -> list[str]:
        """What follows the interpreter on its command line."""
        # a script's name may begin as an option does
        plain = [] if self.what == "-" or not self.what.startswith("-") else ["--"]
        flag = {"script": plain, "module": ["-m"], "code": ["-c"]}[self.kind]
        return [*flag, self.what, *self.arguments]

    @property
    def name(self) -> str:
        """What the program is called in a report; its arguments are never recorded."""
        return {"script": self.what, "module": f"-m {self.what}", "code": "-c ..."}[self.kind]

    def check(self) -> None:
        """Raise ``UsageError`` for what Python could not begin to run; nothing of the program is executed."""
        if self.kind == "script":
            self._check_script()
        elif self.kind == "module":
            self._check_module()

    def _check_script(self) -> None:
        path = self.what
        if path == "-":
            return
        if os.path.isdir(path):
            if not any(os.path.isfile(os.path.join(path, f"__main__{end}")) for end in (".py", ".pyc")):
                raise UsageError(f"{path} is a directory", "give the script in it, or one with a __main__.py")
            return
        if not os.path.exists(path):
            raise UsageError(f"there is no file {path or repr(path)}", "check the path; a module is given as -m name")
        try:
            if os.path.isfile(path):
                with open(path, "rb"):
                    pass
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror})", "check its permissions") from None

    def _check_module(self) -> None:
        if not self.what or self.what.startswith(".") or not all(self.what.split(".")):
            raise UsageError(f"-m {self.what!r} is no module name", "give it in full: -m package.module")
        if not _found(self.what):
            raise UsageError(
                f"there is no module {self.what} that could run", "check the name, and that it is importable from here"
            )


def _found(name: str) -> bool:
    """Whether Python would find a module from the working directory; only files are looked at, no package runs."""
    from importlib.machinery import PathFinder

    parts = name.split(".")
    paths = _search_path()
    for part in parts:
        spec = PathFinder.find_spec(part, paths)
        if spec is None and part is parts[0]:
            spec = _found_otherwise(part)
        if spec is None:
            return False
        locations = spec.submodule_search_locations
        if part is parts[-1]:
            return locations is None or PathFinder.find_spec("__main__", locations) is not None
        if locations is None:
            return False
        if _places_itself(spec.origin):
            return True
        try:
            paths = list(locations)
        except KeyError:
            # a namespace inside a package, which tells its places only once the package is loaded
            return True
    return False


def _search_path() -> list[str]:
    if sys.flags.safe_path:
        return sys.path
    # without the folder that stands in front for whynan's own sake
    try:
        return [os.getcwd(), *sys.path[1:]]
    except OSError:
        # it was removed
        return sys.path[1:]


def _found_otherwise(name: str) -> ModuleSpec | None:
    """A module that no folder holds: built in, frozen, or found by somebody's own finder."""
    from importlib.machinery import PathFinder

    for finder in sys.meta_path:
        if finder is not PathFinder:
            spec = finder.find_spec(name, None)
            if spec is not None:
                return spec
    return None


def _places_itself(origin: str | None) -> bool:
    """Whether a package may look for its modules elsewhere than beside its ``__init__``, once it runs."""
    try:
        with open(origin or "", "rb") as file:
            return b"__path__" in file.read()
    except OSError:
        return origin is not None and not os.path.isdir(origin)
