"""Fresh inputs: of the captured shapes or small ones, in three dtypes, within the domain of what was captured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from whynan.verify.arrays import array_of
from whynan.verify.sampling import captured_samples, fresh_samples

if TYPE_CHECKING:
    from whynan.verify.sampling import Sample


def fresh(visit: dict[str, Any], accepts: Any = lambda sample: True) -> list[Sample]:
    return list(fresh_samples(captured_samples([visit]), 0, accepts))


def values(samples: list[Sample], name: str = "x") -> Any:
    return np.concatenate([array_of(s.arguments[name]).reshape(-1) for s in samples])


def test_three_dtypes_and_the_run_s_first() -> None:
    found = fresh({"x": torch.randn(4, 5).bfloat16()})
    assert list(dict.fromkeys(s.dtype for s in found)) == ["bfloat16", "float32", "float16"]
    assert all(str(s.arguments["x"].dtype) == f"torch.{s.dtype}" for s in found)


def test_signed_zeros_subnormals_limits_and_ties_are_among_them() -> None:
    found = [s for s in fresh({"x": torch.randn(6, 8)}) if s.dtype == "float32"]
    every = values(found)
    tiny, largest = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
    assert np.signbit(every[every == 0]).any()
    assert (every[~np.signbit(every)] == 0).any()
    assert ((every != 0) & (np.abs(every) < tiny)).any()
    assert {largest, -largest} <= set(every)
    tied = array_of(next(s for s in found if s.title == "tied").arguments["x"])
    assert (tied == tied[:, :1]).all()
    assert np.isfinite(every).all()


def test_rows_have_scales_of_their_own() -> None:
    found = next(s for s in fresh({"x": torch.randn(6, 8)}) if s.title == "of all magnitudes by row")
    rows = np.log2(np.abs(array_of(found.arguments["x"])).mean(-1))
    assert rows.max() - rows.min() > 20


@pytest.mark.parametrize(
    ("captured", "holds"),
    [
        (torch.rand(4, 8) + 0.1, lambda x: (x > 0).all()),
        (torch.rand(4, 8), lambda x: ((x >= 0) & (x <= 1)).all()),
        (torch.randn(4, 8).softmax(-1), lambda x: ((x >= 0) & (x <= 1)).all()),
        ((torch.arange(32) % 2).float().reshape(4, 8), lambda x: ((x == 0) | (x == 1)).all()),
        (torch.randn(4, 8), lambda x: (x < 0).any() and (x > 0).any() and (np.abs(x) > 100).any()),
    ],
    ids=["positive", "within 0 and 1", "probabilities", "a mask as numbers", "any"],
)
def test_the_domain_of_what_was_captured_is_kept(captured: Any, holds: Any) -> None:
    assert holds(values(fresh({"x": captured})))


def test_rows_of_probabilities_stay_rows_of_probabilities() -> None:
    found = [s for s in fresh({"x": torch.randn(4, 8).softmax(-1)}) if s.dtype == "float32"]
    assert all(np.allclose(array_of(s.arguments["x"]).sum(-1), 1, atol=1e-2) for s in found)


def test_few_values_say_nothing_of_a_domain() -> None:
    assert (values(fresh({"x": torch.tensor([1.0, 2.0, 0.5])})) < 0).any()


def test_large_tensors_become_small_ones_whose_equal_sizes_stay_equal() -> None:
    visit = {"x": torch.randn(64, 100), "w": torch.randn(100, 30), "i": torch.arange(64) + 10, "n": 3}
    found = fresh(visit)
    for sample in found:
        x, w, i = (sample.arguments[name] for name in "xwi")
        assert x.numel() < 100
        assert x.shape[1] == w.shape[0]
        assert i.shape == x.shape[:1]
        assert int(i.max()) < x.shape[1]
        assert sample.arguments["n"] == 3
    assert len({s.arguments["x"].shape for s in found}) > 1


def test_what_the_function_does_not_take_is_left_out() -> None:
    found = fresh({"x": torch.randn(6, 8)}, lambda sample: sample.dtype != "float16")
    assert found
    assert not any(s.dtype == "float16" for s in found)


def test_the_same_seed_draws_the_same_and_moves_no_state_of_the_program() -> None:
    state, numpy = torch.get_rng_state(), np.random.get_state()[1].tolist()
    visit = {"x": torch.randn(6, 8, generator=torch.Generator().manual_seed(1))}
    one, other = fresh(visit), fresh(visit)
    assert np.array_equal(values(one), values(other))
    assert torch.equal(state, torch.get_rng_state())
    assert numpy == np.random.get_state()[1].tolist()


def test_a_mask_leaves_out_a_row_or_a_column_of_some() -> None:
    mask = 1 - torch.eye(8)
    found = [s for s in fresh({"x": torch.randn(8, 8), "mask": mask}) if s.title == "with an empty row of a mask"]
    masks = [array_of(s.arguments["mask"]) for s in found if s.dtype == "float32"]
    assert len(masks) == 2
    assert not masks[0][0].any()
    assert not masks[1][:, 0].any()
    assert not [s for s in fresh({"x": torch.randn(8, 8)}) if s.title == "with an empty row of a mask"]
