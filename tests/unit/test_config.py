"""Where an option comes from, which source wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from whynan.config import Options, nearest_pyproject, parse_size
from whynan.errors import UsageError


def project(directory: Path, table: str) -> Path:
    """A directory whose pyproject.toml has this text."""
    (directory / "pyproject.toml").write_text(table, encoding="utf-8")
    return directory


def test_without_any_source_the_defaults_hold(tmp_path: Path) -> None:
    assert Options.load(directory=tmp_path, environment={}) == Options()
    assert Options.load(directory=project(tmp_path, ""), environment={}) == Options()


def test_a_later_source_wins(tmp_path: Path) -> None:
    directory = project(tmp_path, '[tool.whynan]\nmemory = "1MB"\nranges = true\nstrict = true\n')
    environment = {"WHYNAN_MEMORY": "2MB", "WHYNAN_STRICT": "no", "HOME": "/", "WHYNAN_RAISE_INTERNAL": "1"}
    options = Options.load(directory=directory, environment=environment, memory=3, quiet=None)
    assert options == Options(memory=3, ranges=True, strict=False)
    assert Options.load(directory=directory, environment=environment).memory == 2_000_000
    assert Options.load(directory=directory, environment={}).memory == 1_000_000


def test_the_environment_of_the_process_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path, '[tool.whynan]\nallow = ["WN5"]\n'))
    monkeypatch.setenv("WHYNAN_ALL", "on")
    monkeypatch.setenv("WHYNAN_RERUN", "1")
    monkeypatch.setenv("WHYNAN_PROOF_SECONDS", "0.5")
    assert Options.load() == Options(all_=True, rerun=True, proof_seconds=0.5, allow=("WN5",))


def test_the_nearest_project_file_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    outer = project(tmp_path, "[tool.whynan]\nquiet = true\n") / "pyproject.toml"
    assert nearest_pyproject(inner) == outer.resolve()
    project(tmp_path / "a", "[tool.other]\n")
    assert not Options.load(directory=inner, environment={}).quiet


def test_allow_is_a_list_or_text_with_commas(tmp_path: Path) -> None:
    directory = project(tmp_path, "")
    options = Options.load(directory=directory, environment={"WHYNAN_ALLOW": "WN213, sqrt-at-zero,"})
    assert options.allow == ("WN213", "sqrt-at-zero")
    assert Options.load(directory=directory, environment={}, allow=["WN5"]).allow == ("WN5",)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (17, 17),
        ("17", 17),
        ("17 B", 17),
        ("512MB", 512_000_000),
        ("512m", 512_000_000),
        ("1.5 GiB", 3 << 29),
        ("2kib", 2048),
        ("1TB", 10**12),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_a_size_is_read_exactly(text: object, size: int) -> None:
    assert parse_size(text) == size


@given(st.integers(min_value=0), st.sampled_from(["", "K", "M", "G", "T"]))
def test_every_whole_size_is_exact(number: int, unit: str) -> None:
    assert parse_size(f"{number}{unit}iB" if unit else f"{number}B") == number * 1024 ** " KMGT".index(unit or " ")


REFUSED_FILES = {
    "an unknown key": "[tool.whynan]\njson = 'report.json'\n",
    "a rerun": "[tool.whynan]\nrerun = true\n",
    "a negative size": "[tool.whynan]\nmemory = -1\n",
    "a switch for a size": "[tool.whynan]\nmemory = true\n",
    "a word for a switch": "[tool.whynan]\nquiet = 'perhaps'\n",
    "a number for a switch": "[tool.whynan]\nquiet = 1\n",
    "a code that is none": "[tool.whynan]\nallow = ['NaN everywhere']\n",
    "a number for allow": "[tool.whynan]\nallow = 5\n",
    "a sync that is none": "[tool.whynan]\nsync = 'never'\n",
    "no table": "[tool]\nwhynan = 5\n",
    "no TOML": "[tool.whynan\n",
}


@pytest.mark.parametrize("case", list(REFUSED_FILES))
def test_a_wrong_file_is_refused_with_what_is_legal(case: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UsageError) as caught:
        Options.load(directory=project(tmp_path, REFUSED_FILES[case]), environment={})
    assert str(caught.value).replace(str(tmp_path.resolve()), "DIRECTORY") == snapshot


@pytest.mark.parametrize(
    ("environment", "arguments"),
    [
        ({"WHYNAN_MEMROY": "1GB"}, {}),
        ({"WHYNAN_MEMORY": "lots"}, {}),
        ({"WHYNAN_MEMORY": "5i"}, {}),
        ({"WHYNAN_QUIET": "2"}, {}),
        ({"WHYNAN_SYNC": "epoch"}, {}),
        ({}, {"memory": 1.5}),
        ({}, {"verbose": True}),
        ({"WHYNAN_PROOF_SECONDS": "0"}, {}),
        ({}, {"proof_seconds": "inf"}),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_legal(
    environment: dict[str, str], arguments: dict[str, object], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UsageError) as caught:
        Options.load(directory=project(tmp_path, ""), environment=environment, **arguments)
    assert str(caught.value) == snapshot
