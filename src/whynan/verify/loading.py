"""Another text of a file, run from the moment that a program loads it; the file itself is not touched."""

# pyright: strict

from __future__ import annotations

import ast
import linecache
import sys
import warnings
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import TYPE_CHECKING, Any, cast

from whynan.verify.swapping import is_same_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType


class Loaded:
    """The texts that files are loaded with, by their paths: text, or syntax that has the positions of the file's own.

    `over` is called when the main program has ended, with the exception that ended it.
    """

    def __init__(self, texts: Mapping[str, str | ast.Module], over: Callable[[BaseException | None], None]) -> None:
        self._texts = texts
        self._over = over

    def install(self) -> None:
        """Have modules be loaded so, those that ``python -m`` runs too; for as long as the process lives."""
        original = cast("Callable[[Any, str], CodeType | None]", vars(SourceFileLoader).get("get_code"))
        original = original or SourceFileLoader.get_code

        def get_code(loader: Any, fullname: str) -> CodeType | None:
            file = str(loader.get_filename(fullname))
            text = self._of(file)
            return original(loader, fullname) if text is None else self._compiled(file, text)

        setattr(SourceFileLoader, "get_code", get_code)  # noqa: B010 (a function of another's class)

    def run_main(self, code: object, frame: FrameType | None) -> None:
        """Run the main program that Python is about to run, with its other text where it has one; no other code.

        To be called from the audit hook, with the frame that has asked to run the code. What is left to do is then done
        while Python is still whole, and not at its exit.
        """
        if type(code) is not CodeType or not _is_main(frame):
            return
        text = self._of(code.co_filename)
        error: BaseException | None = None
        try:
            # a module's code has its text already
            made = code if text is None or frame is not None else self._compiled(code.co_filename, text)
            exec(made, vars(sys.modules["__main__"]))
            _join_threads()
        except SystemExit:
            pass
        except BaseException as raised:
            error = raised
        self._over(error)

    def _of(self, file: str) -> str | ast.Module | None:
        return next((text for path, text in self._texts.items() if is_same_file(file, path)), None)

    def _compiled(self, file: str, text: str | ast.Module) -> CodeType:
        if isinstance(text, str):
            # for tracebacks, sites and whatever reads its own source
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(text, file, "exec", dont_inherit=True)


def _is_main(frame: FrameType | None) -> bool:
    """Whether what a frame runs is the main program: nobody's frame has a script, ``runpy``'s a module."""
    if frame is None:
        return True
    below = frame.f_back
    names = frame.f_code.co_name, below is not None and below.f_code.co_name
    return names == ("_run_code", "_run_module_as_main") and below is not None and below.f_back is None


def _join_threads() -> None:
    """Wait for the threads that Python would wait for."""
    threading: Any = sys.modules.get("threading")
    if threading is not None:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
