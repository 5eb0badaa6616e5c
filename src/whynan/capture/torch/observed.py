"""Numbers that a watched program takes out of its tensors: one that is NaN or Inf tells that a step has gone bad.

Nothing is computed for it but for what is read anyway, where Python sees the value.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from torch import _tensor_str
from torch._C._dynamo.eval_frame import set_eval_frame as _set_eval_frame

from whynan.capture.torch.doors import DOORS, named
from whynan.capture.torch.frames import unseen
from whynan.capture.torch.names import tensors_of
from whynan.capture.torch.planes import readable
from whynan.source.ownership import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from torch import Tensor

_SCALARS: Final = ("item", "__float__")
_ARRAYS: Final = ("tolist", "numpy", "__array__")
_MOST_ELEMENTS: Final = 1 << 12
_MOST_PLACES: Final = 8
"""So many lines of a program that read a bad number are looked into."""
Place: TypeAlias = tuple[str, int]
"""File and line."""


class _Here(threading.local):
    """Whether a thread is at a door: what prints a tensor reads it, too."""

    inside = False


class Observations:
    """The doors at which a tensor becomes numbers; `tell` is given a bad one, with the bits that say which and where.

    `wanted` says whether anybody wants to know. A line of the program's is told of once, but in the replay of what led
    to it.
    """

    def __init__(
        self, tell: Callable[[Tensor, bytes], None], wanted: Callable[[], bool], fail: Callable[[], bool]
    ) -> None:
        self._tell = tell
        self._wanted = wanted
        self._fail = fail
        self._told: set[Place] = set()
        self._latest: Place | None = None
        self._here = _Here()

    def install(self, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
        """Stand at the doors."""
        for name in _SCALARS:
            replace(torch.Tensor, name, functools.partial(self._door, f"Tensor.{name}", _bad_scalar))
        for name in _ARRAYS:
            replace(torch.Tensor, name, functools.partial(self._door, f"Tensor.{name}", _bad_array))
        replace(_tensor_str, "_str", functools.partial(self._door, None, _bad_array))

    def _door(self, name: str | None, looks: Callable[[Tensor, Any], bytes | None], original: Any) -> Any:
        @functools.wraps(original)
        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            here = self._here
            outermost, here.inside = not here.inside, True
            try:
                out = original(tensor, *args, **kwargs)
            except BaseException as error:
                unseen(error)
                raise
            finally:
                here.inside = not outermost
            # a number that is finite needs no call
            if outermost and (type(out) is not float or out - out != 0):
                # after a graph break dynamo would compile what is ours
                eyes = _set_eval_frame(None)
                try:
                    if not torch.compiler.is_compiling() and self._wanted():
                        self._look(tensor, out, looks)
                except Exception:
                    if self._fail():
                        raise
                finally:
                    if eyes is not None:
                        _set_eval_frame(eyes)
            return out

        return named(read, "torch", name) if name is not None else read

    def _look(self, tensor: Tensor, out: Any, looks: Callable[[Tensor, Any], bytes | None]) -> None:
        self._here.inside = True
        try:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                bits = looks(tensor, out)
        finally:
            self._here.inside = False
        place = None if bits is None else _place()
        if bits is None or place is None or (place in self._told and place != self._latest):
            return
        if place != self._latest:
            if len(self._told) >= _MOST_PLACES:
                return
            self._told.add(place)
        self._latest = place
        try:
            self._tell(tensor, f"{place[0]}:{place[1]}:".encode("utf-8", "surrogatepass") + bits)
        finally:
            self._latest = None


def _bad_scalar(_tensor: Tensor, out: Any) -> bytes | None:
    return None if not isinstance(out, float) or math.isfinite(out) else str(out).encode()


def _bad_array(tensor: Tensor, _out: Any) -> bytes | None:
    if not readable(tensor) or not 0 < tensor.numel() <= _MOST_ELEMENTS:
        return None
    bad = ~torch.isfinite(tensor)
    return bytes(bad.cpu().reshape(-1).numpy()) if bool(bad.any()) else None


def _place() -> Place | None:
    """The line at which the user's innermost frame stands; None where it is whynan that reads."""
    frame: FrameType | None = sys._getframe(2)
    # this one, and that of a trace
    while frame is not None and frame.f_code in DOORS:
        frame = frame.f_back
    if frame is not None and owner_of(frame.f_code.co_filename) is Owner.WHYNAN:
        return None
    while frame is not None and owner_of(frame.f_code.co_filename) is not Owner.USER:
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def held_tensors(error: BaseException) -> list[tuple[str, Tensor]]:
    """The tensors that the frames of a traceback hold, ours and torch's left out."""
    found: list[tuple[str, Tensor]] = []
    for frame in reversed(_frames_of(error)):
        own = owner_of(frame.f_code.co_filename) in (Owner.WHYNAN, Owner.TORCH, Owner.STDLIB)
        for name, value in () if own else list(frame.f_locals.items()):
            # what pytest and comprehensions keep in between has names like @py_assert1 and .0
            found += tensors_of(value, name) if name.isidentifier() else []
    return found


def held_by(error: BaseException) -> tuple[bytes, tuple[FrameType, ...]] | None:
    """Which elements were bad of what a program held as it raised, as bits, and the frames; None where none was."""
    frames = _frames_of(error)
    held: dict[str, bytes] = {}
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        for frame in frames:
            if owner_of(frame.f_code.co_filename) is Owner.USER:
                for name, value in list(frame.f_locals.items()):
                    bits = _bad_array(value, None) if isinstance(value, torch.Tensor) else None
                    if bits is not None:
                        held[name] = bits
    return (repr(sorted(held.items())).encode(), frames) if held else None


def _frames_of(error: BaseException) -> tuple[FrameType, ...]:
    """The frames that an exception has left, the innermost first."""
    found: list[FrameType] = []
    step = error.__traceback__
    while step is not None:
        found.append(step.tb_frame)
        step = step.tb_next
    return tuple(reversed(found))
