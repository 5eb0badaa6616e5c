"""Which of several processes this is."""

from __future__ import annotations

import pytest

from whynan.capture.ranks import Rank, is_one_of_several, launched, rank


def test_a_launcher_gives_a_rank() -> None:
    assert launched({"RANK": "1", "WORLD_SIZE": "4"}) == Rank(1, 4)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"RANK": "4", "WORLD_SIZE": "4"},
        {"RANK": "-1", "WORLD_SIZE": "4"},
        {"RANK": "first", "WORLD_SIZE": "4"},
    ],
)
def test_a_process_that_is_alone_has_none(environment: dict[str, str]) -> None:
    assert launched(environment) is None


def test_the_environment_tells_it_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_one_of_several()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert rank() == Rank(1, 2)
    assert is_one_of_several()
