"""An earlier report whose findings are known: born at the same expression, of the same rule."""

# pyright: strict

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from whynan.errors import UsageError
from whynan.report.json import read

if TYPE_CHECKING:
    from whynan.records import Finding

Key = tuple[str, str, str | None, tuple[str, str | None, str | None] | None]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What an earlier report found, in words that outlive a change elsewhere in the file: no line numbers."""

    path: str
    known: frozenset[Key]

    @classmethod
    def read(cls, path: str) -> Self:
        """The findings of a saved report; raises ``UsageError`` where there is none."""
        if os.path.exists(path) and not os.path.isfile(path):
            # it is read twice: before the program starts, and in its process
            raise UsageError(f"--baseline {path} is no file", "give a report that --json wrote")
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(
                f"--baseline {path} cannot be read ({error.strerror})", "give a report that --json wrote"
            ) from None
        try:
            report = read(data)
        except UsageError as error:
            raise UsageError(f"--baseline {path}: {error.what}", error.hint) from None
        return cls(path, frozenset(_key(f) for f in (*report.findings, *report.damaging)))

    def knows(self, finding: Finding) -> bool:
        """Whether the earlier run had this finding too."""
        return _key(finding) in self.known


def _key(finding: Finding) -> Key:
    site = finding.site
    place = None if site is None else (site.file, site.function, site.code)
    return finding.rule, finding.phase, finding.op, place
