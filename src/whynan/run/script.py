"""Scripts: a Python program as the command line names it, run as Python runs it."""

from __future__ import annotations

import builtins
import os
import runpy
import sys
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from pkgutil import get_importer
from time import monotonic
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from whynan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


# -- The Python that runs whynan, as it was called ---------------------------------------------------------------------


_LONG_WITH_VALUE: Final = "--check-hash-based-pycs"
_WITH_VALUE: Final = "WX"
_CODE, _MODULE = "c", "m"


def interpreter_name() -> list[str]:
    """The interpreter's name, as the user gave it where whynan was called by it, and the options that it was given."""
    named = os.path.basename(sys.argv[0]) == "__main__.py" and sys.orig_argv[:1] != [""]
    return [sys.orig_argv[0] if named else sys.executable, *command_line(sys.orig_argv[1:]).options]


class CommandLine(NamedTuple):
    """The options of an interpreter, and the code that it was given to run; None where that is a script or module."""

    options: list[str]
    code: str | None


def command_line(words: Sequence[str]) -> CommandLine:
    """A command line of Python's, without the interpreter."""
    options: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if not word.startswith("-") or word in ("-", "--"):
            break
        if word.startswith("--"):
            options += [word, next(waiting, "")] if word == _LONG_WITH_VALUE else [word]
            continue
        place = next((i for i, letter in enumerate(word) if letter in (*_WITH_VALUE, _CODE, _MODULE)), len(word))
        letter, rest = word[place : place + 1], word[place + 1 :]
        if letter in (_CODE, _MODULE):
            # what follows belongs to what is run
            options += [word[:place]] if place > 1 else []
            return CommandLine(options, (rest or next(waiting, "")) if letter == _CODE else None)
        options += [word, next(waiting, "")] if letter and not rest else [word]
    return CommandLine(options, None)


# -- A Python program as the command line names it: refused where Python could not run it, run as Python runs it -------
#
# As `coverage run`, `memray run` and `cProfile -m` do, it is run in this process, in a ``__main__`` of its own.


if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import CodeType

    Edited = Callable[[str], CodeType | None]
    """Gives the code that a file is to be run with in place of its own."""

Kind = Literal["script", "module", "code"]
_OWN: Final = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_replaced: Final[list[ModuleType]] = []


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

    def to_document(self) -> list[Any]:
        """It as a document for another process."""
        return [self.kind, self.what, list(self.arguments)]

    @classmethod
    def from_document(cls, stored: list[Any]) -> Program:
        """The one that ``stored()`` gave in another process."""
        kind, what, arguments = stored
        return cls(kind, what, tuple(arguments))

    def check(self) -> None:
        """Raise ``UsageError`` for what Python could not begin to run; nothing of the program is executed."""
        if self.kind == "script":
            self._check_script()
        elif self.kind == "module":
            self._check_module()

    def enter(self) -> None:
        """Take the place of whynan's command: arguments, search path and ``__main__`` become the program's."""
        sys.orig_argv[:] = [*interpreter_name(), *self.command_line]
        sys.argv[:] = [{"script": self.what, "module": "-m", "code": "-c"}[self.kind], *self.arguments]
        if not sys.flags.safe_path:
            # that of whynan's own command
            del sys.path[:1]
        if self._holds_main() or not sys.flags.safe_path:
            sys.path.insert(0, self._first_path())
        main = ModuleType("__main__")
        if sys.version_info < (3, 14):
            main.__annotations__ = {}
        vars(main).update(__builtins__=builtins, __loader__=BuiltinImporter)
        # the old one is kept: it is still running
        _replaced.append(sys.modules["__main__"])
        sys.modules["__main__"] = main

    def execute(self, edited: Edited = lambda _: None) -> None:
        """Run it, as ``python`` would; raises what it raises."""
        run_module: Any = vars(runpy)["_run_module_as_main"]
        if self.kind == "module":
            run_module(self.what)
        elif self._holds_main():
            run_module("__main__", False)
        else:
            main = vars(sys.modules["__main__"])
            exec(self._code(main, edited), main)
            if self.kind == "script" and self.what != "-":
                # as Python does before it leaves
                main.pop("__file__", None)
                main.pop("__cached__", None)

    def _code(self, main: dict[str, Any], edited: Edited) -> CodeType:
        if self.kind == "code":
            return compile(f"{self.what}\n", "<string>", "exec", dont_inherit=True)
        if self.what == "-":
            return compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True)
        path = _absolute(self.what)
        loader = (SourcelessFileLoader if path.endswith(".pyc") else SourceFileLoader)("__main__", path)
        main.update(__loader__=loader, __file__=path, __cached__=None)
        code = edited(path)
        if code is None and isinstance(loader, SourcelessFileLoader):
            code = loader.get_code("__main__")
        if code is None:
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        return code

    def _holds_main(self) -> bool:
        """Whether it is a folder or an archive."""
        return self.kind == "script" and self.what != "-" and get_importer(_absolute(self.what)) is not None

    def _first_path(self) -> str:
        if self.kind == "module":
            return _working_directory()
        if self.kind == "code" or self.what == "-":
            return ""
        return _absolute(self.what) if self._holds_main() else os.path.dirname(os.path.realpath(self.what))

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


class Beginning:
    """How a program began: what it is, when, in what environment and working directory."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.time = monotonic()
        self.environment = dict(os.environ)
        self.folder = _working_directory()


def without_own_frames(error: BaseException) -> BaseException:
    """An exception of the program whose traceback begins where Python's own would."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_code.co_filename.startswith(_OWN):
        step = step.tb_next
    return error.with_traceback(step)


def _absolute(path: str) -> str:
    """A path as Python names its script: made absolute, and not made plain."""
    return path if os.path.isabs(path) else os.path.join(_working_directory(), path)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        # it was removed
        return ""


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
