"""What a pickle would make is told from its instructions alone."""

from __future__ import annotations

import collections
import copyreg
import io
import pickle
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whynan.models.checkpoint.pickles import kinds


class Plain:
    """An object with a state."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {"a": [1, 2], "b": (1, 2)}


class Mapping(dict[str, Any]):
    """Filled by items."""


class Sequence(list[Any]):
    """Filled by appending."""


HERE = Plain.__module__


def of(held: object, protocol: int = 2) -> dict[str, str]:
    return dict(kinds(io.BytesIO(pickle.dumps(held, protocol))))


@pytest.mark.parametrize(
    ("held", "name", "kind"),
    [
        (Plain(), f"{HERE}.Plain", "object"),
        (Mapping(a=1), f"{HERE}.Mapping", "mapping"),
        (Mapping(a=1, b=Plain()), f"{HERE}.Mapping", "mapping"),
        ([Mapping(), Mapping(a=1)], f"{HERE}.Mapping", "mapping"),
        (Mapping(), f"{HERE}.Mapping", "object"),
        (Sequence([1]), f"{HERE}.Sequence", "sequence"),
        (Sequence([1, 2, Plain()]), f"{HERE}.Sequence", "sequence"),
        (collections.defaultdict(list, a=[]), "collections.defaultdict", "mapping"),
        (collections.deque([1, 2]), "collections.deque", "sequence"),
        (complex(1, 2), "builtins.complex", "object"),
        (Plain, f"{HERE}.Plain", "object"),
    ],
)
def test_a_class_is_known_by_how_its_objects_are_filled(held: object, name: str, kind: str) -> None:
    assert of(held)[name] == kind


def test_names_of_python_2_are_those_of_python_3() -> None:
    found = kinds(io.BytesIO(b"\x80\x02ccopy_reg\n_reconstructor\nc__builtin__\nobject\n."))
    assert {"copyreg._reconstructor", "builtins.object"} <= set(found)


def test_the_file_is_left_behind_the_pickle() -> None:
    file = io.BytesIO(pickle.dumps(Plain(), 2) + pickle.dumps(Sequence([1]), 2) + b"rest")
    assert f"{HERE}.Plain" in kinds(file)
    assert f"{HERE}.Sequence" in kinds(file)
    assert file.read() == b"rest"


@given(st.binary(max_size=60))
def test_any_bytes_end(content: bytes) -> None:
    kinds(io.BytesIO(content))
    kinds(io.BytesIO(b"\x80\x02" + content))


def test_a_function_that_the_process_has_loaded_is_not_called(capsys: pytest.CaptureFixture[str]) -> None:
    # what a file may name by its number alone
    copyreg.add_extension("builtins", "print", 1999)
    try:
        pickle.loads(b"\x80\x02\x83\xcf\x07U\x05twice\x85R.")
        assert capsys.readouterr().out == "twice\n"
        kinds(io.BytesIO(b"\x80\x02\x83\xcf\x07U\x05twice\x85R."))
        assert capsys.readouterr().out == ""
    finally:
        copyreg.remove_extension("builtins", "print", 1999)


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(b"Nr\xff\xff\xff\x3f", id="a place in the memo"),
        pytest.param(b"\x96" + (1 << 33).to_bytes(8, "little"), id="the length of a bytearray"),
    ],
)
def test_a_number_in_a_pickle_takes_no_memory(claim: bytes) -> None:
    tracemalloc.start()
    try:
        kinds(io.BytesIO(b"\x80\x02" + claim + b"."))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_is_called_may_have_been_made() -> None:
    made = b"\x80\x02cbuiltins\ngetattr\nN\x85RN\x85R"
    kept = b"\x80\x02U\x01aQ)R"
    for first in (made, kept):
        assert "posix.system" in kinds(io.BytesIO(first + b"cposix\nsystem\n."))


@pytest.mark.parametrize("size", range(0, 120, 3))
def test_a_broken_pickle_tells_what_was_seen_before_its_fault(size: int) -> None:
    whole = pickle.dumps([Mapping(a=1), Sequence([1])], 2)
    assert set(kinds(io.BytesIO(whole[:size]))) <= set(kinds(io.BytesIO(whole)))
