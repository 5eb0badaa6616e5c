"""Collectives in a trace: done once, and read where the program reads what they gave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import whynan
from whynan.capture.provenance.dependence import Refused
from whynan.capture.ranks import CollectiveRefused
from whynan.capture.torch.interposition import collective_calls
from whynan.capture.torch.interposition.collective_calls import begin_log
from whynan.capture.torch.operators import operator_of
from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.shadow_memory import is_freed, is_readable, local
from whynan.capture.torch.sinks.gradients import Losses, gather_evidence, gradients_of, norm_of
from whynan.training.collective_replay import replayed_collectives

pytestmark = pytest.mark.filterwarnings("ignore:.*all_gather_into_tensor:FutureWarning")


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone, which opens no socket."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_what_was_born_goes_through_a_collective() -> None:
    def step() -> torch.Tensor:
        born = torch.tensor([0.0, 1.0]).log()
        gathered = torch.empty(2)
        dist.all_gather_into_tensor(gathered, born)
        dist.all_reduce(gathered)
        dist.broadcast(gathered, 0)
        return gathered * 2

    report = whynan.explain(step)
    assert [f.site.code for f in report.findings if f.site is not None] == ["torch.tensor([0.0, 1.0]).log()"]


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_came_by_a_collective_has_entered_by_it(value: float) -> None:
    given = torch.tensor([value, 1.0])

    def step() -> torch.Tensor:
        received = torch.empty(2)
        dist.all_gather_into_tensor(received, given)
        return received * 2

    report = whynan.explain(step)
    finding = report.findings[0]
    assert finding.birth == "entered"
    assert "as allgather of several processes left it" in finding.message
    assert (finding.chain[0].phase, finding.chain[0].op) == ("collective", "c10d._allgather_base_.default")


@pytest.mark.usefixtures("group")
def test_what_a_hook_of_a_gradient_exchanges_stands_in_that_hook() -> None:
    weight = torch.ones(2, requires_grad=True)
    given, received = torch.tensor([torch.nan, 1.0]), torch.empty(2)

    def exchange(parameter: torch.Tensor) -> None:
        dist.all_gather_into_tensor(received, given)
        assert parameter.grad is not None
        parameter.grad.copy_(received)

    weight.register_post_accumulate_grad_hook(exchange)

    def step() -> torch.Tensor:
        (weight * 2).sum().backward()
        assert weight.grad is not None
        return weight.grad * 2

    link = whynan.explain(step).findings[0].chain[0]
    assert link.phase == "collective"
    assert link.site is not None
    assert link.site.code == "dist.all_gather_into_tensor(received, given)"


@pytest.mark.usefixtures("group")
def test_a_finite_exchange_leaves_no_finding() -> None:
    def step() -> torch.Tensor:
        received = torch.empty(2)
        dist.all_gather_into_tensor(received, torch.ones(2))
        work = dist.all_reduce(received, async_op=True)
        assert work is not None
        work.wait()
        return received * 2

    assert whynan.explain(step).verdict == "clean"


def test_no_experiment_does_a_collective_once_more() -> None:
    reduce = operator_of(torch.ops.c10d.allreduce_.default)
    with pytest.raises(Refused):
        interventions.run(reduce, (([torch.ones(1)],), {}), lambda tensor: tensor)
    assert torch.equal(
        interventions.run(operator_of(torch.ops.aten.neg.default), ((torch.ones(1),), {}), lambda t: t)[0],
        -torch.ones(1),
    )


@pytest.mark.parametrize("name", ["gather_", "scatter_", "broadcast_", "send"])
def test_a_collective_has_nothing_but_its_name_with_another_operator(name: str) -> None:
    operator = operator_of(getattr(torch.ops.c10d, name).default)
    assert operator.collective
    tables = (operator.movement, operator.pointwise, operator.overwrites, operator.copying, operator.copies)
    assert not any(tables)


@pytest.mark.usefixtures("group")
def test_a_gradient_in_parts_is_judged_by_the_part_that_is_here() -> None:
    mesh = init_device_mesh("cpu", (1,))
    weight = distribute_tensor(torch.ones(4), mesh, [Shard(0)]).requires_grad_()
    loss = weight.redistribute(mesh, [Replicate()]).sum()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    losses = Losses()
    losses.record_backward([loss])
    loss.backward()
    with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        gradients = gradients_of(optimizer)
        assert [type(g) for _, g in gradients] == [torch.Tensor]
        assert norm_of([g for _, g in gradients]) == 2.0
        assert gather_evidence(optimizer, losses).is_good
        gradients[0][1][1] = float("nan")
        bad = gather_evidence(optimizer, losses)
    assert [mask.tolist() for _, mask in bad.bad if mask is not None] == [[False, True, False, False]]
    assert bad.numbers == (4.0,)


def test_a_replay_by_one_rank_calls_no_collective_of_a_distributed_tensor() -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    log = begin_log(1 << 10, lambda: True)
    try:
        weight = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
        with pytest.raises(CollectiveRefused) as refused, replayed_collectives(0.0, lambda _: None):
            # as the norm of all gradients is made
            torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(weight)]))
        assert "all_reduce" in refused.value.why
    finally:
        log.remove()
        collective_calls._active = None  # pyright: ignore[reportPrivateUsage]
        dist.destroy_process_group()


def test_a_wrapper_without_memory_is_not_read() -> None:
    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN206
            return func(*args, **(kwargs or {}))

    wrapper = torch.Tensor._make_wrapper_subclass(Wrapper, (3,))
    own = torch.Tensor._make_subclass(Wrapper, torch.ones(3))
    assert local(wrapper) is None
    assert local(own) is own


def test_memory_that_was_given_back_is_not_read() -> None:
    tensor = torch.ones(3)
    assert is_readable(tensor)
    tensor.untyped_storage().resize_(0)
    assert is_freed(tensor)
    assert not is_readable(tensor)
    assert not is_freed(torch.ones(0))


def test_the_memory_of_an_out_argument_is_no_operand() -> None:
    def step() -> torch.Tensor:
        out = torch.full((2,), float("nan"))
        torch.log(torch.tensor([0.0, 1.0]), out=out)
        return out

    finding = whynan.explain(step).findings[0]
    assert finding.site is not None
    assert (finding.birth, finding.op) == ("pole", "aten.log.out")
