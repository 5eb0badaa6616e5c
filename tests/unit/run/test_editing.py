"""What may be edited: inside a folder, through no link, on a file that is what it was; each refusal has its twin."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from whynan.errors import UsageError
from whynan.run.fix import file as editing
from whynan.run.fix.file import Editable, open_editable, replace_files

TEXT = "x = 1\n"
AFTER = "x = 2\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with another one beside it."""
    folder, outside = tmp_path / "here", tmp_path / "outside"
    for made in (folder / "src", outside):
        made.mkdir(parents=True)
        (made / "net.py").write_text(TEXT)
    (folder / "net.py").write_text(TEXT)
    monkeypatch.chdir(folder)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_file_inside_is_edited() -> None:
    file = open_editable("src/net.py")
    assert file.text == TEXT
    assert file.replace(AFTER) == os.path.join("src", "net.py.orig")
    assert Path("src/net.py").read_text() == AFTER
    assert Path("src/net.py.orig").read_text() == TEXT


OUTSIDE = {
    "above": "../outside/net.py",
    "above by a way around": "src/../../outside/net.py",
    "a way around that ends inside": "src/../net.py",
    "nothing": "",
    "a null": "net.py\0",
    "the folder itself": ".",
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_lies_outside_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        open_editable(OUTSIDE[name])


def test_an_absolute_path_is_refused_outside_and_taken_inside(here: Path) -> None:
    with pytest.raises(UsageError, match="lies outside"):
        open_editable(str(here.parent / "outside" / "net.py"))
    assert open_editable(str(here / "net.py")).path == "net.py"


def test_a_folder_whose_name_begins_alike_is_outside(here: Path) -> None:
    (here.parent / "here2").mkdir()
    (here.parent / "here2" / "net.py").write_text(TEXT)
    with pytest.raises(UsageError, match="lies outside"):
        open_editable(str(here.parent / "here2" / "net.py"))


def linked_file(here: Path) -> str:
    (here / "link.py").symlink_to(here.parent / "outside" / "net.py")
    return "link.py"


def linked_file_inside(here: Path) -> str:
    (here / "link.py").symlink_to(here / "net.py")
    return "link.py"


def linked_folder(here: Path) -> str:
    (here / "link").symlink_to(here.parent / "outside")
    return "link/net.py"


def linked_folder_inside(here: Path) -> str:
    (here / "link").symlink_to(here / "src")
    return "link/net.py"


def pipe(here: Path) -> str:
    os.mkfifo(here / "pipe.py")
    return "pipe.py"


def folder(here: Path) -> str:
    return "src"


def under_a_file(here: Path) -> str:
    return "net.py/net.py"


KINDS = [linked_file, linked_file_inside, linked_folder, linked_folder_inside, pipe, folder, under_a_file]


@pytest.mark.parametrize("descriptors", [True, False], ids=["descriptors", "paths"])
@pytest.mark.parametrize("make", KINDS)
def test_no_link_is_followed_and_only_files_are_read(
    make: Any, descriptors: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make(here)
    if not descriptors:
        monkeypatch.setattr(os, "supports_dir_fd", set())
    with pytest.raises(UsageError, match="regular file"):
        open_editable(name)
    assert tree(here.parent / "outside") == {"net.py": TEXT.encode()}


def test_without_descriptors_a_file_is_edited_all_the_same(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "supports_dir_fd", set())
    assert open_editable("src/net.py").replace(AFTER) == os.path.join("src", "net.py.orig")
    assert tree(here) == {"net.py": TEXT.encode(), "src/net.py": AFTER.encode(), "src/net.py.orig": TEXT.encode()}


def test_a_folder_exchanged_for_a_link_meanwhile_is_not_entered(here: Path) -> None:
    file = open_editable("src/net.py")
    (here / "src").rename(here / "old")
    (here / "src").symlink_to(here.parent / "outside")
    with pytest.raises(UsageError, match="symbolic link"):
        file.replace(AFTER)
    assert tree(here.parent / "outside") == {"net.py": TEXT.encode()}


def test_a_file_exchanged_for_a_link_meanwhile_is_not_edited(here: Path) -> None:
    file = open_editable("net.py")
    (here / "net.py").unlink()
    (here / "net.py").symlink_to(here.parent / "outside" / "net.py")
    with pytest.raises(UsageError, match="symbolic link"):
        file.replace(AFTER)
    assert tree(here.parent / "outside") == {"net.py": TEXT.encode()}


def test_a_file_that_was_changed_meanwhile_is_left_alone(here: Path) -> None:
    file = open_editable("net.py")
    (here / "net.py").write_text("x = 3\n")
    with pytest.raises(UsageError, match="changed meanwhile"):
        file.replace(AFTER)
    assert (here / "net.py").read_text() == "x = 3\n"
    assert not (here / "net.py.orig").exists()


def test_the_check_sees_what_would_follow_a_link(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked_folder(here)
    monkeypatch.setattr(os, "O_NOFOLLOW", 0)
    open_editable("link/net.py").replace(AFTER)
    assert tree(here.parent / "outside") != {"net.py": TEXT.encode()}


def test_a_backup_does_not_follow_a_link(here: Path) -> None:
    (here / "net.py.orig").symlink_to(here.parent / "outside" / "new.py")
    assert open_editable("net.py").replace(AFTER) == "net.py.orig.1"
    assert tree(here.parent / "outside") == {"net.py": TEXT.encode()}


@pytest.mark.parametrize("failing", ["replace", "fsync"])
def test_where_writing_fails_nothing_is_left_behind(failing: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(here)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(UsageError, match="No space left"):
        open_editable("net.py").replace(AFTER)
    assert tree(here) == before


def test_the_second_of_two_writes_may_fail_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, done, sync = tree(here), [], os.fsync

    def full(descriptor: int) -> None:
        done.append(descriptor)
        if len(done) == 2:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left"):
        open_editable("net.py").replace(AFTER)
    assert tree(here) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_said_before_anything_is_asked(here: Path) -> None:
    (here / "src").chmod(0o555)
    try:
        with pytest.raises(UsageError, match="folder is read-only"):
            open_editable("src/net.py").check_writable()
    finally:
        (here / "src").chmod(0o755)


def test_what_the_encoding_cannot_write_is_refused(here: Path) -> None:
    (here / "net.py").write_bytes(b"# coding: latin-1\nx = '\xe9'\n")
    file = open_editable("net.py")
    with pytest.raises(UsageError, match="cannot write"):
        file.replace(f"{file.text}# \u4e00\n")
    assert not (here / "net.py.orig").exists()


def test_a_file_of_another_size_than_source_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editing, "_MOST_BYTES", 3)
    with pytest.raises(UsageError, match="too large"):
        open_editable("net.py")


# -- several files ---------------------------------------------------------------------------------------------------


def both() -> list[tuple[Editable, str]]:
    """Two files with their texts afterwards."""
    return [(open_editable("net.py"), AFTER), (open_editable("src/net.py"), AFTER + AFTER)]


def test_several_files_are_edited_and_each_is_kept(here: Path) -> None:
    assert replace_files(both()) == ("net.py.orig", os.path.join("src", "net.py.orig"))
    texts = {name: content.decode() for name, content in tree(here).items()}
    kept = {"net.py.orig": TEXT, os.path.join("src", "net.py.orig"): TEXT}
    assert texts == {"net.py": AFTER, os.path.join("src", "net.py"): AFTER + AFTER, **kept}


@pytest.mark.parametrize(
    ("failing", "call"), [("replace", 1), ("replace", 2), *(("fsync", n) for n in range(1, 5)), ("fchmod", 3)]
)
def test_where_one_of_several_fails_none_is_changed(
    failing: str, call: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real, calls = tree(here), getattr(os, failing), []

    def full(*given: object, **named: object) -> None:
        calls.append(given)
        if len(calls) == call:
            raise OSError(28, "No space left on device")
        real(*given, **named)

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(UsageError, match="No space left"):
        replace_files(both())
    assert tree(here) == before


def test_an_interrupt_between_two_files_changes_none(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, replace = tree(here), os.replace

    def interrupted(old: str, new: str, **folders: Any) -> None:
        replace(old, new, **folders)
        monkeypatch.setattr(os, "replace", replace)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_files(both())
    assert tree(here) == before


def test_where_one_of_several_was_changed_meanwhile_none_is(here: Path) -> None:
    changes = both()
    (here / "src" / "net.py").write_text("x = 3\n")
    before = tree(here)
    with pytest.raises(UsageError, match="changed meanwhile"):
        replace_files(changes)
    assert tree(here) == before
