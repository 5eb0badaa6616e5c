"""A function of tensors as a program under test: its run, its gradients, its exact values."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import random
import warnings
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from whynan.ops.table import TORCH
from whynan.verify.arrays import OtherKindError, Outcome, dtype_name, kind_of, tensors_in, with_tensors
from whynan.verify.cases import shrink_dimensions
from whynan.verify.memory import UnrecordableError
from whynan.verify.recording import record_program
from whynan.verify.truth import UnknowableError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from torch import Tensor

    from whynan.verify.cases import Case
    from whynan.verify.oracle.calls import Program


@dataclass(frozen=True, slots=True)
class TorchProgram:
    """A function that takes its parameters by name."""

    function: Callable[..., Any]
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16", "float64")

    def run(
        self,
        arguments: Mapping[str, Any],
        needs_grad: frozenset[str] = frozenset(),
        cotangents: Sequence[Tensor | None] | None = None,
    ) -> Outcome:
        """The outputs and the gradients of inputs; see :func:`outcome`."""
        return outcome(self.function, arguments, needs_grad, cotangents)

    def oracle_program(self, arguments: Mapping[str, Any], needs_grad: frozenset[str] = frozenset()) -> Program:
        """What the function does on these arguments, for the oracle; raises ``UnknowableError``."""
        try:
            with isolated_random_state():
                return record_program(self.function, arguments, needs_grad=needs_grad)
        except UnrecordableError as error:
            raise UnknowableError(str(error)) from error

    def first_overflow(self, arguments: Mapping[str, Any], *, scaling: bool) -> tuple[str, Tensor] | None:
        """The first operator that makes Inf of finite operands, and what it gives; None where none does.

        With ``scaling`` only one that scales a tensor by a number, of operands that are not near the limit of their
        dtype.
        """
        own = with_tensors(arguments, {name: tensor.clone() for name, tensor in tensors_in(arguments).items()})
        with isolated_random_state(), torch.no_grad(), _Overflows() as seen, suppress(Exception):
            self.function(**own)
        return seen.first if seen.is_scaling or not scaling else None

    def shrink_case(self, case: Case, new: Mapping[str, Any], seed: int) -> Case | None:
        """A large case cut down to where original and repaired differ; None where the function does not take it so."""
        return shrink_dimensions(self, case, new, seed)


def on_host(
    functions: Iterable[Callable[..., Any]], visits: Sequence[Mapping[str, Any]]
) -> tuple[list[Callable[..., Any]], list[Mapping[str, Any]]]:
    """Functions and visits of theirs on the host, where the visits are of a device.

    An index that is out of range, or a probability beyond 1, as made inputs may have, ends all work of a process on a
    CUDA device; on the host it raises. There small inputs are also faster.
    """
    functions, visits = list(functions), list(visits)
    if all(tensor.is_cpu for visit in visits for tensor in tensors_in(visit).values()):
        return functions, visits

    def hosted(function: Callable[..., Any]) -> Callable[..., Any]:
        def computed(**arguments: Any) -> Any:
            with _Host():
                return function(**arguments)

        return computed

    moved: list[Mapping[str, Any]] = [
        with_tensors(visit, {name: _copied(tensor) for name, tensor in tensors_in(visit).items()}) for visit in visits
    ]
    return [hosted(function) for function in functions], moved


def _copied(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_cpu else tensor.detach().cpu().requires_grad_(tensor.requires_grad)


class _Host(TorchDispatchMode):
    """Runs every operator on the host, of whatever device its operands are or are asked for."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given, named = tree_map(_hosted, (args, kwargs or {}))
        return func(*given, **named)


