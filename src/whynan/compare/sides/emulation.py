"""A side in another arithmetic: every result rounded to a narrower format, or all of it in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np

from whynan.compare.sides.double import is_floating
from whynan.compare.sides.operations import UnavailableError
from whynan.floats import format_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.compare.sides.operations import Array, Operation, Side
    from whynan.compare.sides.values import ValueStore
    from whynan.records import Site

Arithmetic = Literal["fp16", "bf16", "fp64"]
_FORMATS: Final = {"fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}


class EmulatedSide:
    """A side whose operands, weights and results are rounded to a format; sums within an operation are not."""

    def __init__(self, side: Side, dtype: Arithmetic) -> None:
        self._side = side
        self._format = _FORMATS[dtype]
        self.label = side.label
        self.kind: Literal["onnx", "torch"] = side.kind
        self.roundoff: float | None = format_of(self._format).eps / 2
        self.inputs, self.input_values = side.inputs, side.input_values
        self.outputs, self.output_values = side.outputs, side.output_values
        self.operations: Sequence[Operation] = side.operations
        self.aliases: Mapping[str, str] = side.aliases

    def constant(self, name: str) -> Array | None:
        """A constant, rounded."""
        value = self._side.constant(name)
        return value if value is None else self._rounded(value)

    def site(self, operation: Operation) -> Site | None:
        """That of the side."""
        return self._side.site(operation)

    def run(self, feeds: Mapping[str, Array], values: ValueStore) -> None:
        """Run it operation by operation; raises ``UnavailableError``."""
        from whynan.compare.sides.reference import run_each

        run_each(self, {name: self._rounded(value) for name, value in feeds.items()}, values, self.evaluate)

    def evaluate(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """An operation on rounded operands, its results rounded."""
        whole = self._with_constants(operation, operands)
        if self._format == "float64":
            try:
                return self._side.exact(operation, whole)
            except UnavailableError:
                narrow = {name: self._narrowed(name, value) for name, value in whole.items()}
                return self._side.evaluate(operation, narrow)
        return [self._rounded(value) for value in self._side.evaluate(operation, whole)]

    def exact(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """An operation in float64, on the weights as they are."""
        return self._side.exact(operation, operands)

    def _with_constants(self, operation: Operation, operands: Mapping[str, Array]) -> dict[str, Array]:
        rounded = {name: self._rounded(value) for name, value in operands.items()}
        for name in operation.inputs:
            if name and name not in rounded and (value := self._side.constant(name)) is not None and is_floating(value):
                rounded[name] = self._rounded(value)
        return rounded

    def _narrowed(self, name: str, value: Array) -> Array:
        """A value for an operation that has no kernel in float64."""
        constant = self._side.constant(name)
        dtype = np.float32 if constant is None else constant.dtype
        return value.astype(dtype) if is_floating(value) else value

    def _rounded(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._rounded(one) for one in cast("list[Any]", value)]
        if self._format == "float64" or not is_floating(value):
            return value
        dtype: Any = np.float16
        if self._format == "bfloat16":
            import ml_dtypes

            dtype = ml_dtypes.bfloat16
        with np.errstate(all="ignore"):
            return value.astype(dtype).astype(value.dtype)
