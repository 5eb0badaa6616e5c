"""How far a step moves the weights: what is read, when it is found again, and what gives no number."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from whynan.capture.torch.samples import LONG, PLACES, Samples, ratio_of

if TYPE_CHECKING:
    from collections.abc import Callable

Parameters = list[Any]


class Moving(torch.optim.Optimizer):
    """An optimizer that does with each parameter what it is told to."""

    def __init__(self, parameters: Parameters, move: Callable[[Any], None]) -> None:
        super().__init__(parameters, {})
        self.move = move

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                self.move(parameter)


def by(share: float) -> Callable[[Any], None]:
    """A step by a share of each weight, so that the share is the ratio."""

    def move(parameter: Any) -> None:
        parameter.mul_(1 + share)

    return move


def ratio(parameters: Parameters, move: Callable[[Any], None], samples: Samples | None = None) -> float | None:
    """What is said of one step."""
    samples = samples or Samples()
    optimizer = Moving(parameters, move)
    return of_step(samples, optimizer)


def of_step(samples: Samples, optimizer: Moving) -> float | None:
    trained = sum(p.requires_grad for group in optimizer.param_groups for p in group["params"])
    before = samples.before(optimizer, trained)
    optimizer.step()
    return None if before is None else ratio_of(samples.moved(optimizer, before))


def weights(*shape: int, **more: Any) -> nn.Parameter:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    return nn.Parameter(made.to(**more))


def shifted(parameter: Any) -> None:
    parameter.add_(torch.linspace(0, 0.1, parameter.numel()).reshape(parameter.shape).to(parameter.dtype))


def moved_of(parameters: Parameters, move: Callable[[Any], None]) -> float:
    """The ratio of all weights, in float64."""
    before = torch.cat([p.detach().double().flatten() for p in parameters])
    Moving(parameters, move).step()
    after = torch.cat([p.detach().double().flatten() for p in parameters])
    return float((after - before).norm() / before.norm())


def test_of_a_small_model_every_weight_is_read() -> None:
    expected = moved_of([weights(7, 5), weights(3), weights()], shifted)
    assert ratio([weights(7, 5), weights(3), weights()], shifted) == pytest.approx(expected, rel=1e-6)


def test_of_a_large_model_a_bounded_sample_is_read_that_is_like_the_rest() -> None:
    shapes = [(500, 64), (64, 64), (64,), (64, 256), (256, 64), (3,), (64, 500)] * 4
    samples = Samples()
    optimizer = Moving([weights(*shape) for shape in shapes], by(0.01))
    before = samples.before(optimizer, len(shapes))
    assert before is not None
    assert PLACES * LONG // 2 < before.numel() <= PLACES * LONG
    expected = moved_of([weights(*shape) for shape in shapes], shifted)
    assert ratio([weights(*shape) for shape in shapes], shifted) == pytest.approx(expected, rel=0.2)


def test_a_few_weights_that_are_large_count_for_what_they_are() -> None:
    def made() -> Parameters:
        return [nn.Parameter(weights(50, 64).detach() * 20), *(weights(500, 64) for _ in range(12))]

    expected = moved_of(made(), shifted)
    assert ratio(made(), shifted) == pytest.approx(expected, rel=0.2)


def test_a_part_of_the_weights_that_moves_alone_counts_by_its_share() -> None:
    still, moving = weights(300, 300), weights(300, 300)
    found = ratio([still, moving], lambda p: p.mul_(1.5) if p is moving else None)
    assert found == pytest.approx(0.5 / 2**0.5, rel=0.1)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float16, 0.05), (torch.bfloat16, 0.2), (torch.float64, 1e-9)])
def test_other_formats_are_read_too(dtype: torch.dtype, near: float) -> None:
    found = ratio([weights(40, 50, dtype=dtype)], by(1 / 64))
    assert found == pytest.approx(1 / 64, rel=near)


def test_formats_may_be_mixed() -> None:
    assert ratio([weights(9, 9, dtype=torch.bfloat16), weights(9, 9)], by(0.5)) == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("size", [6, 60])
def test_any_order_in_memory_is_read(size: int) -> None:
    last = nn.Parameter(weights(size, 5, 4, 4).detach().to(memory_format=torch.channels_last))
    turned = nn.Parameter(weights(5, size).detach().t())
    assert ratio([last, turned], by(0.25)) == pytest.approx(0.25, rel=1e-5)


def test_a_parameter_that_is_a_part_of_another_tensor_is_read_where_it_is() -> None:
    flat = weights(100).detach()
    flat[:90] = 0.0
    assert ratio([nn.Parameter(flat[90:])], by(0.25)) == pytest.approx(0.25, rel=1e-5)


def test_a_step_that_puts_new_tensors_in_place_of_the_weights_is_followed() -> None:
    def replace(parameter: Any) -> None:
        parameter.data = parameter.data * 1.125

    samples = Samples()
    optimizer = Moving([weights(70, 80), weights(5)], replace)
    assert [of_step(samples, optimizer) for _ in range(3)] == pytest.approx([0.125] * 3, rel=1e-5)


def test_weights_that_are_replaced_between_two_steps_are_found_again() -> None:
    samples, parameter = Samples(), weights(70, 80)
    optimizer = Moving([parameter], by(0.5))
    of_step(samples, optimizer)
    for changed in (parameter.data.clone(), parameter.data.half(), torch.ones(9), torch.ones(9, 9).t()):
        parameter.data = changed
        assert of_step(samples, optimizer) == pytest.approx(0.5, rel=1e-3)


def test_a_step_that_changes_the_form_of_the_weights_has_no_ratio() -> None:
    def halve(parameter: Any) -> None:
        parameter.data = parameter.data.half()

    assert ratio([weights(7, 8)], halve) is None


def test_parameters_that_come_and_go_are_read_anew() -> None:
    samples = Samples()
    still, moving = weights(50, 50), weights(50, 50)
    optimizer = Moving([still], lambda p: p.mul_(1.5) if p is moving else None)
    assert of_step(samples, optimizer) == 0.0
    optimizer.add_param_group({"params": [moving]})
    both = of_step(samples, optimizer)
    assert both is not None
    assert both > 0.1
    del optimizer.param_groups[1]
    assert of_step(samples, optimizer) == 0.0


def test_what_is_not_trained_is_not_read_until_it_is() -> None:
    samples, frozen, adapter = Samples(), weights(100, 100).requires_grad_(False), weights(10)
    optimizer = Moving([frozen, adapter], lambda p: p.mul_(1.5) if p is adapter else None)
    assert of_step(samples, optimizer) == pytest.approx(0.5, rel=1e-5)
    frozen.requires_grad_()
    assert of_step(samples, optimizer) == pytest.approx(0.0, abs=0.1)


def _strange() -> dict[str, Any]:
    indices = torch.tensor([[0, 1], [1, 0]])
    return {
        "meta": nn.Parameter(torch.ones(3, device="meta")),
        "sparse": nn.Parameter(torch.sparse_coo_tensor(indices, torch.ones(2), (2, 2))),
        "of eight bits": nn.Parameter(torch.ones(3).to(torch.float8_e4m3fn)),
        "complex": nn.Parameter(torch.ones(3, dtype=torch.complex64)),
        "expanded": torch.ones(1).expand(4).requires_grad_(),
        "empty": nn.Parameter(torch.empty(0)),
        "of another class": type("Own", (nn.Parameter,), {})(torch.ones(3)),
    }


@pytest.mark.parametrize("kind", list(_strange()))
def test_what_cannot_be_read_is_passed_over(kind: str) -> None:
    strange = _strange()[kind]
    assert Samples().before(Moving([strange], by(0.5)), 1) is None
    assert ratio([strange, weights(4)], lambda p: None if p is strange else p.mul_(1.5)) == pytest.approx(0.5, rel=1e-5)


def test_memory_that_is_given_back_is_not_read() -> None:
    samples, parameter = Samples(), weights(50, 50)
    optimizer = Moving([parameter], lambda _: None)
    of_step(samples, optimizer)
    parameter.untyped_storage().resize_(0)
    assert samples.before(optimizer, 1) is None


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30, float("nan"), float("inf")])
def test_a_norm_that_is_out_of_range_gives_no_ratio(value: float) -> None:
    assert ratio([nn.Parameter(torch.full((8, 8), value))], by(0.5)) is None


def test_a_step_that_spoils_the_weights_has_no_ratio() -> None:
    assert ratio([weights(8)], lambda p: p.fill_(float("nan"))) is None


def test_the_weights_go_with_their_optimizer() -> None:
    def held() -> int:
        gc.collect()
        return sum(isinstance(o, Tensor) for o in gc.get_objects())

    samples = Samples()
    before = held()
    optimizer = Moving([weights(50, 50)], by(0.5))
    of_step(samples, optimizer)
    assert held() > before
    del optimizer
    assert held() == before


def test_the_weights_may_be_swapped_meanwhile() -> None:
    samples, parameter = Samples(), weights(6, 6)
    optimizer = Moving([parameter], by(0.5))
    of_step(samples, optimizer)
    torch.utils.swap_tensors(parameter, nn.Parameter(torch.ones(6, 6)))
    assert of_step(samples, optimizer) == pytest.approx(0.5, rel=1e-5)


def test_reading_leaves_no_trace_on_a_parameter() -> None:
    parameter = weights(6, 6)
    before = parameter._version
    optimizer = Moving([parameter], lambda _: None)
    assert of_step(Samples(), optimizer) == 0.0
    assert (parameter._version, parameter.grad_fn, parameter.is_leaf) == (before, None, True)
