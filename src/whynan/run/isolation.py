"""Import isolation: whynan's modules are found while whynan works, the program's at all other times."""

from __future__ import annotations

import os
import sys
from threading import RLock
from types import ModuleType, TracebackType
from typing import Final

_ALIKE: Final = frozenset({"whynan", "torch", "numpy"})
"""Of these there is only one: what the program has of them, whynan looks at."""
_DEEPER: Final = 1000
"""Calls that whynan's own work may need above those of the program."""

_working: Final = RLock()
"""Held by the thread for which things stand apart: there is one list of modules for all of them."""


class Isolation:
    """A stretch in which what is imported is what whynan means, and after which the program still finds its own.

    A program with a ``rich.py`` beside it gets that one, whatever whynan has loaded, and whynan gets the installed one.

    `path`: where whynan finds modules. `at_start`: the modules that Python has loaded itself.
    """

    # one for the process
    _ours: dict[str, ModuleType] = {}  # noqa: RUF012

    def __init__(self, path: list[str], at_start: frozenset[str]) -> None:
        self.path = path
        self._at_start = at_start
        self._depth = 0

    def begin(self) -> None:
        """The program begins: what whynan has loaded so far is whynan's, where the program has its own of the name."""
        self._theirs_path, self._before = sys.path, frozenset[str]()
        self._beside = self._names_beside()
        self._set_aside()

    def __enter__(self) -> None:
        _working.acquire()
        if self._depth:
            self._depth += 1
            return
        try:
            self._theirs_path, self._deepest = sys.path, sys.getrecursionlimit()
            self._beside = self._names_beside()
            self._theirs = {n: module for n, module in list(sys.modules.items()) if self._shadows(n, self._beside)}
        except BaseException:
            _working.release()
            raise
        sys.setrecursionlimit(self._deepest + _DEEPER)
        sys.path = list(self.path)
        for name in self._theirs:
            del sys.modules[name]
        # whynan itself too, whatever the program has done to it
        sys.modules.update(self._ours)
        self._before = frozenset(sys.modules)
        self._depth = 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            _working.release()
            return
        try:
            self._set_aside()
        finally:
            sys.modules.update(self._theirs)
            sys.path = self._theirs_path
            sys.setrecursionlimit(self._deepest)
            _working.release()

    def _set_aside(self) -> None:
        for name in list(sys.modules):
            if name.partition(".")[0] == "whynan":
                self._ours[name] = sys.modules[name]
            elif (name not in self._before or name in self._ours) and self._shadows(name, self._beside):
                self._ours[name] = sys.modules.pop(name)

    def _shadows(self, name: str, beside: frozenset[str]) -> bool:
        return name not in self._at_start and name.partition(".")[0] in beside

    def _names_beside(self) -> frozenset[str]:
        """The modules that stand in the program's folders in front of what whynan finds: only there is a choice."""
        beside: set[str] = set()
        for folder in self._theirs_path:
            # anything may stand there; Python passes over what is no text
            if isinstance(folder, str) and folder not in self.path:  # pyright: ignore[reportUnnecessaryIsInstance]
                beside |= _modules_in(folder)
        if not beside - _ALIKE:
            return frozenset()
        found = frozenset(name for folder in self.path for name in _modules_in(folder))
        return frozenset(beside - _ALIKE) & found


def _modules_in(folder: str) -> set[str]:
    """The names under which a folder or an archive may hold modules."""
    try:
        return {name.partition(".")[0] for name in os.listdir(folder or os.curdir)}
    except NotADirectoryError:
        from pkgutil import iter_modules

        return {module.name for module in iter_modules([folder])}
    except (OSError, ValueError):
        return set()
