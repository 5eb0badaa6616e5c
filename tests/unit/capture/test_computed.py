"""A NaN or Inf that NumPy made before torch saw it: the line that computed it, and what it was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import whynan
from tests.unit.capture.seen import only

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def told(program: Callable[[], Any]) -> tuple[str | None, str | None]:
    """The code of the line that computed the data, and the first cause."""
    finding = only(whynan.explain(program))
    assert finding.data is not None
    computed = finding.data.computed
    cause = next(link.summary for link in finding.chain if link.role == "cause")
    return (None if computed is None else computed.code), cause


def test_a_name_leads_to_the_line_that_computed_it() -> None:
    def program() -> Any:
        counts = np.array([[1.0, 2.0], [3.0, -1.0]])
        feats = np.log(counts)
        return torch.from_numpy(feats) * 2

    assert told(program) == ("np.log(counts)", "np.log(counts): counts[1, 1] = -1 gives NaN")


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, torch.from_numpy])
def test_every_conversion_leads_to_the_line(make: Callable[[Any], Any]) -> None:
    def program() -> Any:
        a, b = np.zeros(1), np.zeros(1)
        quotient = a / b
        return make(quotient.astype(np.float32)) * 2

    assert told(program)[0] == "a / b"


def test_the_conversion_may_hold_the_expression_itself() -> None:
    def program() -> Any:
        a, b = np.zeros(1), np.zeros(1)
        return torch.tensor(a / b) * 2

    assert told(program) == ("a / b", "a / b: a[0] = 0 and b[0] = 0 give NaN")


def test_a_name_that_is_bound_anew_leads_on() -> None:
    def program() -> Any:
        a = np.ones((4, 3))
        z = (a - a.mean(0)) / a.std(0)
        z = z.astype("f4")
        return torch.from_numpy(z) * 2

    assert told(program)[0] == "(a - a.mean(0)) / a.std(0)"


def test_an_infinity_is_followed_to_where_numpy_made_it() -> None:
    def program() -> Any:
        c = np.array([1.0, 0.0])
        f = np.log(c)
        g = f - f
        return torch.from_numpy(g) * 2

    assert told(program) == ("np.log(c)", "np.log(c): c[1] = 0 gives -Inf")


def test_an_array_that_was_written_to_is_not_told_of() -> None:
    def program() -> Any:
        feats = np.log(np.ones(2))
        feats[0] = np.nan
        return torch.from_numpy(feats) * 2

    assert told(program)[0] is None


@pytest.mark.parametrize("flag", [True, False])
def test_a_name_that_a_branch_binds_is_not_told_of(flag: bool) -> None:
    def program() -> Any:
        feats = np.log(np.full(2, -1.0))
        if flag:
            feats = np.sqrt(np.full(2, -1.0))
        return torch.from_numpy(feats) * 2

    assert told(program)[0] is None


def test_operands_that_were_changed_since_are_not_told() -> None:
    def program() -> Any:
        counts = np.array([1.0, -1.0])
        feats = np.log(counts)
        counts[:] = 5
        return torch.from_numpy(feats) * 2

    assert told(program) == ("np.log(counts)", "np.log(counts): the array that came in")


def test_a_view_that_was_read_has_other_indices() -> None:
    def program() -> Any:
        counts = np.array([1.0, -1.0, -2.0])
        feats = np.log(counts)
        return torch.from_numpy(feats)[1:] * 2

    assert told(program) == ("np.log(counts)", "np.log(counts): the array that came in")


def test_no_subscript_of_the_programs_own_is_run() -> None:
    class Own(np.ndarray):
        def __getitem__(self, key: Any) -> Any:
            raise AssertionError

    def program() -> Any:
        counts = np.full(2, -1.0).view(Own)
        feats = np.asarray(np.log(counts))
        return torch.from_numpy(feats) * 2

    assert told(program) == ("np.log(counts)", "np.log(counts): the array that came in")


def test_one_infinity_of_the_data_is_one_finding() -> None:
    def program() -> None:
        counts = np.array([[0.0, 0.0], [0.0, 1.0]], dtype=np.float32)
        feats = np.log(counts)
        weight = torch.tensor([[1.0], [-1.0]], requires_grad=True)
        (torch.from_numpy(feats) @ weight).square().mean().backward()

    report = whynan.explain(program)
    assert [f.rule for f in report.findings] == ["WN105"]
    assert report.findings[0].chain[0].summary.endswith("gives -Inf")


def test_masks_and_missing_values_of_numpy_stay_clean() -> None:
    def masked() -> Any:
        above = np.where(np.tri(3) == 0, -np.inf, 0.0)
        return torch.softmax(torch.zeros(3, 3).double() + torch.from_numpy(above), -1)

    def missing() -> Any:
        column = np.array([1.0, np.nan])
        column = np.where(np.isnan(column), 0, column)
        return torch.from_numpy(column) * 2

    assert whynan.explain(masked).verdict == whynan.explain(missing).verdict == "clean"
