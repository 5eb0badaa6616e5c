"""whynan inside the program's own process, from before its first line: it waits for torch, and for the end.

Nothing is loaded here that Python has not loaded itself, so that a program without torch runs as if alone.
"""

# pyright: strict

from __future__ import annotations

import atexit
import os
import sys
from _thread import get_ident
from time import monotonic

from whynan.session.apart import Apart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import FrameType, ModuleType
    from typing import Any

    from whynan.session.attended import Attended
    from whynan.session.repeated import Repeated
    from whynan.session.second import Second
    from whynan.verify.loading import Loaded


# before the program can put others in their place
_open, _write, _close, _mkdir, _leave_now = os.open, os.write, os.close, os.mkdir, os._exit
_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]

_UNLOADED = '{"whynan": 0, "loaded": false}'
_FAILED = '{"whynan": 0}'
_INTERRUPTED = '{"whynan": 130}'

_STEP, _PROOF = "step", "proof"
"""The further runs of a program; any other word is a trial of an edit."""


class Attending:
    """One program from its start to its end.

    `told` says what `whynan run` was asked for, as text; `status` names the file in which it reads how that went.
    `again`: which further run of it this is, if any: one that explains a bad step, or one that proves fixes.
    """

    def __init__(self, told: str, status: str, *, again: str | None = None) -> None:
        self._began = monotonic()
        self._again = again
        self._folder = os.path.dirname(status)
        self._told = told
        self._status = status
        self._pid = os.getpid()
        self._path = list(sys.path)
        self._modules = frozenset(sys.modules)
        self._attended: Attended | Second | Repeated | None = None
        self._loaded: Loaded | None = None
        self._repeated: Repeated
        self._running = False
        self._over = False
        self._failed = False
        self._word_left = False

    def begin(self) -> None:
        """Torch has been loaded: look at what it runs."""
        if os.getpid() == self._pid and not self._over:
            self._guarded(self._begin)

    def end(self, error: BaseException | None = None) -> None:
        """The program is over: the report."""
        if os.getpid() != self._pid or self._over:
            return
        self._over = True
        attended = self._attended
        if attended is not None and not self._failed:
            try:
                self._guarded(lambda: attended.end(error))
            except KeyboardInterrupt:
                self._leave_word(_INTERRUPTED)
                _say("interrupted before the report was made")
        if not self._word_left:
            self._leave_word(_FAILED if self._failed else _UNLOADED)

    def end_by(self, error: BaseException) -> None:
        """The program is over by an exception that Python is about to print, whatever becomes of the report."""
        try:
            self.end(error)
            if type(error) is KeyboardInterrupt and os.getpid() == self._pid and self._attended is not None:
                from whynan.session.ending import die_of_interrupt

                die_of_interrupt()
        except Exception:
            self.fail()

    def forked(self) -> None:
        """In a child that the program has forked: it runs as if alone."""
        self._over = True
        try:
            if self._attended is not None:
                self._attended.forked()
        except Exception:
            self.fail()

    def fail(self) -> None:
        """An error of our own: one warning, and whoever waits for the program learns that there is no report."""
        if self._failed:
            return
        self._failed = True
        from whynan.capture.failure import report_internal_error

        report_internal_error()

    def prepare(self) -> None:
        """Before the program's first line: a run that proves fixes is loaded with other texts."""
        if self._again in (None, _STEP):
            return
        from whynan.session.rerunning import Rerun
        from whynan.session.trials import Trial

        made = Rerun if self._again == _PROOF else Trial
        self._repeated = made(self._told, self._folder, self._apart, _leave_now)
        self._loaded = self._repeated.loaded()
        self._loaded.install()

    def runs(self, code: object, frame: FrameType | None) -> None:
        """A frame is about to run some code; a further run of the program is run, and ended, from here."""
        if self._loaded is not None and not self._running:
            self._running = True
            self._loaded.run_main(code, frame)
            self._running = False

    def _begin(self) -> None:
        if self._again not in (None, _STEP):
            self._attended = self._repeated
        elif self._again == _STEP:
            from whynan.session.second import Second

            self._attended = Second(self._told, self._folder, self._apart, _leave_now)
        else:
            from whynan.session.attended import Attended

            self._attended = Attended(self._told, self._apart, self._leave_word)
            self._attended.reruns(self._folder, self._began)
        try:
            self._attended.begin()
        except BaseException as error:
            self._attended.forked()
            # interrupted, which is for the program to see
            self._failed = not isinstance(error, Exception)
            raise

    def _leave_word(self, text: str) -> None:
        """Let whoever waits for the program know, even where the program has cleared away the folder for it."""
        self._word_left = True
        try:
            try:  # noqa: SIM105 (contextlib would be loaded for it)
                _mkdir(os.path.dirname(self._status), 0o700)
            except FileExistsError:
                pass
            descriptor = _open(self._status, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                _write(descriptor, text.encode("ascii"))
            finally:
                _close(descriptor)
        except OSError:
            return

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            with self._apart():
                act()
        except Exception:
            self.fail()

    def _apart(self) -> Apart:
        return Apart(self._path, self._modules)


def _say(text: str) -> None:
    """A line on the standard error stream, if there is one."""
    try:
        print(f"whynan: {text}", file=sys.__stderr__ or sys.stderr, flush=True)
    except Exception:
        return


class _Finder:
    """Finds torch as the finders after it do, and lets whynan begin once it is loaded."""

    def __init__(self, attending: Attending) -> None:
        self._attending = attending
        self._asked = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of torch, of which the loader tells when it is done; of nothing else."""
        if name != "torch" or self._asked:
            return None
        # the program may ask whether there is a torch, long before it loads it
        self._asked = True
        try:
            # those before this one have been asked
            finders: list[Any] = list(sys.meta_path)
            for finder in finders[finders.index(self) + 1 if self in finders else 0 :]:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    try:
                        self._listen(spec.loader)
                    except Exception:
                        self._attending.fail()
                    return spec
        finally:
            self._asked = False
        return None

    def _listen(self, loader: Any) -> None:
        load = getattr(loader, "exec_module", None)
        attending = self._attending
        if load is None or "exec_module" in getattr(loader, "__dict__", {}):
            # nothing to listen to, or already listened to
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            try:
                load(module)
            except BaseException as error:
                # torch's own failure, without our frame
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                raise
            if self in sys.meta_path:
                sys.meta_path.remove(self)  # pyright: ignore[reportArgumentType]
            if hasattr(module, "_C"):
                # not a module of the program's own that has the name
                attending.begin()

        loader.exec_module = exec_module


def attend(told: str, status: str, *, again: str | None = None) -> None:
    """Wait for torch, for the exception that ends the program, and for its end; `again`: of which further run."""
    attending = Attending(told, status, again=again)
    main = get_ident()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # on its way out of the program: nothing of Python's stands below
        if event == "sys.excepthook" and get_ident() == main and _frame().f_back is None:
            attending.end_by(arguments[2])
        elif event == "exec" and again is not None:
            attending.runs(arguments[0], _frame().f_back)

    def _exit(status: int) -> None:
        attending.end()
        leave_now(status)

    # as pickle finds the one that it stands for, in this process and in another
    _exit.__module__, _exit.__qualname__, _exit.__doc__ = "os", "_exit", os._exit.__doc__

    # a program that is run from within it may be traced
    hook.__cantrace__ = again is not None  # pyright: ignore[reportFunctionMemberAccess]
    attending.prepare()
    sys.addaudithook(hook)
    atexit.register(attending.end)
    os.register_at_fork(after_in_child=attending.forked)
    leave_now, os._exit = os._exit, _exit
    if "torch" in sys.modules:
        attending.begin()
    else:
        sys.meta_path.insert(0, _Finder(attending))  # pyright: ignore[reportArgumentType]
