"""Several checkpoints are ordered by what they say of their age, else by their names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whynan.models.checkpoint.order import natural, order_checkpoints, steps_of
from whynan.records.checkpoint import Checkpoint, Order


def checkpoint(name: str, verdict: Any = "clean", **steps: float) -> Checkpoint:
    return Checkpoint(name=name, path=name, form="torch", verdict=verdict, steps=steps)


def names(*checkpoints: Checkpoint) -> tuple[list[str], Order]:
    found, order = order_checkpoints(checkpoints)
    return [held.name for held in found], order


def test_by_the_step_that_each_stores_whatever_the_names() -> None:
    found = names(checkpoint("a", step=300), checkpoint("b", step=100), checkpoint("c", step=200))
    assert found == (["b", "c", "a"], Order(by="step", key="step"))


def test_the_finest_count_that_all_share_decides() -> None:
    found = names(checkpoint("a", global_step=1, epoch=2), checkpoint("b", epoch=1), checkpoint("c", epoch=3))
    assert found == (["b", "a", "c"], Order(by="step", key="epoch"))


def test_a_count_that_is_the_same_everywhere_says_nothing() -> None:
    found = names(checkpoint("b", global_step=0, epoch=2), checkpoint("a", global_step=0, epoch=1))
    assert found == (["a", "b"], Order(by="step", key="epoch"))


@pytest.mark.parametrize(
    ("held", "why"),
    [
        ((checkpoint("x-10", step=1), checkpoint("x-9")), "x-9 stores no step"),
        ((checkpoint("x-10", step=1), checkpoint("x-9", epoch=1)), "they store their steps under different names"),
        ((checkpoint("x-10", step=1), checkpoint("x-9", step=1)), "all store the same step"),
    ],
)
def test_else_by_name_and_why(held: tuple[Checkpoint, ...], why: str) -> None:
    assert names(*held) == (["x-9", "x-10"], Order(by="name", why=why))


def test_equal_steps_are_ordered_by_name() -> None:
    found = names(checkpoint("last", step=2), checkpoint("b-2", step=2), checkpoint("a", step=1))
    assert found[0] == ["a", "b-2", "last"]


def test_what_cannot_be_read_comes_last_and_does_not_decide() -> None:
    found = names(checkpoint("a", "unreadable"), checkpoint("c", step=1), checkpoint("b", step=2))
    assert found == (["c", "b", "a"], Order(by="step", key="step"))


def test_names_are_sorted_as_people_count() -> None:
    expected = ["ckpt", "ckpt-9", "ckpt-10", "ckpt-10-b", "ckpt-010-c", "epoch=2-step=5", "epoch=10-step=1"]
    held = expected[::-1]
    held.sort(key=natural)
    assert held == expected


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_names_can_be_sorted(held: list[str]) -> None:
    assert sorted(sorted(held, key=natural)) == sorted(held)


@pytest.mark.parametrize(
    ("document", "steps"),
    [
        ({"global_step": 7, "epoch": 1.5, "loss": 3}, {"global_step": 7, "epoch": 1.5}),
        ({"step": torch.tensor(9), "iteration": torch.tensor([4])}, {"step": 9, "iteration": 4}),
        ({"step": "12", "epoch": "twelve"}, {"step": 12}),
        ({"step": True, "epoch": None, "iter": [1]}, {}),
        ({"step": float("nan"), "epoch": float("inf"), "iter": 10**400}, {}),
        ({"step": torch.ones(2), "epoch": torch.ones(1, device="meta")}, {}),
        ([("step", 1)], {}),
        (None, {}),
    ],
)
def test_only_a_number_at_the_root_is_a_step(document: Any, steps: dict[str, float]) -> None:
    assert steps_of(document) == steps
