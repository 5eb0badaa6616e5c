"""Live calls: of modules and distributions by the program's own code, with another operand in a call's place."""

# pyright: basic

from __future__ import annotations

import functools
import inspect
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.verify.arrays import tensors_in
from whynan.verify.in_place.live_objects import calls_of_program, class_named, compute_module, copied, unseen
from whynan.verify.torch_program import bad_kinds
from whynan.verify.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from whynan.records import FixVerdict
    from whynan.records.intents import OperandIntent

_MOST_CALLS: Final = 4
"""So many calls for one row are kept that give something bad, and as many others."""
_MOST_ELEMENTS: Final = 1 << 22
"""A call with more elements is not kept."""
_WHICH: Final = "call number"


@dataclass(frozen=True, slots=True)
class _Call:
    """One call: the object, its method as it was, what it was given, and whether it gave NaN or Inf.

    A module's parameters are of what it was given; a distribution is made anew of its own.
    """

    live: Any
    method: Callable[..., Any]
    values: dict[str, Any]
    own: dict[str, Any]
    is_bad: bool

    def compute(self, values: dict[str, Any]) -> Any:
        """What the method gives for other tensors."""
        if isinstance(self.live, torch.nn.Module):
            return compute_module(self.live, self.method, dict(values), {})
        made = type(self.live)(**self.own, validate_args=False) if self.own else self.live
        return self.method(made, **values)


class OperandCalls:
    """Calls of the methods that some rows are about: a few that give NaN or Inf, and a few others."""

    def __init__(self, rows: Iterable[OperandIntent]) -> None:
        self._methods = {
            (cls, row.method): None for row in rows for cls in map(class_named, row.classes) if cls is not None
        }
        self._kept: list[_Call] = []
        self._counts: Counter[tuple[type, bool]] = Counter()

    @contextmanager
    def heard(self) -> Generator[None]:
        """Hear every call while the block runs."""
        owners = {(next(c for c in cls.__mro__ if name in vars(c)), name): None for cls, name in self._methods}
        with ExitStack() as stack:
            for owner, name in owners:
                method = vars(owner)[name]
                stack.callback(setattr, owner, name, method)
                setattr(owner, name, self._hearing(method, name))
            yield

    def verdict(self, intent: OperandIntent) -> FixVerdict | None:
        """The verdict on another operand in the calls heard, and in fresh ones; None where no call of it fails."""
        kept = [call for call in self._kept if self._is_of(call, intent)]
        failing = [call for call in kept if call.is_bad]
        if not failing:
            return None
        replaced = compile(intent.replacement, "<operand>", "eval")

        def computing(*, is_repaired: bool) -> Callable[..., Any]:
            def compute(**values: Any) -> Any:
                call = kept[values.pop(_WHICH)]
                if is_repaired:
                    values[intent.operand] = eval(replaced, {**_TERMS}, {"x": values[intent.operand]})
                return call.compute(values)

            return compute

        calls = [{**call.values, _WHICH: number} for number, call in enumerate(kept)]
        return judge(computing(is_repaired=False), computing(is_repaired=True), calls, kind="guard")

    def _is_of(self, call: _Call, intent: OperandIntent) -> bool:
        operand = call.values.get(intent.operand)
        if type(call.live) not in map(class_named, intent.classes) or not isinstance(operand, torch.Tensor):
            return False
        return operand.is_floating_point() if intent.dtype == "float" else operand.dtype is torch.bool

    def _hearing(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def hearing(live: Any, *args: Any, **kwargs: Any) -> Any:
            if (type(live), name) not in self._methods or not calls_of_program(sys._getframe(1)):
                return method(live, *args, **kwargs)
            given = dict(list(signature.bind(live, *args, **kwargs).arguments.items())[1:])
            with unseen():
                parts = _parts(live)
                is_kept = self._keeps(live, given | parts)
                values = {name: copied(v) for name, v in given.items()} if is_kept else {}
                own = {name: copied(v) for name, v in parts.items()} if is_kept else {}
            output = method(live, *args, **kwargs)
            with unseen():
                outputs = output if isinstance(output, tuple) else (output,)
                is_bad = bool(bad_kinds(tensors_in({str(i): o for i, o in enumerate(outputs)}).values()))
            if is_kept and self._counts[type(live), is_bad] < _MOST_CALLS:
                self._counts[type(live), is_bad] += 1
                if isinstance(live, torch.nn.Module):
                    values, own = values | {f"self.{name}": value for name, value in own.items()}, {}
                self._kept.append(_Call(live, method, values, own, is_bad))
            return output

        return hearing

    def _keeps(self, live: Any, values: dict[str, Any]) -> bool:
        """Whether a call is kept: there are not enough, it is not large, and no NaN came in."""
        tensors = tensors_in(values).values()
        few = self._counts[type(live), True] < _MOST_CALLS
        return few and sum(t.numel() for t in tensors) <= _MOST_ELEMENTS and "NaN" not in bad_kinds(tensors)


def _parts(live: Any) -> dict[str, Any]:
    """What an object computes with: a module's parameters and buffers, a distribution's parameters."""
    if isinstance(live, torch.nn.Module):
        return {n: v for part in (live._parameters, live._buffers) for n, v in part.items() if v is not None}
    names = [*live.arg_constraints]
    if {"probs", "logits"} <= {*names}:
        names = [name for name in names if name in vars(live)]
    return {name: getattr(live, name) for name in names}


_TERMS: Final[dict[str, Any]] = {
    "finfo": lambda x: torch.finfo(x.dtype),
    **{name: getattr(torch, name) for name in ("abs", "all", "clamp", "masked_fill", "sign", "where")},
}
"""What replacements are written with."""
