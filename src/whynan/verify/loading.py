"""Another text of a file, run from the moment that a program loads it; the file itself is not touched."""

# pyright: strict

from __future__ import annotations

import ast
import linecache
import warnings
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any, cast

from whynan.verify.swapping import is_same_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType


class Loaded:
    """The texts that files are loaded with, by path: text, or syntax that has the positions of the file's own."""

    def __init__(self, texts: Mapping[str, str | ast.Module]) -> None:
        self._texts = texts

    def install(self) -> None:
        """Have modules be loaded so, those that ``python -m`` runs too; for as long as the process lives."""
        original = cast("Callable[[Any, str], CodeType | None]", vars(SourceFileLoader).get("get_code"))
        original = original or SourceFileLoader.get_code

        def get_code(loader: Any, fullname: str) -> CodeType | None:
            code = self.code_of(str(loader.get_filename(fullname)))
            return original(loader, fullname) if code is None else code

        setattr(SourceFileLoader, "get_code", get_code)  # noqa: B010 (a function of another's class)

    def code_of(self, file: str) -> CodeType | None:
        """The code of a file that has another text; None of any other."""
        text = next((text for path, text in self._texts.items() if is_same_file(file, path)), None)
        return None if text is None else _compiled(file, text)


def _compiled(file: str, text: str | ast.Module) -> CodeType:
    if isinstance(text, str):
        # for tracebacks, sites and whatever reads its own source
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(text, file, "exec", dont_inherit=True)
