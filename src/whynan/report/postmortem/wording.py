"""Phrases and notes of the post-mortem of checkpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from whynan.errors import UsageError
from whynan.floats import describe_limit, format_of, format_value
from whynan.records.checkpoint import Checkpoint, Checkpoints, Logged, Order, Stored
from whynan.report.wording import array_of, bad_word, count_text, excerpt, shortened_name

# -- Phrases of the post-mortem of checkpoints -------------------------------------------------------------------------


_SHARD: Final = re.compile(r".*-\d{5}-of-\d{5}\..*")
_ROOT: Final = re.compile(r"[.\[]")
_GROUPS_SHOWN: Final = 6
_NAMES_SHOWN: Final = 3
_NAME_LENGTH: Final = 100


def headline(report: Checkpoints) -> str:
    """What is to be known first."""
    several = len(report.checkpoints)
    if several == 1:
        return _of_one(report.checkpoints[0])
    if report.first_bad is not None:
        return f"{report.checkpoints[report.first_bad].name} is the first bad one of {several} checkpoints"
    clean = sum(checkpoint.verdict == "clean" for checkpoint in report.checkpoints)
    return f"all {several} checkpoints are clean" if clean == several else f"the {clean} checkpoints read are clean"


def _of_one(checkpoint: Checkpoint) -> str:
    total, bad = checkpoint.n_tensors, checkpoint.n_bad
    if bad:
        return f"{bad:,} of {count_text(total, 'tensor')} {_are(bad)} bad in {checkpoint.name}"
    if numbers := checkpoint.n_bad_numbers:
        return f"{count_text(numbers, 'bare number')} {_are(numbers)} bad in {checkpoint.name}"
    return f"no bad tensor in {checkpoint.name}" if total else f"no tensor at all in {checkpoint.name}"


def summary(report: Checkpoints) -> str:
    """How much was looked at, and how much of it is bad."""
    read = [checkpoint for checkpoint in report.checkpoints if checkpoint.verdict != "unreadable"]
    total, bad = sum(c.n_tensors for c in read), sum(c.n_bad for c in read)
    numbers = sum(c.n_bad_numbers for c in read)
    elements = sum(s.n for c in read for s in c.tensors if s.same_as is None)
    told = [f"{bad:,} of {count_text(total, 'tensor')} bad"]
    if numbers:
        told.append(f"{count_text(numbers, 'bare number')} bad")
    return f"{', '.join(told)} ({count_text(elements, 'element')}, {size_text(sum(c.size for c in read))})"


def order_text(order: Order) -> str:
    """How several checkpoints were ordered."""
    if order.by == "step":
        return f"by {order.key}, which each of them stores"
    return f"by name: {order.why}"


def step_text(checkpoint: Checkpoint, key: str | None) -> str:
    """The step that a checkpoint stores, under the name that counts here."""
    step = checkpoint.steps.get(key) if key is not None else None
    return "" if step is None else format_value(step, digits=6)


def bad_text(checkpoint: Checkpoint) -> str:
    """How much of a checkpoint is bad: ``3``, ``3 and 1 number``."""
    if checkpoint.verdict == "unreadable":
        return "?"
    numbers = f" and {count_text(checkpoint.n_bad_numbers, 'number')}" if checkpoint.n_bad_numbers else ""
    return f"{checkpoint.n_bad:,}{numbers}"


def where(checkpoint: Checkpoint) -> list[str]:
    """How many tensors of each file, or of each part at the root, are bad: ``28 of 28 in model.safetensors``."""
    groups: dict[str, list[bool]] = {}
    for stored in checkpoint.tensors:
        if stored.same_as is None:
            groups.setdefault(stored.file or _ROOT.split(stored.name)[0], []).append(stored.bad)
    if max(map(len, groups.values()), default=0) == 1:
        # every tensor stands for itself
        return []
    told = [f"{sum(bad):,} of {len(bad):,} in {_shortened(name)}" for name, bad in groups.items() if any(bad)]
    return [*told[:_GROUPS_SHOWN], f"{len(told) - _GROUPS_SHOWN:,} more"] if len(told) > _GROUPS_SHOWN else told


def name_of(stored: Stored) -> str:
    """A tensor by its path, behind the file of a folder; of shards the index makes one."""
    name = _shortened(stored.name)
    return name if stored.file is None or _SHARD.fullmatch(stored.file) else f"{stored.file}: {name}"


def type_of(stored: Stored) -> str:
    """``f32[128, 64]``, ``number``, ``f32[3, 3] sparse_coo``."""
    if stored.layout == "number":
        return "number" if not stored.shape else count_text(stored.n, "number")
    array = array_of(stored.dtype, stored.shape or ())
    array = array.removesuffix("[]") if stored.shape is None else array
    return array if stored.layout == "strided" else f"{array} {stored.layout}"


def count_of(count: int, total: int) -> str:
    """How many of how many: ``12 of 8,192``, ``all 64``; nothing for none."""
    if not count:
        return ""
    return f"all {total:,}" if count == total > 1 else f"{count:,} of {total:,}"


def range_of(stored: Stored) -> str:
    """The finite range: ``-0.31 to 0.29``; nothing where it is not known."""
    low, high = stored.finite_min, stored.finite_max
    if low is None or high is None:
        return "none" if stored.n and stored.n == stored.n_nan + stored.n_posinf + stored.n_neginf else ""
    return format_value(low) if low == high else f"{format_value(low)} to {format_value(high)}"


def remark(stored: Stored) -> str:
    """What else there is to say of a tensor in a list of all."""
    if stored.same_as is not None:
        return f"the same as {_shortened(stored.same_as)}"
    if stored.unread is not None:
        return "not counted"
    return "" if stored.literal is None else f"meant: {stored.literal}"


def size_text(size: int) -> str:
    """Bytes in powers of 1000: ``4.9 MB``."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} TB"


