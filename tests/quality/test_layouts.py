"""Operands of every layout in torch's own operator samples: whynan fails at none, and changes no bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import whynan
from tests.quality.identity import UNINITIALISED, operators, samples
from tests.quality.layouts import BAD, FORMS, WHERE, Case, compare, of_an_empty_mode
from whynan.capture.torch.event_log import Rows
from whynan.capture.torch.silent import detectors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.quality.conftest import Tally

OPERATORS = frozenset(
    """
    add masked_fill sum mm cat sparse.sampled_addmm native_layer_norm
    """.split()
)
"""Of the sample; the full check leaves out none."""
PARTS = 32
PARTS_OF_SAMPLE = 3


def _all_unharmed(chosen: Iterable[Any], tally: Tally, cap: int, bad: Sequence[str] = tuple(BAD)) -> None:
    told: list[str] = []
    count = 0
    for operator in chosen:
        inputs = samples(operator, cap)
        for form in FORMS:
            cases = [Case(operator, s, form, where, b) for s in inputs for where in WHERE for b in bad]
            there, found = compare(cases, whynan.trace)
            count += there
            told += [line for case, line in found if not of_an_empty_mode(case)]
    tally.count("operands of every layout", count - len(told), count, "no failure of whynan's, and the same bits")
    assert not told, "\n".join(told)


def _checked() -> list[Any]:
    return [op for op in operators() if op.name not in UNINITIALISED]


@pytest.mark.parametrize("number", range(PARTS_OF_SAMPLE))
def test_operands_of_every_layout_pass_a_sample_of_the_operators(number: int, tally: Tally) -> None:
    chosen = [op for op in _checked() if op.name in OPERATORS and not op.variant_test_name]
    _all_unharmed(chosen[number::PARTS_OF_SAMPLE], tally, 1, ("healthy", "NaN"))


@pytest.mark.full
@pytest.mark.parametrize("number", range(PARTS))
def test_operands_of_every_layout_pass_every_operator(number: int, tally: Tally) -> None:
    _all_unharmed(_checked()[number::PARTS], tally, 2)


def _sum_of_dense_and_sparse() -> list[str]:
    (add,) = [op for op in operators() if op.formatted_name == "add"]
    cases = [Case(add, sample, "coo", "last", "healthy") for sample in samples(add, 2)]
    return [line for _, line in compare(cases, whynan.trace)[1]]


def test_a_failure_of_whynans_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _sum_of_dense_and_sparse()
    monkeypatch.setattr(detectors, "is_strided", lambda _tensor: True)
    monkeypatch.setattr(Rows, "writer_of", lambda _self, tensor: tensor.untyped_storage() and -1)
    assert "NotImplementedError" in "".join(_sum_of_dense_and_sparse())


def test_a_layout_that_torch_does_not_take_is_no_case() -> None:
    (erf,) = [op for op in operators() if op.formatted_name == "erf"]
    cases = [Case(erf, sample, "float8", "all", "healthy") for sample in samples(erf, 2)]
    assert compare(cases, whynan.trace) == (0, [])


def test_each_form_is_of_the_kind_that_it_names() -> None:
    matrix = torch.arange(1.0, 17.0).reshape(4, 4)
    layouts = {name: FORMS[name](matrix).layout for name in ("coo", "csr", "csc", "bsr", "bsc", "mkldnn")}
    assert layouts == {
        "coo": torch.sparse_coo,
        "csr": torch.sparse_csr,
        "csc": torch.sparse_csc,
        "bsr": torch.sparse_bsr,
        "bsc": torch.sparse_bsc,
        "mkldnn": torch._mkldnn,
    }
    assert FORMS["nested strided"](matrix).is_nested
    assert FORMS["nested jagged"](matrix).is_nested
    assert FORMS["quantised"](matrix).is_quantized
    assert FORMS["meta"](matrix).is_meta
    assert FORMS["conjugate"](matrix).is_conj()
    assert FORMS["negative"](matrix).is_neg()
    assert FORMS["empty"](matrix).numel() == 0
    assert not FORMS["wide"](matrix).is_contiguous()
