"""The files of one of several processes."""

from __future__ import annotations

import pytest

from whynan.config import Options
from whynan.run.output.own_paths import with_own_document, with_own_paths

GIVEN = Options(json="out/report.json", trace="trace/", capsule="failure", baseline="old.json")


def launch(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")


def own_of(options: Options) -> Options:
    """The options of a rank that cannot reach the others."""
    return with_own_document(with_own_paths(options))


def test_a_rank_has_folders_of_its_own_and_the_document_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, 1)
    own = with_own_paths(GIVEN)
    assert (own.json, own.trace, own.capsule) == ("out/report.json", "trace.rank1", "failure.rank1")


def test_rank_1_has_names_of_its_own_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    launch(monkeypatch, 1)
    own = own_of(GIVEN)
    assert (own.json, own.trace, own.capsule) == ("out/report.rank1.json", "trace.rank1", "failure.rank1")
    assert own.baseline == "old.json"
    assert capfd.readouterr().err == (
        "whynan: rank 1 writes trace.rank1\n"
        "whynan: rank 1 writes failure.rank1\n"
        "whynan: rank 1 writes out/report.rank1.json\n"
    )


def test_rank_0_and_a_process_that_is_alone_have_those_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_of(GIVEN) == GIVEN
    launch(monkeypatch, 0)
    assert own_of(GIVEN) == GIVEN


@pytest.mark.parametrize("stream", ["-", "/dev/stdout", "/dev/fd/1"])
def test_an_open_stream_is_rank_0s(
    stream: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    launch(monkeypatch, 1)
    assert own_of(Options(json=stream)).json is None
    assert capfd.readouterr().err == "whynan: rank 1 writes no document: rank 0 writes to that stream\n"
    launch(monkeypatch, 0)
    assert own_of(Options(json=stream)).json == stream


def test_nothing_is_said_where_it_is_to_be_quiet(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    launch(monkeypatch, 1)
    assert own_of(Options(json="r.json", quiet=True)).json == "r.rank1.json"
    assert not capfd.readouterr().err
