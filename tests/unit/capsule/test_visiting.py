"""Visits of a function in a capsule: what was packed comes back."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from whynan.capsule.folder import CapsuleFolder
from whynan.capsule.values import open_visits, pack_visits
from whynan.errors import UsageError
from whynan.verify.in_place.visits import Visit, Visits

SHARED = torch.tensor([[1.0, math.nan], [2.0, math.inf]])
VISITS = Visits(
    path="net.py",
    sha256="0" * 64,
    function="Net.forward",
    visits=(
        Visit(3, {"x": SHARED, "self.scale": 1e-8, "n": 4, "on": True, "name": "NaN?", "nothing": None}),
        Visit(
            4,
            {
                "x": SHARED.t(),
                "pair": (1, [torch.tensor(3, dtype=torch.int64), -math.inf]),
                "half": torch.ones(2, dtype=torch.bfloat16),
                "complex": torch.tensor([1 + 2j]),
                "empty": torch.empty(0, 3),
                "wide": torch.zeros(1, 4).expand(1000, 4),
            },
            frozenset({"x"}),
        ),
    ),
    left_out=2,
)


def same(one: object, other: object) -> bool:
    """Whether two values are the same, tensors with their strides, NaN with NaN."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return (
            one.dtype == other.dtype
            and one.stride() == other.stride()
            and torch.equal(torch.view_as_real(one) if one.is_complex() else one.nan_to_num(7.0), _plain(other))
        )
    if isinstance(one, tuple | list):
        return type(one) is type(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or one != one)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor.nan_to_num(7.0)


def test_what_was_packed_comes_back(tmp_path: Path) -> None:
    pack_visits(str(tmp_path / "v"), VISITS)
    found = open_visits(CapsuleFolder(tmp_path / "v"))
    assert (found.path, found.sha256, found.function, found.left_out) == ("net.py", "0" * 64, "Net.forward", 2)
    assert [(v.line, v.needs_grad) for v in found.visits] == [(3, frozenset()), (4, frozenset({"x"}))]
    for one, other in zip(VISITS.visits, found.visits, strict=True):
        assert list(one.values) == list(other.values)
        for name, value in one.values.items():
            assert same(value, other.values[name]), name


def test_another_value_is_told_apart() -> None:
    assert not same(torch.ones(2), torch.zeros(2))
    assert not same((1, [2]), (1, (2,)))


def test_a_tensor_that_is_met_twice_is_stored_once(tmp_path: Path) -> None:
    twice = Visits("a.py", "", None, (Visit(1, {"x": SHARED}), Visit(2, {"y": SHARED})))
    pack_visits(str(tmp_path / "v"), twice)
    assert len(json.loads((tmp_path / "v" / "visits.json").read_text())["layouts"]) == 1


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"kind": "tensor", "name": "9"}, id="no such tensor"),
        pytest.param({"kind": "device", "value": "cpu:x"}, id="no device"),
    ],
)
def test_visits_that_are_none_are_refused(
    value: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(tmp_path)
    pack_visits("v", VISITS)
    path = Path("v", "visits.json")
    document = json.loads(path.read_text())
    document["visits"][0]["values"]["x"] = value
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError) as caught:
        open_visits(CapsuleFolder("v"))
    assert str(caught.value) == snapshot
