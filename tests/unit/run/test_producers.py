"""A number that a distribution has no finite value of is bounded where the program gives it, in the program itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import whynan

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

pytestmark = pytest.mark.proof

POLICY = """
import torch
from torch import nn
from torch.distributions import Normal

Normal.set_default_validate_args(False)
torch.manual_seed(0)
net = nn.Linear(3, 2)
spread = nn.Parameter(torch.tensor([0.5, VALUE]))
x, actions = torch.randn(16, 3), torch.randn(16, 2)

def train():
    MADE
    loss = -Normal(net(x), GIVEN).log_prob(actions).mean()
    loss.backward()
    return loss
"""


def of(loaded: Callable[[str], ModuleType], value: str, made: str, given: str) -> list[tuple[str, str]]:
    module = loaded(POLICY.replace("VALUE", value).replace("MADE", made).replace("GIVEN", given))
    (finding, *_) = whynan.explain(module.train, rerun=True).findings
    return [(fix.verdict.status, fix.patch or "") for fix in finding.fixes if "where it is given" in fix.title]


@pytest.mark.parametrize(
    ("made", "given"), [("pass", "spread * 1.0"), ("scale = 1 - (1 - spread)", "scale"), ("pass", "scale=spread * 1.0")]
)
def test_a_scale_that_went_negative(loaded: Callable[[str], ModuleType], made: str, given: str) -> None:
    ((status, patch),) = of(loaded, "-0.01", made, given)
    assert status == "guarded"
    assert "1e-06" in patch
    assert "<= 0" in patch


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ("pass", "spread"),
        ("difference = lambda a, b: a - b; scale = difference(spread, 0.0)", "scale"),
        ("scale = spread * 1.0; scale = scale * 1.0", "scale"),
    ],
)
def test_what_may_be_read_elsewhere_is_not_bounded(loaded: Callable[[str], ModuleType], made: str, given: str) -> None:
    assert of(loaded, "-0.01", made, given) == []


def test_a_bound_with_which_the_program_fails_all_the_same_is_none_that_holds(
    loaded: Callable[[str], ModuleType],
) -> None:
    made = of(loaded, "-0.01", "pass", "spread * 1.0 + (0.0 / (spread - spread.detach()))")
    assert all(status not in ("verified", "guarded") for status, _ in made)
