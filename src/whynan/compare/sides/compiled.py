"""A compiled PyTorch program as a side: one operation, since nothing in it is a value of its own any more."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

from whynan.compare.sides.operations import Operation, UnavailableError
from whynan.compare.sides.torch import from_numpy, to_numpy
from whynan.compare.stretches import walk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whynan.compare.sides.operations import Array
    from whynan.compare.sides.torch import TorchSide
    from whynan.compare.sides.values import ValueStore
    from whynan.records import Site


class CompiledSide:
    """A program that ``torch.compile`` has compiled, whose exact values are those of its graph."""

    kind: Literal["onnx", "torch"] = "torch"
    roundoff: float | None = None

    def __init__(self, side: TorchSide, module: Any) -> None:
        self._side = side
        self._call: Any = cast("Any", import_module("torch")).compile(module)
        self.label = side.label
        self.inputs = side.inputs
        self.input_values = side.input_values
        self.outputs = side.outputs
        self.output_values = side.output_values
        self.aliases: Mapping[str, str] = {}
        self.operations: Sequence[Operation] = (
            Operation(0, "compiled program", "torch.compile", self.input_values, self.output_values),
        )

    def constant(self, name: str) -> Array | None:
        """None: its weights are its own."""
        del name

    def site(self, operation: Operation) -> Site | None:
        """None: it is all of the program."""
        del operation

    def run(self, feeds: Mapping[str, Array], values: ValueStore) -> None:
        """Run it once; raises ``UnavailableError``."""
        given = {value: feeds[name] for name, value in zip(self.inputs, self.input_values, strict=True)}
        found = self.evaluate(self.operations[0], given)
        for name, value in (*given.items(), *zip(self.output_values, found, strict=True)):
            values.keep(name, value)

    def evaluate(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """The program on other inputs."""
        del operation
        torch: Any = import_module("torch")
        pairs = zip(self.inputs, self.input_values, strict=True)
        given = {name: from_numpy(operands[value]) for name, value in pairs}
        try:
            with torch.no_grad():
                made = self._call(**given)
        except Exception as error:
            raise UnavailableError(f"torch.compile: {' '.join(str(error).split())[:200]}") from None
        leaves: list[Any] = torch.utils._pytree.tree_leaves(made)
        return [to_numpy(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def exact(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """The program's graph in float64."""
        del operation
        values = walk(self._side.operations, operands, self._side.exact)
        return [values[name] for name in self.output_values]
