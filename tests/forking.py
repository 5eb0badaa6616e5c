"""Programs that begin in a fork of a Python that has torch loaded: to load it again in each is most of their time.

What a program sees of its start is what it sees where Python starts it, but that the modules of `LOADED` are there.
"""

from __future__ import annotations

import atexit
import importlib.util
import io
import json
import marshal
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import CodeType
from typing import IO, Any, Final

LOADED: Final = "numpy torch torch._dynamo pydantic click safetensors"
"""What is loaded before a program begins: whynan is not."""
STARTING: Final = (
    *("PYTHON", "PYTORCH_", "TORCH", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_"),
    *("LC_", "LD_", "TZ", "COVERAGE"),
)
"""How the names of variables begin that are read before a program begins: these are to be as they are here."""

ENVIRONMENT: Final = {**os.environ, "OMP_NUM_THREADS": "1"}
"""That of the Python which forks, whatever a test has set since."""


def run(
    command: Sequence[str | Path],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
    timeout: float = 600,
) -> subprocess.CompletedProcess[str]:
    """Run a program as `subprocess.run` does that gathers its text, in a fork where that is no other start.

    Args:
        command: as typed: the interpreter of the tests, or a program that is installed beside it, and what follows.
        cwd: where it begins; here if it is None.
        env: its environment; that of the test if it is None.
        input: what it can read.
        timeout: seconds after which it is killed, and the test fails.
    """
    told = [os.fspath(part) for part in command]
    environment = dict(os.environ if env is None else env)
    arguments = told[1:] if told[0] == sys.executable else told
    is_python = Path(told[0]).parent == Path(sys.executable).parent and not _begins_with_option(arguments)
    if not is_python or _starting(environment) != _starting(ENVIRONMENT):
        return subprocess.run(
            told, cwd=cwd, env=env, input=input, timeout=timeout, capture_output=True, text=True, check=False
        )
    sys.audit("subprocess.Popen", None, told, cwd, environment)
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write((input or "").encode())
        given.seek(0)
        status = _server().run(arguments, cwd or os.getcwd(), environment, (given, out, err), timeout)
        texts = [_text(stream) for stream in (out, err)]
    return subprocess.CompletedProcess(told, status, *texts)


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return io.TextIOWrapper(stream).read()


def _begins_with_option(arguments: Sequence[str]) -> bool:
    """Whether what is asked for is the interpreter's affair: any option but that of a module."""
    return not arguments or (arguments[0].startswith("-") and arguments[0] != "-m")


def _starting(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(STARTING)}


class _Server:
    """A Python with torch loaded, which forks once for each request; one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # the frames under a program's own are nobody's: as under one that Python starts
        code = compile(Path(__file__).read_text(encoding="utf-8"), "<frozen forking>", "exec")
        with tempfile.TemporaryDirectory() as folder:
            begun = Path(folder) / "forking.pyc"
            begun.write_bytes(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
            self._process = subprocess.Popen(
                [sys.executable, begun, str(theirs.fileno())],
                env=ENVIRONMENT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            theirs.close()
            self._channel = ours
            assert ours.recv(100) == b"ready"
        atexit.register(self._end)

    def run(
        self, arguments: Sequence[str], cwd: str | Path, env: Mapping[str, str], streams: Sequence[Any], timeout: float
    ) -> int:
        """Run a program and give its exit status, or minus the signal that it died of."""
        asked = json.dumps([list(arguments), os.fspath(cwd), dict(env)]).encode()
        with self._lock:
            socket.send_fds(self._channel, [asked], [stream.fileno() for stream in streams])
            process = int(self._channel.recv(100) or self._fail())
            self._channel.settimeout(timeout)
            try:
                return int(self._channel.recv(100))
            except BaseException:
                os.killpg(process, signal.SIGKILL)
                self._channel.settimeout(None)
                self._channel.recv(100)
                raise
            finally:
                self._channel.settimeout(None)

    def _fail(self) -> int:
        # the next test has another one
        _server.cache_clear()
        raise ChildProcessError("the Python that forks is gone")

    def _end(self) -> None:
        self._channel.close()
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()


def _serve(channel: socket.socket) -> tuple[list[str], CodeType]:
    """Fork for each request; in the fork, give the arguments and what is to be run."""
    for name in LOADED.split():
        importlib.import_module(name)
    path = sys.path[1:]
    channel.send(b"ready")
    while True:
        asked, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        if not asked:
            os._exit(0)
        if process := os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            channel.send(str(process).encode())
            _, status = os.waitpid(process, 0)
            channel.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        arguments, cwd, environment = json.loads(asked)
        return _begin(channel, descriptors, arguments, cwd, environment, path)


def _begin(
    channel: socket.socket,
    descriptors: list[int],
    arguments: list[str],
    cwd: str,
    environment: dict[str, str],
    path: list[str],
) -> tuple[list[str], CodeType]:
    """Make this process what it is where Python begins with these arguments."""
    channel.close()
    os.setsid()
    os.chdir(cwd)
    for to, descriptor in enumerate(descriptors):
        os.dup2(descriptor, to)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.orig_argv[:] = [sys.executable, *arguments]
    sys.path[:] = [cwd, *path]
    if arguments[0] == "-m":
        start = f"__import__('runpy')._run_module_as_main({arguments[1]!r})"
        return ["-m", *arguments[2:]], compile(start, "<frozen runpy>", "exec", dont_inherit=True)
    file = os.path.abspath(arguments[0])
    sys.path[0] = os.path.dirname(os.path.realpath(file))
    with io.open_code(file) as script:
        return arguments, compile(script.read(), file, "exec", dont_inherit=True)


def _go(asking: int) -> None:
    """Serve, and in a fork run what is asked for as `__main__`, with nothing of this file in it."""
    arguments, code = _serve(socket.socket(fileno=asking))
    sys.argv[:] = arguments
    names = globals()
    left = {name: names[name] for name in ("__name__", "__builtins__", "__loader__")}
    names.clear()
    names.update(left, __doc__=None, __package__=None, __spec__=None, __annotations__={})
    names.update(__file__=code.co_filename, __cached__=None)
    exec(code, names)


if __name__ == "__main__":
    _go(int(sys.argv[1]))
