"""`whynan run`: runs the program in this process and looks at it from the moment that it loads torch.

The end is played as Python plays it: an exception is printed by ``sys.excepthook``, threads are waited for, exit
handlers run; then comes the report, and Python's own end with the program's exit status, or whynan's where that is 0.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from whynan.run.isolation import Isolation
from whynan.run.output.delivery import deliver, say
from whynan.run.output.files import STANDARD_OUTPUT
from whynan.run.script import Beginning, without_own_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Protocol

    from whynan.config import Options
    from whynan.run.controller import Controller
    from whynan.run.script import Program

    class Attached(Protocol):
        """What looks at a program from within its process."""

        def begin(self) -> None:
            """Torch has been loaded."""
            ...

        def end(self, error: BaseException | None = None, *, script: int = 0) -> int:
            """The program is over; gives whynan's exit status."""
            ...

        def after_fork(self) -> None:
            """This is a child that the program has forked."""
            ...


_LAST: Final = 5.0
"""Seconds in which a rank that was stopped lets another one raise."""


@dataclass(frozen=True)
class SpawnedRank:
    """What a process runs that the program has started, as one of several: its function, watched.

    `path`: where whynan finds modules. `store`: where the program's process serves a store.
    """

    program: Program
    options: Options
    path: list[str]
    function: Callable[..., Any]
    world: int
    store: tuple[str, int]

    def __call__(self, number: int, *args: Any) -> None:
        """Run it as the rank of a number."""
        from whynan.capture.ranks import Rank, join_spawned

        join_spawned(Rank(number, self.world), self.store)
        options = replace(self.options, json=None, trace=None, capsule=None, rerun=False)
        run = Run(self.program, options, Isolation(self.path, sys.stdlib_module_names))
        run.begin_spawned()
        try:
            self.function(number, *args)
        except BaseException as error:
            if not isinstance(error, SystemExit):
                run.end(error, script=INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)
            self._finish(run, error.code if isinstance(error, SystemExit) else 1)
            raise
        self._finish(run, 0)

    def _finish(self, run: Run, code: object) -> None:
        whynan = run.end(script=code if isinstance(code, int) else int(code is not None))
        run.finish(whynan, interrupted=False)
        if run.is_stopped_in_concert and isinstance(code, int) and sys.exc_info()[0] is SystemExit:
            from whynan.run.ranks.channel import leave

            if self.options.on_nonfinite == "raise":
                # the program has the exception of the one that is gone first
                threading.Event().wait(_LAST)
            leave(code)


UNFLUSHED: Final = 120
"""The exit status that Python ends with where what a stream holds cannot be written."""
INTERRUPTED: Final = 130
_modules: Final = frozenset(sys.modules)


def launch(program: Program, options: Options) -> int:
    """Run a program and give its exit status, or whynan's where the program's is 0."""
    options = _from_anywhere(options)
    if options.rerun:
        from whynan.run.proof.whole_program import prepare

        prepare(options)
    run = Run(program, options)
    run.begin_program()
    status, interrupted = _executed(program, run)
    whynan = run.end(script=_flushed(status))
    whynan = run.finish(whynan, interrupted=interrupted)
    if interrupted:
        _die_of_interrupt()
    if run.is_stopped_in_concert:
        from whynan.run.ranks.channel import leave

        # the threads of the program's groups, which nobody has let go of, may abort the interpreter at its end
        leave(status or whynan)
    return status or whynan


