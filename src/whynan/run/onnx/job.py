"""The job of an engine's process: a folder, and the names of what is in it."""

from __future__ import annotations

from typing import Final

from whynan.records import Note

JOB: Final = "job.json"
OUTCOME: Final = "outcome.json"
FEEDS: Final = "feeds"
TRACE: Final = "trace"
KEPT: Final = "kept"
MEND: Final = "mend"
"""In a job: the findings that fixes are to be proved for."""


def failed_after(nodes: int) -> Note:
    """The note of a run that an engine has ended."""
    return Note.create("failed_after", nodes=nodes)
