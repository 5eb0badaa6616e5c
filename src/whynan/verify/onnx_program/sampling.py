"""Inputs of a part of a graph that were not captured: near to what was, and over the whole range of the dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.floats import FORMATS, Format

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Values = Mapping[str, NDArray[Any]]

_MOST: Final = 256
"""Elements of one sampled array."""
_FEW: Final = 96
_ROUNDS: Final = 3
_OFF: Final = 0.05


def perturbed(captured: Sequence[Values], seed: int) -> Iterator[dict[str, Any]]:
    """What was captured, every finite number moved by some percent; zeros stay, and what is no float."""
    random = np.random.default_rng((seed, 1))
    for values in captured:
        made: dict[str, Any] = {}
        for name, value in values.items():
            if _format(value) is None:
                made[name] = value
                continue
            factor = 1 + _OFF * random.standard_normal(value.shape)
            with np.errstate(all="ignore"):
                made[name] = (value.astype(np.float64) * factor).astype(value.dtype)
        yield made


def sampled(captured: Sequence[Values], seed: int) -> Iterator[dict[str, Any]]:
    """Numbers log-uniform over the dtype's range, with scales of their own per element and per row, and extremes.

    A value that was never negative, never beyond 1, or nothing but 0 and 1 in all that was captured stays so in every
    second round.
    """
    if not captured:
        return
    random = np.random.default_rng((seed, 2))
    given = _smaller(captured[0])
    domains = {name: _domain([values[name] for values in captured]) for name in given}
    masks = {name for name in given if _is_mask([values[name] for values in captured])}
    for round_ in range(_ROUNDS):
        pattern = given if round_ == 0 else _larger(given)
        for how in (_wide, _by_row, _ordinary, _extreme):
            made: dict[str, Any] = {}
            for name, value in pattern.items():
                known = _format(value)
                if known is None or (round_ % 2 == 0 and name in masks):
                    made[name] = _shuffled(value, random)
                    continue
                numbers = how(value.shape, known, random)
                numbers = _within(numbers, domains[name]) if round_ % 2 == 0 else numbers
                with np.errstate(over="ignore"):
                    made[name] = numbers.astype(value.dtype)
            yield made


def _format(value: Any) -> Format | None:
    return FORMATS.get(str(getattr(value, "dtype", "")))


def _smaller(values: Values) -> dict[str, Any]:
    """The first rows of arrays that are large and all have as many rows."""
    rows = {value.shape[0] for value in values.values() if value.ndim > 1}
    largest = max((value.size for value in values.values()), default=0)
    if largest <= _MOST or len(rows) != 1 or any(value.ndim == 1 for value in values.values()):
        return dict(values)
    kept = max(2, _MOST * rows.pop() // largest)
    return {name: value[:kept] if value.ndim > 1 else value for name, value in values.items()}


def _larger(values: Values) -> Values:
    """So many more rows of arrays that have few, where all have as many, as another batch would bring."""
    rows = {value.shape[0] if value.ndim else 0 for value in values.values()}
    sizes = [value.size for value in values.values()]
    if len(rows) != 1 or not rows or 0 in rows or max(sizes) > _FEW:
        return values
    times = max(1, _FEW // max(sizes))
    return {name: np.concatenate([value] * times) for name, value in values.items()}


def _domain(values: Sequence[NDArray[Any]]) -> tuple[float, float]:
    if not values or _format(values[0]) is None:
        return -np.inf, np.inf
    numbers = np.concatenate([value.astype(np.float64).ravel() for value in values])
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size or numbers.min() < 0:
        return -np.inf, np.inf
    return 0.0, 1.0 if numbers.max() <= 1 else np.inf


def _is_mask(values: Sequence[NDArray[Any]]) -> bool:
    """Whether floats were nothing but 0 and 1."""
    return all(_format(value) is not None and bool(np.isin(value, (0, 1)).all()) for value in values)


def _within(numbers: Any, domain: tuple[float, float]) -> Any:
    low, high = domain
    made = np.abs(numbers) if low == 0 else numbers
    return np.where(made > high, 1 / np.where(made == 0, 1, made), made) if np.isfinite(high) else made


def _signs(shape: tuple[int, ...], random: np.random.Generator) -> Any:
    return np.where(random.random(shape) < 0.5, -1.0, 1.0)


def _wide(shape: tuple[int, ...], known: Format, random: np.random.Generator) -> Any:
    low, high = np.log2(known.smallest_subnormal), np.log2(known.max)
    return _signs(shape, random) * np.exp2(random.uniform(low, high, shape))


def _by_row(shape: tuple[int, ...], known: Format, random: np.random.Generator) -> Any:
    low, high = np.log2(known.smallest_subnormal), np.log2(known.max)
    scale = np.exp2(random.uniform(low, high, (*shape[:-1], 1) if shape else shape))
    return np.clip(random.standard_normal(shape) * scale, -known.max, known.max)


def _ordinary(shape: tuple[int, ...], _known: Format, random: np.random.Generator) -> Any:
    return random.standard_normal(shape) * 2.0 ** random.integers(-2, 6)


def _extreme(shape: tuple[int, ...], known: Format, random: np.random.Generator) -> Any:
    special = [0.0, -0.0, known.smallest_subnormal, known.tiny, known.max, 1.0, 1 - known.eps / 2, 1 + known.eps]
    numbers = random.choice(np.array(special), shape) * _signs(shape, random)
    return np.where(random.random(shape) < 0.3, random.standard_normal(shape), numbers)


def _shuffled(value: NDArray[Any], random: np.random.Generator) -> Any:
    if value.dtype == np.bool_:
        return random.random(value.shape) < random.uniform(0.2, 1)
    return value if value.ndim == 0 else random.permutation(value.ravel()).reshape(value.shape)
