"""The JSON report: the contract for machines, and its published schema."""

# pyright: strict

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from pydantic import ValidationError

from whynan.errors import UsageError
from whynan.records import Report

SCHEMA_FILE = "whynan.report-1.json"
_NUMBER: dict[str, Any] = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}


def to_json(report: Report) -> str:
    """The document of a report; every number is a number or one of "NaN", "Infinity", "-Infinity"."""
    return report.to_json()


def read(text: str | bytes) -> Report:
    """Read a report; raises ``UsageError`` on anything that is none."""
    try:
        return Report.from_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(p) for p in first["loc"]) or "the document"
        what = f"this is no whynan report: {where}: {first['msg']}"
        raise UsageError(what, "give a file that whynan wrote") from None


def schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12)."""
    return json.loads(resources.files("whynan.report").joinpath("schema", SCHEMA_FILE).read_text("utf-8"))


def make_schema() -> dict[str, Any]:
    """The schema as the record types imply it; pydantic calls every float a plain number, which is not all."""
    made = _numbers(Report.model_json_schema(by_alias=True, mode="serialization"))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "whynan.report/1", **made}


def _numbers(node: Any) -> Any:
    if isinstance(node, list):
        return [_numbers(v) for v in node]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return node
    plain: dict[str, Any] = {k: _numbers(v) for k, v in node.items()}  # pyright: ignore[reportUnknownVariableType]
    if plain.get("type") == "number":
        return {**{k: v for k, v in plain.items() if k != "type"}, **_NUMBER}
    return plain