class Run:
    """One program from its start to its end, in the process that it runs in."""

    def __init__(self, program: Program, options: Options, isolation: Isolation | None = None) -> None:
        self._program = program
        self._options = options
        self._beginning = Beginning(program)
        self._pid = os.getpid()
        self._isolation = isolation or isolation_here()
        self._earlier = _stamp(options.json)
        self._controller: Controller | None = None
        self._whynan: int | None = None
        self._failed = False

    @property
    def is_stopped_in_concert(self) -> bool:
        """Whether all ranks of the run were stopped in the midst of what they do together."""
        return self._controller is not None and self._controller.is_stopped_in_concert

    def begin_program(self) -> None:
        """Become the program, all but to run it."""
        self._program.enter()
        self.begin_spawned()

    def begin_spawned(self) -> None:
        """Look at this process, which runs a part of the program already."""
        try:
            self._isolation.begin()
            attach(self)
        except Exception:
            self._fail()

    def begin(self) -> None:
        """Torch has been loaded: look at what it runs."""
        if os.getpid() == self._pid and self._whynan is None:
            self._guarded(self._begin)

    def _begin(self) -> None:
        from whynan.run.controller import Controller

        self._controller = Controller(self._beginning, self._options, self._isolation)
        self._controller.watched = functools.partial(SpawnedRank, self._program, self._options, self._isolation.path)
        try:
            self._controller.begin()
        except BaseException as error:
            self._controller.after_fork()
            # interrupted, which is for the program to see
            self._failed = not isinstance(error, Exception)
            raise

    def end(self, error: BaseException | None = None, *, script: int = 0) -> int:
        """The program is over: the report, once; gives whynan's exit status."""
        if os.getpid() != self._pid:
            return 0
        if self._whynan is None:
            self._whynan = 0
            try:
                self._guarded(lambda: self._end(error, script))
            except KeyboardInterrupt:
                self._whynan = INTERRUPTED
                say("interrupted before the report was made")
        return self._whynan

    def _end(self, error: BaseException | None, script: int) -> None:
        if self._controller is not None and not self._failed:
            self._controller.end(error, script=script)
            self._whynan = self._controller.whynan
        elif not self._failed:
            _deliver_without_torch(self._program.name, self._options, script)
        elif self._earlier is not None and _stamp(self._options.json) == self._earlier and not self._options.quiet:
            say(f"{self._options.json} is that of an earlier run")

    def finish(self, whynan: int, *, interrupted: bool) -> int:
        """Nothing of the program runs any more: what further runs of it prove is told now; gives the exit status."""
        controller = self._controller
        if controller is not None:
            controller.close()
        if os.getpid() != self._pid or controller is None or self._failed:
            return whynan
        self._guarded(lambda: controller.finish(interrupted=interrupted))
        return max(whynan, controller.whynan)

    def after_fork(self) -> None:
        """In a child that the program has forked: it runs as if alone."""
        self._whynan = 0
        if self._controller is not None:
            try:
                self._controller.after_fork()
            except Exception:
                self._fail()

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            with self._isolation:
                act()
        except Exception:
            self._fail()

    def _fail(self) -> None:
        """An error of our own: one warning, and no report."""
        if not self._failed:
            self._failed = True
            from whynan.faults import report_internal_error

            report_internal_error()


def isolation_here() -> Isolation:
    """That of whynan's modules, as they are found before the program begins."""
    # without the folder that Python has put there for whynan's own command
    return Isolation(sys.path[0 if sys.flags.safe_path else 1 :], _python_alone())


def attach(attached: Attached) -> None:
    """Have something look at the program of this process from the moment that it loads torch to its end."""
    leave = os._exit

    def _exit(status: int) -> None:
        whynan = attached.end(script=status)
        leave(status or whynan)

    # as pickle finds the one that it stands for, in this process and in another
    _exit.__module__, _exit.__qualname__, _exit.__doc__ = "os", "_exit", leave.__doc__
    os._exit = _exit
    os.register_at_fork(after_in_child=attached.after_fork)
    if "torch" in sys.modules:
        attached.begin()
    else:
        sys.meta_path.insert(0, _Finder(attached))  # pyright: ignore[reportArgumentType]


class _Finder:
    """Import hook: finds torch as the finders after it do, and tells once it is loaded."""

    def __init__(self, attached: Attached) -> None:
        self._attached = attached
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
                        from whynan.faults import report_internal_error

                        report_internal_error()
                    return spec
        finally:
            self._asked = False
        return None

    def _listen(self, loader: Any) -> None:
        load = getattr(loader, "exec_module", None)
        attached = self._attached
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
                attached.begin()

        loader.exec_module = exec_module


# -- the end of a program, as Python plays it --------------------------------------------------------------------------


