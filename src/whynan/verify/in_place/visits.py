"""Visits: what the names of one function are, statement by statement, while the program runs it."""

from __future__ import annotations

import builtins
import enum
import hashlib
import sys
import types
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.faults import report_internal_error
from whynan.ops.signatures import MODULES
from whynan.replay.sandbox import pause, resume
from whynan.verify.in_place.instrument import CONSTRUCTION, SHOW, TELL, instrument_function, instrument_functions
from whynan.verify.in_place.swap import swap_code

if TYPE_CHECKING:
    import ast
    from collections.abc import Generator, Mapping, Sequence

    from torch import Tensor

    from whynan.verify.in_place.instrument import Chain, Instrumented
    from whynan.verify.in_place.swap import Swap


# -- What a function's names were, statement by statement, in a run that was made to tell ------------------------------


@dataclass(frozen=True, slots=True)
class Visit:
    """One time that a function came to the statement at ``line``: what its expressions were before it ran.

    ``values`` holds names and chains of attributes that were tensors (copies, detached; ``needs_grad`` names those that
    the statement differentiates by, which are none under ``no_grad``), numbers, strings, booleans, None, or tuples and
    lists of these; what was anything else is missing. NumPy's arrays stand as tensors, under names that begin with
    ``ARRAY``.
    """

    line: int
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    needs_grad: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Visits:
    """All that was kept of one function of one file, in order of time; ``left_out`` by the budget of memory."""

    path: str
    sha256: str
    function: str | None
    visits: tuple[Visit, ...] = ()
    left_out: int = 0


# -- What the names of one function are, statement by statement, while the program runs it -----------------------------


# pyright: basic


MEMORY: Final = 256 << 20
"""Bytes that the copies may take."""
_MOST_VISITS: Final = 1024
_FIRST_KEPT: Final = 2
"""So many visits of each place are kept for good: what came first is healthy more often than what came last."""
_KEPT_BEFORE_BAD: Final = 8
"""So many visits of a place are kept for good where NaN, Inf or -Inf comes in first: one of them made it."""
_MOST_ENTRIES: Final = 64
_DEEPEST: Final = 3
_WIDEST: Final = 8
"""Bytes of the numbers of NumPy's that Python has, too."""
_ARRAYS: Final = frozenset("bool uint8 int8 int16 int32 int64 float16 float32 float64".split())
"""The dtypes of NumPy's that a tensor may have, too."""
_OPTIMIZED: Final = 1
_SNAPSHOT: Final = sys.version_info < (3, 13)
"""Whether ``f_locals`` is a dictionary that stays with the frame and holds what it held."""
_RECENT: Final = 16
"""So many visits of a frame learn what an expression behind them gave."""
_MISSING: Final = object()
ARRAY: Final = "numpy "
"""What the names of NumPy's arrays begin with, which are kept as tensors."""


@dataclass(eq=False)
class _StoredVisit:
    """A visit that may still learn what the expressions behind it give; ``stays``: whatever else is let go of."""

    line: int
    stays: bool
    values: dict[str, Any]
    differentiated: bool
    needs_grad: set[str] = field(default_factory=set[str])


