"""What moves from step to step is kept at each mark; at the first, where nothing has moved yet, every small tensor."""

from __future__ import annotations

import weakref
from typing import ClassVar

import pytest
import torch
from torch import nn

from whynan.replay import carried_state
from whynan.replay.carried_state import CarriedState, Slot, assign, attributes_of
from whynan.source.ownership import Owner


class Observer(nn.Module):
    """Keeps the greatest number that it has met."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("hi", torch.tensor(0.0))


def deep(layers: int) -> tuple[nn.Module, Observer]:
    """An observer within so many modules."""
    observer = Observer()
    module: nn.Module = observer
    for _ in range(layers):
        module = nn.Sequential(nn.Linear(2, 2), module)
    return module, observer


def test_a_buffer_is_kept_before_anything_is_known_to_move() -> None:
    network, observer = deep(8)
    kept = CarriedState().now(lambda: [{"network": network}])
    observer.hi.fill_(float("nan"))
    assign(kept)
    assert observer.hi.item() == 0.0


def test_a_deep_buffer_that_has_moved_is_kept_later() -> None:
    network, observer = deep(8)
    state = CarriedState()
    for value in (1.0, 2.0, 3.0):
        kept = state.now(lambda: [{"network": network}])
        observer.hi.fill_(value)
    assign(kept)
    assert observer.hi.item() == 2.0


def test_what_is_too_large_waits_until_it_moves() -> None:
    large, small = torch.zeros(carried_state._BUFFER + 1), torch.zeros(3)
    kept = CarriedState().now(lambda: [{"large": large, "small": small}])
    assert len(kept) == 1
    large.fill_(1.0)
    small.fill_(1.0)
    assign(kept)
    assert (large.sum().item(), small.sum().item()) == (large.numel(), 0.0)


def test_what_has_not_moved_is_not_written() -> None:
    """A graph that has saved it could not be differentiated any more."""
    x = torch.ones(2)
    weight = torch.ones(2, requires_grad=True)
    kept = CarriedState().now(lambda: [{"x": x}])
    loss = (weight * x).sum()
    assign(kept)
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [1.0, 1.0]


class Trainer:
    """Keeps the sum of the losses as a tensor of its own, and counts."""

    def __init__(self) -> None:
        self.total = torch.tensor(0.0)
        self.made = 0
        self.data = torch.zeros(1000)


def test_what_a_trainer_gathers_is_kept() -> None:
    trainer = Trainer()
    kept, total = attributes_of(trainer), trainer.total
    trainer.total += float("nan")
    trainer.made += 1
    assign(kept)
    assert (trainer.total.item(), trainer.made) == (0.0, 0)
    assert trainer.total is total


def test_neither_is_data_nor_what_is_trained() -> None:
    trainer = Trainer()
    trainer.total = torch.tensor(0.0, requires_grad=True)
    kept = attributes_of(trainer)
    trainer.data += 1
    with torch.no_grad():
        trainer.total += 1
    assign(kept)
    assert (trainer.total.item(), trainer.data[0].item()) == (1.0, 1.0)
    assert attributes_of(nn.Linear(1, 1)) == attributes_of(Trainer) == []


class Averages:
    """Keeps an average as a tensor that each step makes anew, of which there is none at first."""

    def __init__(self) -> None:
        self.average: torch.Tensor | None = None

    def update(self, value: float) -> None:
        self.average = torch.tensor(value) if self.average is None else 0.5 * self.average + value


def test_what_is_made_anew_is_what_it_was() -> None:
    tuner, state = Averages(), CarriedState()
    for value in (1.0, 2.0, 3.0, 4.0):
        kept = state.now(lambda: [{"tuner": tuner}])
        tuner.update(value)
        before = tuner.average
    assign(kept)
    assert tuner.average is not None
    assert tuner.average is not before
    assert tuner.average.item() == 0.25 * 1.0 + 0.5 * 2.0 + 3.0


def test_what_there_is_none_of_ahead_of_the_first_step_is_none_again() -> None:
    tuner = Averages()
    kept = CarriedState().now(lambda: [{"tuner": tuner}])
    tuner.update(float("nan"))
    assign(kept)
    assert tuner.average is None


def test_what_is_computed_is_not_held_with_its_graph() -> None:
    """The twin: it would keep the memory of a whole step."""
    tuner, weight, state = Averages(), torch.ones(2, requires_grad=True), CarriedState()
    for _ in range(4):
        tuner.average = weight.sum()
        kept = state.now(lambda: [{"tuner": tuner}])
    assert not any(isinstance(value, torch.Tensor) and value.grad_fn is not None for _, value in kept)


def test_the_statistics_of_a_normalisation_have_no_other_version() -> None:
    network, state = nn.Sequential(nn.BatchNorm1d(2)), CarriedState()
    kept = state.now(lambda: [{"network": network}])
    for _ in range(3):
        kept = state.now(lambda: [{"network": network}])
    network(torch.tensor([[float("nan"), 1.0], [2.0, 3.0]]))
    assert network[0].running_mean.isnan().any()
    assign(kept)
    assert network[0].running_mean.tolist() == [0.0, 0.0]


class Shard:
    """A loader of a library: it counts what it has given, and says whether it is at its end."""

    def __init__(self) -> None:
        self.given = 0
        self.is_at_end = False


def test_what_libraries_hold_is_known_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_state, "owner_of", lambda _: Owner.LIBRARY)
    shard, state = Shard(), CarriedState()

    def names() -> list[dict[str, object]]:
        return [{"shard": shard}]

    for number in range(3):
        shard.given = number
        assert state.now(names) == []
        beneath = state.beneath(names)
    shard.given, shard.is_at_end = 3, True
    assign(beneath())
    # the first has moved at each mark, the other for the first time since the last look
    assert (shard.given, shard.is_at_end) == (2, False)


def test_what_libraries_hold_is_not_held_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_state, "owner_of", lambda _: Owner.LIBRARY)
    shard, state = Shard(), CarriedState()
    gone, names = weakref.ref(shard), {"shard": shard}
    state.now(lambda: [names])
    beneath = state.beneath(list)
    names.clear()
    del shard
    assert gone() is None
    assert beneath() == []


class Counting(type):
    """A class of the program's own kind, whose number of steps is an attribute of it."""

    made = 0


