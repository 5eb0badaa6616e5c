"""What a program does to the outside is noted once, with its line; what harms nothing is not."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from whynan.session.outward import Outward, leave

HERE = Path(__file__).name
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def hook(outward: Outward, event: str, *args: Any) -> None:
    """Stands for the hook: what called it is the program."""
    outward.hear(event, args)


def line() -> int:
    return sys._getframe(1).f_lineno


REACHING: dict[str, tuple[tuple[Any, ...], str]] = {
    "a file": (("open", "log.txt", "w", os.O_WRONLY), "opens log.txt for writing"),
    "a folder": (("os.mkdir", "/nowhere/runs", 511, -1), "makes the folder /nowhere/runs"),
    "removal": (("os.remove", b"a", -1), "removes a"),
    "another name": (("os.rename", "a", "b", -1, -1), "renames a"),
    "a process": (("subprocess.Popen", "sh", ["sh"], None, None), "starts sh"),
    "a fork": (("os.fork",), "forks"),
    "the network": (("socket.connect", None, ("127.0.0.1", 9)), "connects to ('127.0.0.1', 9)"),
    "a local socket": (("socket.connect", None, "/run/docker.sock"), "connects to /run/docker.sock"),
    "spawning": (("import", "multiprocessing.popen_spawn_posix", None, [], [], []), "spawns processes"),
    "the keyboard": (("builtins.input", "name? "), "asks for input"),
    "what cannot be judged": (("os.rename",), "reaches the outside (os.rename)"),
}


@pytest.mark.parametrize("case", REACHING)
def test_what_reaches_the_outside_is_noted(case: str, tmp_path: Path) -> None:
    (event, *args), clause = REACHING[case]
    outward = Outward(str(tmp_path))
    hook(outward, event, *args)
    assert outward.first == (clause if clause.startswith("reaches") else f"{clause} at {HERE}:{line() - 1}")


HARMLESS: dict[str, tuple[Any, ...]] = {
    "reading": ("open", "data.txt", "r", os.O_RDONLY),
    "nowhere": ("open", os.devnull, "w", os.O_WRONLY),
    "a stream": ("open", 1, "w", os.O_WRONLY),
    "a stream by name": ("open", "/dev/stdout", "w", os.O_WRONLY),
    "a folder that is there": ("os.mkdir", os.path.dirname(__file__), 511, -1),
    "an answer": ("socket.sendmsg", None, None),
    "an import": ("import", "json", None, [], [], []),
    "anything else": ("os.listdir", "."),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_harms_nothing_is_not(case: str, tmp_path: Path) -> None:
    outward = Outward(str(tmp_path))
    event, *args = HARMLESS[case]
    hook(outward, event, *args)
    assert outward.first is None


def test_the_first_is_kept(tmp_path: Path) -> None:
    met: list[str] = []
    outward = Outward(str(tmp_path), met.append)
    hook(outward, "os.system", b"first")
    hook(outward, "os.system", b"second")
    assert outward.first is not None
    assert outward.first.startswith("starts first at")
    assert met == [outward.first]


def test_what_is_done_elsewhere_is_not_the_programs(tmp_path: Path) -> None:
    outward = Outward(str(tmp_path))
    outward.elsewhere = lambda: True
    hook(outward, "os.fork")
    assert outward.first is None
    outward.elsewhere = lambda: False
    hook(outward, "os.fork")
    assert outward.first is not None


def by(name: str, function: str = "act") -> Any:
    """A function that does as it is told, in a file of this name."""
    names: dict[str, Any] = {"hook": hook}
    exec(compile(f"def {function}(*args):\n    hook(*args)\n", name, "exec"), names)
    return names[function]


STDLIB = os.path.dirname(os.__file__)


def test_bytecode_and_whynans_own_are_no_doing_of_the_programs(tmp_path: Path) -> None:
    import whynan

    outward = Outward(str(tmp_path))
    for name in ("<frozen importlib._bootstrap_external>", f"{os.path.dirname(whynan.__file__)}/session/files.py"):
        by(name)(outward, "open", "x.pyc", "w", os.O_WRONLY)
    assert outward.first is None
    by(f"{STDLIB}/logging/__init__.py")(outward, "open", "x.log", "w", os.O_WRONLY)
    assert outward.first == f"opens x.log for writing at {HERE}:{line() - 1}"


def test_workers_and_their_sockets_are_no_harm(tmp_path: Path) -> None:
    outward = Outward(str(tmp_path))
    work = by(f"{STDLIB}/multiprocessing/popen_fork.py")
    work(outward, "os.fork")
    work(outward, "os.kill", 1, 15)
    work(outward, "socket.bind", None, "/tmp/listener")
    assert outward.first is None
    work(outward, "socket.bind", None, ("0.0.0.0", 5000))
    assert outward.first is not None


def test_temporary_files_of_its_own_are_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    make = by(tempfile.__file__)
    outward = Outward(str(tmp_path))
    mine = str(tmp_path / "t" / "tmp1")
    by(tempfile.__file__, "_get_default_tempdir")(outward, "open", "/var/tmp/x", None, _NEW)
    make(outward, "os.mkdir", mine, 448, -1)
    hook(outward, "open", f"{mine}/x", "w", os.O_WRONLY)
    hook(outward, "os.rename", f"{mine}/x", f"{mine}/y", -1, -1)
    make(outward, "os.remove", "y", 7)
    make(outward, "os.rmdir", mine, -1)
    assert outward.first is None


@pytest.mark.parametrize(
    "event",
    [
        ("open", "t/tmp1/../kept", "w", os.O_WRONLY),
        ("open", "t/tmp12", "w", os.O_WRONLY),
        ("os.rename", "t/tmp1/x", "kept", -1, -1),
        ("os.rename", "kept", "t/tmp1/x", -1, -1),
        ("os.symlink", "kept", "t/tmp1/x", -1),
        ("os.remove", "t/tmp1/x", 7),
    ],
    ids=str,
)
def test_what_leaves_its_own_folder_is_noted(
    event: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    outward = Outward(str(tmp_path))
    by(tempfile.__file__)(outward, "os.mkdir", str(tmp_path / "t" / "tmp1"), 448, -1)
    assert outward.first is None
    hook(outward, *event)
    assert outward.first is not None


def test_a_temporary_file_in_a_folder_of_the_users_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    outward = Outward(str(tmp_path))
    by(tempfile.__file__)(outward, "open", str(tmp_path / "data" / "x"), None, _NEW)
    assert outward.first is not None


def test_a_workers_word_comes_to_the_process_that_forked_it(tmp_path: Path) -> None:
    outward = Outward(str(tmp_path))
    child = os.fork()
    if not child:
        hook(outward, "os.remove", "x", -1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert outward.first is not None
    assert outward.first.startswith(f"removes x at {HERE}")


def test_the_first_word_is_heard(tmp_path: Path) -> None:
    leave(str(tmp_path), "why", "first")
    leave(str(tmp_path), "why", "second")
    leave(str(tmp_path / "missing"), "why", "nobody hears")
    assert (tmp_path / "why").read_text() == "first"
    assert (tmp_path / "why").stat().st_mode & 0o777 == 0o600
