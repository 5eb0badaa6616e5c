"""The reason of a verdict as one line that a user can read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from whynan.floats import format_value

if TYPE_CHECKING:
    from whynan.verify.comparison import Objection
    from whynan.verify.tally import Example, Ledger


def share(part: int, whole: int) -> str:
    """A part of a whole in percent, never rounded to nothing or to all."""
    percent = 100 * part / whole
    if 99.95 <= percent < 100:
        return "nearly all"
    return "less than 0.01%" if percent < 0.01 else f"{percent:.3g}%"


def array_text(array: str) -> str:
    """An array as the user knows it: ``the value``, ``value 2``, ``the gradient of x``."""
    if array.isdecimal():
        return "the value" if array == "0" else f"value {int(array) + 1}"
    return f"the gradient of {array.removeprefix('d ')}"


def verified(near: Ledger, far: Ledger, *, backward: bool, strict: bool) -> str:
    """What held, and what is still bad from another hazard."""
    healthy = near.healthy + far.healthy
    finite = "forward and backward finite" if backward else "forward finite"
    finite += f" but for the {format_value(near.infinite)} that the program writes" if near.meant else ""
    held = "moved" if strict else "further from the truth"
    return f"{finite}; none of {healthy:,} healthy elements {held}{remaining_hazards_text(near, far)}"


def widened_text(dtype: str) -> str:
    """The value does not fit its dtype again before it leaves the function, as a further half-sentence."""
    why = "" if dtype == "float32" else f", for it does not fit {dtype}"
    return f"; its value stays float32 from there on{why}"


def remaining_hazards_text(near: Ledger, far: Ledger) -> str:
    """What was bad on other inputs and still is, or could not be told, as a further half-sentence."""
    told = ""
    bad = near.bad + far.bad
    if still := near.remaining + far.remaining:
        told += f"; {still:,} of {bad:,} bad ones stay bad, from another hazard"
    if far.invented:
        told += f"; {far.invented:,} of {bad:,} bad ones at the extremes become finite and are not exact"
    if undecided := near.undecided + far.undecided:
        told += f"; {undecided:,} undecided"
    return told


def rounded_input_text(value: float, exact: float) -> str:
    """What comes in was rounded before, and the exact value of what it was is another."""
    return (
        "what comes in was rounded on its way, so the exact value is not known: "
        f"the fix gives {format_value(value)}; an operand that rounds to the same may have {format_value(exact)}"
    )


def uncured_text(array: str, bad: int, total: int, value: float) -> str:
    """The failing input still fails."""
    what = "NaN" if math.isnan(value) else format_value(value)
    return f"still {what} in {array_text(array)} on the failing input, in {bad:,} of {total:,} elements"


def inaccurate_text(array: str, wrong: int, total: int, value: float, exact: float) -> str:
    """What was finite and wrong is no nearer to the exact one."""
    return (
        f"{array_text(array)} is {format_value(value)} where the exact one is {format_value(exact)}, on the captured "
        f"input, in {wrong:,} of {total:,} elements"
    )


def invented_value_text(example: Example) -> str:
    """A finite number where the exact one is another."""
    where = "on the failing input" if example.case == "captured" else f"on inputs {example.case}"
    right = f" where the exact one is {format_value(example.exact)}" if example.exact is not None else ""
    return f"{array_text(example.array)} is {format_value(example.new)}{right}, {where}"


def implausible_value_text(array: str, found: Objection) -> str:
    """A number where the exact value is none of the dtype, and which makes no sense as one."""
    return (
        f"{array_text(array)} is {format_value(found.value)} where the exact one is {found.right}, on the failing input"
    )


def lost_elements_text(example: Example, count: int) -> str:
    """Healthy elements became bad."""
    return (
        f"makes {count:,} healthy elements bad: {array_text(example.array)} was {format_value(example.old)} "
        f"and is {format_value(example.new)}"
    )


def changes(ledger: Ledger) -> str:
    """So many healthy elements are not what they were."""
    return (
        f"changes {share(ledger.worse, ledger.healthy)} of healthy elements, by up to {format_value(ledger.furthest)}"
    )


def worse_elements_text(ledger: Ledger) -> str:
    """So many healthy elements are further from the truth than they were."""
    told = f"{share(ledger.worse, ledger.healthy)} of healthy elements are further from the truth"
    if (worst := ledger.worst) is None or worst.exact is None:
        return told
    became = f"{format_value(worst.old)} became {format_value(worst.new)}"
    if became.split(" ")[0] == became.split(" ")[-1]:
        became = f"it was {worst.old!r} and is {worst.new!r}"
    return f"{told}: {array_text(worst.array)} {became} where the exact one is {format_value(worst.exact)}"


def distorting(near: Ledger, far: Ledger, dtype: str) -> str:
    """What a fix that moves healthy elements moves them by: in the run, and at the extremes."""
    told = [_moves(near)]
    if near.made_up is not None:
        told.append(invented_value_text(near.made_up))
    if far.lost:
        told.append(f"at the extremes of {dtype} makes {far.lost:,} of {far.healthy:,} bad")
    elif far.worse:
        many = share(far.worse, far.healthy)
        told.append(f"at the extremes of {dtype} {many}, by up to {format_value(far.furthest)}")
    return "; ".join(told)


def _moves(near: Ledger) -> str:
    if not near.worse:
        return f"moves none of {near.healthy:,} healthy elements like the run's"
    moved = near.max_relative_change
    by = f"by up to {format_value(moved)} relative" if moved else "those with a bad gradient alone"
    return f"moves {share(near.worse, near.healthy)} of healthy elements, {by}"
