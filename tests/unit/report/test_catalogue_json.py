"""The catalogue for machines is as its published schema says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from whynan.report.catalogue import SCHEMA_FILE, make_schema, schema, to_json
from whynan.rules.catalogue import rules

ROOT = Path(__file__).parents[3]
VALIDATOR = Draft202012Validator(schema())


def test_all_rules_and_each_alone_are_as_the_schema_says() -> None:
    VALIDATOR.validate(json.loads(to_json(rules())))
    for rule in rules():
        VALIDATOR.validate(json.loads(to_json(rule)))


def test_the_published_schema_is_the_one_that_is_made() -> None:
    assert schema() == make_schema()
    Draft202012Validator.check_schema(schema())
    published = ROOT / "src" / "whynan" / "report" / "schema" / SCHEMA_FILE
    assert published.read_text("utf-8") == json.dumps(make_schema(), indent=2) + "\n"


@pytest.mark.parametrize(
    ("field", "value"),
    [("code", "wn201"), ("name", "Log of zero"), ("family", None), ("sections", {}), ("torch", ""), ("surplus", 1)],
)
def test_the_schema_refuses_what_is_none(field: str, value: Any) -> None:
    document = json.loads(to_json(rules()[0]))
    with pytest.raises(ValidationError):
        VALIDATOR.validate(document | {field: value})
    with pytest.raises(ValidationError):
        VALIDATOR.validate([document | {field: value}])
