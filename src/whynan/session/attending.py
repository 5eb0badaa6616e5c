"""whynan inside the program's own process, from before its first line: it waits for torch, and for the end.

Nothing is loaded here that Python has not loaded itself, so that a program without torch runs as if alone.
"""

# pyright: strict

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType
    from typing import Any

    from whynan.session.attended import Attended


class Attending:
    """One program from its start to its end; ``told`` says what `whynan run` was asked for, as text."""

    def __init__(self, told: str) -> None:
        self._told = told
        self._pid = os.getpid()
        self._path = list(sys.path)
        self._modules = frozenset(sys.modules)
        self._attended: Attended | None = None
        self._over = False
        self._failed = False

    def begin(self) -> None:
        """Torch has been loaded: look at what it runs."""
        if os.getpid() == self._pid and not self._over:
            self._guarded(self._begin)

    def end(self, error: BaseException | None = None) -> None:
        """The program is over: the report."""
        if os.getpid() != self._pid or self._over:
            return
        self._over = True
        if not self._failed:
            self._guarded(lambda: self._program().end(error))
        if self._failed:
            self._guarded(self._give_up)

    def die_of_interrupt(self) -> None:
        """After the report: the program ends as Python ends a program that is interrupted."""
        if os.getpid() == self._pid:
            from whynan.session.ending import die_of_interrupt

            die_of_interrupt()

    def forked(self) -> None:
        """In a child that the program has forked: it runs as if alone."""
        self._over = True
        if self._attended is not None:
            self._attended.forked()

    def _begin(self) -> None:
        self._program().begin()

    def _give_up(self) -> None:
        import json

        with open(json.loads(self._told)["status"], "w", encoding="utf-8") as file:
            json.dump({"whynan": 0, "stopped": False}, file)

    def _program(self) -> Attended:
        if self._attended is None:
            from whynan.session.attended import Attended

            self._attended = Attended(self._told, self._apart)
        return self._attended

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            with self._apart():
                act()
        except Exception:
            self._fail()

    def _fail(self) -> None:
        """An error of our own: one warning, and whoever waits for the program learns that there is no report."""
        if self._failed:
            return
        self._failed = True
        from whynan.capture.failure import report_internal_error

        report_internal_error()

    def _apart(self) -> Apart:
        return Apart(self._path, self._modules)


class Apart:
    """A stretch in which what is imported is what whynan means, and after which the program still finds its own.

    A program with a ``rich.py`` beside it gets that one, whatever whynan has loaded, and whynan gets the installed one.
    """

    # one for the process
    _ours: dict[str, ModuleType] = {}  # noqa: RUF012
    _installed: dict[str, bool] = {}  # noqa: RUF012

    def __init__(self, path: list[str], at_start: frozenset[str]) -> None:
        self._path = path
        self._at_start = at_start

    def __enter__(self) -> None:
        self._theirs_path, sys.path = sys.path, list(self._path)
        beside = self._names_beside()
        self._theirs = {name: module for name, module in sys.modules.items() if self._shadows(name, beside)}
        for name in self._theirs:
            del sys.modules[name]
        sys.modules.update(self._ours)
        self._before = frozenset(sys.modules)
        self._beside = beside

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sys.path = self._theirs_path
        for name in [n for n in sys.modules if n not in self._before or n in self._ours]:
            if self._shadows(name, self._beside):
                self._ours[name] = sys.modules.pop(name)
        sys.modules.update(self._theirs)

    def _shadows(self, name: str, beside: set[str]) -> bool:
        return name not in self._at_start and name.partition(".")[0] in beside

    def _names_beside(self) -> set[str]:
        """The top-level modules that stand in the program's folders in front of what is installed."""
        found: set[str] = set()
        for folder in self._theirs_path:
            if folder in self._path:
                continue
            try:
                found.update(entry.partition(".")[0] for entry in os.listdir(folder or os.curdir))
            except OSError:
                continue
        return {name for name in found - {"whynan", "torch", "numpy"} if self._is_installed(name)}

    def _is_installed(self, name: str) -> bool:
        """Whether whynan would find a module of this name too: only then is there a choice."""
        known = self._installed.get(name)
        if known is None:
            from importlib.machinery import PathFinder

            known = self._installed[name] = PathFinder.find_spec(name, self._path) is not None
        return known


class _Finder:
    """Finds torch as the finders after it do, and lets whynan begin once it is loaded."""

    def __init__(self, attending: Attending) -> None:
        self._attending = attending

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of torch, of which the loader tells when it is done; of nothing else."""
        if name != "torch":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._listen(spec.loader)
                return spec
        return None

    def _listen(self, loader: Any) -> None:
        load = loader.exec_module
        attending = self._attending

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            try:
                load(module)
            except BaseException as error:
                # torch's own failure, without our frame
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                raise
            attending.begin()

        loader.exec_module = exec_module


def attend(told: str) -> None:
    """Wait for torch, for the exception that ends the program, and for its end."""
    attending = Attending(told)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # on its way out of the program: nothing of Python's stands below
        if event == "sys.excepthook" and sys._getframe().f_back is None:  # pyright: ignore[reportPrivateUsage]
            attending.end(arguments[2])
            if arguments[1] is KeyboardInterrupt:
                attending.die_of_interrupt()

    def _exit(status: int) -> None:
        attending.end()
        leave_now(status)

    # as pickle finds the one that it stands for, in this process and in another
    _exit.__module__, _exit.__qualname__, _exit.__doc__ = "os", "_exit", os._exit.__doc__

    sys.addaudithook(hook)
    atexit.register(attending.end)
    os.register_at_fork(after_in_child=attending.forked)
    leave_now, os._exit = os._exit, _exit
    if "torch" in sys.modules:
        attending.begin()
    else:
        sys.meta_path.insert(0, _Finder(attending))  # pyright: ignore[reportArgumentType]
