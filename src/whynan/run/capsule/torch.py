"""An operation of PyTorch from a capsule, run again under the circumstances that it ran under."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from whynan.capsule import OperationReplay
from whynan.capsule.document import Packed, resolved
from whynan.capsule.values import ValueDecoder
from whynan.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from collections.abc import Generator

    from whynan.capsule import Capsule
    from whynan.capsule.document import State
    from whynan.capture.torch.operators import Operator
    from whynan.records import Element, Finding

_MOST: Final = 8 << 30
"""Bytes of results at most."""
_PRECISIONS: Final = ("highest", "high", "medium")
_REFUSED: Final = "{path} cannot be replayed ({why})"
_HINT: Final = "give a capsule that whynan wrote, and the version of PyTorch of its run"


def run_again(capsule: Capsule) -> OperationReplay:
    """Run the operation of a capsule; raises ``UsageError`` where that cannot be done."""
    if find_spec("torch") is None:
        raise MissingExtraError("torch")
    from whynan.capture.torch.operators import operator_of
    from whynan.capture.torch.provenance import interventions

    packed = capsule.document.operation
    assert isinstance(packed, Packed)
    operator = operator_of(resolved(packed.op))
    reading = ValueDecoder(capsule.tensors, capsule.document.layouts)
    try:
        recorded = [reading.tensor(name).clone() for name in packed.results]
        with _under(packed.state):
            generator = _drawing_from(packed, reading)
            reading.generator = generator
            args = [reading.value(value) for value in packed.args]
            kwargs = {name: reading.value(value) for name, value in packed.kwargs.items()}
            # what it overwrites is told of as it was before
            before = ValueDecoder(capsule.tensors, capsule.document.layouts)
            before.generator = generator
            told = [before.value(v) for v in packed.args], {n: before.value(v) for n, v in packed.kwargs.items()}
            _check_size(operator, args, kwargs)
            out = operator.func(*args, **kwargs)
        found = interventions.outputs_of(operator, args, kwargs, out)
    except UsageError:
        raise
    except Exception as error:
        # whatever an operator makes of a stranger's values
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(_REFUSED.format(path=capsule.directory, why=why), _HINT) from None
    if [(t.shape, t.dtype) for t in found] != [(t.shape, t.dtype) for t in recorded]:
        raise UsageError(_REFUSED.format(path=capsule.directory, why="it gives results of other shapes"), _HINT)
    if packed.bad >= len(found) or not (found[packed.bad].is_floating_point() or found[packed.bad].is_complex()):
        raise UsageError(_REFUSED.format(path=capsule.directory, why="its result holds no bad number"), _HINT)
    changed = sum(_differing(one, other) for one, other in zip(found, recorded, strict=True))
    element, value = _element(capsule.finding, packed, operator, told, found, equal=not changed)
    moved = tuple(reading.moved.items())
    device = next((t.device.type for t in found), "cpu")
    return OperationReplay(element, value, changed, sum(t.numel() for t in found), device, moved)


@contextmanager
def _under(state: State) -> Generator[None]:
    """The circumstances of the run; what is of the process is put back after."""
    import torch

    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    deterministic, dtype = torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype()
    wanted = getattr(torch, state.default_dtype, None)
    if wanted not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise ValueError(f"{state.default_dtype} is no default type")
    if state.matmul_precision not in _PRECISIONS:
        # PyTorch would print it as it is
        raise ValueError(f"{state.matmul_precision!r} is no precision of products of matrices")
    flushes = bool(torch.tensor(1e-40, dtype=torch.float32, device="cpu").mul(1) == 0)
    with torch.random.fork_rng():  # pyright: ignore[reportUnknownMemberType]
        try:
            torch.set_num_threads(state.threads)
            torch.set_float32_matmul_precision(state.matmul_precision)
            torch.use_deterministic_algorithms(state.deterministic)
            torch.set_default_dtype(wanted)
            torch.set_flush_denormal(state.flush_denormal)
            with torch.inference_mode() if state.inference else torch.no_grad():
                yield
        finally:
            torch.set_num_threads(threads)
            torch.set_float32_matmul_precision(precision)
            torch.use_deterministic_algorithms(deterministic)
            torch.set_default_dtype(dtype)
            torch.set_flush_denormal(flushes)


def _drawing_from(packed: Packed, reading: ValueDecoder) -> Any:
    """A generator in the state that the operation drew from: PyTorch's own, which is put back after."""
    import torch

    if packed.random is None:
        return None
    torch.set_rng_state(reading.tensor(packed.random).cpu())
    return torch.default_generator


