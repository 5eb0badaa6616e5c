"""Terms in normal form: sums of multiples, products of powers, and functions of terms.

Whatever is equal by the rules below is one term: ``a - b`` is ``a + -1 b``, ``a / b`` is ``a b^-1``, ``1 / sqrt(a)`` is
``a^-0.5``. The functions that a hazard is known by have names, also where they were written out: `softmax`, `sigmoid`,
`tanh`, `logsumexp`, `log_softmax` and `deviations` (the sum of the squared deviations from the mean). What is
equal for some operands only is not made one: ``sqrt(x^2)`` is no ``x``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LARGEST: Final = 160
"""Parts that a term may have; of a larger one nothing is asked."""
NEGATIONS: Final = ("bitwise_not", "logical_not", "not")
_CLOSE: Final = 1e-6


@dataclass(frozen=True)
class NormalForm:
    """What is computed, however it is written: a leaf by its name; a sum with the factor of each part and a constant; a
    product with the exponent of each; a function by its name with its arguments, each with 1.

    Equal to every other spelling of it, it keeps nothing that a `term.Term` has for an edit: the nodes that it was read
    from, the order of the operands, their parameters. Made by the functions of this file only.
    """

    kind: Literal["leaf", "sum", "product", "call"]
    name: str = ""
    parts: tuple[tuple[NormalForm, float], ...] = ()
    constant: float = 0.0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.name, self.parts, self.constant))

    @cached_property
    def calls(self) -> frozenset[str]:
        """The functions in it, by name."""
        own = (self.name,) if self.kind == "call" else ()
        return frozenset(own).union(*(part.calls for part, _ in self.parts))

    @property
    def size(self) -> int:
        """How many parts it has, all in all."""
        return 1 + sum(part.size for part, _ in self.parts)

    @property
    def arguments(self) -> tuple[NormalForm, ...]:
        """The parts without their numbers."""
        return tuple(part for part, _ in self.parts)

    @property
    def number(self) -> float | None:
        """Its value where it is a number."""
        return self.constant if self.kind == "sum" and not self.parts else None

    def is_call(self, *names: str) -> bool:
        """Whether it is one of these functions."""
        return self.kind == "call" and self.name in names

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        inside = ", ".join(f"{number:g} {part}" if number != 1 else str(part) for part, number in self.parts)
        if self.kind == "sum":
            return f"({inside} + {self.constant:g})" if self.parts else f"{self.constant:g}"
        return f"[{inside}]" if self.kind == "product" else f"{self.name}({inside})" if self.parts else self.name


def leaf(name: str) -> NormalForm:
    """Something that is not looked into."""
    return NormalForm("leaf", name)


def number(value: float) -> NormalForm:
    """A number."""
    return NormalForm("sum", constant=float(value))


ONE: Final = number(1)


def _sorted(parts: Iterable[tuple[NormalForm, float]]) -> tuple[tuple[NormalForm, float], ...]:
    return tuple(sorted(parts, key=lambda p: str(p[0])))


# -- sums ------------------------------------------------------------------------------------------------------------


def add(*terms: NormalForm) -> NormalForm:
    """The sum."""
    constant, found = 0.0, dict[NormalForm, float]()
    for term in terms:
        parts = term.parts if term.kind == "sum" else ((term, 1.0),)
        constant += term.constant
        for part, factor in parts:
            found[part] = found.get(part, 0.0) + factor
    return _named_sum(constant, {part: factor for part, factor in found.items() if factor})


def scale(factor: float, term: NormalForm) -> NormalForm:
    """A multiple."""
    if factor == 0 or term.kind != "sum":
        return number(0) if factor == 0 else _sum(0.0, {term: factor})
    return _sum(term.constant * factor, {part: known * factor for part, known in term.parts})


def subtract(term: NormalForm, other: NormalForm) -> NormalForm:
    """The difference."""
    return add(term, scale(-1, other))


def _sum(constant: float, parts: dict[NormalForm, float]) -> NormalForm:
    if not constant and len(parts) == 1:
        ((only, factor),) = parts.items()
        if _close(factor, 1):
            return only
    # no negative zero: it would tell two equal sums apart
    return NormalForm("sum", parts=_sorted(parts.items()), constant=constant + 0.0)


def _named_sum(constant: float, parts: dict[NormalForm, float]) -> NormalForm:
    """A sum, by its name where it has one: of a sigmoid, of a tanh, of log_softmax."""
    if constant and len(parts) == 1:
        ((only, factor),) = parts.items()
        if only.is_call("tanh") and _close(factor, constant):
            return scale(2 * constant, sigmoid(scale(2, only.arguments[0])))
        if only.is_call("sigmoid") and _close(factor, -2 * constant):
            return scale(factor / 2, call("tanh", scale(0.5, only.arguments[0])))
    for part, factor in parts.items():
        if part.is_call("logsumexp") and len(parts) > 1:
            rest = scale(-1 / factor, _sum(constant, {p: f for p, f in parts.items() if p is not part}))
            if rest == part.arguments[0]:
                return scale(-factor, call("log_softmax", rest))
    return _sum(constant, parts)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_CLOSE)


# -- products --------------------------------------------------------------------------------------------------------


def split_coefficient(term: NormalForm) -> tuple[float, NormalForm]:
    """A sum as a multiple of one that begins with 1; anything else as it is."""
    if term.kind != "sum" or not term.parts:
        return 1.0, term
    first = term.constant or term.parts[0][1]
    return first, scale(1 / first, term)


def factors(term: NormalForm) -> tuple[tuple[NormalForm, float], ...]:
    """The factors of a product with their exponents; anything else is its only one."""
    return term.parts if term.kind == "product" else ((term, 1.0),)


def multiply(*terms: NormalForm) -> NormalForm:
    """The product. What stands above and below the line is not cancelled: 0/0 is no 1."""
    factor, found = 1.0, dict[tuple[NormalForm, bool], float]()
    exponent: list[NormalForm] = []
    for term in terms:
        own, bare = split_coefficient(term) if term.number is None else (term.number, ONE)
        factor *= own
        for base, power_of in factors(bare) if bare != ONE else ():
            if base.is_call("exp"):
                exponent.append(scale(power_of, base.arguments[0]))
                continue
            key = base, power_of > 0
            found[key] = found.get(key, 0.0) + power_of
    if exponent:
        together = call("exp", add(*exponent))
        if together != ONE:
            found[together, True] = 1.0
    return scale(factor, _named_product(found))


def _named_product(found: dict[tuple[NormalForm, bool], float]) -> NormalForm:
    """A product, by its name where it has one: of a softmax, of a sigmoid, of a tanh."""
    for (above, _), power_of in found.items():
        if power_of != 1:
            continue
        for (below, up), other in found.items():
            known = None
            if above.is_call("exp") and not up and other == -1:
                known = _softmax(above, below)
            elif above.is_call("exp") and below.is_call("sigmoid") and other == 1:
                known = _sigmoid_from_exp(above, below)
            elif above.kind == "sum" and below != above:
                known = _tanh(above, below, other)
            if known is not None:
                rest = {k: e for k, e in found.items() if k not in ((above, True), (below, up))}
                return multiply(known, _product(rest)) if rest else known
    return _product(found)


def _product(found: dict[tuple[NormalForm, bool], float]) -> NormalForm:
    if not found:
        return ONE
    if len(found) == 1:
        (((only, _), exponent),) = found.items()
        if exponent == 1:
            return only
    return NormalForm("product", parts=_sorted_powers((base, exponent) for (base, _), exponent in found.items()))


def _sorted_powers(parts: Iterable[tuple[NormalForm, float]]) -> tuple[tuple[NormalForm, float], ...]:
    return tuple(sorted(parts, key=lambda p: (str(p[0]), p[1])))


def _softmax(above: NormalForm, below: NormalForm) -> NormalForm | None:
    """``exp(x) / sum(exp(x))``."""
    return call("softmax", above.arguments[0]) if below == call("sum", above) else None


def _sigmoid_from_exp(above: NormalForm, below: NormalForm) -> NormalForm | None:
    """``exp(x) sigmoid(-x)``."""
    x = above.arguments[0]
    return sigmoid(x) if below.arguments[0] == scale(-1, x) else None


def _tanh(above: NormalForm, below: NormalForm, exponent: float) -> NormalForm | None:
    """``(exp(x) - exp(y)) / (exp(x) + exp(y))``, where one of them may be 1."""
    up = _two_exponentials(above)
    if exponent == 1 and below.is_call("sigmoid") and up is not None:
        # 1 / (1 + exp(x)) has this name already
        down = [(number(0), 1.0), (scale(-1, below.arguments[0]), 1.0)]
    elif exponent == -1 and below.kind == "sum":
        down = _two_exponentials(below)
    else:
        return None
    if up is None or down is None or {x for x, _ in up} != {x for x, _ in down}:
        return None
    (x, f), (y, g) = up
    if not _close(f, -g) or not _close(down[0][1], down[1][1]):
        return None
    return scale(f / down[0][1], call("tanh", scale(0.5, subtract(x, y))))


def _two_exponentials(term: NormalForm) -> list[tuple[NormalForm, float]] | None:
    found = [(part.arguments[0], factor) for part, factor in term.parts if part.is_call("exp")]
    if len(found) != len(term.parts):
        return None
    if term.constant:
        found.append((number(0), term.constant))
    return found if len(found) == 2 else None


def power(base: NormalForm, exponent: float) -> NormalForm:
    """A power with a number as exponent."""
    if exponent == 1:
        return base
    if exponent == 0:
        return ONE
    whole = float(exponent).is_integer()
    if (value := base.number) is not None:
        if value > 0 or (whole and value):
            return number(value**exponent)
        return NormalForm("product", parts=((base, float(exponent)),))
    factor, bare = split_coefficient(base)
    if not whole and factor < 0:
        factor, bare = -factor, scale(-1, bare)
    outside = float(factor**exponent)
    if not math.isfinite(outside) or not outside:
        outside, bare = 1.0, base
    return scale(outside, _power(bare, float(exponent), whole=whole))


def _power(base: NormalForm, exponent: float, *, whole: bool) -> NormalForm:
    if base.is_call("exp"):
        return call("exp", scale(exponent, base.arguments[0]))
    if base.is_call("abs") and whole and exponent % 2 == 0:
        return power(base.arguments[0], exponent)
    if base.kind == "product" and (whole or (len(base.parts) == 1 and _can_merge_exponents(base.parts[0][1]))):
        return multiply(*(power(part, known * exponent) for part, known in base.parts))
    if exponent < 0 and (risen := _one_plus_exp(base)) is not None:
        return _power_term(sigmoid(scale(-1, risen)), -exponent)
    return _power_term(base, exponent)


def _power_term(base: NormalForm, exponent: float) -> NormalForm:
    return base if exponent == 1 else NormalForm("product", parts=((base, exponent),))


def _can_merge_exponents(exponent: float) -> bool:
    """Whether ``(x^a)^b`` is ``x^(ab)`` for every b: where it has a value x is no negative number."""
    return exponent == -1 or not float(exponent).is_integer()


def _one_plus_exp(term: NormalForm) -> NormalForm | None:
    """The x of ``1 + exp(x)``."""
    if term.kind != "sum" or term.constant != 1 or len(term.parts) != 1:
        return None
    part, factor = term.parts[0]
    return part.arguments[0] if factor == 1 and part.is_call("exp") else None


# -- functions -------------------------------------------------------------------------------------------------------


def sigmoid(x: NormalForm) -> NormalForm:
    """The logistic function."""
    return NormalForm("call", "sigmoid", ((x, 1.0),))


def call(name: str, *arguments: NormalForm) -> NormalForm:
    """A function of terms, in another form where that is its normal one."""
    if arguments:
        made = _FORMS[name](arguments[0]) if name in _FORMS and len(arguments) == 1 else None
        if made is not None:
            return made
    return NormalForm("call", name, tuple((argument, 1.0) for argument in arguments))


def _exp(x: NormalForm) -> NormalForm | None:
    return ONE if x.number == 0 else None


def _log(x: NormalForm) -> NormalForm | None:
    """``log(a^p)`` is ``p log(a)`` where a is no negative number; ``log(sum(exp(a)))`` has a name."""
    factor, bare = split_coefficient(x)
    if bare.is_call("sum") and bare.arguments[0].is_call("exp") and factor > 0:
        return add(number(math.log(factor)), call("logsumexp", bare.arguments[0].arguments[0]))
    if x.kind == "product" and len(x.parts) == 1:
        base, exponent = x.parts[0]
        if not (exponent.is_integer() and exponent % 2 == 0):
            return scale(exponent, call("log", base))
    return None


def _without_maximum(x: NormalForm) -> tuple[NormalForm, NormalForm] | None:
    """The a and the ``max(a)`` of ``a - max(a)``, as they are subtracted to keep exponentials small."""
    for part, factor in x.parts if x.kind == "sum" else ():
        rest = subtract(x, scale(factor, part))
        if factor == -1 and part.is_call("max") and part.arguments[0] == rest:
            return rest, part
    return None


def _shift_invariant(name: str) -> Callable[[NormalForm], NormalForm | None]:
    """Of a function that is the same without the maximum subtracted."""

    def form(x: NormalForm) -> NormalForm | None:
        found = _without_maximum(x)
        return None if found is None else call(name, found[0])

    return form


def _exp_of_logsumexp(x: NormalForm) -> NormalForm | None:
    found = _without_maximum(x)
    return None if found is None else subtract(call("logsumexp", found[0]), found[1])


def _odd_tanh(x: NormalForm) -> NormalForm | None:
    """It is odd."""
    factor, _ = split_coefficient(x)
    return scale(-1, call("tanh", scale(-1, x))) if factor < 0 else None


def _abs(x: NormalForm) -> NormalForm | None:
    """Of a product of even powers it is the product."""
    if x.is_call("abs") or (x.kind == "product" and all(e % 2 == 0 for _, e in x.parts)):
        return x
    factor, bare = split_coefficient(x)
    return scale(abs(factor), call("abs", bare)) if factor != 1 else None


def _sum_call(x: NormalForm) -> NormalForm | None:
    """Factors go in front of a sum over elements; a sum over all elements of x - mean(x), squared, has a name."""
    factor, bare = split_coefficient(x) if not x.constant else (1.0, x)
    if factor != 1:
        return scale(factor, call("sum", bare))
    if x.kind == "product" and len(x.parts) == 1 and x.parts[0][1] == 2:
        inner = x.parts[0][0]
        for part, known in inner.parts if inner.kind == "sum" else ():
            rest = subtract(inner, scale(known, part))
            bare_rest = split_coefficient(rest)[1]
            if part.is_call("sum") and part.arguments[0] == bare_rest:
                outer = split_coefficient(rest)[0]
                # the mean is subtracted: 1/n of the sum, and n is not known here
                if -1 < known / outer < 0:
                    return scale(outer * outer, call("deviations", bare_rest))
    return None


def _deviations(x: NormalForm) -> NormalForm | None:
    factor, bare = split_coefficient(x)
    return scale(factor * factor, call("deviations", bare)) if factor != 1 else None


_FORMS: Final = {
    "exp": _exp,
    "log": _log,
    "softmax": _shift_invariant("softmax"),
    "log_softmax": _shift_invariant("log_softmax"),
    "logsumexp": _exp_of_logsumexp,
    "abs": _abs,
    "tanh": _odd_tanh,
    "sum": _sum_call,
    "deviations": _deviations,
}
REFORMED: Final = _FORMS.keys() | {"sigmoid", "max"}
"""The functions that may have another name by what they are of, or stand beside."""
