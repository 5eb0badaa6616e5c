"""Engine processes: one for all cases of a model, another after a crash; with temporary folders."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias

from whynan.traces.writer import open_private

if TYPE_CHECKING:
    from collections.abc import Generator

# -- Temporary folders that go with the process that made them, if it is killed by the next that makes one -------------


PREFIX: Final = "whynan-"
OWNED: Final = "owner.lock"
"""Locked for as long as the process lives that made a folder: the system lets go of it, however the process ends."""


class Folder:
    """A temporary folder, for its owner only; those that processes of the same user have left are cleared away first.

    Raises ``OSError`` where none can be made.
    """

    def __init__(self) -> None:
        clear_away()
        self.name = tempfile.mkdtemp(prefix=PREFIX)
        self._remove = weakref.finalize(self, _removed, self.name, _owned(self.name), os.getpid())

    def cleanup(self) -> None:
        """Remove it, with all that it holds."""
        self._remove()

    def __enter__(self) -> str:
        return self.name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cleanup()


def clear_away() -> None:
    """Remove the folders of processes that are gone."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        for entry in list(os.scandir(tempfile.gettempdir())):
            if entry.name.startswith(PREFIX):
                with suppress(OSError):
                    _clear(entry)


def _clear(entry: os.DirEntry[str]) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    known = entry.stat(follow_symlinks=False)
    private = known.st_uid == os.geteuid() and not known.st_mode & 0o077
    if not stat.S_ISDIR(known.st_mode) or not private:
        return
    lock = os.open(os.path.join(entry.path, OWNED), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # refused where somebody has it
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(lock)


def _owned(folder: str) -> int | None:
    """Lock a folder; None where that cannot be done, and nobody will clear it away."""
    if sys.platform == "win32":
        return None
    import fcntl

    # under another name until it is locked: what is called so and is not locked has no owner any more
    made = Path(folder, f".{OWNED}")
    try:
        lock = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        made.rename(Path(folder, OWNED))
    except OSError:
        os.close(lock)
        return None
    return lock


def _removed(folder: str, lock: int | None, owner: int) -> None:
    # a process that the owner has forked has it too
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        os.close(lock)


# -- The process in which an engine runs: one for all cases of a model, and after a crash another one for the rest -----


SAID: Final = "said.txt"
"""What the engine wrote itself on its standard error stream."""
_TAIL: Final = 1 << 16
_PATIENCE: Final = 10.0
"""Seconds that a process has to end once there is nothing more to do."""
IDLE: Final = 75
"""The status of a process that has ended because nobody had anything for it to do."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a model is to be run.

    `graph`: ``optimized``, as the engine really runs it, or ``original``, as it is written. `level`: of optimisation.
    `providers`: execution providers, the first that can take a node does; the engine's own choice where there are none.
    `config`: entries of the session's configuration. `threads`: within one operator; the engine's own choice where
    None. `custom_ops`: libraries of operators. `free_dimensions`: sizes of symbolic dimensions, by name.
    """

    graph: str = "optimized"
    engine: str = "onnxruntime"
    level: str = "all"
    providers: tuple[str, ...] = ()
    config: dict[str, str] | None = None
    threads: int | None = None
    custom_ops: tuple[str, ...] = ()
    free_dimensions: dict[str, int] | None = None


class EngineProcess:
    """Does jobs, each a folder, one after the other; all that is temporary lies in one folder, which goes with it."""

    def __init__(self) -> None:
        self._home = Folder()
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = 0

    @property
    def home(self) -> str:
        """The folder for all that is temporary."""
        return self._home.name

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._end(at_once=kind is not None)
        finally:
            self._home.cleanup()

    def start(self) -> None:
        """Begin to load what a job needs, while it is made ready."""
        self._running()

    def do(self, place: Path) -> tuple[int, str]:
        """Do the job of a folder; its status, negative for the signal that the process died of, and what it wrote."""
        status = IDLE
        while status == IDLE:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):
                # it has died meanwhile, which is told below
                process.stdin.write(f"{json.dumps(str(place))}\n".encode("ascii"))
                process.stdin.flush()
            answer = process.stdout.readline()
            if answer.endswith(b"\n"):
                return int(answer), self._said()
            status = process.wait()
            self._end(at_once=True)
        return status or 1, self._said()

    def kill(self) -> None:
        """End what is being done; the next job gets a new process."""
        self._end(at_once=True)

    def rest(self) -> bool:
        """Whether the process is there for the jobs of another model; of what it wrote nothing is of these."""
        if self._process is None or self._process.poll() is not None or not os.path.isdir(self.home):
            return False
        self._unread = os.path.getsize(Path(self.home) / SAID)
        return os.name == "posix"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end(at_once=True)
        here = str(Path(__file__).parents[3])
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(p for p in (here, environment.get("PYTHONPATH")) if p)
        # so that nothing of it is left, however it ends
        environment.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), self._home.name))
        self._unread = 0
        with open(Path(self._home.name) / SAID, "wb", opener=open_private) as said:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "whynan.run.onnx.engine_process", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=environment,
            )
        return self._process

    def _end(self, *, at_once: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if at_once:
                process.kill()
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait(_PATIENCE)
        except BaseException as error:
            process.kill()
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        finally:
            process.stdout.close()

    def _said(self) -> str:
        path = Path(self._home.name) / SAID
        with open(path, "rb") as file:
            file.seek(max(self._unread, os.path.getsize(path) - _TAIL))
            return file.read().decode("utf-8", "replace")


# -- The process that waits for the next model that this program has explained -----------------------------------------


_Surroundings: TypeAlias = "tuple[int, int, str | None, dict[str, str]]"
_waiting: list[tuple[_Surroundings, EngineProcess]] = []
_lock: Final = threading.Lock()


@contextmanager
def reused_process(*, fresh: bool) -> Generator[EngineProcess]:
    """The process of the model before, if nothing around it has changed since, else a `fresh` one; kept for the next.

    It ends with the thread that started it, by itself where it has waited for a minute or holds much memory, and with
    every failure.
    """
    found = _surroundings()
    process = None if fresh else _taken(found)
    with ExitStack() as ended:
        ended.push(process := process or EngineProcess())
        process.start()
        yield process
        if not fresh and process.rest():
            ended.pop_all()
            _keep(found, process)


def _surroundings() -> _Surroundings:
    """What a process has from the one that starts it; the system ends it together with the thread that did."""
    try:
        here = os.getcwd()
    except OSError:
        here = None
    return os.getpid(), threading.get_ident(), here, dict(os.environ)


def _taken(found: _Surroundings) -> EngineProcess | None:
    with _lock:
        held = _waiting.pop() if _waiting else None
    if held is None:
        return None
    if held[0] == found and held[1].rest():
        return held[1]
    _close(*held)
    return None


def _keep(found: _Surroundings, process: EngineProcess) -> None:
    with _lock:
        others, _waiting[:] = _waiting[:], [(found, process)]
    for other in others:
        _close(*other)


@atexit.register
def _close_all() -> None:
    while _waiting:
        _close(*_waiting.pop())


def _close(found: _Surroundings, process: EngineProcess) -> None:
    # one that was there before this process was forked is its parent's
    if found[0] == os.getpid():
        process.__exit__(None, None, None)
