"""How a run is ended from inside: an exception that programs let pass, or a debugger at the user's line."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, final

from whynan.errors import NonFiniteError
from whynan.source.ownership import Owner, owner_of

if TYPE_CHECKING:
    from types import FrameType, TracebackType


@final
class Stopped(SystemExit):
    """Ends a program at its first bad number as ``sys.exit(1)`` would: handlers run, nothing is printed."""

    def __init__(self) -> None:
        super().__init__(1)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code, seen from a frame."""
    while frame is not None and owner_of(frame.f_code.co_filename) is not Owner.USER:
        frame = frame.f_back
    return frame


def debug(frame: FrameType) -> None:
    """Open Python's debugger at a frame; it comes back when the user continues or quits."""
    import pdb

    debugger = pdb.Pdb()
    debugger.reset()
    debugger.interaction(frame, None)


def hide(error: BaseException) -> None:
    """Take whynan's frames out of an exception's traceback; its own exception stands at the user's line."""
    first = error.__traceback__
    frames: list[TracebackType] = []
    step = first
    while step is not None:
        frames.append(step)
        step = step.tb_next
    kept = [t for t in frames if _owner(t) is not Owner.WHYNAN]
    if isinstance(error, NonFiniteError):
        last = max((i for i, t in enumerate(kept) if _owner(t) is Owner.USER), default=len(kept) - 1)
        kept = kept[: last + 1]
    for before, after in zip(kept, [*kept[1:], None], strict=True):
        before.tb_next = after
    error.__traceback__ = kept[0] if kept else first


def _owner(traceback: TracebackType) -> Owner:
    return owner_of(traceback.tb_frame.f_code.co_filename)
