"""A model run once more, with what it takes to tell further back where the operands of its births come from."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from whynan.analysis import findings_of
from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.levels import ASKED
from whynan.capture.onnx.observer import Births
from whynan.capture.onnx.planning import available
from whynan.capture.onnx.recorder import Recorder
from whynan.capture.onnx.values import same_bits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.capture.onnx.engine import Engine, Outcome
    from whynan.capture.onnx.places import Sites
    from whynan.traces import Birth

_SHARE: Final = 6
"""Of the memory that is left within a bound, a sixth: the rest is for the segments, as in the first run."""
_WHAT: Final = "where the operands of births come from"


def looked_further(
    engine: Engine, feeds: Mapping[str, Any], births: Births, outcome: Outcome, sites: Sites, memory: int | None
) -> str | None:
    """Run a model again where an escaped birth's operands came from values that were gone; gives what is to be said.

    What is found is taken over only if the outputs have the same bits, and the births are the same.
    """
    wanted = births.wanted()
    if not wanted or not findings_of(births.trace()).escaped:
        return None
    room = ASKED if memory is None else min(ASKED, available(memory) // _SHARE)
    again = Births(Recorder(), sites, ranges=False, keep=wanted, room=room)
    try:
        other = engine.run(feeds, again, compare=False)
    except RunError as error:
        return f"the model could not be run once more to tell {_WHAT}: {error.what}"
    if any(not same_bits(value, other.outputs.get(name)) for name, value in outcome.outputs.items()):
        return f"the model was run once more to tell {_WHAT}, and gave other bits: that run is not believed"
    again.end()
    known, found = births.labels.births, again.labels.births
    if [_of(birth) for birth in known] != [_of(birth) for birth in found]:
        return f"the model was run once more to tell {_WHAT}, and other numbers were born: that run is not believed"
    for birth, other_birth in zip(known, found, strict=True):
        birth.cause_links = other_birth.cause_links
    told = f"the model was run once more, with the same bits, to tell {_WHAT}"
    if again.levels.refused:
        kept = len(wanted) - len(again.levels.refused)
        told += f"; memory was there for {max(0, kept)} of {len(wanted)} values (--memory)"
    return told


def _of(birth: Birth) -> tuple[object, ...]:
    element = birth.element
    return birth.event.ordinal, birth.event.node, birth.kind, element.output, element.index, repr(element.value)
