"""whynan in the program's process: it hears of torch however that is loaded, and of every end, and harms neither."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from whynan.session import attending as module
from whynan.session.attending import Attending, _Finder

BOOT = Path(module.__file__).parent / "boot"
ROOT = Path(__file__).parents[3]


class Heard(Attending):
    """One that counts what it is told."""

    def __init__(self, told: str = "", status: str = "") -> None:
        super().__init__(told, status)
        self.begun = 0
        self.errors: list[object] = []

    def begin(self) -> None:
        self.begun += 1

    def fail(self) -> None:
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


# -- the word that is left -------------------------------------------------------------------------------------------


def word(folder: Path) -> Any:
    return json.loads((folder / "status.json").read_text())


def test_without_torch_a_word_is_left_and_nothing_is_loaded(tmp_path: Path) -> None:
    before = set(sys.modules)
    Attending("", str(tmp_path / "status.json")).end()
    assert word(tmp_path) == {"whynan": 0, "loaded": False}
    assert set(sys.modules) == before


def test_the_word_comes_where_its_folder_was_cleared_away(tmp_path: Path) -> None:
    Attending("", str(tmp_path / "gone" / "status.json")).end()
    assert word(tmp_path / "gone") == {"whynan": 0, "loaded": False}
    assert (tmp_path / "gone").stat().st_mode & 0o777 == 0o700


def test_the_word_comes_whatever_the_program_makes_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Attending("", str(tmp_path / "status.json"))
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", None)
        for name in ("open", "write", "close"):
            patch.setattr(os, name, None)
        one.end()
    assert word(tmp_path) == {"whynan": 0, "loaded": False}


def test_where_no_word_can_be_left_the_program_ends_all_the_same(tmp_path: Path) -> None:
    Attending("", str(tmp_path / "a" / "b" / "status.json")).end()
    assert list(tmp_path.iterdir()) == []


def test_a_child_leaves_none(tmp_path: Path) -> None:
    one = Attending("", str(tmp_path / "status.json"))
    one._pid += 1
    one.end()
    one = Attending("", str(tmp_path / "status.json"))
    one.forked()
    one.end()
    assert list(tmp_path.iterdir()) == []


class Ending:
    """What attends a program with torch, and what becomes of its report."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.told: list[BaseException | None] = []

    def end(self, error: BaseException | None = None) -> None:
        self.told.append(error)
        if self.error is not None:
            raise self.error

    def forked(self) -> None:
        if self.error is not None:
            raise self.error


def attended(folder: Path, error: BaseException | None = None) -> tuple[Attending, Ending]:
    one, ending = Attending("", str(folder / "status.json")), Ending(error)
    one._attended = ending  # type: ignore[assignment]
    return one, ending


def test_the_end_comes_once(tmp_path: Path) -> None:
    one, ending = attended(tmp_path)
    error = ValueError()
    one.end_by(error)
    one.end()
    one.begin()
    assert ending.told == [error]


def test_an_interrupt_ends_the_report_and_not_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "__stderr__", None)
    one, _ = attended(tmp_path, KeyboardInterrupt())
    one.end_by(ValueError())
    assert word(tmp_path) == {"whynan": 130}
    assert capsys.readouterr() == ("", "whynan: interrupted before the report was made\n")


def test_a_failure_is_said_once_and_the_word_says_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    one, _ = attended(tmp_path, ZeroDivisionError())
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        one.end_by(KeyboardInterrupt())
        one.fail()
    assert ["an error of its own" in str(w.message) for w in warned] == [True]
    assert word(tmp_path) == {"whynan": 0}


def test_a_failure_in_a_child_is_no_failure_of_the_childs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHYNAN_RAISE_INTERNAL")
    one, _ = attended(tmp_path, ZeroDivisionError())
    with pytest.warns(RuntimeWarning, match="an error of its own"):
        one.forked()


# -- in a process of its own -----------------------------------------------------------------------------------------


def run(code: str, folder: Path, *python: str, told: str | None = "{}", **environment: str) -> tuple[str, Any]:
    """What a program prints that is attended, and the word that was left."""
    usual = {"PATH": os.environ["PATH"], "PYTHONPATH": str(BOOT), "_WHYNAN_STATUS": str(folder / "status.json")}
    if told is not None:
        usual["_WHYNAN_RUN"] = told
    result = subprocess.run(
        [sys.executable, *python, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**usual, **environment},
    )
    left = word(folder) if (folder / "status.json").exists() else None
    return result.stdout + result.stderr, left


@pytest.mark.process
def test_a_program_without_torch_is_given_the_listener_alone(tmp_path: Path) -> None:
    code = "import sys; print('\\n'.join(sys.modules))"
    environment = {"PATH": os.environ["PATH"]}
    bare = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    attended, left = run(code, tmp_path)
    assert set(attended.split()) - set(bare.stdout.split()) == {
        "__future__",
        "atexit",
        "whynan",
        "whynan.capture",
        "whynan.capture.reaching",
        "whynan.session",
        "whynan.session.apart",
        "whynan.session.attending",
        "whynan.session.harmless",
        "whynan.session.outward",
    }
    assert left == {"whynan": 0, "loaded": False}


