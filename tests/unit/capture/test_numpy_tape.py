"""A third, tiny framework: a tape of NumPy calls, whose bad numbers are followed by the same algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whynan.capture.onnx.provenance import planes
from whynan.capture.onnx.provenance.labels import Labels
from whynan.capture.provenance.arrays import Carrier
from whynan.capture.provenance.attribution import attribute
from whynan.capture.provenance.damage import Source, taint_plane
from whynan.records import ChainLink, Element, Note
from whynan.traces import Birth, Event


@dataclass
class Call:
    """One call of a NumPy function."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    labels: Labels
    wide: dict[int, Any]
    carriers: dict[int, Carrier] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)

    arrays = planes
    gone: frozenset[int] = frozenset()
    scalar_literal = 0
    is_repeatable = is_deterministic = may_copy = True
    is_literal_nan = swallows = reshapes = False

    @property
    def name(self) -> str:
        return self.function.__name__

    def pointwise_operands(self, key: int) -> list[int] | None:
        is_pointwise = key == 0 and getattr(self.function, "signature", "()") is None
        return list(range(len(self.inputs))) if is_pointwise else None

    def selection_mask(self, key: int) -> None:
        return None

    def keeps_signs(self, tensor: Any) -> bool:
        return self.function is np.add

    def run(self, replace: Callable[[int, Any], Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            return [np.asarray(self.function(*(replace(i, x) for i, x in enumerate(self.inputs))))]

    def result(self, results: list[Any], key: int) -> Any:
        return results[key]

    def moved_plane(self, kind: str, key: int) -> Any:
        return np.transpose(getattr(self.carriers[0], kind)) if self.function is np.transpose else None

    def exact(self, key: int, *, known: bool = True) -> Any:
        return self.run(lambda at, x: self.wide.get(id(self.inputs[at]), x.astype(np.float64)) if known else x)[key]

    def chain_link(self, said: Note) -> ChainLink:
        return ChainLink(role="step", op=self.name, phase="forward", site=None, typed_summary=said)


class Tape:
    """Runs NumPy functions, and knows of each array where its bad numbers come from."""

    def __init__(self) -> None:
        self.labels = Labels()
        self.planes: dict[int, Any] = {}
        self.wrong: dict[int, Any] = {}
        self.wide: dict[int, Any] = {}
        self.kept: list[Any] = []

    def __call__(self, function: Callable[..., Any], *given: Any) -> Any:
        inputs = tuple(np.asarray(x, dtype=np.float32) if isinstance(x, list) else x for x in given)
        call = Call(function, inputs, self.labels, self.wide)
        (output,) = call.run(lambda _, tensor: tensor)
        self.kept += (*inputs, output)
        known = {i: self.planes[id(x)] for i, x in enumerate(inputs) if id(x) in self.planes}
        if planes.is_floating(output) and planes.bad_mask(output).any():
            call.carriers = {i: Carrier(inputs[i], plane) for i, plane in known.items()}
            self.wide[id(output)] = call.exact(0)
            self._explain(call, output)
        elif sources := {i: Source(inputs[i], plane, False) for i, plane in known.items()}:
            plane = taint_plane(call, 0, output, sources)
            if plane is not None and plane.any():
                self.wrong[id(output)] = plane
        return output

    def _explain(self, call: Call, output: Any) -> None:
        verdict = attribute(call, 0, output)
        plane = verdict.carried
        if verdict.born.any():
            index = planes.first_index(verdict.born)
            element = Element(index=index, shape=output.shape, dtype="float32", value=None, count=1, total=output.size)
            event = Event(len(self.labels.births), call.name, "forward", None)
            birth = self.labels.add(Birth(0, "birth", event, "invalid", element))
            plane = planes.label_plane(verdict.born, birth, plane)
        self.planes[id(output)] = plane

    def origins(self, array: Any) -> list[tuple[str, tuple[int, ...] | None]]:
        """The births whose bad or wrong numbers an array holds: function and element."""
        plane = self.planes.get(id(array), self.wrong.get(id(array)))
        births = map(self.labels.birth, sorted(self.labels.labels_in(plane)) if plane is not None else ())
        return [(str(b.event.op), b.element.index) for b in births]


def test_a_birth_is_carried_on_element_by_element() -> None:
    tape = Tape()
    quotient = tape(np.divide, [0, 1], [0, 1])
    total = tape(np.add, quotient, [1, 1])
    assert tape.origins(total) == [("divide", (0,))]
    assert tape.planes[id(total)].tolist() == [1, 0]


def test_a_moved_element_is_the_same() -> None:
    tape = Tape()
    turned = tape(np.transpose, tape(np.log, [[1, -1], [1, 1]]))
    assert np.argwhere(tape.planes[id(turned)]).tolist() == [[1, 0]]


def test_what_is_not_known_is_asked_by_intervention() -> None:
    tape = Tape()
    product = tape(np.matmul, tape(np.log, [[-1, 1], [1, 1]]), [[1, 2], [3, 4]])
    assert tape.planes[id(product)].tolist() == [[1, 1], [0, 0]]
    again = tape(np.matmul, [[3e38, 3e38]], [[1], [1]])
    assert tape.origins(again) == [("matmul", (0, 0))]


def test_an_infinity_that_a_nan_hides_is_carried_on() -> None:
    tape = Tape()
    total = tape(np.add, tape(np.log, [-1, 1]), tape(np.exp, [100, 1]))
    assert tape.origins(total) == [("log", (0,)), ("exp", (0,))]


def test_a_finite_number_that_float64_has_otherwise_is_wrong() -> None:
    tape = Tape()
    many = tape(np.exp, [100, 1])
    least = tape(np.minimum, tape(np.divide, many, [1e10, 1]), [1e35, 1e35])
    assert tape.origins(least) == [("exp", (0,))]
    (step,) = tape.labels.birth(1).steps
    assert step.summary == "minimum gives 1e35, where 2.688e33 is the value in float64"
    # 1 / inf is 0, and so it is in float32
    assert not tape.origins(tape(np.divide, [1, 1], many))
