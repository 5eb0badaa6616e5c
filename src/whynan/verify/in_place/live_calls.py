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
    """One call: the object, its method as it was, and what it was given.

    A module's parameters are of what it was given; a distribution is a copy of the program's.
    """

    live: Any
    method: Callable[..., Any]
    values: dict[str, Any]

    def compute(self, values: dict[str, Any]) -> Any:
        """What the method gives for other tensors."""
        if isinstance(self.live, torch.nn.Module):
            return compute_module(self.live, self.method, dict(values), {})
        return self.method(self.live, **values)

    def fails(self) -> bool:
        """Whether it gives NaN or Inf."""
        return _is_bad(self.compute(self.values))


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
        if not any(call.fails() for call in kept):
            return None
        replaced = compile(intent.replacement, "<operand>", "eval")
        # what a replacement is written with
        called = {name: getattr(torch, name) for name in replaced.co_names if hasattr(torch, name)}
        terms = {**called, "finfo": lambda x: torch.finfo(x.dtype)}

        def computing(*, is_repaired: bool) -> Callable[..., Any]:
            def compute(**values: Any) -> Any:
                call = kept[values.pop(_WHICH)]
                if is_repaired:
                    values[intent.operand] = eval(replaced, dict(terms), {"x": values[intent.operand]})
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
            with unseen():
                call = self._call(live, method, signature, args, kwargs)
            output = method(live, *args, **kwargs)
            with unseen():
                key = type(live), _is_bad(output)
            if call is not None and self._counts[key] < _MOST_CALLS:
                self._counts[key] += 1
                self._kept.append(call)
            return output

        return hearing

    def _call(
        self, live: Any, method: Callable[..., Any], signature: inspect.Signature, args: Any, kwargs: Any
    ) -> _Call | None:
        """A call that is about to be made, as it is kept; None where it is not, or cannot be."""
        try:
            given = dict(list(signature.bind(live, *args, **kwargs).arguments.items())[1:])
            module = isinstance(live, torch.nn.Module)
            if not self._keeps(live, given | (_state(live) if module else {})):
                return None
            values = given | ({f"self.{name}": value for name, value in _state(live).items()} if module else {})
            own = live if module else _copy_of(live)
            return _Call(own, method, {name: copied(value) for name, value in values.items()})
        except Exception:
            # the program's own call says what is wrong with it
            return None

    def _keeps(self, live: Any, values: dict[str, Any]) -> bool:
        """Whether a call is kept: there are not enough, it is not large, and no NaN came in."""
        tensors = tensors_in(values).values()
        few = self._counts[type(live), True] < _MOST_CALLS
        return few and sum(t.numel() for t in tensors) <= _MOST_ELEMENTS and "NaN" not in bad_kinds(tensors)


def _is_bad(output: Any) -> bool:
    outputs = output if isinstance(output, tuple) else (output,)
    return bool(bad_kinds(tensors_in({str(number): one for number, one in enumerate(outputs)}).values()))


def _state(module: torch.nn.Module) -> dict[str, Any]:
    """A module's parameters and buffers."""
    return {n: v for part in (module._parameters, module._buffers) for n, v in part.items() if v is not None}


def _copy_of(live: Any) -> Any:
    """A distribution with copies of its parameters, whose transforms remember nothing of what they were asked for."""
    if type(live) is torch.distributions.TransformedDistribution:
        transforms = [transform.with_cache(0) for transform in live.transforms]
        return type(live)(_copy_of(live.base_dist), transforms, validate_args=False)
    if isinstance(live, torch.distributions.Independent):
        return type(live)(_copy_of(live.base_dist), live.reinterpreted_batch_ndims, validate_args=False)
    names = [*live.arg_constraints]
    if {"probs", "logits"} <= {*names}:
        names = [name for name in names if name in vars(live)]
    return type(live)(**{name: copied(getattr(live, name)) for name in names}, validate_args=False)
