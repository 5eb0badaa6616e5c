"""A text that is to compute the same has the same operands in a run, and the same derivatives of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.unit.fixes.python.mended import finding
from whynan.run.proof.operand_fidelity import are_same, operands_of
from whynan.run.proof.trials import ProgramText
from whynan.verify.in_place.swap import swap_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from whynan.run.proof.operand_fidelity import Operands, ShowingTexts

TEXT = """import torch

weight = torch.ones(3, requires_grad=True)


def probabilities(x):
    return torch.softmax(weight * x, -1), x.mean()


def target(x):
    p, value = probabilities(x)
    return torch.log(p).sum() + value
"""
RETURNED = "torch.softmax(weight * x, -1), x.mean()"
SAME = {
    "as it was": RETURNED,
    "the logits first": "(lambda logits: torch.softmax(logits, -1))(weight * x), x.mean()",
}
OTHER = {
    "multiplied": "torch.softmax(weight * x * 1.01, -1), x.mean()",
    "an epsilon": "torch.softmax(weight * x, -1) + 1e-4, x.mean()",
    "detached": "torch.softmax(weight * x, -1).detach(), x.mean()",
    "of another leaf": "torch.softmax(weight.detach() * x, -1), x.mean()",
    "half of its gradient": "(lambda p: (p + p.detach()) / 2)(torch.softmax(weight * x, -1)), x.mean()",
    "what is read beside it": "torch.softmax(weight * x, -1), 2 * x.mean()",
    "in another dtype": "torch.softmax(weight * x, -1).double(), x.mean()",
}


class Direct:
    """Calls the target again, with another text."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def trial(self, path: str, before: str, after: str, live: ShowingTexts) -> Any:
        """The result of the call."""
        with swap_code(path, before, after), live.apply():
            return self._module.target(torch.tensor([[0.5, 300.0, 1.0], [0.5, -1.0, 2.0]], requires_grad=True))


def operands(module: ModuleType, returned: str) -> Operands:
    text = TEXT.replace(RETURNED, returned)
    source = ProgramText(str(module.__file__), text, loaded=TEXT)
    found = operands_of(Direct(module), source, [finding(text, "torch.log(p)")])  # pyright: ignore[reportArgumentType]
    assert not isinstance(found, str)
    return found


@pytest.mark.parametrize("kind", SAME)
def test_what_computes_the_same_has_the_same_operands(kind: str, loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(TEXT)
    first = operands(module, RETURNED)
    assert {name for _, names in first for name in names} >= {"", "p", "value", "x"}
    assert are_same(first, operands(module, SAME[kind]))


@pytest.mark.parametrize("kind", OTHER)
def test_what_computes_another_number_or_derivative_has_not(kind: str, loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(TEXT)
    assert not are_same(operands(module, RETURNED), operands(module, OTHER[kind]))


def test_nothing_is_the_same_as_nothing() -> None:
    assert not are_same([], [])


def test_what_an_earlier_step_has_made_stands_against_nothing(loaded: Callable[[str], ModuleType]) -> None:
    earlier = "    old = (weight * x).pow(2).sum()\n    old.backward()\n"
    text = TEXT.replace("    p, value", f"{earlier}    p, value")
    module = loaded(text)
    first, second = (
        operands_of(Direct(module), ProgramText(str(module.__file__), text), [finding(text, "torch.log(p)")])  # pyright: ignore[reportArgumentType]
        for _ in range(2)
    )
    assert not isinstance(first, str)
    assert not isinstance(second, str)
    assert any(names["old"].by_leaf == () for _, names in first)
    assert are_same(first, second)
