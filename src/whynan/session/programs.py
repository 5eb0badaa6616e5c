"""A Python program as the command line names it, refused at the door where Python could not run it."""

# pyright: strict

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Literal

from whynan.errors import UsageError

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
        flag = {"script": [], "module": ["-m"], "code": ["-c"]}[self.kind]
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
            if not os.path.isfile(os.path.join(path, "__main__.py")):
                raise UsageError(f"{path} is a directory", "give the script in it, or one with a __main__.py")
            return
        if not os.path.exists(path):
            raise UsageError(f"there is no file {path}", "check the path; a module is given as -m name")
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
    from importlib.util import find_spec

    parts = name.split(".")
    # without the folder that stands in front for whynan's own sake
    paths = sys.path if sys.flags.safe_path else [os.getcwd(), *sys.path[1:]]
    for part in parts:
        spec = PathFinder.find_spec(part, paths)
        if spec is None and part is parts[0]:
            spec = find_spec(part)
        if spec is None:
            return False
        locations = spec.submodule_search_locations
        if part is parts[-1]:
            return locations is None or PathFinder.find_spec("__main__", locations) is not None
        if locations is None:
            return False
        try:
            paths = list(locations)
        except KeyError:
            # a namespace inside a package, which tells its places only once the package is loaded
            return True
    return False