class Counted(metaclass=Counting):
    pass


def test_attributes_of_a_class_are_none_of_an_object() -> None:
    state = CarriedState()
    for number in range(4):
        Counted.made = number
        kept = state.now(lambda: [{"counted": Counted}])
    assign(kept)
    assert Counted.made == 3


def test_what_a_step_takes_out_of_a_dict_or_a_list_is_put_back_where_there_is_a_place() -> None:
    held, rows, state = {"pending": 1, "kept": 2}, [torch.zeros(100), torch.ones(100)], CarriedState()
    kept = state.now(lambda: [{"held": held, "rows": rows}])
    del held["pending"], rows[1]
    held["kept"] = 3
    assign(kept)
    assert held == {"pending": 1, "kept": 2}
    assert len(rows) == 1
    assert [slot.read() for slot, _ in kept]


class Asked:
    """Has no attributes of its own, and code of its own for those that are missing."""

    __slots__ = ()
    asked: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> object:
        self.asked.append(name)
        raise AttributeError(name)


def test_no_code_of_the_program_runs_for_its_attributes() -> None:
    CarriedState().now(lambda: [{"asked": Asked()}])
    assert Asked.asked == []


def test_what_a_graph_has_saved_can_be_differentiated_once_it_is_put_back() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    kept = CarriedState().now(lambda: [{"network": network}])
    loss = network(torch.rand(4, 2)).square().mean()
    after = CarriedState().now(lambda: [{"network": network}])
    assign(kept)
    assign(after)
    loss.backward()
    assert network[0].weight.grad is not None


def test_a_lazy_normalisation_has_nothing_to_keep() -> None:
    network, state = nn.Sequential(nn.Linear(2, 2), nn.LazyBatchNorm1d()), CarriedState()
    for _ in range(4):
        kept = state.now(lambda: [{"network": network, "last": network[1].running_mean}])
    assign(kept)


class Held:
    def __init__(self, held: dict[str, int]) -> None:
        self.__dict__ = held


def test_what_cannot_be_written_leaves_no_other_place_as_it_is() -> None:
    def refuse(_: object) -> None:
        raise OSError("gone")

    held = {"count": 2}
    with pytest.raises(OSError, match="gone"):
        assign([(Slot(lambda: 0, refuse), 1), *((slot, 1) for slot, _ in attributes_of(Held(held)))])
    assert held["count"] == 1