def _shortened(name: str) -> str:
    return shortened_name(name, _NAME_LENGTH)


def _listed(names: Sequence[str]) -> str:
    return excerpt(names, _NAMES_SHOWN)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


# -- What is worth knowing of a checkpoint beside its bad tensors ------------------------------------------------------


_NEAR: Final = 0.5
"""Of the largest number of a type: what lies beyond it cannot even be doubled."""


def notes(report: Checkpoints, shown: Checkpoint) -> list[str]:
    """Notes on the checkpoint that is shown, and on all of them."""
    told = _checkpoint_notes(shown)
    if len(report.checkpoints) > 1:
        told = [f"{shown.name}: {note}" for note in told]
        told += [checkpoint.error for checkpoint in report.checkpoints if checkpoint.error is not None]
    return told + [f"--allow {pattern} excused nothing, and can go" for pattern in report.unused_allows]


def _checkpoint_notes(checkpoint: Checkpoint) -> list[str]:
    own = [stored for stored in checkpoint.tensors if stored.same_as is None]
    told = [
        _tensor_note("could not be counted", [s for s in own if s.unread is not None], lambda s: s.unread or ""),
        _tensor_note(
            "{} bad numbers that are meant", [s for s in own if s.literal is not None], lambda s: s.literal or ""
        ),
        *(_number(stored) for stored in checkpoint.numbers if stored.literal is not None),
        *(_logged(logged) for logged in checkpoint.logged),
        _tensor_note(
            "{} another one's memory, counted once", _shared(checkpoint), lambda s: _shortened(s.same_as or "")
        ),
        _tensor_note("{} nothing but zeros", [s for s in own if _is_all_zero(s)], None),
        _tensor_note("{} subnormal numbers", [s for s in own if s.n_subnormal], lambda s: count_of(s.n_subnormal, s.n)),
        _tensor_note("{} numbers near the limit of their type", [s for s in own if _is_near_limit(s)], _near_text),
        _unloaded(checkpoint.unloaded),
    ]
    return [note for note in (*told, *checkpoint.notes) if note]


def _tensor_note(verb: str, found: Sequence[Stored], detail: Callable[[Stored], str] | None) -> str:
    """A sentence about some tensors, with the first few by name; nothing about none."""
    if not found:
        return ""
    names = [name_of(s) if detail is None else f"{name_of(s)} ({detail(s)})" for s in found]
    return f"{count_text(len(found), 'tensor')} {verb.format('holds' if len(found) == 1 else 'hold')}: {_listed(names)}"


def _shared(checkpoint: Checkpoint) -> list[Stored]:
    return [stored for stored in checkpoint.tensors if stored.same_as is not None]


def _number(stored: Stored) -> str:
    word = "NaN" if stored.n_nan else "Inf" if stored.n_posinf else "-Inf"
    return f"{name_of(stored)} is {word}: {stored.literal}"


def _logged(logged: Logged) -> str:
    at = "" if logged.step is None else f" at step {format_value(logged.step)}"
    more = f", and {count_text(logged.n_bad - 1, 'time')} after it" if logged.n_bad > 1 else ""
    return f"the log of the training has {bad_word(logged.first)} as {_shortened(logged.name)}{at}{more}"


def _unloaded(names: Sequence[str]) -> str:
    if not names:
        return ""
    several = "a class" if len(names) == 1 else f"{len(names):,} classes"
    return f"objects of {several} were read without their code: {_listed([_shortened(name) for name in names])}"


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
