"""Calls of a watched program's modules that no step follows: the first of each kind is looked at as it runs.

The outputs of later ones are looked at alone; where one is bad, the call is run again, with everything put back.
What the program does then with what is bad is followed up to its next call: what it mends has done no harm.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from whynan.capture.torch.interposition.wrappers import call_fenced, strip_own_frames
from whynan.capture.torch.names import tensors_of
from whynan.capture.torch.shadow_memory import is_bad, is_readable
from whynan.faults import is_program_error
from whynan.replay.checkpoint import stack
from whynan.replay.mutable_state import ObjectSnapshot
from whynan.replay.sandbox import OutsideAccess, block_side_effects
from whynan.replay.snapshot import context_of, restore, rng
from whynan.replay.time_limit import TimeLimit, obstacle
from whynan.replay.undo_log import TooMuch, UndoLog
from whynan.source.ownership import Owner, owner_of
from whynan.training.listeners import TakenByHand

_MOST_KINDS: Final = 64
"""So many kinds of evaluations are looked at in one run."""
_CALLERS: Final = 4
_SECONDS: Final = 300.0
"""So long may a call take that is run again."""
_MOST_ELEMENTS: Final = 1 << 24


class Look(Protocol):
    """A look at one call, from its beginning to `end`, which gives what to raise after it."""

    def end(self, made: MadeCall) -> BaseException | None:
        """The call is over."""
        ...


class Evaluations:
    """The calls of one program that are made without gradients.

    `begin` begins a look at one, if there can be one now; `again` is given one to make again and whether it gave a
    NaN, and gives what to raise after it. `fail`: as of the guard.
    """

    def __init__(
        self,
        begin: Callable[[], Look | None],
        again: Callable[[MadeCall, bool], BaseException | None],
        fail: Callable[[], bool],
    ) -> None:
        self._begin = begin
        self._again = again
        self._fail = fail
        self._kinds: dict[tuple[Any, ...], tuple[CodeType, ...]] = {}
        self.follows: Callable[[], BaseException | None] | None = None
        """Ends to look at what the program does with what the last one gave; gives what to raise for it."""
        self._passed: set[tuple[Any, ...]] = set()
        """Kinds whose outputs need no looking at: they hold NaN or Inf as they should, or have been explained."""

    def go_on(self) -> BaseException | None:
        """The program has done what it does with what the last one gave: what it is to end with for that."""
        return None if self.follows is None else self.follows()

    def call(self, door: Any, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """Call a module without gradients, from outside of every other one; `door`: what this is called by."""
        kind, look = call_fenced(self._fail, self._begins, module, door) or (None, None)
        again = functools.partial(_call, door, original, module, *args, **kwargs)
        try:
            # by the door that looks, which stands before the one that this was called by
            out = torch.nn.Module.__call__(module, *args, **kwargs) if look else original(module, *args, **kwargs)
        except BaseException as error:
            strip_own_frames(error)
            if look is not None:
                call_fenced(self._fail, look.end, MadeCall(again, None, type(error)))
            raise
        made = MadeCall(again, out)
        ending = None if look is None else call_fenced(self._fail, look.end, made)
        if ending is None and kind in self._kinds and kind not in self._passed:
            ending = call_fenced(self._fail, self._judge, kind, look, made)
        if ending is not None:
            raise ending
        return out

    def _begins(self, module: Any, door: Any) -> tuple[tuple[Any, ...], Look | None]:
        """A module is about to be called: of what kind the call is, and the look at it if it is the first."""
        kind, codes = _kind_of(module)
        if kind in self._kinds or len(self._kinds) >= _MOST_KINDS:
            return kind, None
        self._kinds[kind] = codes
        # what the program has put around the door would be called twice
        return kind, self._begin() if torch.nn.Module.__dict__["__call__"] is door else None

    def _judge(self, kind: tuple[Any, ...], look: Look | None, made: MadeCall) -> BaseException | None:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            bad = [t for t in _readable_tensors(made.out) if is_bad(t)]
            has_nan = any(bool(torch.isnan(t).any()) for t in bad)
        if not bad:
            return None
        self._passed.add(kind)
        return None if look is not None else self._again(made, has_nan)


def _call(door: Any, original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a module by the door that a trace has put around another, so that its output is looked at; else without."""
    outer = torch.nn.Module.__dict__["__call__"]
    looks = getattr(outer, "__wrapped__", None) is door
    return (outer if looks else original)(module, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call that was made, and what it gave; or what it raised, which goes on."""

    call: Callable[[], Any]
    out: Any
    raised: type[BaseException] | None = None

    def again(self, region: Callable[[], AbstractContextManager[object]], *, edited: bool = False) -> str | None:
        """Make it again, in a region; gives why it is not what was seen, None where it is; nothing of it stays.

        `edited`: what it calls is changed, and it may give something else.
        """
        why = _run(self.call, region, None if edited else self.out)
        return None if why == _raises(self.raised) and not edited else why


def _raises(error: type[BaseException] | None) -> str | None:
    return None if error is None else f"it raises {error.__name__}"


def _run(call: Callable[[], Any], region: Callable[[], AbstractContextManager[object]], before: Any) -> str | None:
    why = obstacle()
    if why is not None:
        return f"it {why}"
    begun = rng()
    frames = stack(libraries=True)
    roots = [call, *(names for f in frames for names in (f.f_locals, f.f_globals))]
    contents = ObjectSnapshot(roots)
    out: Any = None
    try:
        with ExitStack() as entered:
            limit = TimeLimit(_SECONDS, lambda what: held.refuse(what))
            limit.start()
            entered.callback(limit.end)
            held = entered.enter_context(block_side_effects(roots))
            entered.enter_context(UndoLog())
            entered.enter_context(region())
            entered.callback(limit.disarm)
            try:
                out = context_of(begun).run(call)
            except TooMuch:
                why = "it writes more memory than can be kept meanwhile"
            except OutsideAccess as refused:
                why = f"it {refused.what}"
            except TakenByHand:
                why = "it takes from an iterator by hand"
            except (Exception, SystemExit) as error:
                if is_program_error():
                    raise
                why = _raises(type(error))
            if why is None and before is not None and not _same(before, out):
                why = "other outputs than in the call itself"
    finally:
        contents.restore()
        restore(begun)
    return why


def _same(before: Any, after: Any) -> bool:
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        ones, others = _readable_tensors(before), _readable_tensors(after)
        return len(ones) == len(others) and all(
            a.shape == b.shape and torch.equal(torch.isfinite(a), torch.isfinite(b))
            for a, b in zip(ones, others, strict=True)
        )


def _readable_tensors(out: Any) -> list[Tensor]:
    return [t for _, t in tensors_of(out, "") if is_readable(t) and 0 < t.numel() <= _MOST_ELEMENTS]


def _kind_of(module: Any) -> tuple[tuple[Any, ...], tuple[CodeType, ...]]:
    """What tells one kind of evaluation from another: who calls, and which module in which state it is."""
    callers: list[FrameType] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(callers) < _CALLERS:
        if owner_of(frame.f_code.co_filename) is Owner.USER:
            callers.append(frame)
        frame = frame.f_back
    first = next(iter(module.parameters()), None)
    state = type(module).__qualname__, module.training, None if first is None else first.dtype
    # the codes are kept, so that no other one has their identity
    return (*((id(f.f_code), f.f_lasti) for f in callers), *state), tuple(f.f_code for f in callers)
