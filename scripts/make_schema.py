"""Write the published JSON Schema from the record types."""

from __future__ import annotations

import json
from pathlib import Path

from whynan.report.json import SCHEMA_FILE, make_schema


def main() -> None:
    """Write the schema beside the renderer."""
    target = Path(__file__).parents[1] / "src" / "whynan" / "report" / "schema" / SCHEMA_FILE
    target.write_text(json.dumps(make_schema(), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
