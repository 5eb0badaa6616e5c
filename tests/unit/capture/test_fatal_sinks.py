"""Where a bad number does harm: a used loss, a gradient, a parameter, a buffer, an output."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import whynan
from tests.unit.capture.seen import code, only, sinks, traced


def zero() -> Tensor:
    """A leaf at which the square root has an infinite slope."""
    return torch.zeros(2, requires_grad=True)


def test_a_loss_whose_gradients_a_step_uses() -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work() -> None:
        loss = (weight * 0).log().clamp(min=-5.0) + (weight - 2).log().mul(0.0).sum()
        loss.sum().backward()
        optimizer.step()

    kinds = {k for f in traced(work).findings for k, _ in sinks(f)}
    assert {"loss", "gradient", "parameter"} <= kinds


def test_a_loss_that_no_backward_follows_is_only_observed() -> None:
    weight = torch.ones(1, requires_grad=True)

    def work() -> None:
        (weight * 2).sum().backward()
        validation = (weight.detach() - 1).log()
        validation.item()

    finding = only(traced(work))
    assert finding.severity == "warning"
    assert {k for k, _ in sinks(finding)} == {"observed"}


def test_a_gradient_that_is_left_at_the_end() -> None:
    weight = zero()
    finding = only(traced(lambda: weight.sqrt().sum().backward()))
    assert sinks(finding) == {("gradient", "weight")}
    assert finding.severity == "error"


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_gradient_that_is_zeroed_is_none(set_to_none: bool) -> None:
    weight = zero()
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work() -> None:
        weight.sqrt().sum().backward()
        optimizer.zero_grad(set_to_none=set_to_none)
        (weight * 2).sum().backward()
        optimizer.step()

    report = traced(work)
    assert report.verdict == "clean"
    assert [f.op for f in report.absorbed] == ["aten.div.Tensor"]


def test_a_discriminators_gradient_from_the_generators_step_is_none() -> None:
    judge = nn.Linear(1, 1)
    maker = nn.Linear(1, 1)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (judge, maker)]

    def work() -> None:
        judged = judge(maker(torch.ones(1, 1)).detach() * 0)
        judge.weight.mul(0).sqrt().sum().backward()
        optimizers[0].zero_grad()
        judged.sum().backward()
        optimizers[0].step()
        judge(maker(torch.ones(1, 1))).sum().backward()
        optimizers[1].step()

    assert traced(work).verdict == "clean"


def test_a_gradient_that_autograd_grad_returns_and_nobody_uses_is_no_gradient_sink() -> None:
    weight = zero()

    def work() -> None:
        torch.autograd.grad(weight.sqrt().sum(), weight)

    assert not any(k == "gradient" for f in traced(work).findings for k, _ in sinks(f))


def test_one_that_is_returned_is_an_output() -> None:
    weight = zero()
    finding = only(whynan.explain(lambda: torch.autograd.grad(weight.sqrt().sum(), weight)))
    assert sinks(finding) == {("output", "output[0]")}


def test_a_parameter_that_was_finite_before() -> None:
    weight = torch.ones(2, requires_grad=True)

    def work() -> None:
        (weight * 2).sum().backward()
        with torch.no_grad():
            weight.sub_(torch.tensor([1.0, 2.0]).sub(1).log())

    finding = only(traced(work))
    assert ("parameter", "weight") in sinks(finding)
    assert code(finding) == "torch.tensor([1.0, 2.0]).sub(1).log()"


def test_a_buffer_that_was_finite_before() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            self.mean.lerp_(x.log(), 0.5)
            return x

    finding = only(whynan.explain(Mean(), torch.tensor([0.0, 1.0])))
    assert sinks(finding) == {("buffer", "mean")}
    assert finding.reaches[0].bad == 1


def test_running_statistics_of_a_batch_norm() -> None:
    model = nn.BatchNorm1d(2)
    finding_names = {
        r.name
        for f in whynan.explain(lambda: model(torch.full((3, 2), 100.0).exp().mul(0 + 1.0))).findings
        for r in f.reaches
    }
    assert {"running_mean", "running_var"} <= finding_names


def test_an_output_of_the_outermost_module_that_no_backward_follows() -> None:
    class Log(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logs": x.log()}

    model = nn.Sequential(nn.Identity(), Log())
    finding = only(traced(lambda: model(torch.zeros(2))))
    assert finding.severity == "error"
    assert sinks(finding) == {("output", "output.logs")}


def test_outputs_of_inner_modules_are_none() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log = Log()

        def forward(self, x: Tensor) -> Tensor:
            return self.log(x).clamp(min=-3.0)

    class Log(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.log()

    model = Outer()
    assert traced(lambda: model(torch.zeros(2))).verdict == "clean"


def test_a_healthy_loss_beside_a_bad_output_of_which_backward_follows() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = x * self.weight
            return y, y.detach().sub(1).log()

    model = Two()

    def work() -> None:
        fine, _ = model(torch.ones(2))
        fine.sum().backward()

    report = traced(work)
    assert all(f.severity == "error" for f in report.findings), "a detached output is followed by no backward"
    assert [f.op for f in report.findings] == ["aten.log.default"]


def test_inside_a_closure_only_what_step_leaves_counts() -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], lr=1.0, max_iter=3)
    calls: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (weight - 3).square().sum()
        if len(calls) == 1:
            (weight.detach() * 0).log().sum()
        loss.backward()
        calls.append(loss.item())
        return loss

    assert traced(lambda: optimizer.step(closure)).verdict == "clean"
    assert len(calls) > 1


def test_what_a_closure_leaves_in_a_parameter_counts() -> None:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = weight.sqrt().sum()
        loss.backward()
        return loss

    report = traced(lambda: optimizer.step(closure))
    assert report.verdict == "nonfinite"
    assert ("parameter", "weight") in {s for f in report.findings for s in sinks(f)}


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_a_scaler_skips_is_clean_and_counted(fused: bool) -> None:
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)

    def work() -> None:
        scaler.scale((weight * 8).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    report = traced(work)
    assert report.verdict == "clean"
    assert report.coverage.skipped_steps == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("opposite", [1.0, 0.0])
def test_a_last_step_that_a_scaler_skips_may_have_been_clipped(dtype: torch.dtype, opposite: float) -> None:
    """The norm of all gradients is NaN, and so is each of them then, or Inf, and each is 0; each dtype by itself."""
    weight, other = torch.ones(4, requires_grad=True), torch.ones(2, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.AdamW([weight, other])
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)

    def work() -> None:
        scaler.scale((weight * 8).sum() - opposite * (weight * 8).sum() + other.sum() * 1e-9).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_([weight, other], 1.0)
        scaler.step(optimizer)

    report = traced(work)
    assert report.verdict == "clean"
    assert report.coverage.skipped_steps == 1


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("scale", "slope", "skips"), [(2.0**127, 2.0**12, 12), (2.0**16, 5e37, 14)])
def test_a_scaler_that_still_looks_for_its_scale_is_no_fault(
    scale: float, slope: float, skips: int, fused: bool
) -> None:
    """A fused optimizer divides by the scale itself: what the scaler looks with before is 1."""
    weight = torch.full((4,), 1e-36, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    def work() -> None:
        for _ in range(skips + 1):
            scaler.scale((weight * slope).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    report = traced(work)
    assert not [finding for finding in report.findings if finding.severity == "error"]
    assert report.coverage.skipped_steps == skips


@pytest.mark.parametrize("fused", [False, True])
def test_a_scale_that_has_fallen_to_one_is_a_fault(fused: bool) -> None:
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**9)

    def work() -> None:
        for _ in range(12):
            scaler.scale((weight * 0).sqrt().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    assert traced(work).verdict == "nonfinite"


def test_a_step_after_a_skipped_one_is_number_two() -> None:
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)

    def work() -> None:
        scaler.scale((weight * 8).sum()).backward()
        scaler.step(optimizer)
        scaler.update(1.0)
        optimizer.zero_grad()
        (weight - weight.detach()).sqrt().sum().backward()
        optimizer.step()

    finding = next(f for f in traced(work).findings if f.severity == "error")
    assert finding.step == 2


def test_without_an_optimizer_there_is_no_step() -> None:
    weight = zero()
    finding = only(traced(lambda: weight.sqrt().sum().backward()))
    assert (finding.step, finding.micro) == (None, None)


def test_steps_and_micro_steps_count_from_one() -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)

    def work() -> None:
        for step in range(3):
            optimizer.zero_grad()
            for micro in range(2):
                bad = step == 1 and micro == 1
                (weight - float(bad)).sqrt().sum().backward()
            optimizer.step()

    finding = traced(work).findings[0]
    assert (finding.step, finding.micro) == (2, 2)


# -- A gradient that is given says what of a root is the loss ----------------------------------------------------------


def masked(x: Tensor) -> Tensor:
    """One column is -Inf."""
    return x.masked_fill(torch.tensor([False, True, False]), -float("inf"))


@pytest.mark.parametrize(("given", "kinds"), [([1.0, 0.0, 1.0], set()), ([1.0, 1.0, 1.0], {"loss"})])
def test_what_a_given_gradient_leaves_out_is_no_loss(given: list[float], kinds: set[str]) -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work() -> None:
        masked(weight * 2).backward(torch.tensor(given))
        optimizer.step()

    assert {k for f in traced(work).findings for k, _ in sinks(f)} == kinds


def test_a_checkpoint_that_goes_back_by_itself_has_no_loss() -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work() -> None:
        for _ in range(3):
            out = checkpoint(lambda w: masked(w * 2), weight, use_reentrant=True)
            out.softmax(-1).square().sum().backward()
            optimizer.step()

    assert traced(work).verdict == "clean"
    with whynan.watch(optimizer) as watch:
        work()
    assert watch.report.verdict == "clean"


def test_a_leaf_that_another_part_of_a_model_goes_on_from_is_no_parameter() -> None:
    client, server = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([client, server], lr=0.1)

    def work() -> None:
        given = masked(client * 2)
        taken = given.detach().requires_grad_()
        (taken.softmax(0) * server).sum().backward()
        given.backward(taken.grad)
        optimizer.step()

    assert traced(work).verdict == "clean"


# -- Infinities that a parameter has from the beginning ----------------------------------------------------------------


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("watched", [True, False])
def test_a_mask_may_be_a_parameter(trained: bool, watched: bool) -> None:
    model = nn.Linear(3, 3)
    model.mask = nn.Parameter(torch.full((3, 3), -float("inf")).triu(1), requires_grad=trained)
    optimizer = torch.optim.Adam(model.parameters())

    def work() -> None:
        for _ in range(3):
            (model(torch.ones(3, 3)) + model.mask).softmax(-1).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    if watched:
        with whynan.watch(optimizer) as watch:
            work()
        assert watch.report.verdict == "clean"
    else:
        assert traced(work).verdict == "clean"


@pytest.mark.parametrize("mode", ["trace", "watch"])
def test_a_trained_parameter_may_be_made_of_infinities(mode: str) -> None:
    mask, weight = nn.Parameter(torch.tensor([0.0, -float("inf"), 1.0])), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([mask, weight], lr=0.1)

    def work() -> None:
        for _ in range(3):
            (mask.softmax(0) * weight).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    if mode == "trace":
        assert traced(work).verdict == "clean"
    else:
        with whynan.watch(optimizer) as watch:
            work()
        assert watch.report.verdict == "clean"


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("watched", [True, False])
def test_an_infinity_that_comes_into_a_parameter_later_is_a_sink(watched: bool, masked: bool) -> None:
    weight = nn.Parameter(torch.tensor([1.0, 1.0, 1.0, -float("inf") if masked else 1.0]))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work() -> None:
        for step in range(3):
            weight[:2].sum().backward()
            optimizer.step()
            if step == 1:
                weight.data[2] = float("inf")

    if watched:
        with whynan.watch(optimizer) as watch:
            work()
        assert watch.report.verdict == "inconclusive"
    else:
        assert ("parameter", "weight") in sinks(only(traced(work)))


# -- What is asked for its shape alone ---------------------------------------------------------------------------------


def test_a_shape_may_be_asked_of_memory_that_nobody_wrote() -> None:
    convolution = nn.Conv2d(1, 2, 3)

    def work() -> int:
        with torch.no_grad():
            return convolution(torch.empty(1, 1, 8, 8)).shape[1]

    torch.use_deterministic_algorithms(True)
    try:
        assert traced(work).verdict == "clean"
        finding = only(traced(lambda: convolution(torch.empty(1, 1, 8, 8)).sum().item()))
        model = nn.Linear(3, 3)
        model.register_forward_hook(lambda _module, _given, out: out + torch.empty(3))
        with torch.no_grad():
            inside = only(traced(lambda: model(torch.ones(2, 3)).argmax(1)))
    finally:
        torch.use_deterministic_algorithms(False)
    assert finding.rule == inside.rule == "WN002"
    assert inside.severity == "error"


LAYOUTS = {
    "refused": (lambda w: w * 2, lambda: torch.eye(3).to_sparse_csr()),
    "csr": (lambda w: (w * 1).to_sparse_csr(), lambda: torch.ones(3, 3).to_sparse_csr()),
    "nested": (
        lambda w: torch.nested.as_nested_tensor([w[0], w[1, :2]]),
        lambda: torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]),
    ),
    "mkldnn": (lambda w: (w * 1).to_mkldnn(), lambda: torch.ones(3, 3).to_mkldnn()),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR:UserWarning", "ignore:The PyTorch API of nested:UserWarning")
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_a_gradient_of_another_layout_is_left_to_torch(layout: str) -> None:
    weight = torch.ones(3, 3, requires_grad=True)
    root, gradient = LAYOUTS[layout]

    def work() -> None:
        with contextlib.suppress(RuntimeError):
            root(weight).backward(gradient())

    assert traced(work).verdict == "clean"
    with whynan.watch(torch.optim.SGD([weight], lr=0.1)) as watch:
        work()
    assert watch.report.verdict == "clean"
