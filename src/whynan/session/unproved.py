"""A report that is left for the process that waits: further runs of the program may prove its fixes."""

# pyright: strict

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Final

from whynan.capture.failure import report_internal_error
from whynan.capture.ranks import is_one_of_several
from whynan.session.leaving import FIRST, WANTED, with_note

if TYPE_CHECKING:
    from whynan.config import Options
    from whynan.records import Finding, Report, Site
    from whynan.traces.redaction import Pseudonyms

NAMES: Final = ("findings", "damaging")
SEVERAL: Final = "not run again for a proof: it is one of several processes"
_REGION: Final = "inductor.compiled_region"


class Unproved:
    """Knows how a program began, so that it can begin so again.

    `folder`: where the waiting process finds what is left. `began`: when the program did, by ``time.monotonic``.
    """

    def __init__(self, options: Options, folder: str, began: float) -> None:
        self._options = options
        self.folder = folder
        self._began = began
        self._random: dict[str, Any] = {}

    def begin(self) -> None:
        """Torch is loaded: remember where the random generators are."""
        from whynan.capture.torch.state import stored

        self._random = stored()

    def told(self, report: Report) -> Report:
        """A report that also says why nothing is proved, where the program is not run again for that."""
        return with_note(report, SEVERAL) if report.findings and is_one_of_several() else report

    def leave(self, report: Report, looked_at: Report, names: Pseudonyms | None = None) -> bool:
        """Leave a report, and what a further run has to come to; False where there is nothing that it would prove.

        `looked_at`: the report of what was looked at from the program's beginning on, a part of the other one.
        """
        try:
            return self._leave(report, looked_at, names)
        except Exception:
            report_internal_error()
            return False

    def _leave(self, report: Report, looked_at: Report, names: Pseudonyms | None) -> bool:
        from whynan.report.json import to_json
        from whynan.session.files import write_text

        known = [key_of(f) for name in NAMES for f in getattr(looked_at, name) if is_open(f)]
        wanted = [
            (name, i, f)
            for name in NAMES
            for i, f in enumerate(getattr(report, name))
            if is_open(f) and f.site is not None and key_of(f) in known
        ]
        if not wanted or is_one_of_several():
            return False
        sites: list[Site] = [f.site for _, _, f in wanted if f.site is not None]
        places: dict[str, list[int]] = {}
        for site in sites:
            places.setdefault(os.path.abspath(site.file), []).append(site.line)
        document = {
            "kind": "proof",
            "seconds": time.monotonic() - self._began,
            "findings": [[name, i, key_of(f), likeness_of(f)] for name, i, f in wanted],
            "places": places,
            "random": self._random,
            "eager": any(is_compiled(f) for _, _, f in wanted),
        }
        if self._options.redact:
            from whynan.report.redaction import redacted

            report = redacted(report, names)
        try:
            write_text(os.path.join(self.folder, FIRST), to_json(report))
            write_text(os.path.join(self.folder, WANTED), json.dumps(document))
        except OSError:
            # the program has cleared away the folder
            return False
        return True


def is_open(finding: Finding) -> bool:
    """Whether nothing has tried the fixes of a finding."""
    tried = (fix.verdict.status != "unverified" for fix in finding.fixes if fix.kind == "source")
    return finding.allowed is None and finding.fate != "absorbed" and not any(tried)


def key_of(finding: Finding) -> list[Any]:
    """What has to be the same for a finding to be the same, its numbers included; as a document gives it back."""
    site = None if finding.site is None else finding.site.model_dump(mode="json")
    return [finding.rule, *_birth(finding), site, finding.message]


def likeness_of(finding: Finding) -> list[Any]:
    """What is the same of a finding, one or the other, where a compiled program is run as it is written."""
    reaches = [[r.kind, r.name, r.bad, r.total] for r in finding.reaches]
    return [_birth(finding), [finding.phase, finding.birth, reaches]]


def _birth(finding: Finding) -> list[Any]:
    element = finding.element
    index = None if element.index is None else list(element.index)
    born = [finding.op, finding.phase, finding.birth, index, list(element.shape), element.count, str(element.value)]
    return [*born, element.total]


def is_compiled(finding: Finding) -> bool:
    """Whether a finding was born in what ``torch.compile`` has made, where no expression is known."""
    from whynan.capture.torch.replay import compiles

    return compiles() and (finding.op == _REGION or (finding.site is not None and finding.site.column is None))