class Recorder:
    """Told of every visit of a place; ``visits`` are there at any time."""

    def __init__(self, path: str, text: str, function: Instrumented, memory: int = MEMORY) -> None:
        self._path = path
        self._sha256 = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        self._function = function
        self._memory = memory
        self._kept: list[_StoredVisit] = []
        self._recent: dict[int, list[_StoredVisit]] = {}
        self._latest: dict[int, deque[_StoredVisit]] = {}
        self._bad: dict[int, frozenset[str]] = {}
        self._seen: Counter[int] = Counter()
        self._held: Counter[int] = Counter()
        self._bytes = 0
        self._left_out = 0
        self._last: dict[str, Tensor] = {}
        self._on = True

    @property
    def function(self) -> str | None:
        """The qualified name of the function whose visits these are; None for the top of the module."""
        return self._function.function

    @property
    def tree(self) -> ast.Module:
        """The syntax of the file with the calls that tell it."""
        return self._function.tree

    @property
    def visits(self) -> Visits:
        """What was kept, in order of time."""
        kept = tuple(Visit(one.line, dict(one.values), frozenset(one.needs_grad)) for one in self._kept)
        return Visits(self._path, self._sha256, self._function.function, kept, self._left_out)

    def tell(self, place: int) -> None:
        """A frame has come to a place; nothing that fails here reaches it."""
        if self._on:
            profile = None
            try:
                profile = pause()
                self._visit(place, sys._getframe(1))
            except Exception:
                self._fail()
            finally:
                resume(profile)

    def show(self, number: int, value: Any) -> Any:
        """An expression has given a value, which is given back."""
        if self._on:
            profile = None
            try:
                profile = pause()
                self._show(self._function.expressions[number], value, sys._getframe(1))
            except Exception:
                self._fail()
            finally:
                resume(profile)
        return value

    def _fail(self) -> None:
        self._on = False
        report_internal_error()

    def _visit(self, place: int, frame: types.FrameType) -> None:
        names = dict(frame.f_locals)
        if _SNAPSHOT and frame.f_code.co_flags & _OPTIMIZED:
            # it would hold what the function lets go of
            frame.f_locals.clear()
        self._seen[place] += 1
        visit = _StoredVisit(self._function.lines[place], self._seen[place] <= _FIRST_KEPT, {}, _grad_enabled())
        alive: dict[int, tuple[Tensor, Tensor]] = {}
        with without_torch_modes():
            for chain in self._function.chains:
                self._add(visit, ".".join(chain.written), resolve_chain(chain, names, frame.f_globals), alive)
            self._mark(place, visit)
        self._hold(visit)
        self._kept.append(visit)
        if place == 0 or len(self._recent) > _RECENT:
            self._recent.pop(id(frame), None) if place == 0 else self._recent.clear()
        self._recent.setdefault(id(frame), []).append(visit)
        self._evict_visits()

    def _mark(self, place: int, visit: _StoredVisit) -> None:
        """Keep for good what a place was visited with before bad numbers of another kind came in."""
        latest = self._latest.setdefault(place, deque(maxlen=_KEPT_BEFORE_BAD))
        known = self._bad.get(place, frozenset())
        from whynan.verify.torch_program import bad_kinds

        kinds = bad_kinds(tensors_in(visit.values))
        if kinds - known:
            self._bad[place] = known | kinds
            for before in latest:
                before.stays = True
        latest.append(visit)

    def _show(self, text: str, value: Any, frame: types.FrameType) -> None:
        recent = self._recent.get(id(frame), [])[-_RECENT:]
        lacking = [visit for visit in recent if not {text, ARRAY + text} & visit.values.keys()]
        alive: dict[int, tuple[Tensor, Tensor]] = {}
        for visit in lacking:
            self._release(visit)
            with without_torch_modes():
                self._add(visit, text, value, alive)
            self._hold(visit)
        self._evict_visits()

    def _add(self, visit: _StoredVisit, text: str, value: Any, alive: dict[int, tuple[Tensor, Tensor]]) -> None:
        array: Any = value
        if type(array) is np.ndarray and array.dtype.name in _ARRAYS:
            import torch

            text, value = f"{ARRAY}{text}", torch.from_numpy(array.copy())
        kept = self._copy(text, value, alive)
        if kept is not _MISSING:
            visit.values[text] = kept
            if getattr(kept, "is_floating_point", None) is not None and visit.differentiated and value.requires_grad:
                visit.needs_grad.add(text)

    def _copy(self, name: str, value: Any, alive: dict[int, tuple[Tensor, Tensor]], depth: int = 0) -> Any:
        """A value as a visit holds it; ``_MISSING`` for what it holds none of."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, enum.Enum) and isinstance(value, int | float | str):
            return self._copy(name, value._value_, alive, depth)
        if isinstance(value, np.generic) and value.dtype.kind in "biuf" and value.dtype.itemsize <= _WIDEST:
            return value.item()
        if isinstance(value, tuple | list) and type(value) in (tuple, list, _size()):
            if depth >= _DEEPEST or len(value) > _MOST_ENTRIES:
                return _MISSING
            entries = [self._copy(f"{name}[{i}]", entry, alive, depth + 1) for i, entry in enumerate(value)]
            if any(entry is _MISSING for entry in entries):
                return _MISSING
            return entries if type(value) is list else tuple(entries)
        tensor: Any = value
        return self._copy_tensor(name, tensor, alive) if is_plain_tensor(tensor) else _MISSING

    def _copy_tensor(self, name: str, tensor: Tensor, alive: dict[int, tuple[Tensor, Tensor]]) -> Tensor:
        _, known = alive.get(id(tensor), (None, None))
        if known is None:
            last = self._last.get(name)
            known = last if last is not None and same_contents(last, tensor) else tensor.detach().clone()
            # held, or the next one that is made for an array of NumPy's may have its identity
            alive[id(tensor)] = tensor, known
        self._last[name] = known
        return known

    def _hold(self, visit: _StoredVisit) -> None:
        for tensor in tensors_in(visit.values):
            self._held[id(tensor)] += 1
            self._bytes += _size_of(tensor) if self._held[id(tensor)] == 1 else 0

    def _release(self, visit: _StoredVisit) -> None:
        for tensor in tensors_in(visit.values):
            self._held[id(tensor)] -= 1
            if not self._held[id(tensor)]:
                del self._held[id(tensor)]
                self._bytes -= _size_of(tensor)

    def _evict_visits(self) -> None:
        """Let go of the oldest visits that are not among the first of their places; of the latest where all are."""
        while self._kept and (self._bytes > self._memory or len(self._kept) > _MOST_VISITS):
            numbered = enumerate(self._kept[:-1])
            at = next((i for i, visit in numbered if not visit.stays), len(self._kept) - 1)
            visit = self._kept.pop(at)
            self._left_out += 1
            self._release(visit)
            for recent in self._recent.values():
                recent[:] = [other for other in recent if other is not visit]


def _grad_enabled() -> bool:
    import torch

    return torch.is_grad_enabled()


@contextmanager
def without_torch_modes() -> Generator[None]:
    """What is done meanwhile is nothing that a mode of the program's sees, or that is differentiated."""
    import torch

    with (
        torch._C._DisableTorchDispatch(),
        torch._C.DisableTorchFunction(),
        torch.inference_mode(False),
        torch.no_grad(),
    ):
        yield


