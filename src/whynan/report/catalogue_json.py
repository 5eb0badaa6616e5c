"""The catalogue of rules as a document for machines, and its published schema."""

# pyright: strict

from __future__ import annotations

import json
from typing import Any, Final, get_args

from whynan.report.catalogue import summary
from whynan.report.json import schema as published
from whynan.rules.base import Mode, Reading, Rule
from whynan.rules.catalogue import distribution, parsed
from whynan.rules.families import families, title
from whynan.rules.page import SECTIONS

SCHEMA: Final = "whynan.rules/1"
SCHEMA_FILE: Final = "whynan.rules-1.json"
_TEXT: Final = {"type": "string", "minLength": 1}
_PERHAPS: Final = {"anyOf": [_TEXT, {"type": "null"}], "default": None}


def to_json(told: Rule | tuple[Rule, ...]) -> str:
    """What is known of a rule, or a list of that for several: code, name, families, versions, and the page."""
    document = _document(told) if isinstance(told, Rule) else [_document(rule) for rule in told]
    return json.dumps(document, indent=2)


def schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of the document."""
    return published(SCHEMA_FILE)


def make_schema() -> dict[str, Any]:
    """The schema of an object for a rule, or of a list of them."""
    family = _object({"code": _TEXT, "name": _TEXT})
    rule = _object(
        {
            "code": {"type": "string", "pattern": "^[A-Z]{2,8}[0-9X][0-9]{2}$"},
            "name": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
            "family": family,
            "also": {"type": "array", "items": family},
            "since": _TEXT,
            "torch": _PERHAPS,
            "reads": _some(Reading),
            "modes": _some(Mode),
            "distribution": _PERHAPS,
            "summary": _TEXT,
            "sections": _object(dict.fromkeys(SECTIONS, _TEXT)),
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA,
        "title": "Rules",
        "anyOf": [{"$ref": "#/$defs/Rule"}, {"type": "array", "items": {"$ref": "#/$defs/Rule"}}],
        "$defs": {"Rule": rule},
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _some(words: Any) -> dict[str, Any]:
    """A list of some of the words of a ``Literal``, each at most once."""
    return {"type": "array", "items": {"enum": list(get_args(words))}, "uniqueItems": True}


def _document(rule: Rule) -> dict[str, Any]:
    own, *also = ({"code": start, "name": title(start)} for start in families(rule))
    return {
        "code": rule.code,
        "name": rule.name,
        "family": own,
        "also": also,
        "since": rule.since,
        "torch": rule.torch,
        "reads": rule.reads,
        "modes": rule.modes,
        "distribution": distribution(rule.code),
        "summary": summary(rule),
        "sections": parsed(rule.code).sections,
    }
