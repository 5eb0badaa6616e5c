"""Fidelity of a text that is to compute the same: what its expressions are of, and the derivatives of that."""

# pyright: basic

from __future__ import annotations

import ast
import builtins
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from whynan.faults import report_internal_error
from whynan.source.text import apply_edits, place_of
from whynan.verify.in_place.swap import SwappedTexts
from whynan.verify.in_place.visits import is_plain_tensor, without_torch_modes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from torch import Tensor

    from whynan.records import Finding
    from whynan.run.proof.reruns import Rerunner
    from whynan.run.proof.trials import ProgramText

_NAME: Final = "_whynan_operand"
"""The name that is called with the number of an operand and its value, which it gives back."""
_MOST_SHOWN: Final = 64
"""So many operands of a run are kept."""
_MOST_NAMES: Final = 16
"""So many tensors of a function are kept with each."""
_ROUNDINGS: Final = 8
"""So many units in the last place of the greatest may numbers be apart that are computed in another order."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """A tensor's value, and its derivatives by each leaf that it depends on, in one direction, if it has any."""

    value: Tensor
    by_leaf: tuple[Tensor | None, ...] | None


Operands = list[tuple[int, dict[str, Slopes]]]
"""What was shown, in order: the number of an operand, and the tensors there, the operand itself as ``""``."""


@dataclass(frozen=True, slots=True)
class ShowingTexts(SwappedTexts):
    """Texts of files in which operands are shown, and what these were."""

    shown: Operands = field(default_factory=list[tuple[int, dict[str, Slopes]]])

    @contextmanager
    def apply(self) -> Generator[None]:
        """Have them run, and listen, while the block runs."""
        with SwappedTexts.apply(self):
            setattr(builtins, _NAME, self._show)
            try:
                yield
            finally:
                delattr(builtins, _NAME)

    def _show(self, number: int, value: Any) -> Any:
        if len(self.shown) < _MOST_SHOWN:
            try:
                frame = sys._getframe(1)
                known = {n: v for n, v in frame.f_locals.items() if is_plain_tensor(v)}
                named = {"": value} if is_plain_tensor(value) else {}
                named |= dict(list(known.items())[:_MOST_NAMES])
                with without_torch_modes():
                    self.shown.append((number, {name: _slopes(tensor) for name, tensor in named.items()}))
            except Exception:
                report_internal_error()
        return value


def operands_of(again: Rerunner, source: ProgramText, findings: Sequence[Finding]) -> Operands | str:
    """What the expressions of findings are of in a run with a text of their file; or why that is not known."""
    texts = ShowingTexts(source.others)
    ran = again.trial(source.path, source.before, _showing(source.text, findings), texts)
    return ran if isinstance(ran, str) else texts.shown


def are_same(first: Operands, second: Operands) -> bool:
    """Whether two runs had the same operands, as far as both have names for them."""
    if not first or [number for number, _ in first] != [number for number, _ in second]:
        return False
    return all(_alike(one, other) for one, other in _common(first, second))


def _common(first: Operands, second: Operands) -> Iterator[tuple[Slopes, Slopes]]:
    for (_, one), (_, other) in zip(first, second, strict=True):
        yield from ((one[name], other[name]) for name in one if name in other)


def _showing(text: str, findings: Iterable[Finding]) -> str:
    """A text that shows what the expressions of findings are of."""
    place, taken = place_of(text), list[tuple[int, int]]()
    edits: list[tuple[int, int, str]] = []
    for finding in findings:
        node = None if finding.site is None else place.node_of(finding.site)
        for operand in () if node is None else _operands(node):
            start, end = place.span(operand)
            if all(end <= a or b <= start for a, b in taken):
                edits += [(start, start, f"{_NAME}({len(taken)}, "), (end, end, ")")]
                taken.append((start, end))
    return apply_edits(text, edits)


def _operands(node: ast.expr | ast.AugAssign) -> list[ast.expr]:
    match node:
        case ast.Call(func=ast.Attribute(value=owner), args=given, keywords=named):
            found = [owner, *given, *(keyword.value for keyword in named)]
        case ast.Call(args=given, keywords=named):
            found = [*given, *(keyword.value for keyword in named)]
        case ast.BinOp(left=left, right=right):
            found = [left, right]
        case ast.UnaryOp(operand=operand):
            found = [operand]
        case ast.AugAssign(value=value):
            found = [value]
        case _:
            found = [node]
    return [one for one in found if not isinstance(one, (ast.Starred, ast.GeneratorExp))]


def _slopes(tensor: Tensor) -> Slopes:
    import torch

    value = tensor.detach().clone()
    leaves = _leaves(tensor)
    if not leaves:
        return Slopes(value, None)
    way = torch.cos(torch.arange(tensor.numel(), device=tensor.device)).to(tensor.dtype).reshape(tensor.shape)
    try:
        found = torch.autograd.grad(tensor, leaves, way, retain_graph=True, allow_unused=True)
    except RuntimeError:
        # what an earlier step has made, whose graph is gone
        return Slopes(value, ())
    return Slopes(value, tuple(one if one is None else one.detach().clone() for one in found))


def _leaves(tensor: Tensor) -> list[Tensor]:
    """The leaves that a tensor depends on, in the order in which the graph has them."""
    if tensor.requires_grad and tensor.is_leaf:
        return [tensor]
    waiting: list[Any] = [tensor.grad_fn]
    seen: set[Any] = set()
    found: list[Tensor] = []
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found += [node.variable] if hasattr(node, "variable") else []
            waiting += [further for further, _ in node.next_functions]
    return found


def _alike(one: Slopes, other: Slopes) -> bool:
    if (one.by_leaf is None) != (other.by_leaf is None) or not _near(one.value, other.value):
        return False
    pairs = list(zip(one.by_leaf or (), other.by_leaf or (), strict=False))
    return len(one.by_leaf or ()) == len(other.by_leaf or ()) and all(_near(a, b) for a, b in pairs)


def _near(one: Tensor | None, other: Tensor | None) -> bool:
    import torch

    if one is None or other is None:
        return one is other
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.dtype.is_floating_point:
        return torch.equal(one, other)
    finite = one[torch.isfinite(one)].abs()
    size = float(finite.max()) if finite.numel() else 0.0
    room = _ROUNDINGS * torch.finfo(one.dtype).eps * size
    return torch.allclose(one, other, rtol=0.0, atol=room, equal_nan=True)
