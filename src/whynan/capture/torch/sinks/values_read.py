"""Numbers that a watched program takes out of its tensors: one that is NaN or Inf tells that a step has gone bad.

Nothing is computed for it but for what is read anyway, where Python sees the value.
"""

from __future__ import annotations

import functools
import math
import re
import sys
import threading
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import torch
from torch import _tensor_str
from torch._C._dynamo.eval_frame import set_eval_frame as _set_eval_frame

from whynan.capture.torch.interposition.wrappers import DOORS, call_fenced, make_picklable, strip_own_frames
from whynan.capture.torch.names import tensors_of
from whynan.capture.torch.shadow_memory import is_readable, is_wrapped
from whynan.records import Site
from whynan.source.decisions import Decision, decision
from whynan.source.ownership import Owner, owner_of
from whynan.source.positions import file_of_site

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from torch import Tensor

_SCALARS: Final = ("item", "__float__")
_WARNS: Final = torch.Tensor.__float__
"""Warns of a tensor that has a gradient."""
_TRUTH: Final = "__bool__"
_ARRAYS: Final = ("tolist", "numpy", "__array__")
_BAD: Final = re.compile(r"\b(?:nans?|infs?|infinity|infinities|non-?finite|not finite)\b", re.IGNORECASE)
_MOST_ELEMENTS: Final = 1 << 12
_MOST_PLACES: Final = 8
"""So many lines of a program that read a bad number are looked into."""
Place: TypeAlias = tuple[str, int]
"""File and line."""


class Read(NamedTuple):
    """A bad number, or the answer to whether one is, as the program has read it.

    `bits` say which it was, and where; `is_loss`: whether it is known to be one that a gradient can go back through.
    """

    tensor: Tensor
    bits: bytes
    decision: Decision | None
    is_loss: bool
    place: Place


ANY: Final = Decision("ends", "", 0, "")
"""Any decision."""


class ReadLog:
    """How often something was read where, and how often up to the first bad number there."""

    def __init__(self) -> None:
        self.counts: Counter[Place] = Counter()
        self.bad: dict[Place, int] = {}

    def add(self, place: Place, *, is_bad: bool) -> None:
        """Something was read."""
        self.counts[place] += 1
        if is_bad:
            self.bad.setdefault(place, self.counts[place])


class _Here(threading.local):
    """Whether a thread is at a door: what prints a tensor reads it, too."""

    inside = False


class _Heard:
    """Warnings that are heard from here on; `warn` ends it, and gives them again at the line that stands at the door.

    Torch gives its own at the innermost line of Python, which is the door's.
    """

    def __init__(self) -> None:
        self._around = warnings.catch_warnings(record=True)
        given = self._around.__enter__()
        # the list is empty yet
        self.given = [] if given is None else given
        warnings.simplefilter("always")

    def warn(self) -> Exception | None:
        """Gives what a filter of the program's makes of one, where that is an error."""
        self._around.__exit__(None, None, None)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and owner_of(frame.f_code.co_filename) is Owner.WHYNAN:
            frame = frame.f_back
        if frame is None:
            return None
        names = frame.f_globals
        module, known = names.get("__name__"), names.setdefault("__warningregistry__", {})
        for given in self.given:
            is_doors = owner_of(given.filename) is Owner.WHYNAN
            # another is of code of the program's that runs meanwhile
            file = frame.f_code.co_filename if is_doors else given.filename
            line = frame.f_lineno if is_doors else given.lineno
            try:
                warnings.warn_explicit(given.message, given.category, file, line, module, known)
            except Warning as error:
                return error.with_traceback(None)
        return None