@contextmanager
def record_visits(path: str, text: str, line: int, *, memory: int = MEMORY) -> Generator[tuple[Recorder, Swap]]:
    """Record the visits of the innermost function at a line of a file, while the block runs it.

    Nothing of the program is another than without: values, random numbers, aliases, gradients, positions. Attributes
    are read where they are kept, never computed: no property of the program's runs.

    Args:
        path: of the file, as the program named it or as it is.
        text: what the program has loaded of it.
        line: 1-based.
        memory: bytes that the copies may take.

    Raises:
        UsageError: for a function that looks at its own names as a whole.
        SyntaxError: for a text that is no Python.
    """
    function = instrument_function(text, line)
    recorder = Recorder(path, text, function, memory)
    with swap_code(path, text, function.tree) as swap, install_recorder(recorder):
        yield recorder, swap


@contextmanager
def install_recorder(recorder: Recorder) -> Generator[None]:
    """Have the calls in an instrumented text tell a recorder, while the block runs."""
    names = {TELL: recorder.tell, SHOW: recorder.show}
    held = {name: vars(builtins)[name] for name in names if name in vars(builtins)}
    for name, function in names.items():
        setattr(builtins, name, function)
    try:
        yield
    finally:
        for name in names:
            delattr(builtins, name)
        for name, function in held.items():
            setattr(builtins, name, function)


class ProcessRecorders:
    """The recorders of some functions of one text, told for as long as the process lives once ``begin`` was called.

    Until then nobody listens, for torch may not be loaded yet.
    """

    def __init__(self, path: str, text: str, lines: Sequence[int]) -> None:
        self.tree, made = instrument_functions(text, lines)
        self.recorders = [Recorder(path, text, one) for one in made]
        for number in range(len(made)):
            setattr(builtins, _numbered(TELL, number), _ignore_visit)
            setattr(builtins, _numbered(SHOW, number), _return_unrecorded)

    def begin(self) -> None:
        """Record from here on."""
        for number, recorder in enumerate(self.recorders):
            setattr(builtins, _numbered(TELL, number), recorder.tell)
            setattr(builtins, _numbered(SHOW, number), recorder.show)


