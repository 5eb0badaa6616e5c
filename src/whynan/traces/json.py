"""Strict JSON: no name twice, no lone surrogate, no NaN, bounded depth; written so that it may be looked at."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

# -- JSON read strictly: no name twice, no half character, no number that is none, in no depth that could harm ---------


_WORDS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NUMBERS: Final = frozenset("value min max finite_min finite_max loss norm scale first last".split())
"""Fields in which these words are numbers."""
_LISTS: Final = frozenset(("numbers",))
"""Fields that may hold several such numbers, in a list or by name."""
_MIXED: Final = frozenset(("flags", "options"))
"""Fields that hold such fields under names of any kind."""
_LARGEST: Final = 1 << 64


def parse_json(text: str | bytes, *, infinite: bool = False) -> Any:
    """What a JSON text says, its lists as tuples; raises ``ValueError`` with the first thing that is wrong with it.

    `infinite`: a number that no float can hold is an infinity, as others read it.
    """
    strict: dict[str, Any] = {**_STRICT, "parse_float": float} if infinite else _STRICT
    try:
        return _as_tuples(json.loads(text if isinstance(text, str) else text.decode("utf-8"), **strict))
    except UnicodeEncodeError as error:
        raise ValueError("it holds half of a surrogate pair, which is no character") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = {_as_tuples(name): _number(value) if name in _NUMBERS else _as_tuples(value) for name, value in pairs}
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it gives {json.dumps(twice)} twice in one object")
    for name in _LISTS & made.keys():
        if isinstance(inner := made[name], tuple):
            made[name] = tuple(_number(value) for value in cast("tuple[Any, ...]", inner))
    for name in (_MIXED | _LISTS) & made.keys():
        inner = made[name]
        if isinstance(inner, dict):
            made[name] = {key: _number(value) for key, value in cast("dict[str, Any]", inner).items()}
    return made


def _as_tuples(value: Any) -> Any:
    if isinstance(value, str):
        if not value.isascii():
            value.encode()
    elif isinstance(value, list):
        return tuple(_as_tuples(held) for held in cast("list[Any]", value))
    return value


def _number(value: Any) -> Any:
    return _WORDS[value] if isinstance(value, str) and value in _WORDS else _as_tuples(value)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"it holds a bare {name}, which is no JSON")


def _integer(digits: str) -> int:
    number = int(digits) if len(digits) < 24 else _LARGEST
    if not -_LARGEST < number < _LARGEST:
        raise ValueError("it holds an integer of more than 64 bits")
    return number


def _real(digits: str) -> float:
    number = float(digits)
    if number - number != 0:
        raise ValueError("it holds a number that no float can hold")
    return number


_STRICT: Final[dict[str, Any]] = {
    "parse_constant": _constant,
    "parse_int": _integer,
    "parse_float": _real,
    "object_pairs_hook": _object,
}


# -- JSON that may be looked at: what a terminal would obey, or not show, is written as its escape ---------------------


_BEYOND_ASCII: Final = re.compile("[\x7f-\U0010ffff]+")


def escape_surrogates(text: str) -> str:
    """Text without lone surrogates, which stand for bytes of a file name that are no text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def spelled_out(value: Any) -> Any:
    """A dumped record without lone surrogates."""
    if isinstance(value, str):
        return escape_surrogates(value)
    if isinstance(value, dict):
        return {spelled_out(name): spelled_out(held) for name, held in cast("dict[Any, Any]", value).items()}
    if isinstance(value, tuple):
        return tuple(spelled_out(held) for held in cast("tuple[Any, ...]", value))
    return value


def dump_json(model: BaseModel, **options: Any) -> str:
    """The JSON text of a model, in which NaN and the infinities are strings and every character can be seen.

    A lone surrogate in a name (a file name that is not UTF-8) has no place in JSON and is written as its escape.
    """
    try:
        return visible(model.model_dump_json(by_alias=True, **options))
    except PydanticSerializationError:
        held = {name: value for name, value in options.items() if name != "indent"}
        plain = type(model).model_validate(spelled_out(model.model_dump(by_alias=True, **held)))
        return visible(plain.model_dump_json(by_alias=True, **options))


def visible(document: str) -> str:
    """A JSON text that says the same, in which every character is one that can be seen.

    What has a meaning in JSON is ASCII, and control characters below 32 are escaped in it already.
    """
    return document if document.isascii() and "\x7f" not in document else _BEYOND_ASCII.sub(_escaped, document)


def _escaped(found: re.Match[str]) -> str:
    text = found[0]
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)