def _executed(program: Program, run: Run) -> tuple[int, bool]:
    """Run a program to its end; gives its exit status, and whether it died of an interrupt."""
    raised: BaseException | None = None
    try:
        program.execute()
    except BaseException as error:
        raised = without_own_frames(error)
    status, interrupted = 0, False
    if isinstance(raised, SystemExit):
        status = _status_of(raised)
    elif raised is not None:
        interrupted = type(raised) is KeyboardInterrupt
        run.end(raised, script=INTERRUPTED if interrupted else 1)
        status = _print(raised)
    del raised
    wait_for_threads()
    vars(atexit)["_run_exitfuncs"]()
    return status, interrupted


def wait_for_threads() -> None:
    """Wait for the threads that Python would wait for; an interrupt is for the one that waits."""
    with suppress(KeyboardInterrupt):
        vars(threading)["_shutdown"]()


def _status_of(error: SystemExit) -> int:
    """The exit status that an exception asks for; what is no number is printed."""
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if os.name == "posix" else code
    with suppress(Exception):
        print(code, file=sys.stderr, flush=True)
    return 1


def _print(error: BaseException) -> int:
    """Have ``sys.excepthook`` print what nobody has caught; gives the exit status."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    hook = getattr(sys, "excepthook", None)
    try:
        sys.audit("sys.excepthook", hook, type(error), error, error.__traceback__)
        if hook is None:
            print("sys.excepthook is missing", file=sys.stderr)
            hook = sys.__excepthook__
        hook(type(error), error, error.__traceback__)
    except SystemExit as end:
        return _status_of(end)
    except BaseException as second:
        with suppress(Exception):
            print("Error in sys.excepthook:", file=sys.stderr)
            without_own_frames(second).__context__ = None
            sys.__excepthook__(type(second), second, second.__traceback__)
            print("\nOriginal exception was:", file=sys.stderr)
            sys.__excepthook__(type(error), error, error.__traceback__)
    return 1


def _flushed(status: int) -> int:
    """The exit status of a program, which is Python's own where what its streams hold cannot be written."""
    for stream, own in ((sys.stdout, sys.__stdout__), (sys.stderr, sys.__stderr__)):
        try:
            # a stream of the program's own would notice
            if stream is own and own is not None and not own.closed:
                own.flush()
        except Exception:
            return UNFLUSHED
    return status


def _die_of_interrupt() -> None:
    """Have Python end by the signal, as after every KeyboardInterrupt that nobody has caught, without a word more.

    Python notes the exception where it ends text that is run (CPython 3.8 to 3.14).
    """
    sys.excepthook = _print_nothing
    exec("raise KeyboardInterrupt")


def _print_nothing(*_: object) -> None:
    return


def _python_alone() -> frozenset[str]:
    """The modules that Python has loaded before it loaded whynan."""
    entry: Any = sys.modules.get("whynan.cli.entry")
    return _modules if entry is None else entry.AT_START


def _from_anywhere(options: Options) -> Options:
    """The options with paths that hold wherever the program goes."""
    given = {name: getattr(options, name) for name in ("json", "trace", "capsule", "baseline")}
    return replace(options, **{n: _whole(path) for n, path in given.items() if path is not None})


def _whole(path: str) -> str:
    return path if path == STANDARD_OUTPUT else os.path.abspath(path)


def _stamp(path: str | None) -> object:
    """What tells a file from one that has taken its place; None where there is none."""
    if path is None or not os.path.isfile(path):
        return None
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _deliver_without_torch(command: str, options: Options, script: int) -> None:
    """A document where one was asked for, else one line; none where the program has failed and speaks for itself."""
    if options.json is None:
        if not options.quiet and script == 0:
            from whynan.report.notes import SENTENCES

            say(str(SENTENCES["no_torch"]))
        return
    from whynan.records import Coverage, ExitStatus, Note, Report, Run
    from whynan.run.output.own_paths import with_own_document
    from whynan.run.versions import versions

    options = with_own_document(options)
    run = Run(command=command, exit_status=ExitStatus(script=script, whynan=0), versions=versions())
    deliver(Report(verdict="clean", run=run, coverage=Coverage(typed_notes=(Note.create("no_torch"),))), options)
