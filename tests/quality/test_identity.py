"""A trace changes no bit: torch's own operator samples, forward and gradients, bare against traced."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import whynan
from tests.quality.identity import differs, names_a_formula, operators, run, samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.quality.conftest import Tally

STRIDE, CAP = 12, 8
"""Of the sample: every so many operators, and of each at most so many inputs. The full check leaves out none."""
STRIDE_IN_INFERENCE, CAP_IN_INFERENCE = 10, 2
PARTS = 32


def _all_same(chosen: list[Any], tally: Tally, cap: int | None = None, *, inference: bool = False) -> None:
    title = "bit-identical in inference mode" if inference else "bit-identical samples"
    changed: list[str] = []
    for op in chosen:
        counts: Counter[tuple[str, str]] = Counter(
            differs(op, sample, whynan.trace, inference=inference) for sample in samples(op, cap)
        )
        for (outcome, why), number in counts.items():
            line = f"{op.formatted_name}: {number} {outcome}: {why}"
            if outcome == "changed":
                changed.append(line)
            if outcome != "same":
                tally.listed(title, line)
        left_out = sum(n for (outcome, _), n in counts.items() if outcome == "left out")
        total = counts.total() - left_out
        bad = sum(n for (outcome, _), n in counts.items() if outcome == "changed")
        tally.count(title, total - bad, total, "the same bits, or a note that says why not")
        if not inference:
            tally.count("bit-identical operators", int(not bad), 1)
            tally.count("samples left out", left_out, counts.total())
    assert not changed, "\n".join(changed)


def _part(number: int, of: int) -> list[Any]:
    return operators()[number::of]


@pytest.mark.parametrize("number", range(4))
def test_a_sample_of_the_operators_gives_the_same_bits(number: int, tally: Tally) -> None:
    _all_same(operators()[::STRIDE][number::4], tally, CAP)


@pytest.mark.full
@pytest.mark.parametrize("number", range(PARTS))
def test_every_operator_gives_the_same_bits(number: int, tally: Tally) -> None:
    _all_same(_part(number, PARTS), tally)


@pytest.mark.parametrize("number", range(4))
def test_a_sample_of_the_operators_gives_the_same_bits_in_inference_mode(number: int, tally: Tally) -> None:
    _all_same(operators()[1::STRIDE_IN_INFERENCE][number::4], tally, CAP_IN_INFERENCE, inference=True)


@pytest.mark.full
@pytest.mark.parametrize("number", range(PARTS))
def test_every_operator_gives_the_same_bits_in_inference_mode(number: int, tally: Tally) -> None:
    _all_same(_part(number, PARTS), tally, inference=True)


class _Meddler(TorchDispatchMode):
    """Turns the sign of one zero: a change that no comparison of values sees."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.is_floating_point() and "mul" in str(func):
            out.masked_fill_(out == 0, -0.0)
        return out


@contextmanager
def _draws() -> Iterator[None]:
    torch.rand(1)
    yield


def test_the_sign_of_a_zero_and_the_state_of_a_generator_are_compared() -> None:
    (mul,) = [op for op in operators() if op.formatted_name == "mul"]

    class Sample:
        input = torch.zeros(3)
        args = (torch.ones(3),)
        kwargs: dict[str, Any] = {}  # noqa: RUF012

        def transform(self, _function: Any) -> Sample:
            return self

    bare, _ = run(mul, Sample())
    signed, _ = run(mul, Sample(), _Meddler)
    drawn, _ = run(mul, Sample(), _draws)
    assert [a == b for a, b in zip(bare, signed, strict=True)] == [False, True, True]
    assert [a == b for a, b in zip(bare, drawn, strict=True)] == [True, True, False]


def test_a_formula_that_a_mode_changes_is_noted() -> None:
    x = torch.tensor([1e20, 1e20, 1e-20], requires_grad=True)
    with whynan.trace() as trace:
        x.prod().backward()
    with whynan.trace() as other:
        (x * 2).sum().backward()
    assert x.grad is not None
    bare = torch.tensor([1e20, 1e20, 1e-20], requires_grad=True)
    bare.prod().backward()
    assert any(names_a_formula(note) for note in trace.report.coverage.notes) or torch.equal(x.grad, bare.grad)
    assert not any(names_a_formula(note) for note in other.report.coverage.notes)
