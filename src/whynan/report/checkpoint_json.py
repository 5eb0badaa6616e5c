"""The post-mortem of checkpoints as the document for machines, and its published schema."""

# pyright: strict

from __future__ import annotations

from typing import Any, Final

from whynan.records.checkpoint import Checkpoints
from whynan.report import json

SCHEMA: Final = "whynan.checkpoint/1"
SCHEMA_FILE: Final = "whynan.checkpoint-1.json"


def to_json(report: Checkpoints, *, indent: int | None = 2) -> str:
    """The document: strict JSON, in which NaN and the infinities are strings."""
    return json.to_json(report, indent=indent)


def read(text: str | bytes) -> Checkpoints:
    """The post-mortem of a document; raises ``UsageError`` that names the first thing that is wrong with any other."""
    return json.read_as(Checkpoints, SCHEMA, text)


def schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of the document."""
    return json.schema(SCHEMA_FILE)


def make_schema() -> dict[str, Any]:
    """The schema as the record types imply it."""
    return json.make_schema(Checkpoints, SCHEMA)
