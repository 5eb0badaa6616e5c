"""What the process holds is found, also while what was there before is listed once."""

from __future__ import annotations

import functools
import gc
import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from whynan.replay import live_objects as live_objects_module
from whynan.replay.live_objects import (
    CACHES,
    SUSPENDED,
    collect,
    everything,
    is_hidden,
    listed_once,
    live_functions,
    live_objects,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


REAL = {name: getattr(gc, name) for name in ("freeze", "unfreeze", "get_freeze_count")}
LISTED = live_objects_module._listed  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(autouse=True)
def as_in_a_program(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is frozen at first, and what is frozen counts."""
    for name, function in REAL.items():
        monkeypatch.setattr(gc, name, function)
    monkeypatch.setattr(live_objects_module, "_listed", LISTED)
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@functools.lru_cache
def cached() -> int:
    return 1


def numbers() -> Iterator[int]:
    yield 1


def functions() -> list[Any]:
    return live_functions(__file__.__eq__)


@pytest.mark.parametrize("listed", [False, True])
def test_functions_of_a_file_are_found_by_it(listed: bool) -> None:
    with ExitStack() as entered:
        if listed:
            entered.enter_context(listed_once())
            live_functions(__file__.__eq__)

        def made_meanwhile() -> None: ...

        found = functions()
        for function in (numbers, functions, made_meanwhile):
            assert sum(one is function for one in found) == 1
        assert all(one.__code__.co_filename == __file__ for one in found)


@pytest.mark.parametrize("listed", [False, True])
def test_caches_and_what_is_suspended_and_files_are_found_by_their_kinds(listed: bool, tmp_path: Path) -> None:
    before = numbers()
    with ExitStack() as entered, open(tmp_path / "log", "w") as file:
        if listed:
            entered.enter_context(listed_once())
            live_functions(__file__.__eq__)
        after = numbers()
        suspended = live_objects(*SUSPENDED)
        assert all(any(one is each for one in suspended) for each in (before, after))
        assert any(one is cached for one in live_objects(CACHES))
        assert any(one is file for one in live_objects(type(file)))


def test_what_is_listed_is_neither_kept_alive_nor_left_frozen() -> None:
    held = [numbers()]
    gone = weakref.ref(held[0])
    before = gc.get_freeze_count()
    with listed_once():
        live_functions(__file__.__eq__)
        assert gc.get_freeze_count() > before
        assert not is_hidden()
        held.clear()
        assert gone() is None
    assert gc.get_freeze_count() == before


def test_everything_is_found_while_it_is_listed() -> None:
    before: list[Any] = [[]]
    with listed_once():
        live_functions(__file__.__eq__)
        after: list[Any] = [[]]
        assert all(any(one is each for one in everything()) for each in (before, after))
        assert all(any(one is each for one in everything()) for each in (before, after))


def test_what_a_program_has_frozen_stays_so() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        assert is_hidden()
        with listed_once():
            live_functions(__file__.__eq__)
            assert is_hidden()
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()


def test_a_listing_in_a_listing_is_the_outer_one() -> None:
    with listed_once():
        with listed_once():
            live_functions(__file__.__eq__)
        assert gc.get_freeze_count()
        assert any(one is numbers for one in functions())
    assert not gc.get_freeze_count()


def test_a_tuple_that_is_being_made_grows_meanwhile() -> None:
    def one_after_another() -> Iterator[int]:
        with listed_once():
            for number in range(100):
                live_functions(__file__.__eq__)
                live_objects(CACHES)
                yield number

    assert len(tuple(one_after_another())) == 100


class Drawing:
    """What is told when it is collected."""

    def __init__(self, told: list[str]) -> None:
        self.itself, self.told = self, told

    def __del__(self) -> None:
        self.told.append("gone")


def test_nothing_of_the_program_is_collected_for_a_listing() -> None:
    """A finalizer may draw a random number, or say something."""
    told: list[str] = []
    gc.disable()
    try:
        Drawing(told)
        with listed_once():
            live_functions(__file__.__eq__)
            everything()
            assert not told
            live_functions(__file__.__eq__)
        assert not told
        with listed_once():
            live_functions(__file__.__eq__)
            collect()
            assert told == ["gone"]
    finally:
        gc.enable()