def _check_size(operator: Operator, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Refuse an operation whose results nobody has room for; what no shapes can be told of is let through."""
    import torch

    from whynan.capture.torch.provenance import interventions

    def shape(tensor: Any) -> Any:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")

    named = {n: torch.device("meta") if isinstance(v, torch.device) else v for n, v in kwargs.items()}
    try:
        out = operator.func(
            *(interventions.map_tensors(a, shape) for a in args),
            **{n: interventions.map_tensors(v, shape) for n, v in named.items()},
        )
    except Exception:
        return
    size = sum(t.numel() * t.element_size() for t in interventions.tensors_in(out))
    if size > _MOST:
        raise ValueError(f"its results would take {size:,} bytes")


def _differing(one: Any, other: Any) -> int:
    """How many elements have other bits; a NaN is as good as another."""
    import torch

    if not one.numel():
        return 0
    a, b = one.detach().cpu().contiguous(), other.detach().cpu().contiguous()
    bits = (a.reshape(-1).view(torch.uint8) != b.reshape(-1).view(torch.uint8)).view(a.numel(), -1).any(dim=1)
    if a.is_floating_point() or a.is_complex():
        wide = [t.reshape(-1).to(torch.float32) if t.element_size() == 1 else t.reshape(-1) for t in (a, b)]
        bits &= ~(torch.isnan(wide[0]) & torch.isnan(wide[1]))
    return int(bits.sum())


def _element(
    finding: Finding,
    packed: Packed,
    operator: Operator,
    before: tuple[list[Any], dict[str, Any]],
    found: list[Any],
    *,
    equal: bool,
) -> tuple[Element | None, float | None]:
    """The bad element of a finding as it is now, or what it is instead."""
    import torch

    from whynan.capture.torch.provenance import interventions
    from whynan.capture.torch.provenance.operands import element_of, element_operands, first_index, value_at
    from whynan.capture.torch.shadow_memory import bad_mask

    told = finding.element
    result = found[packed.bad]
    bad = bad_mask(result)
    wanted = told.index if packed.cut is None else (0,) * result.dim()
    there = wanted is not None and len(wanted) == result.dim() and bool(bad[wanted])
    if not bool(bad.any()):
        value = None if wanted is None or len(wanted) != result.dim() else value_at(result, wanted)
        return None, value if isinstance(value, float) else None
    index = wanted if there else first_index(bad)
    args, kwargs = before
    entry = None if told.list_index is None else told.list_index if packed.entry is None else 0
    # what it only writes over is no operand
    unread = [a for n, a in enumerate(args) if n in operator.mutable] if operator.overwrites else []
    gone = frozenset(id(tensor) for tensor in interventions.tensors_in(unread))
    operands = element_operands(operator, tuple(args), kwargs, index, entry, gone, frozenset())
    expressions = {operand.name: operand.expression for operand in told.operands}
    operands = tuple(o.model_copy(update={"expression": expressions.get(o.name)}) for o in operands)
    mask = torch.zeros_like(bad)
    assert index is not None
    mask[index] = True
    count = told.count if equal and packed.cut is None else int(bad.sum())
    return element_of(result, mask, told.output, told.list_index, operands, told.tensor, count), None
