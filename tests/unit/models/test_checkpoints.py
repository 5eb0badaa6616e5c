"""Among several checkpoints the first bad one is found, and the last good one before it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from whynan.errors import UsageError
from whynan.models.checkpoint.postmortem import read_checkpoints

NAN = math.nan


def series(folder: Path, bad: str, *names: str, **extra: Any) -> list[str]:
    """Checkpoints of steps in the order of the names; `bad` has a mark for each."""
    for step, (name, mark) in enumerate(zip(names, bad, strict=True)):
        value = {"g": 1.0, "b": NAN}[mark]
        torch.save({"w": torch.tensor([value]), "step": step, **extra}, folder / name)
    return [str(folder / name) for name in names]


def test_a_real_optimizer_that_went_bad_is_named_with_its_state(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    # one bad gradient: Adam's moments carry it on, and so does the weight
    model(torch.tensor([[1.0, NAN, 0.0, 0.0]])).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    (held,) = read_checkpoints([str(tmp_path / "a.pt")]).checkpoints
    assert {stored.name: stored.n_nan for stored in held.tensors if stored.bad} == {
        "model.weight": 3,
        "optimizer.state[0].exp_avg": 3,
        "optimizer.state[0].exp_avg_sq": 3,
    }
    assert (held.n_tensors, held.n_bad, held.verdict) == (8, 3, "nonfinite")


@pytest.mark.parametrize(
    ("bad", "first", "last"),
    [("gggg", None, None), ("ggbb", 2, 1), ("bbbb", 0, None), ("gbgb", 1, 0), ("gggb", 3, 2)],
)
def test_the_first_bad_and_the_last_good_before_it(tmp_path: Path, bad: str, first: int, last: int) -> None:
    found = read_checkpoints(series(tmp_path, bad, "d", "c", "b", "a"))
    assert (found.first_bad, found.last_good) == (first, last)
    assert [held.name for held in found.checkpoints] == ["d", "c", "b", "a"]
    assert found.verdict == ("clean" if first is None else "nonfinite")


def test_one_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    paths = series(tmp_path, "gbb", "a", "b", "c")
    Path(paths[2]).write_bytes(Path(paths[2]).read_bytes()[:100])
    found = read_checkpoints([*paths, str(tmp_path / "missing")])
    assert [held.verdict for held in found.checkpoints] == ["clean", "nonfinite", "unreadable", "unreadable"]
    assert found.first_bad == 1
    assert [held.error is not None for held in found.checkpoints] == [False, False, True, True]


def test_where_none_can_be_read_the_first_error_is_raised(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="x does not exist"):
        read_checkpoints([str(tmp_path / "x"), str(tmp_path / "y")])
    with pytest.raises(UsageError, match="there is nothing to look at"):
        read_checkpoints([])


def test_a_checkpoint_named_twice_is_looked_at_once(tmp_path: Path) -> None:
    (path,) = series(tmp_path, "g", "a")
    (tmp_path / "link").symlink_to(path)
    assert [
        held.name for held in read_checkpoints([path, str(tmp_path / "." / "a"), str(tmp_path / "link")]).checkpoints
    ] == ["a"]


def test_equal_names_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder / "run").mkdir(parents=True)
        torch.save({}, tmp_path / folder / "run" / "last.pt")
    found = read_checkpoints([str(tmp_path / folder / "run" / "last.pt") for folder in ("one", "two")])
    assert [held.name for held in found.checkpoints] == ["one/run/last.pt", "two/run/last.pt"]


def test_a_folder_is_named_as_one_even_from_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    torch.save({}, folder / "a.pt")
    monkeypatch.chdir(folder)
    assert (
        read_checkpoints(["."]).checkpoints[0].name
        == read_checkpoints(["../checkpoint-5/"]).checkpoints[0].name
        == "checkpoint-5/"
    )


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_tied_weights_are_counted_once(tmp_path: Path, new: bool) -> None:
    embedding = nn.Embedding(4, 2)
    embedding.weight.data[1] = NAN
    document = {"embed": embedding.weight, "head": embedding.weight, "row": embedding.weight[1]}
    torch.save(document, tmp_path / "a.pt", _use_new_zipfile_serialization=new)
    (held,) = read_checkpoints([str(tmp_path / "a.pt")]).checkpoints
    assert [(s.name, s.same_as, s.n_nan) for s in held.tensors] == [
        ("embed", None, 2),
        ("head", "embed", 2),
        ("row", None, 2),
    ]
    assert (held.n_tensors, held.n_bad) == (2, 2)


def test_the_progress_adds_up_to_what_was_announced(tmp_path: Path) -> None:
    class Heard:
        total = 0
        done = 0

        def begin(self, total: int) -> None:
            self.total = total

        def advance(self, size: int) -> None:
            self.done += size

    torch.save({"a": torch.ones(100_000), "b": torch.zeros(50_000, dtype=torch.float64)}, tmp_path / "a.pt")
    heard = Heard()
    read_checkpoints([str(tmp_path / "a.pt")], progress=heard)
    assert heard.done == 800_000
    assert heard.done <= heard.total <= heard.done + 4096


def test_bad_numbers_alone_make_a_checkpoint_bad(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1), "loss": NAN, "limit": math.inf}, tmp_path / "a.pt")
    (held,) = read_checkpoints([str(tmp_path / "a.pt")]).checkpoints
    assert (held.verdict, held.n_bad, held.n_bad_numbers) == ("nonfinite", 0, 1)
    assert [(number.name, number.bad) for number in held.numbers] == [("loss", True), ("limit", False)]


def test_versions_and_an_allowance_that_excused_nothing_are_told(tmp_path: Path) -> None:
    found = read_checkpoints(series(tmp_path, "g", "a"), allow=["x*"])
    assert found.unused_allows == ("x*",)
    assert set(found.versions) == {"whynan", "torch"}
