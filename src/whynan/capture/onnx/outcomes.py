"""What a run of a model came to."""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

    from whynan.capture.onnx.execution import Value
    from whynan.records import Note


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of a model came to.

    ``bit_equal``: whether the outputs have the bits of those of a bare session; None where that cannot be said, for
    the reason ``why``. ``executed`` is the graph that ran, with its large weights in files that may be gone.
    ``computed`` are the bad constants in it that the file does not have; ``blocked``: some of its values are kept in
    blocks of channels.
    """

    outputs: dict[str, Value]
    bit_equal: bool | None
    why: Note
    nodes: int
    nodes_as_written: int
    segments: int
    placement: dict[str, int]
    notes: tuple[Note, ...]
    executed: onnx.ModelProto
    computed: tuple[str, ...] = ()
    blocked: bool = False
