"""The exact values of a part of a graph at the elements in question, asked of the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whynan.verify.comparing import Truth
from whynan.verify.graph.angles import angle_of
from whynan.verify.graph.programs import Unknown, cut, places_of, program_of, small_enough
from whynan.verify.graph.running import Unrunnable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

    from whynan.verify.graph.regions import Region
    from whynan.verify.graph.running import Engines, Opened


class Exactness:
    """Knows the exact values of a region; ``unsupported`` are the operators that the oracle does not have."""

    def __init__(self, model: onnx.ModelProto, region: Region, engines: Engines, old: Opened) -> None:
        self._model, self._region, self._engines, self._old = model, region, engines, old
        self._angle = angle_of(model, region)
        self.unsupported: dict[str, None] = {}

    def truths(self, inputs: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, tuple[Truth, Any]]:
        """For each output the truth, and where it was looked for; empty where the oracle cannot tell."""
        if self._angle is not None:
            return {name: (self._angle.truth(inputs), np.ones_like(mask)) for name, mask in asked.items()}
        found = cut(inputs, asked, self._old.run)
        if found is None:
            if not small_enough(list(inputs.values())):
                self.unsupported["way to cut such inputs down"] = None
                return {}
            whole: dict[str, Any] = {name: places_of(mask) for name, mask in asked.items()}
            found = dict(inputs), whole
        small, where = found
        try:
            small_truths = self._asked(small)
        except (Unrunnable, Unknown) as error:
            self.unsupported[str(error)] = None
            return {}
        return {
            name: _spread(truth, where[name], asked[name].shape)
            for name, truth in small_truths.items()
            if name in where
        }

    def _asked(self, inputs: Mapping[str, Any]) -> dict[str, Truth]:
        from whynan.verify.oracle import Unsupported, exact, noise_floor

        program = program_of(self._model, self._region, inputs, self._engines)
        try:
            found = exact(program, inputs, {})
            noise = noise_floor(program, inputs, {})
        except Unsupported as error:
            raise Unknown(error.op) from error
        return {
            name: Truth(
                values=np.nan_to_num(balls.midpoint(), nan=0.0, posinf=np.inf, neginf=-np.inf),
                infinite=balls.infinite(),
                undefined=balls.undefined(),
                undecided=balls.undecided(),
                noise=noise.outputs[name],
            )
            for name, balls in found.outputs.items()
        }


def _spread(truth: Truth, places: Any, shape: tuple[int, ...]) -> tuple[Truth, Any]:
    """The truth of some elements as that of all, and which they are."""
    size = int(np.prod(shape))

    def wide(values: Any, otherwise: Any) -> Any:
        made = np.full(size, otherwise, np.asarray(values).dtype)
        made[places.ravel()] = np.asarray(values).ravel()
        return made.reshape(shape)

    looked = np.zeros(size, np.bool_)
    looked[places.ravel()] = True
    whole = Truth(
        wide(truth.values, 0.0),
        wide(truth.infinite, False),
        wide(truth.undefined, False),
        wide(truth.undecided, False),
        wide(truth.noise, 0.0),
    )
    return whole, looked.reshape(shape)