@pytest.mark.process
def test_an_import_more_would_be_seen(tmp_path: Path) -> None:
    attended, _ = run("import json, sys; print('\\n'.join(sys.modules))", tmp_path)
    assert "json" in attended.split()


STATE = "import os, sys; print([n for n in os.environ if 'WHYNAN' in n], os.environ.get('PYTHONPATH'), sys.path)"


@pytest.mark.process
@pytest.mark.parametrize("before", [None, "", "elsewhere"])
def test_the_way_in_is_closed_behind_whynan(before: str | None, tmp_path: Path) -> None:
    more = {} if before is None else {"PYTHONPATH": before}
    bare = subprocess.run(
        [sys.executable, "-c", STATE],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], **more},
    )
    path = os.pathsep.join([str(BOOT), before] if before else [str(BOOT)])
    given = {"PYTHONPATH": path} | ({} if before is None else {"_WHYNAN_PYTHONPATH": before})
    assert run(STATE, tmp_path, **given)[0] == bare.stdout


@pytest.mark.process
@pytest.mark.parametrize("text", ["print('customised')", "raise ValueError('customised')", "import nothing"])
def test_a_customisation_of_the_users_own_still_comes(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text(f"{text}\n")
    path = str(tmp_path / "mine")
    bare = subprocess.run(
        [sys.executable, "-c", "pass"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
        cwd=tmp_path,
    )
    given = {"PYTHONPATH": os.pathsep.join([str(BOOT), path]), "_WHYNAN_PYTHONPATH": path}
    shown, left = run("pass", tmp_path, **given)
    assert shown == bare.stdout + bare.stderr
    assert left == {"whynan": 0, "loaded": False}


@pytest.mark.process
def test_whynan_that_cannot_start_says_so_and_the_program_runs(tmp_path: Path) -> None:
    spoilt = tmp_path / "spoilt" / "whynan" / "session"
    spoilt.mkdir(parents=True)
    for folder in (spoilt.parent, spoilt):
        (folder / "__init__.py").write_text("")
    (spoilt / "attending.py").write_text("raise OSError('no attending')\n")
    given = {"PYTHONPATH": os.pathsep.join([str(BOOT), str(tmp_path / "spoilt")]), "_WHYNAN_PYTHONPATH": ""}
    shown, left = run("print('ran')", tmp_path, **given)
    assert shown == ("ran\nwhynan: the program runs unwatched, because whynan cannot start (OSError('no attending'))\n")
    assert left is None


@pytest.mark.process
def test_a_python_that_nobody_has_started_for_whynan_is_left_alone(tmp_path: Path) -> None:
    shown, left = run("import os, sys; print('whynan' in sys.modules, os._exit.__module__)", tmp_path, told=None)
    assert (shown, left) == ("False posix\n", None)


WAYS = {
    "end": "pass",
    "exit": "import sys; sys.exit(3)",
    "leave": "import os; os._exit(3)",
    "by name": "import os; os._exit(status=3)",
    "raise": "raise ValueError",
    "cleared": "import atexit, os; atexit._clear(); os._exit(0)",
    "exit handler": "import atexit, sys; atexit.register(sys.exit, 3)",
    "patched": "import builtins, os; builtins.open = os.open = os.write = None",
}


@pytest.mark.process
@pytest.mark.parametrize("way", WAYS)
def test_the_word_comes_whatever_way_the_program_ends(way: str, tmp_path: Path) -> None:
    assert run(WAYS[way], tmp_path)[1] == {"whynan": 0, "loaded": False}


@pytest.mark.process
@pytest.mark.parametrize(
    "code",
    [
        "import os; os.fork() or os._exit(0); os.kill(os.getppid(), 0); os.abort()",
        "import os\nif os.fork(): os.kill(os.getpid(), 9)",
    ],
    ids=["the child leaves", "the parent is killed"],
)
def test_a_fork_leaves_one_word_at_most(code: str, tmp_path: Path) -> None:
    left = run(code, tmp_path)[1]
    assert left is None or left == {"whynan": 0, "loaded": False}


@pytest.mark.process
def test_leaving_at_once_can_be_pickled(tmp_path: Path) -> None:
    code = "import os, pickle, sys; sys.stdout.write(pickle.dumps(os._exit).hex())"
    assert pickle.loads(bytes.fromhex(run(code, tmp_path)[0])) is os._exit


@pytest.mark.process
def test_an_exception_that_a_library_prints_is_no_end(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "sys.excepthook(ValueError, ValueError('by hand'), None)\n"
        "class Failing:\n"
        "    def __del__(self): raise ValueError('in a finaliser')\n"
        "Failing()\n"
        "os.abort()"
    )
    shown, left = run(code, tmp_path)
    assert "by hand" in shown
    assert "in a finaliser" in shown
    assert left is None
