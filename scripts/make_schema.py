"""Write the published JSON Schemas from the record types."""

from __future__ import annotations

import json
from pathlib import Path

from whynan.capsule.document import SCHEMA_FILE as CAPSULE_FILE
from whynan.capsule.document import make_capsule_schema
from whynan.report import catalogue
from whynan.report.fixes import trial
from whynan.report.json import SCHEMA_FILE, make_schema
from whynan.report.postmortem import text as postmortem

SCHEMAS = {
    trial.SCHEMA_FILE: trial.make_schema,
    SCHEMA_FILE: make_schema,
    postmortem.SCHEMA_FILE: postmortem.make_schema,
    catalogue.SCHEMA_FILE: catalogue.make_schema,
    CAPSULE_FILE: make_capsule_schema,
}


def main() -> None:
    """Write the schemas beside the renderers."""
    folder = Path(__file__).parents[1] / "src" / "whynan" / "report" / "schema"
    for file, make in SCHEMAS.items():
        (folder / file).write_text(json.dumps(make(), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