def _hosted(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value if value.is_cpu or value.is_meta else value.cpu()
    return torch.device("cpu") if isinstance(value, torch.device) and value.type != "meta" else value


def in_real_parts(
    functions: Iterable[Callable[..., Any]], visits: Sequence[Mapping[str, Any]]
) -> tuple[list[Callable[..., Any]], list[Mapping[str, Any]]]:
    """Functions of real tensors alone: each complex one of a visit is a pair, of its real and imaginary parts.

    Each returns the parts of a complex tensor as two.
    """
    names = {name for visit in visits for name, tensor in tensors_in(visit).items() if tensor.is_complex()}

    def joined(name: str, value: Any) -> Any:
        if name in names:
            return torch.complex(*value)
        if isinstance(value, (tuple, list)):
            return type(value)(joined(f"{name}[{i}]", one) for i, one in enumerate(value))
        return value

    def of_parts(function: Callable[..., Any]) -> Callable[..., Any]:
        def computed(**arguments: Any) -> Any:
            returned = function(**{name: joined(name, value) for name, value in arguments.items()})
            outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
            parts = tuple(part for output in outputs for part in _parts(output))
            return parts if len(parts) != len(outputs) else returned

        return computed

    parted: list[Mapping[str, Any]] = [{n: _in_parts(v, flat=not n) for n, v in visit.items()} for visit in visits]
    return [of_parts(function) for function in functions], parted


def _parts(value: Any) -> tuple[Any, ...]:
    return (value.real, value.imag) if _is_complex(value) else (value,)


def _in_parts(value: Any, *, flat: bool) -> Any:
    """An argument with a pair for each complex tensor; `flat`: one after the other, as outputs and their gradients."""
    if isinstance(value, (tuple, list)):
        if flat:
            return tuple(part for one in value for part in (_in_parts(one, flat=True) if _is_complex(one) else (one,)))
        return type(value)(_in_parts(one, flat=False) for one in value)
    if not _is_complex(value):
        return value
    held = value.detach().resolve_conj()
    return tuple(part.clone().requires_grad_(value.requires_grad) for part in (held.real, held.imag))


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


class _Overflows(TorchDispatchMode):
    """Notes the first operator whose result has an Inf that none of its operands has."""

    def __init__(self) -> None:
        super().__init__()
        self.first: tuple[str, Tensor] | None = None
        self.is_scaling = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.first is None and isinstance(out, torch.Tensor) and bool(torch.isinf(out).any()):
            given = tensors_in({str(number): value for number, value in enumerate(args)})
            if not bad_kinds(given.values()):
                self.first, self.is_scaling = (str(func), out), _is_scaling(func, [*given.values()])
        return out


_TESTS: Final = TORCH.having("predicate")
_ORDERING: Final = TORCH.having("comparison")


class Questions(TorchFunctionMode):
    """Notes whether a function asks if its numbers are bad, or compares a NaN with something."""

    def __init__(self) -> None:
        super().__init__()
        self.of_bad = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = str(getattr(func, "__name__", "")).strip("_")
        if name in _TESTS or name in _ORDERING:
            bad = bad_kinds(tensor for tensor in args if isinstance(tensor, torch.Tensor))
            self.of_bad = self.of_bad or bool(bad if name in _TESTS else bad & {"NaN"})
        return func(*args, **(kwargs or {}))


_NEAR_LIMIT: Final = 1e-3
"""An operand is at the limit of its dtype from this part of its largest number on."""


def _is_scaling(func: Any, operands: Sequence[Tensor]) -> bool:
    """Whether an operator scales one tensor by a number, which is at its limit before."""
    scales = str(func).startswith(("aten.mul.", "aten.div."))
    large = [t for t in operands if t.is_floating_point() and t.dim()]
    if not scales or len(large) != 1:
        return False
    return bool((large[0].abs() >= _NEAR_LIMIT * torch.finfo(large[0].dtype).max).any())


def outcome(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    needs_grad: frozenset[str] = frozenset(),
    cotangents: Sequence[Tensor | None] | None = None,
) -> Outcome:
    """Run a function forward and, with ``cotangents`` (one for each output), backward; it may write to its inputs.

    What the function draws at random is the same each time, and no random state of the program moves. Raises
    ``OtherKindError`` where an output is not of the shape of its cotangent, and what the function raises.
    """
    leaves = {
        name: tensor.detach().clone().requires_grad_(name in needs_grad)
        for name, tensor in tensors_in(arguments).items()
    }
    with isolated_random_state(), torch.enable_grad():
        # a function may write to its inputs, which autograd refuses of leaves
        fresh = {n: t.clone() if t.requires_grad else t for n, t in leaves.items()}
        returned = function(**with_tensors(arguments, fresh))
        outputs = tuple(
            o for o in (returned if isinstance(returned, (tuple, list)) else (returned,)) if isinstance(o, torch.Tensor)
        )
        wanted = {n: t for n, t in leaves.items() if t.requires_grad}
        gradients: dict[str, Any] = {}
        if cotangents is not None and wanted:
            gradients = _gradients(outputs, wanted, cotangents)
    return Outcome(tuple(o.detach() for o in outputs), gradients)


def _gradients(
    outputs: tuple[Tensor, ...], wanted: dict[str, Tensor], cotangents: Sequence[Tensor | None]
) -> dict[str, Tensor]:
    pairs: list[tuple[Tensor, Tensor]] = []
    for output, cotangent in zip(outputs, cotangents, strict=False):
        if cotangent is None:
            continue
        if output.shape != cotangent.shape:
            was = kind_of(dtype_name(cotangent), tuple(cotangent.shape))
            raise OtherKindError(f"{kind_of(dtype_name(output), tuple(output.shape))} where the original gives {was}")
        if output.requires_grad and output.is_floating_point():
            pairs.append((output, cotangent))
    found: Sequence[Tensor | None] = [None] * len(wanted)
    if pairs:
        found = torch.autograd.grad(
            [o for o, _ in pairs], list(wanted.values()), [c.to(o.dtype) for o, c in pairs], allow_unused=True
        )
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient.detach()
        for (name, leaf), gradient in zip(wanted.items(), found, strict=True)
    }


@contextmanager
def isolated_random_state(seed: int = 0) -> Generator[None]:
    """Random states put back after, and begun anew; what a function warns of on made inputs is not the user's.

    Nothing is cast but by the function itself, wherever the program stands.
    """
    # where the program has not begun CUDA, nothing of it does
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    python, numpy = random.getstate(), np.random.get_state()
    kinds = ("cpu", "cuda") if torch.cuda.is_initialized() else ("cpu",)
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings(), ExitStack() as uncast:
        for kind in kinds:
            uncast.enter_context(torch.autocast(kind, enabled=False))
        warnings.simplefilter("ignore")
        # ``torch.manual_seed`` would leave a seed for when CUDA begins
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def bad_kinds(tensors: Iterable[Tensor]) -> frozenset[str]:
    """Which of NaN, Inf and -Inf are in tensors."""
    found: set[str] = set()
    for tensor in tensors:
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            asked = {"NaN": torch.isnan, "Inf": torch.isposinf, "-Inf": torch.isneginf}
            found |= {kind for kind, is_so in asked.items() if bool(is_so(tensor).any())}
    return frozenset(found)
