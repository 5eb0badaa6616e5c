"""The JSON report: the document for machines, and its published schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final, TypeVar, cast

from pydantic import ValidationError

from whynan.errors import UsageError
from whynan.records import Report
from whynan.records.base import Record
from whynan.traces.json import dump_json, parse_json

SCHEMA: Final = "whynan.report/2"
SCHEMA_FILE: Final = "whynan.report-2.json"
_READ: Final = {SCHEMA: (SCHEMA, "whynan.report/1")}
"""The versions of a schema that are read; one that is not named here is read in its own version alone."""
_NUMBER: Final[dict[str, Any]] = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_LONGEST: Final = 160
_Kind = TypeVar("_Kind", bound=Record)


def to_json(report: Record, *, indent: int | None = 2) -> str:
    """The document of a report, or of another record: strict JSON, which may be looked at with ``cat`` too."""
    return dump_json(report, indent=indent)


def parse_report(text: str | bytes) -> Report:
    """The report of a document; raises ``UsageError`` that names the first thing that is wrong with any other text."""
    return read_as(Report, SCHEMA, text)


def read_as(kind: type[_Kind], schema: str, text: str | bytes) -> _Kind:
    """The record of a document of some schema; raises ``UsageError`` as `parse_report` does."""
    try:
        document = parse_json(text, infinite=True)
    except ValueError as error:
        raise _unreadable(str(error)) from error
    if not isinstance(document, dict):
        raise _unreadable("it holds no JSON object")
    version = cast("dict[str, Any]", document).get("schema")
    if version not in _READ.get(schema, (schema,)):
        raise _unreadable(f"its schema is {json.dumps(version)}")
    try:
        return kind.model_validate(document)
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


def _unreadable(why: str) -> UsageError:
    short = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}..."
    return UsageError(f"this is no whynan report ({short})", f"give a file that whynan wrote, of schema {SCHEMA}")


def _numbers(node: Any) -> Any:
    if isinstance(node, list):
        return [_numbers(held) for held in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    made = {name: _numbers(held) for name, held in cast("dict[str, Any]", node).items()}
    if made.get("type") == "number":
        return {**{name: held for name, held in made.items() if name != "type"}, **_NUMBER}
    return made
