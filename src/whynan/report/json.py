"""The JSON report: the document for machines, and its published schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final, NoReturn, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from whynan.errors import UsageError
from whynan.records import Report
from whynan.records.base import Record
from whynan.traces.json import spelled_out, visible

SCHEMA: Final = "whynan.report/1"
SCHEMA_FILE: Final = "whynan.report-1.json"
_NUMBER: Final[dict[str, Any]] = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_MIXED: Final = ("value", "flags")
"""Fields that may hold text too, so that nothing but the name of a number tells a number from it."""
_LONGEST: Final = 160
_DIGITS: Final = 20
_Kind = TypeVar("_Kind", bound=Record)


def to_json(report: Record, *, indent: int | None = 2) -> str:
    """The document of a report, or of another record: strict JSON, in which NaN and the infinities are strings.

    A lone surrogate in a name (a file name that is not UTF-8) has no place in JSON and is written as its escape. So is
    what a terminal would obey, or not show: a report is looked at with ``cat`` too.
    """
    try:
        text = report.model_dump_json(by_alias=True, indent=indent)
    except PydanticSerializationError:
        spelled = type(report).model_validate(spelled_out(report.model_dump(by_alias=True)))
        text = spelled.model_dump_json(by_alias=True, indent=indent)
    return visible(text)


def read(text: str | bytes) -> Report:
    """The report of a document; raises ``UsageError`` that names the first thing that is wrong with any other text."""
    return read_as(Report, SCHEMA, text)


def read_as(kind: type[_Kind], schema: str, text: str | bytes) -> _Kind:
    """The record of a document of some schema; raises ``UsageError`` as `read` does."""
    document = _parsed(text)
    if not isinstance(document, dict):
        raise _unreadable("it holds no JSON object")
    version = cast("dict[str, Any]", document).get("schema")
    if version != schema:
        raise _unreadable(f"its schema is {json.dumps(version)}")
    try:
        return kind.model_validate(_with_numbers(document))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _unreadable(f"{place or 'the document'}: {first['msg'].replace('valid tuple', 'valid list')}") from error


def schema(name: str = SCHEMA_FILE) -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of the document, or of another one by the name of its file."""
    file = resources.files("whynan.report") / "schema" / name
    return json.loads(file.read_text(encoding="utf-8"))


def make_schema(kind: type[Record] = Report, schema: str = SCHEMA) -> dict[str, Any]:
    """The schema as the record types imply it; pydantic calls every float a plain number, which is not all."""
    made = _numbers(kind.model_json_schema(by_alias=True, mode="serialization"))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": schema, **made}


def _parsed(text: str | bytes) -> Any:
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        document = json.loads(decoded, parse_constant=_refuse, parse_int=_integer, object_pairs_hook=_distinct)
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise _unreadable("it holds half of a surrogate pair, which is no character") from error
    except UnicodeDecodeError as error:
        raise _unreadable(f"it is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise _unreadable("it is nested too deeply") from error
    except ValueError as error:
        raise _unreadable(str(error)) from error
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"it holds a bare {constant}, which is no JSON")


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError("it holds an integer of more than 64 bits")
    return int(digits)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it gives {json.dumps(twice)} twice in one object")
    return made


def _unreadable(why: str) -> UsageError:
    short = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}..."
    return UsageError(f"this is no whynan report ({short})", f"give a file that whynan wrote, of schema {SCHEMA}")


def _with_numbers(value: Any) -> Any:
    """A document in which the names of NaN and the infinities are numbers again where text is allowed too."""
    if isinstance(value, list):
        return [_with_numbers(held) for held in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    held = cast("dict[str, Any]", value)
    return {k: _number(v) if k in _MIXED else _with_numbers(v) for k, v in held.items()}


def _number(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _number(held) for name, held in cast("dict[str, Any]", value).items()}
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def _numbers(node: Any) -> Any:
    if isinstance(node, list):
        return [_numbers(held) for held in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    made = {name: _numbers(held) for name, held in cast("dict[str, Any]", node).items()}
    if made.get("type") == "number":
        return {**{name: held for name, held in made.items() if name != "type"}, **_NUMBER}
    return made