class Observations:
    """The doors at which a tensor becomes numbers; `tell` is given a bad one, as it was read.

    What it gives is raised there. `wanted` says whether anybody wants to know, given what the program decides. A line
    of the program's is told of once, but in the replay of what led to it. The truth of a tensor is told of where the
    program decides on it that something is NaN or Inf.
    """

    def __init__(
        self,
        tell: Callable[[Read], BaseException | None],
        wanted: Callable[[Decision | None], bool],
        fail: Callable[[], bool],
    ) -> None:
        self._tell = tell
        self._wanted = wanted
        self._fail = fail
        self._told: set[Place] = set()
        self._latest: Place | None = None
        self.expected: bytes | None = None
        """The bits of what is read where the program decides, in a replay of that."""
        self.log: ReadLog | None = None
        """What a replay reads."""
        self._here = _Here()
        self._has_heard = False
        self._decided: dict[tuple[int, int, bool], tuple[CodeType, frozenset[str]]] = {}
        """Where the truth of a tensor was asked and no bad number decided: the names of the numbers that might.

        Without names nothing is decided there. The code is kept: its id stays its own.
        """

    def install(self, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
        """Stand at the doors."""
        for name in _SCALARS:
            replace(torch.Tensor, name, functools.partial(self._door, f"Tensor.{name}", _bad_scalar))
        for name in _ARRAYS:
            replace(torch.Tensor, name, functools.partial(self._door, f"Tensor.{name}", _bad_array))
        replace(torch.Tensor, _TRUTH, functools.partial(self._door, f"Tensor.{_TRUTH}", _truth))
        replace(_tensor_str, "_str", functools.partial(self._door, None, _bad_array))

    def _door(self, name: str | None, looks: Callable[[Tensor, Any], bytes | None], original: Any) -> Any:
        @functools.wraps(original)
        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            here = self._here
            outermost, here.inside = not here.inside, True
            heard = call_fenced(self._fail, self._hear, tensor) if original is _WARNS and not self._has_heard else None
            try:
                out = original(tensor, *args, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise
            finally:
                here.inside = not outermost
                raised = None if heard is None else call_fenced(self._fail, self._warn, heard)
            if raised is not None:
                raise raised
            # a number that is finite needs no call, but in a replay
            is_finite = type(out) is int or (type(out) is float and out - out == 0)
            if outermost and (not is_finite or self.log is not None):
                # after a graph break dynamo would compile what is ours
                eyes = _set_eval_frame(None)
                try:
                    ending = call_fenced(self._fail, self._look, tensor, out, looks)
                finally:
                    if eyes is not None:
                        _set_eval_frame(eyes)
                if ending is not None:
                    raise ending
            return out

        return make_picklable(read, "torch", name) if name is not None else read

    def _hear(self, tensor: Any) -> _Heard | None:
        """Begin to hear the warning that torch gives once in a process; None where it has no reason for one."""
        with torch._C.DisableTorchFunction():
            if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and tensor.requires_grad):
                return None
        return _Heard()

    def _warn(self, heard: _Heard) -> Exception | None:
        """Give what was heard again; gives what a filter of the program's makes of it, where that is an error."""
        self._has_heard = bool(heard.given) and not torch.is_warn_always_enabled()
        return heard.warn()

    def _look(self, tensor: Tensor, out: Any, looks: Callable[[Tensor, Any], bytes | None]) -> BaseException | None:
        frame = None if torch.compiler.is_compiling() else _frame()
        if frame is not None and self.log is not None:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                is_bad = type(out) is not bool and looks(tensor, out) is not None
            self.log.add((frame.f_code.co_filename, frame.f_lineno), is_bad=is_bad)
        if frame is not None and type(out) is bool and self.expected is None and self._is_idle(frame, out):
            return None
        if frame is None or not (self._wanted(None) or self._wanted(ANY)):
            return None
        self._here.inside = True
        try:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                bits = looks(tensor, out)
                read = None if bits is None else self._read(frame, tensor, out, bits)
        finally:
            self._here.inside = False
        if read is None or not self._wanted(read.decision):
            return None
        place = read.place
        if place in self._told and place != self._latest:
            return None
        if place != self._latest:
            if len(self._told) >= _MOST_PLACES and read.decision is None:
                return None
            self._told.add(place)
        # a replay comes here again, more than once
        before, self._latest = self._latest, place
        try:
            return self._tell(read)
        finally:
            self._latest = before

    def _is_idle(self, frame: FrameType, out: bool) -> bool:
        """Whether nothing is decided on an answer here, or something is for numbers that are finite now as well."""
        names = self._decided.get((id(frame.f_code), frame.f_lasti, out), (None, None))[1]
        if not names:
            return names is not None
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            return all(_bad_number(frame, name) is None for name in names)

    def _read(self, frame: FrameType, tensor: Tensor, out: Any, bits: bytes) -> Read | None:
        """What was read; None of the truth of a tensor on which nothing is decided, or of finite numbers."""
        place = frame.f_code.co_filename, frame.f_lineno
        where = "{}:{}:".format(*place).encode("utf-8", "surrogatepass")
        if self.expected == where + bits:
            # code that is made for a replay may stand elsewhere in its line
            return Read(tensor, where + bits, ANY, is_loss=True, place=place)
        number = out if type(out) in (float, bool) else tensor.item() if tensor.numel() == 1 else None
        made = None if number is None else decision(frame, number)
        of = [tensor]
        if type(out) is bool:
            key = id(frame.f_code), frame.f_lasti, out
            if made is None:
                self._decided[key] = frame.f_code, frozenset()
                return None
            of = [t for name in made.names if (t := _bad_number(frame, name)) is not None]
            if not of and not made.tests:
                self._decided[key] = frame.f_code, made.names
                return None
        return Read(tensor, where + bits, made, any(t.requires_grad for t in of), place)


def _bad_scalar(tensor: Tensor, out: Any) -> bytes | None:
    if type(out) is bool:
        return _truth(tensor, out)
    return None if not isinstance(out, float) or math.isfinite(out) else str(out).encode()


def _bad_array(tensor: Tensor, _out: Any) -> bytes | None:
    if is_wrapped(tensor):
        # of a transform (vmap) that an exception has left
        return None
    if not is_readable(tensor) or not 0 < tensor.numel() <= _MOST_ELEMENTS:
        return None
    bad = ~torch.isfinite(tensor)
    return bytes(bad.cpu().reshape(-1).numpy()) if bool(bad.any()) else None


def _truth(tensor: Tensor, out: Any) -> bytes | None:
    return str(out).encode() if type(out) is bool and tensor.dtype is torch.bool else None


def _bad_number(frame: FrameType, name: str) -> Tensor | None:
    """The tensor of one element, NaN or Inf, that a name of a frame stands for."""
    value = frame.f_locals.get(name, frame.f_globals.get(name))
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or not is_readable(value):
        return None
    return None if bool(torch.isfinite(value).all()) else value


def _frame() -> FrameType | None:
    """The user's innermost frame; None where it is whynan that reads."""
    frame: FrameType | None = sys._getframe(2)
    # this one, and that of a trace
    while frame is not None and frame.f_code in DOORS:
        frame = frame.f_back
    if frame is not None and owner_of(frame.f_code.co_filename) is Owner.WHYNAN:
        return None
    while frame is not None and owner_of(frame.f_code.co_filename) is not Owner.USER:
        frame = frame.f_back
    return frame


def held_tensors(error: BaseException) -> list[tuple[str, Tensor]]:
    """The tensors that the frames of a traceback hold, ours and torch's left out."""
    found: list[tuple[str, Tensor]] = []
    for frame in reversed(_frames_of(error)):
        own = owner_of(frame.f_code.co_filename) in (Owner.WHYNAN, Owner.TORCH, Owner.STDLIB)
        for name, value in () if own else list(frame.f_locals.items()):
            # what pytest and comprehensions keep in between has names like @py_assert1 and .0
            found += tensors_of(value, name) if name.isidentifier() else []
    return found


def is_nonfinite_error(error: BaseException) -> bool:
    """Whether an exception says that something is NaN or Inf, as those of ``torch.distributions`` do.

    One of linear algebra does so of a matrix that is: nothing converges on it.
    """
    try:
        return _BAD.search(str(error)) is not None or _fails_on_bad_matrix(error)
    except Exception:
        # its text is code of the program's
        return False


def _fails_on_bad_matrix(error: BaseException) -> bool:
    if not isinstance(error, torch.linalg.LinAlgError):
        return False
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        frame = next((f for f in _frames_of(error) if owner_of(f.f_code.co_filename) is Owner.USER), None)
        values = [] if frame is None else list(frame.f_locals.values())
        matrices = (v for v in values if isinstance(v, torch.Tensor) and v.dim() >= 2)
        return any(_bad_array(matrix, None) is not None for matrix in matrices)


def raised_at(error: BaseException) -> Site | None:
    """The line of the program's that an exception has left first; a library's, where a replay begins in one."""
    step, found = error.__traceback__, dict[Owner, Site]()
    while step is not None:
        code = step.tb_frame.f_code
        function = code.co_qualname.replace("<locals>.", "")
        found[owner_of(code.co_filename)] = Site(
            file=file_of_site(code.co_filename), line=step.tb_lineno, function=function
        )
        step = step.tb_next
    return found.get(Owner.USER, found.get(Owner.LIBRARY))


def bad_elements_held(error: BaseException) -> tuple[bytes, tuple[FrameType, ...]] | None:
    """Which elements were bad of what a program held as it raised, as bits, and the frames; None where none was.

    A gradient that ``detect_anomaly`` raises for is held by the engine alone: its text tells of it.
    """
    frames = _frames_of(error)
    held: dict[str, bytes] = {}
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        for frame in frames:
            if owner_of(frame.f_code.co_filename) is Owner.USER:
                for name, value in list(frame.f_locals.items()):
                    bits = _bad_array(value, None) if isinstance(value, torch.Tensor) else None
                    if bits is not None:
                        held[name] = bits
    if not held and is_nonfinite_error(error):
        held[""] = str(error).partition("\n")[0].encode("utf-8", "surrogatepass")
    return (repr(sorted(held.items())).encode(), frames) if held else None


def _frames_of(error: BaseException) -> tuple[FrameType, ...]:
    """The frames that an exception has left, the innermost first."""
    found: list[FrameType] = []
    step = error.__traceback__
    while step is not None:
        found.append(step.tb_frame)
        step = step.tb_next
    return tuple(reversed(found))
