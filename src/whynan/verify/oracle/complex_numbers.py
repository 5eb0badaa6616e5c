"""ATen's operators of complex numbers, as formulas of their real and imaginary parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from whynan.verify.oracle.calls import Call, Ref, Unsupported
from whynan.verify.oracle.movement import MOVED, MOVES, VIEWS
from whynan.verify.oracle.tape import Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whynan.verify.oracle.calls import Operator, Step
    from whynan.verify.oracle.functions import Functions

# A ball has no type here: not every version of python-flint has stubs.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownLambdaType=false
# The formulas of a table have one signature, of which not every one reads all.
# ruff: noqa: ARG005

_LINEAR: Final = frozenset(
    (*MOVES, *VIEWS, *"neg sum mean add sub rsub clone where masked_fill detach _to_copy".split())
)
"""Operators that do the same to the real and to the imaginary parts, whose real operands have none of these."""
_OPERANDS: Final = MOVED | {"other"}


class Pair(NamedTuple):
    """Complex numbers: their real and their imaginary parts."""

    real: Variable
    imag: Variable


def is_complex(dtype: str) -> bool:
    """Whether a dtype is one of complex numbers.

    >>> is_complex("torch.complex64")
    True
    """
    return "complex" in dtype


class ComplexCall:
    """A step that reads or makes complex numbers."""

    def __init__(self, call: Call, pairs: Mapping[str, Pair], dtypes: Mapping[str, str]) -> None:
        self._call, self._pairs, self._dtypes = call, pairs, dtypes
        self.step: Step = call.step

    def result(self, name: str, apply: Operator | None) -> Variable | Pair | list[Pair]:
        """What the step makes; raises ``Unsupported``."""
        if name == "pow" and self.step.arguments.get("exponent") == 2:
            return _mul(self._call.functions, *[self._operands()[0]] * 2)
        if name in _FORMULAS:
            return _FORMULAS[name](self._call.functions, *self._operands())
        if name not in _LINEAR or apply is None:
            raise Unsupported(f"{self.step.op} (complex)")
        if self._call.has("alpha", "accumulate", "dtype") and name not in ("add", "sub", "rsub"):
            raise self._call.unsupported("complex")
        real, imag = (apply(self._of_part(index)) for index in range(2))
        if isinstance(real, Variable) and isinstance(imag, Variable):
            return Pair(real, imag)
        assert not isinstance(real, Variable)
        assert not isinstance(imag, Variable)
        return [Pair(*pair) for pair in zip(real, imag, strict=True)]

    def _operands(self) -> list[Pair]:
        """The tensors and numbers that a formula is of, in their order."""
        return [self._pair(value) for value in self.step.arguments.values() if isinstance(value, (Ref, int, float))]

    def _pair(self, value: Any) -> Pair:
        if isinstance(value, Ref) and value.name in self._pairs:
            return self._pairs[value.name]
        real = self._call.known(value) if isinstance(value, Ref) else self._call.tape.constant(value)
        return Pair(real, self._call.functions.zeros(real))

    def _of_part(self, index: int) -> Call:
        """The same call of the real parts alone, or of the imaginary ones."""
        known: dict[str, Variable] = {}

        def part(value: Any) -> Any:
            if isinstance(value, list):
                return [part(one) for one in list[Any](value)]
            if isinstance(value, (bool, str)) or value is None:
                return value
            name = f"{len(known)}"
            known[name] = self._pair(value)[index]
            return Ref(name)

        given = {n: part(v) if n in _OPERANDS else self._kept(v, known) for n, v in self.step.arguments.items()}
        return Call(replace(self.step, arguments=given), self._call.functions, known, self._dtypes, self._call.base)

    def _kept(self, value: Any, known: dict[str, Variable]) -> Any:
        """An argument that is no operand, as an index or a condition."""
        if isinstance(value, list):
            return [self._kept(one, known) for one in list[Any](value)]
        if isinstance(value, Ref):
            known[value.name] = self._call.known(value)
        return value


# -- Formulas: of pairs, a pair where the result is complex ------------------------------------------------------------


def _mul(f: Functions, z: Pair, w: Pair) -> Pair:
    return Pair(
        f.sub(f.mul(z.real, w.real), f.mul(z.imag, w.imag)), f.add(f.mul(z.real, w.imag), f.mul(z.imag, w.real))
    )


def _square(f: Functions, z: Pair) -> Variable:
    return f.add(f.square(z.real), f.square(z.imag))


def _div(f: Functions, z: Pair, w: Pair) -> Pair:
    above = _mul(f, z, _conj(f, w))
    below = _square(f, w)
    return Pair(f.div(above.real, below), f.div(above.imag, below))


def _conj(f: Functions, z: Pair) -> Pair:
    return Pair(z.real, f.neg(z.imag))


def _abs(f: Functions, z: Pair) -> Variable:
    """The magnitude; its gradient at 0 is 0, as PyTorch has it, and none where that is a part of an infinite one."""
    zero = f.compare(_square(f, z), f.zeros(z.real), (0,))
    safe = f.choose(zero, 1.0, _square(f, z))
    return f.choose(zero, f.abs(f.mul(f.add(z.real, z.imag), 0.0)), f.sqrt(safe))


def _sgn(f: Functions, z: Pair) -> Pair:
    size = _abs(f, z)
    zero = f.compare(size, f.zeros(size), (0,))
    safe = f.choose(zero, 1.0, size)
    return Pair(f.choose(zero, 0.0, f.div(z.real, safe)), f.choose(zero, 0.0, f.div(z.imag, safe)))


def _angle(f: Functions, z: Pair) -> Variable:
    """The argument; its gradient at 0 is 0, as PyTorch has it."""
    zero = f.compare(_square(f, z), f.zeros(z.real), (0,))
    return f.choose(zero, 0.0, f.atan2(z.imag, f.choose(zero, 1.0, z.real)))


def _exp(f: Functions, z: Pair) -> Pair:
    size = f.exp(z.real)
    return Pair(f.mul(size, f.unary("cos", z.imag)), f.mul(size, f.unary("sin", z.imag)))


def _log(f: Functions, z: Pair) -> Pair:
    return Pair(f.mul(f.log(_square(f, z)), 0.5), f.atan2(z.imag, z.real))


def _view_as_real(f: Functions, z: Pair) -> Variable:
    size = z.real.data.size
    index = np.stack([np.arange(size), np.arange(size, 2 * size)], -1).reshape(*z.real.shape, 2)
    return f.tape.gather([z.real, z.imag], index)


def _view_as_complex(f: Functions, x: Pair) -> Pair:
    index = np.arange(x.real.data.size).reshape(x.real.shape)
    return Pair(f.tape.gather([x.real], index[..., 0]), f.tape.gather([x.real], index[..., 1]))


_FORMULAS: Final[Mapping[str, Callable[..., Variable | Pair]]] = {
    "mul": _mul,
    "div": _div,
    "reciprocal": lambda f, z: _div(f, Pair(f.add(f.zeros(z.real), 1.0), f.zeros(z.real)), z),
    "_conj": _conj,
    "_conj_physical": _conj,
    "conj_physical": _conj,
    "resolve_conj": lambda f, z: z,
    "abs": _abs,
    "sgn": _sgn,
    "angle": _angle,
    "exp": _exp,
    "log": _log,
    "complex": lambda f, x, y: Pair(x.real, y.real),
    "polar": lambda f, r, t: Pair(f.mul(r.real, f.unary("cos", t.real)), f.mul(r.real, f.unary("sin", t.real))),
    "view_as_real": _view_as_real,
    "view_as_complex": _view_as_complex,
}
