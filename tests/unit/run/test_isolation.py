"""Whose modules are found: the program's own, whatever whynan has loaded, and the installed ones while whynan works."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from whynan.run.isolation import Isolation

NAMES = ("shared", "shared.part", "only_ours", "only_theirs", "third")


@pytest.fixture(autouse=True)
def all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of what is found here outlives a test."""
    monkeypatch.setattr(Isolation, "_ours", {})
    path, limit = list(sys.path), sys.getrecursionlimit()
    yield
    sys.path[:] = path
    sys.setrecursionlimit(limit)
    for name in NAMES:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


class Places:
    """Where whynan finds its modules, and a folder of the program's in front of it."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.theirs = folder / "ours", folder / "theirs"
        for place in (self.ours, self.theirs):
            place.mkdir()
            (place / "shared.py").write_text(f"WHERE = {place.name!r}\n")
            (place / f"only_{place.name}.py").write_text(f"WHERE = {place.name!r}\n")
        sys.path.insert(0, str(self.ours))
        self.path, self.modules = list(sys.path), frozenset(sys.modules)
        sys.path.insert(0, str(self.theirs))

    def apart(self) -> Isolation:
        return Isolation(self.path, self.modules)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """The two of them."""
    return Places(tmp_path)


def where(name: str) -> str:
    return importlib.import_module(name).WHERE


def test_each_finds_its_own_whoever_comes_first(places: Places) -> None:
    with places.apart():
        assert where("shared") == "ours"
        first = sys.modules["shared"]
    assert "shared" not in sys.modules
    assert where("shared") == "theirs"
    theirs = sys.modules["shared"]
    with places.apart():
        # the very one, not loaded again
        assert sys.modules["shared"] is first
    assert sys.modules["shared"] is theirs


def test_what_the_program_has_loaded_is_not_whynans(places: Places) -> None:
    theirs = importlib.import_module("shared")
    with places.apart():
        assert where("shared") == "ours"
    assert sys.modules["shared"] is theirs


def test_what_only_one_of_them_has_stays_loaded_for_both(places: Places) -> None:
    mine = importlib.import_module("only_theirs")
    with places.apart():
        assert sys.modules["only_theirs"] is mine
        ours = importlib.import_module("only_ours")
    assert sys.modules["only_ours"] is ours


def test_the_program_finds_its_folders_as_it_left_them(places: Places) -> None:
    mine = sys.path
    with places.apart():
        assert sys.path == places.path
        assert sys.path is not mine
        sys.path.append("of no consequence")
    assert sys.path is mine
    assert sys.path[0] == str(places.theirs)


@pytest.mark.parametrize("odd", [None, 5, b"bytes", "", "nowhere", Path("p")])
def test_whatever_stands_on_the_path_is_passed_over(odd: object, places: Places) -> None:
    sys.path.insert(0, odd)  # type: ignore[arg-type]
    with places.apart():
        assert where("shared") == "ours"
    # found and not run: what measures coverage looks along the path itself, after this test too
    found = importlib.util.find_spec("shared")
    del sys.path[0]
    assert found is not None
    assert found.origin == str(places.theirs / "shared.py")


def test_an_archive_of_the_programs_is_a_folder_too(places: Places, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("third.py", "WHERE = 'archive'\n")
    (places.ours / "third.py").write_text("WHERE = 'ours'\n")
    sys.path.insert(0, str(tmp_path / "app.zip"))
    with places.apart():
        assert where("third") == "ours"
    assert where("third") == "archive"


def test_a_package_goes_with_its_parts(places: Places) -> None:
    (places.ours / "shared.py").unlink()
    (places.ours / "shared").mkdir()
    (places.ours / "shared" / "__init__.py").write_text("WHERE = 'ours'\n")
    (places.ours / "shared" / "part.py").write_text("WHERE = 'ours'\n")
    with places.apart():
        assert where("shared.part") == "ours"
    assert not {"shared", "shared.part"} & set(sys.modules)
    assert where("shared") == "theirs"


def test_what_python_itself_has_loaded_is_one_for_both(places: Places) -> None:
    (places.theirs / "os.py").write_text("")
    import os

    with places.apart():
        assert sys.modules["os"] is os
    assert sys.modules["os"] is os


def test_torch_is_one_for_both(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (places.ours, places.theirs):
        (place / "torch.py").write_text("")
    theirs = object()
    monkeypatch.setitem(sys.modules, "torch", theirs)  # type: ignore[arg-type]
    with places.apart():
        assert sys.modules["torch"] is theirs


def test_whynan_is_there_even_where_the_program_takes_it_away(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "whynan"}
    with places.apart():
        pass
    for name in ours:
        monkeypatch.delitem(sys.modules, name)
    with places.apart():
        assert {name: sys.modules.get(name) for name in ours} == ours


def test_an_exception_leaves_everything_in_its_place(places: Places) -> None:
    mine = sys.path
    with pytest.raises(KeyError), places.apart():
        importlib.import_module("shared")
        raise KeyError
    assert sys.path is mine
    assert "shared" not in sys.modules


def test_whynans_own_work_may_go_deeper_than_the_program_may(places: Places) -> None:
    def deeper(n: int) -> int:
        return deeper(n - 1) if n else 0

    limit = 200
    sys.setrecursionlimit(limit)
    with places.apart():
        assert deeper(limit) == 0
    assert sys.getrecursionlimit() == limit
    with pytest.raises(RecursionError):
        deeper(limit)


def test_one_thread_at_a_time_stands_apart(places: Places) -> None:
    mine = sys.path
    inside, seen = threading.Event(), list[object]()

    def other() -> None:
        inside.set()
        with places.apart():
            seen.append(sys.path == places.path)
        seen.append(sys.path is mine)

    thread = threading.Thread(target=other)
    with places.apart():
        thread.start()
        inside.wait()
        # in the same thread it may be entered again
        with places.apart():
            pass
        assert seen == []
    thread.join()
    assert seen == [True, True]
    assert sys.path is mine
