"""A part of a graph that stands for ``atan2``: the truth of it is the angle, not what the chain of nodes would give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from whynan.fixes.graph.arctangent import arctangent
from whynan.floats import format_of
from whynan.verify.comparing import Truth
from whynan.verify.graph.running import part

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

    from whynan.verify.graph.regions import Region


@dataclass(frozen=True, slots=True)
class Angle:
    """The values whose angle a region gives."""

    y: str
    x: str

    def truth(self, inputs: Mapping[str, Any]) -> Truth:
        """The angles in the longest floats that there are, signs of zeros included, and the noise of computing them.

        The noise is what a rounding of y, x and of the result each can move it by.
        """
        known = format_of(inputs[self.y].dtype.name)
        y, x = (inputs[name].astype(np.longdouble) for name in (self.y, self.x))
        with np.errstate(all="ignore"):
            values = np.asarray(np.arctan2(y, x), np.float64)
            moved = np.abs(np.sin(2 * values))
        noise = known.eps / 2 * (np.abs(values) + moved)
        undefined = np.isnan(values)
        nothing = np.zeros_like(undefined)
        return Truth(values, nothing, undefined, nothing, np.where(undefined, 0.0, noise))


def angle_of(model: onnx.ModelProto, region: Region) -> Angle | None:
    """What a region gives the angle of, where it is an exporter's ``atan2`` and nothing else."""
    if len(region.outputs) != 1 or len(region.inputs) != 2:
        return None
    given = dict.fromkeys(region.inputs, np.zeros(1, np.float32))
    read = ir.from_proto(part(model, region.before, given, region.outputs, region.constants))
    found = arctangent(read.graph.outputs[0])
    if found is None or {found.y.name, found.x.name} != set(region.inputs):
        return None
    assert found.y.name is not None
    assert found.x.name is not None
    return Angle(found.y.name, found.x.name)
