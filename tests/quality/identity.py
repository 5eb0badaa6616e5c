"""Torch's own operator samples, run bare, under an empty mode and under a trace, and compared bit for bit."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from tests.quality.planted import Nothing

# what these return is memory that nobody wrote
UNINITIALISED = frozenset(
    [
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    ]
)
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def operators() -> list[Any]:
    """Every operator that torch tests with float32 samples on the CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [op for op in op_db if torch.float32 in op.supported_dtypes("cpu")]


def samples(op: Any, cap: int | None = None) -> list[Any]:
    """An operator's samples, drawn evenly where there are more than the cap."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))
    return found if cap is None or len(found) <= cap else [found[i * len(found) // cap] for i in range(cap)]


def bits(value: Any) -> Any:
    """A value as something whose equality is bit equality: NaN equals a NaN of the same payload and nothing else."""
    if not isinstance(value, torch.Tensor):
        if isinstance(value, (list, tuple)):
            return tuple(bits(v) for v in value)
        return value.hex() if isinstance(value, float) else repr(value)
    with torch.inference_mode():
        value = value.detach()
        if value.is_nested:
            return ("nested", bits(list(value.unbind())))
        if value.is_quantized:
            return ("quantised", bits(value.int_repr()))
        if value.layout is not torch.strided:
            return (str(value.layout), bits(value.to_dense()))
        value = torch.zeros_like(value) if value._is_zerotensor() else value
        value = value.resolve_conj().resolve_neg()
        if value.is_complex():
            value = torch.view_as_real(value)
        raw = value.contiguous().reshape(-1)
        raw = raw.view(torch.uint8) if raw.dtype is torch.bool else raw.view(BITS[raw.element_size()])
        return (str(value.dtype), tuple(value.shape), hashlib.sha256(raw.numpy().tobytes()).hexdigest())


def _leaf(value: torch.Tensor) -> torch.Tensor:
    copy = value.detach().clone()
    return copy.requires_grad_(value.requires_grad) if value.is_floating_point() or value.is_complex() else copy


def _floating(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, dict):
        return [t for v in value.values() for t in _floating(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _floating(v)]
    return []


def run(
    op: Any, sample: Any, region: Callable[[], AbstractContextManager[Any]] = nullcontext, *, inference: bool = False
) -> tuple[Any, Any]:
    """Forward and gradients of one sample in a region: their bits with the generator's state, and the region.

    In inference mode there are no gradients.
    """
    sample = sample.transform(lambda v: _leaf(v) if isinstance(v, torch.Tensor) else v)
    leaves = _floating([sample.input, sample.args, sample.kwargs])
    torch.manual_seed(1)
    gradients: Any = ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.inference_mode(inference), region() as entered:
            try:
                out: Any = op(sample.input, *sample.args, **sample.kwargs)
                roots = _floating(out)
                if roots and leaves and not inference:
                    seeds = [torch.full_like(r, 0.5) for r in roots]
                    gradients = torch.autograd.grad(roots, leaves, seeds, allow_unused=True)
            except Exception as error:  # whatever the operator raises bare it must raise under a trace
                out = f"raises {type(error).__name__}"
    return (bits(out), bits(gradients), bits(torch.get_rng_state())), entered


def _depends_on_memory(bare: Callable[[], Any], first: Any) -> bool:
    """Whether a bare run gives other bits where its operands lie elsewhere, or what lay there before was another."""
    held: list[torch.Tensor] = []
    for size in range(1, 33):
        held.append(torch.full((size * 5,), float(size)))
        if bare() != first:
            return True
    return False


def differs(
    op: Any, sample: Any, trace: Callable[[], AbstractContextManager[Any]], *, inference: bool = False
) -> tuple[str, str]:
    """`same`, `left out`, `noted` or `changed`, with the reason.

    Args:
        op: the operator's `OpInfo`.
        sample: one of its samples.
        trace: makes the region under test; its `report.coverage.notes` name formulas that a mode changes.
        inference: in inference mode, where composite operators reach a mode whole.
    """
    if op.name in UNINITIALISED:
        return "left out", "uninitialised memory"
    first, _ = run(op, sample, inference=inference)
    second, _ = run(op, sample, inference=inference)
    if first != second:
        return "left out", "two bare runs differ"
    traced, region = run(op, sample, trace, inference=inference)
    if traced == first:
        return "same", ""
    part = ("the value", "the gradient", "the generator's state")[
        [a == b for a, b in zip(traced, first, strict=True)].index(False)
    ]
    if _depends_on_memory(lambda: run(op, sample, inference=inference)[0], first):
        return "left out", "bare runs differ"
    empty, _ = run(op, sample, Nothing, inference=inference)
    if empty != traced:
        return "changed", f"{part}, which an empty mode leaves alone"
    if any(names_a_formula(note) for note in region.report.coverage.notes):
        return "noted", f"{part}, by an empty mode too"
    return "changed", f"{part}, by an empty mode too, and no note says so: {region.report.coverage.notes}"


def names_a_formula(note: str) -> bool:
    """Whether a note of the coverage names one of the formulas that a dispatch mode itself changes in torch 2.13."""
    return any(
        formula in note.lower().replace("_", "")
        for formula in ("prodbackward", "maskedfillbackward", "eigvalsh", "linalgeigbackward")
    )