def _numbered(name: str, number: int) -> str:
    return f"{name}_{number}" if number else name


def _ignore_visit(place: int) -> None:
    del place


def _return_unrecorded(number: int, value: Any) -> Any:
    del number
    return value


def resolve_chain(chain: Chain, names: Mapping[str, Any], module: Mapping[str, Any]) -> Any:
    """What a chain is in a frame, without running any code of the program's; ``_MISSING`` where that is not known."""
    first = chain.kept[0]
    value = names[first] if first in names else module.get(first, _MISSING)
    for name in chain.kept[1:]:
        if value is _MISSING:
            break
        value = _attribute(value, name)
    return value


def _attribute(value: Any, name: str) -> Any:
    """An attribute as it is kept: of an instance, a module's parameters, buffers and modules, or a class."""
    if is_plain_tensor(value):
        if name == "grad" and value.is_leaf:
            return value.grad
        if name in ("real", "imag") and value.is_complex():
            return value.real if name == "real" else value.imag
        return tuple(value.shape) if name == "shape" else value.ndim if name == "ndim" else _MISSING
    if name == CONSTRUCTION:
        return construction(value) or _MISSING
    held = _dictionary(value)
    for known in ("_parameters", "_buffers", "_modules"):
        inside = held.get(known)
        if isinstance(inside, dict) and name in inside:
            return inside[name]
    classes = value.__mro__ if isinstance(value, type) else type(value).__mro__
    shared = _MISSING
    for cls in classes:
        if name in cls.__dict__:
            shared = cls.__dict__[name]
            break
    if isinstance(shared, types.MemberDescriptorType) and not isinstance(value, type):
        return _slot(shared, value)
    if hasattr(type(shared), "__set__"):
        # a property comes before what the instance holds
        return _MISSING
    if name in held:
        return held[name]
    return _MISSING if hasattr(type(shared), "__get__") else shared


def construction(value: Any) -> list[str]:
    """A module without parameters as its function and settings (``["softmax", "dim=-1"]``); nothing for any other.

    One that is hooked, of a class of its own, or whose forward was replaced is any other.
    """
    import torch

    cls = type(value)
    name, parameters = MODULES.get(cls.__name__, ("", ""))
    held = _dictionary(value)
    hooks = [
        held.get(key) for key in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    ]
    if not name or getattr(torch.nn, cls.__name__, None) is not cls or any(hooks) or "forward" in held:
        return []
    known = {**held, **(held.get("_buffers") or {})}
    return [name, *(f"{key}={_setting_text(known[key])}" for key in parameters.split() if key in known)]


def _setting_text(value: Any) -> str:
    return repr(value) if isinstance(value, (int, float, str, type(None))) else type(value).__name__


def _dictionary(value: Any) -> Mapping[str, Any]:
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return held if isinstance(held, dict) else {}


def _slot(descriptor: Any, value: Any) -> Any:
    try:
        return descriptor.__get__(value)
    except AttributeError:
        return _MISSING


def is_plain_tensor(value: Any) -> bool:
    """Whether a value is a dense tensor of torch's own, with values: no subclass, none of a transformation's."""
    if type(value).__name__ not in ("Tensor", "Parameter", "Buffer"):
        return False
    import torch

    from whynan.capture.torch.shadow_memory import is_wrapped

    if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return False
    if value.layout is not torch.strided or value.is_meta or value.is_quantized or value.is_nested:
        return False
    return not is_wrapped(value)


def _size() -> type:
    import torch

    return torch.Size


def same_contents(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal bit for bit: NaN to NaN, and 0 to -0 not."""
    import torch

    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if one.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
    one, other = one.resolve_neg(), other.resolve_neg()
    if one.is_floating_point():
        bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
        one, other = one.view(bits), other.view(bits)
    return torch.equal(one, other)


def tensors_in(values: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that the values of a visit hold, each once."""
    import torch

    found: dict[int, Tensor] = {}
    left: list[Any] = list(values.values())
    while left:
        value = left.pop()
        if isinstance(value, torch.Tensor):
            found[id(value)] = value
        elif isinstance(value, tuple | list):
            left += value
    return list(found.values())


def _size_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
