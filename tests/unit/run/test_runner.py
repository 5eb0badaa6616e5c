"""`whynan run` in the program's process: it hears of torch however that is loaded, and of every end."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from whynan.config import Options
from whynan.run import runner as module
from whynan.run.runner import Run, _Finder
from whynan.run.script import Program

ROOT = Path(__file__).parents[3]


class Heard:
    """One that counts what it is told."""

    def __init__(self) -> None:
        self.begun = 0
        self.errors: list[object] = []

    def begin(self) -> None:
        self.begun += 1

    def end(self, error: BaseException | None = None, *, script: int = 0) -> int:
        return 0

    def forked(self) -> None:
        """Nothing is done there."""

    def failed(self) -> None:
        self.errors.append(sys.exc_info()[1])


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    """Torch is not loaded; a module of that name lies in the working directory."""
    kept = {name: held for name, held in sys.modules.items() if name.partition(".")[0] == "torch"}
    for name in kept:
        del sys.modules[name]
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    (tmp_path / "torch").mkdir()
    write(tmp_path, "_C = 1\n")
    made = Heard()
    monkeypatch.setattr("whynan.faults.report_internal_error", made.failed)
    sys.meta_path.insert(0, _Finder(made))  # type: ignore[arg-type]
    yield made
    for name in [n for n in sys.modules if n.partition(".")[0] == "torch"]:
        del sys.modules[name]
    sys.modules.update(kept)


def write(folder: Path, text: str) -> None:
    """Write what stands in for torch."""
    (folder / "torch" / "__init__.py").write_text(text)
    importlib.invalidate_caches()


def listening() -> bool:
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def test_torch_is_heard_of_once_it_is_loaded(heard: Heard, tmp_path: Path) -> None:
    (tmp_path / "torch" / "part.py").write_text("")
    importlib.import_module("torch.part")
    assert heard.begun == 1
    assert not listening()
    importlib.import_module("torch")
    assert heard.begun == 1


def test_who_only_asks_for_torch_does_not_load_it(heard: Heard) -> None:
    # as transformers and accelerate do, long before they import it
    for _ in range(3):
        spec = importlib.util.find_spec("torch")
        assert spec is not None
    assert heard.begun == 0
    importlib.import_module("torch")
    assert heard.begun == 1


def test_a_spec_that_was_asked_for_may_be_loaded_by_hand(heard: Heard) -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert (loaded._C, heard.begun) == (1, 1)


def test_a_spec_that_is_handed_out_twice_is_heard_of_once(heard: Heard) -> None:
    spec = importlib.util.find_spec("torch")

    class Keeping:
        @staticmethod
        def find_spec(name: str, *_: object) -> Any:
            return spec if name == "torch" else None

    sys.meta_path.insert(1, Keeping)  # type: ignore[arg-type]
    importlib.util.find_spec("torch")
    importlib.import_module("torch")
    assert (heard.begun, heard.errors) == (1, [])


def test_a_module_of_the_programs_own_is_not_torch(heard: Heard, tmp_path: Path) -> None:
    write(tmp_path, "WHERE = 'mine'\n")
    assert importlib.import_module("torch").WHERE == "mine"
    assert heard.begun == 0


def test_torch_that_cannot_be_found_is_not_found(heard: Heard, tmp_path: Path) -> None:
    sys.path[:] = [path for path in sys.path if not (Path(path) / "torch").is_dir()]
    sys.meta_path[:] = [sys.meta_path[0], *(f for f in sys.meta_path[1:] if "editable" not in repr(f))]
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'torch'$"):
        importlib.import_module("torch")
    # and where it is found later, it is heard of
    sys.path.insert(0, str(tmp_path))
    importlib.import_module("torch")
    assert heard.begun == 1


def test_torchs_own_failure_shows_no_frame_of_whynans(heard: Heard, tmp_path: Path) -> None:
    write(tmp_path, "raise OSError('libtorch.so')\n")
    with pytest.raises(OSError, match=r"libtorch\.so") as caught:
        importlib.import_module("torch")
    assert module.__file__ not in [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert heard.begun == 0
    # it may be tried again
    write(tmp_path, "_C = 1\n")
    importlib.import_module("torch")
    assert heard.begun == 1


class Closed:
    """A loader to which nothing can be added."""

    __slots__ = ("load",)

    def __init__(self, load: Any) -> None:
        self.load = load

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, loaded: ModuleType) -> None:
        self.load(loaded)


@pytest.mark.parametrize("kind", ["closed", "none"])
def test_a_loader_that_nobody_can_listen_to_loads_all_the_same(kind: str, heard: Heard) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> Any:
            if name != "torch":
                return None
            loader = Closed(lambda loaded: setattr(loaded, "_C", 1)) if kind == "closed" else None
            spec = importlib.util.spec_from_loader(name, loader)  # type: ignore[arg-type]
            if spec is not None and loader is None:
                spec.submodule_search_locations = []
            return spec

    sys.meta_path.insert(1, Finder)  # type: ignore[arg-type]
    assert importlib.import_module("torch").__name__ == "torch"
    assert heard.begun == 0
    assert len(heard.errors) == (1 if kind == "closed" else 0)


def test_a_finder_that_asks_the_others_does_not_go_round_in_circles(heard: Heard) -> None:
    class Asking:
        asked = False

        def find_spec(self, name: str, *_: object) -> Any:
            if name != "torch" or self.asked:
                return None
            self.asked = True
            return importlib.util.find_spec(name)

    sys.meta_path.insert(1, Asking())  # type: ignore[arg-type]
    importlib.import_module("torch")
    assert heard.begun == 1


# -- the end of a program -------------------------------------------------------------------------------------------


class Ending:
    """What controls a program with torch, and what becomes of its report."""

    whynan = 1

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.told: list[tuple[BaseException | None, int]] = []

    def end(self, error: BaseException | None = None, *, script: int = 0) -> None:
        self.told.append((error, script))
        if self.error is not None:
            raise self.error

    def forked(self) -> None:
        if self.error is not None:
            raise self.error


def controlled(error: BaseException | None = None) -> tuple[Run, Ending]:
    one, ending = Run(Program("script", "train.py"), Options(quiet=True)), Ending(error)
    one._controller = ending  # type: ignore[assignment]
    return one, ending


def test_the_end_comes_once() -> None:
    one, ending = controlled()
    error = ValueError()
    assert one.end(error, script=1) == 1
    assert one.end(script=3) == 1
    assert ending.told == [(error, 1)]


def test_an_interrupt_ends_the_report_and_not_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    one, _ = controlled(KeyboardInterrupt())
    assert one.end(ValueError()) == 130
    assert capsys.readouterr() == ("", "whynan: interrupted before the report was made\n")


def test_a_failure_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    one, _ = controlled(ZeroDivisionError())
    with pytest.warns(RuntimeWarning, match="an error of its own") as warned:
        assert one.end(KeyboardInterrupt()) == 0
    one._fail()
    assert len(warned) == 1


def test_a_failure_in_a_child_is_no_failure_of_the_childs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    one, _ = controlled(ZeroDivisionError())
    with pytest.warns(RuntimeWarning, match="an error of its own"):
        one.after_fork()


def test_a_child_tells_nothing() -> None:
    one, ending = controlled()
    one._pid += 1
    assert one.end(script=3) == 0
    assert ending.told == []


def test_a_report_of_an_earlier_run_is_told_as_such_where_this_one_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    path = tmp_path / "report.json"
    path.write_text("{}")
    one = Run(Program("script", "train.py"), Options(json=str(path)))
    one._failed = True
    one.end()
    assert capsys.readouterr().err == f"whynan: {path} is that of an earlier run\n"


# -- in a process of its own -----------------------------------------------------------------------------------------


def run(code: str, folder: Path, *python: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """A program that is run, and its report."""
    command = [sys.executable, *python, "-m", "whynan", "run", "--quiet", "--json", "r.json", "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **environment}
    )
    path = folder / "r.json"
    return done, json.loads(path.read_text()) if path.exists() else None


WAYS = {
    "end": ("pass", 0),
    "exit": ("import sys; sys.exit(3)", 3),
    "leave": ("import os; os._exit(3)", 3),
    "by name": ("import os; os._exit(status=3)", 3),
    "raise": ("raise ValueError", 1),
    "cleared": ("import atexit, os; atexit._clear(); os._exit(0)", 0),
    "exit handler": ("import atexit, sys; atexit.register(sys.exit, 3)", 0),
}


@pytest.mark.process
@pytest.mark.parametrize("way", WAYS)
def test_the_end_is_told_whatever_way_the_program_ends(way: str, tmp_path: Path) -> None:
    code, status = WAYS[way]
    done, report = run(code, tmp_path)
    assert (done.returncode, report["run"]["exit_status"]["script"]) == (status, status)


@pytest.mark.process
def test_a_child_that_leaves_is_no_end(tmp_path: Path) -> None:
    done, report = run("import os; os.fork() or os._exit(0); os.wait(); os.abort()", tmp_path)
    assert (done.returncode, report) == (-6, None)


@pytest.mark.process
def test_leaving_at_once_can_be_pickled(tmp_path: Path) -> None:
    done, _ = run("import os, pickle, sys; sys.stdout.write(pickle.dumps(os._exit).hex())", tmp_path)
    assert pickle.loads(bytes.fromhex(done.stdout)) is os._exit


@pytest.mark.process
def test_an_interrupt_is_one_even_after_text_was_run(tmp_path: Path) -> None:
    done, report = run("import atexit; atexit.register(exec, 'x = 1'); raise KeyboardInterrupt", tmp_path)
    assert done.returncode == -2
    assert done.stderr.endswith("KeyboardInterrupt\n")
    assert report["run"]["exit_status"]["script"] == 130


HOOKS = {
    "one that fails": "def hook(*_): raise OSError('hook')\nsys.excepthook = hook",
    "one that exits": "def hook(*_): sys.exit(5)\nsys.excepthook = hook",
    "none": "del sys.excepthook",
}


@pytest.mark.process
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_for_what_nobody_catches_is_called_as_by_python(hook: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import sys\n{HOOKS[hook]}\nraise ValueError('lost')\n")
    alone = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    command = [sys.executable, "-m", "whynan", "run", "--quiet", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (alone.returncode, alone.stderr)


@pytest.mark.process
@pytest.mark.parametrize("option", ["-I", "-E", "-P", "-O"])
def test_options_of_pythons_hold(option: str, tmp_path: Path) -> None:
    code = "import sys; print(sys.flags, sys.path[0])"
    alone = subprocess.run([sys.executable, option, "-c", code], capture_output=True, text=True, check=True)
    assert run(code, tmp_path, option)[0].stdout == alone.stdout


@pytest.mark.process
def test_a_compiled_script_runs(tmp_path: Path) -> None:
    import py_compile

    (tmp_path / "train.py").write_text("print(__name__, __file__)")
    made = py_compile.compile(str(tmp_path / "train.py"), cfile=str(tmp_path / "made.pyc"))
    alone = subprocess.run([sys.executable, made], capture_output=True, text=True, check=True)
    command = [sys.executable, "-m", "whynan", "run", "--quiet", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == alone.stdout
