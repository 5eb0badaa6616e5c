"""A mask that is multiplied with NaN chooses instead: in the product, or ahead of what first reads the NaN."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
import torch

import whynan
from whynan.fixes.python import patch
from whynan.records import Site
from whynan.run.proof.masked_products import chosen_by_mask, masked_texts
from whynan.source.text import place_of
from whynan.verify.in_place.visits import Visit, Visits

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from whynan.records import Fix

PROGRAM = """
import torch
import torch.nn.functional as F

net = torch.nn.Linear(3, 2)

def gather():
    torch.manual_seed(0)
    x, y = torch.randn(4, 5, 3), torch.randn(4, 5, 2)
    valid = torch.arange(5) < torch.tensor([[5], [3], [1], [4]])
    y[HOLE] = float("nan")
    return x, y, valid.float()

def loss_of(pred, target, mask):
    BODY

def train():
    x, y, mask = gather()
    loss = loss_of(net(x), y, mask)
    loss.backward()
    return loss
"""


def fixes_of(loaded: Callable[[str], ModuleType], body: str, hole: str = "~valid") -> list[Fix]:
    """The changes of the only finding that have a patch."""
    module = loaded(PROGRAM.replace("HOLE", hole).replace("BODY", body.replace("\n", "\n    ")))
    (finding,) = whynan.explain(module.train, rerun=True).findings
    return [fix for fix in finding.fixes if fix.patch]


def added(fix: Fix) -> list[str]:
    """The lines that a change adds."""
    lines = (fix.patch or "").splitlines()
    return [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "return ((pred - target).abs().mean(-1) * mask).sum() / mask.sum()",
            "return (torch.where(mask != 0, (pred - target).abs().mean(-1), 0) * mask).sum() / mask.sum()",
        ),
        (
            "error = (pred - target) ** 2\nreturn (mask * error.mean(-1)).sum() / mask.sum()",
            "target = torch.where(mask[..., None] != 0, target, 0)",
        ),
        (
            "error = F.mse_loss(pred, target, reduction='none')\n"
            "error *= mask.unsqueeze(-1)\nreturn error.sum() / mask.sum()",
            "target = torch.where(mask.unsqueeze(-1) != 0, target, 0)",
        ),
        (
            "wide = mask[:, :, None]\nreturn F.mse_loss(pred, target, reduction='none').mul(wide).mean()",
            "target = torch.where(wide != 0, target, 0)",
        ),
    ],
    ids=["in the product", "ahead of the reader", "in place", "a method"],
)
def test_a_mask_chooses_what_it_was_multiplied_with(body: str, line: str, loaded: Callable[[str], ModuleType]) -> None:
    fix = fixes_of(loaded, body)[0]
    assert fix.verdict.status == "guarded"
    assert added(fix) == [line]
    assert "the product multiplies it by 0, whatever it is" in str(fix.verdict.why)


@pytest.mark.proof
def test_a_mask_that_leaves_nan_in_chooses_nothing(loaded: Callable[[str], ModuleType]) -> None:
    """The twin: one of the samples that the mask takes holds NaN, too."""
    body = "return ((pred - target).abs().mean(-1) * mask).sum() / mask.sum()"
    assert not any("torch.where" in line for fix in fixes_of(loaded, body, "0, 0") for line in added(fix))


MASKED = "def loss(x, y, mask):\n    error = x - y\n    return (error * mask).sum()\n"


def choices(mask: torch.Tensor, y: torch.Tensor, text: str = MASKED) -> list[str]:
    """The changes of a text whose product has this mask."""
    place = place_of(text)
    product = next(n for n in place.parents if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult))
    site = Site(
        file="loss.py",
        line=product.lineno,
        column=product.col_offset + 1,
        end_line=product.end_lineno,
        end_column=(product.end_col_offset or 0) + 1,
        code=place.code(product),
        function="loss",
    )
    error = torch.zeros_like(y) - y
    visits = (
        Visit(2, {"x": torch.zeros_like(y), "y": y, "mask": mask}),
        Visit(product.lineno, {"error": error, "mask": mask}),
    )
    found = [one.edited for one in chosen_by_mask(text, site, Visits("loss.py", "", "loss", visits))]
    for edited in found:
        assert edited in masked_texts(text, patch("loss.py", text, edited))
    return found


HOLED = torch.tensor([[1.0, 2.0], [float("nan"), 3.0]])


@pytest.mark.parametrize(
    ("mask", "count"),
    [
        (torch.tensor([[1.0, 1.0], [0.0, 1.0]]), 2),
        (torch.tensor([True, False]), 1),
        (torch.tensor([[1.0], [0.0]]), 2),
        (torch.tensor([[1.0, 1.0], [0.5, 1.0]]), 0),
        (torch.tensor([[0.0, 1.0], [1.0, 1.0]]), 1),
    ],
    ids=["of each element", "of the columns", "of the rows", "of weights", "of others"],
)
def test_it_chooses_by_a_mask_of_0_and_1_that_leaves_out_each_nan(mask: torch.Tensor, count: int) -> None:
    """Where it does not, the product itself is tried alone: the run shows that it stays NaN."""
    assert len(choices(mask, HOLED)) == count


def test_a_mask_that_is_made_later_does_not_choose_ahead() -> None:
    text = MASKED.replace("mask):", "kept):").replace("    return", "    mask = kept.float()\n    return")
    found = choices(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), HOLED, text)
    assert not any("y = torch.where" in edited for edited in found)


def test_torch_is_imported_where_it_is_not() -> None:
    assert all(edited.startswith("import torch\n") for edited in choices(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), HOLED))


@pytest.mark.proof
@pytest.mark.parametrize(
    ("mask", "change"),
    [
        ("1 - keep", "torch.where(1 - keep == 0, 0, -torch.inf)"),
        # what is written anew would be float32
        ("(1 - keep).half()", None),
    ],
)
def test_an_infinity_that_is_meant_stays(loaded: Callable[[str], ModuleType], mask: str, change: str | None) -> None:
    text = f"""
import torch

keep = torch.tensor([[1.0, 0.0], [1.0, 1.0]])

def attention():
    bias = ({mask}) * -torch.inf
    return (bias.float() + 1).softmax(-1)
"""
    (finding,) = whynan.explain(loaded(text).attention, rerun=True).findings
    fix = finding.fixes[0]
    assert (finding.rule, fix.verdict.status) == ("WN506", "guarded")
    assert change is None or added(fix) == [f"bias = {change}"]
