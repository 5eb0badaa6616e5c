"""What is worth knowing of a checkpoint beside its bad tensors."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.errors import UsageError
from whynan.floats import describe_limit, format_of, format_value
from whynan.report.checkpoint_wording import count_of, listed, name_of, shortened
from whynan.report.values import bad_word, count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whynan.records.checkpoint import Checkpoint, Checkpoints, Logged, Stored

_NEAR: Final = 0.5
"""Of the largest number of a type: what lies beyond it cannot even be doubled."""


def notes(report: Checkpoints, shown: Checkpoint) -> list[str]:
    """Notes on the checkpoint that is shown, and on all of them."""
    told = _of(shown)
    if len(report.checkpoints) > 1:
        told = [f"{shown.name}: {note}" for note in told]
        told += [checkpoint.error for checkpoint in report.checkpoints if checkpoint.error is not None]
    return told + [f"--allow {pattern} excused nothing, and can go" for pattern in report.unused_allows]


def _of(checkpoint: Checkpoint) -> list[str]:
    own = [stored for stored in checkpoint.tensors if stored.same_as is None]
    told = [
        _told("could not be counted", [s for s in own if s.unread is not None], lambda s: s.unread or ""),
        _told("{} bad numbers that are meant", [s for s in own if s.literal is not None], lambda s: s.literal or ""),
        *(_number(stored) for stored in checkpoint.numbers if stored.literal is not None),
        *(_logged(logged) for logged in checkpoint.logged),
        _told("{} another one's memory, counted once", _shared(checkpoint), lambda s: shortened(s.same_as or "")),
        _told("{} nothing but zeros", [s for s in own if _is_all_zero(s)], None),
        _told("{} subnormal numbers", [s for s in own if s.n_subnormal], lambda s: count_of(s.n_subnormal, s.n)),
        _told("{} numbers near the limit of their type", [s for s in own if _is_near_limit(s)], _near_text),
        _unloaded(checkpoint.unloaded),
    ]
    return [note for note in (*told, *checkpoint.notes) if note]


def _told(verb: str, found: Sequence[Stored], detail: Callable[[Stored], str] | None) -> str:
    """A sentence about some tensors, with the first few by name; nothing about none."""
    if not found:
        return ""
    names = [name_of(s) if detail is None else f"{name_of(s)} ({detail(s)})" for s in found]
    return f"{count_text(len(found), 'tensor')} {verb.format('holds' if len(found) == 1 else 'hold')}: {listed(names)}"


def _shared(checkpoint: Checkpoint) -> list[Stored]:
    return [stored for stored in checkpoint.tensors if stored.same_as is not None]


def _number(stored: Stored) -> str:
    word = "NaN" if stored.n_nan else "Inf" if stored.n_posinf else "-Inf"
    return f"{name_of(stored)} is {word}: {stored.literal}"


def _logged(logged: Logged) -> str:
    at = "" if logged.step is None else f" at step {format_value(logged.step)}"
    more = f", and {count_text(logged.n_bad - 1, 'time')} after it" if logged.n_bad > 1 else ""
    return f"the log of the training has {bad_word(logged.first)} as {shortened(logged.name)}{at}{more}"


def _unloaded(names: Sequence[str]) -> str:
    if not names:
        return ""
    several = "a class" if len(names) == 1 else f"{len(names):,} classes"
    return f"objects of {several} were read without their code: {listed([shortened(name) for name in names])}"


def _is_all_zero(stored: Stored) -> bool:
    return _limit(stored) is not None and stored.n > 1 and stored.n_zero == stored.n


def _is_near_limit(stored: Stored) -> bool:
    limit = _limit(stored)
    return limit is not None and not stored.bad and _largest(stored) > limit * _NEAR


def _near_text(stored: Stored) -> str:
    return f"{format_value(_largest(stored))} of {describe_limit(stored.dtype)}"


def _largest(stored: Stored) -> float:
    return max(abs(stored.finite_min or 0), abs(stored.finite_max or 0))


def _limit(stored: Stored) -> float | None:
    """The largest number of a floating-point type; None for any other."""
    try:
        return format_of(stored.dtype).max
    except UsageError:
        return None
