"""What the commands print themselves: single lines, harmless, in what the stream can write."""

# pyright: strict

from __future__ import annotations

import sys
from typing import TextIO

from whynan.report.escape import encodable, plain, shortened


def one_line(text: str) -> str:
    """Text on one line, in which whatever cannot be seen is spelled out."""
    return shortened(plain(" ".join(text.split("\n"))))


def for_stream(text: str, stream: TextIO) -> str:
    """Text as a stream's encoding can write it."""
    return encodable(text, stream.encoding or "utf-8")


def beside(*documents: str | None) -> TextIO | None:
    """Where a report is printed: the error stream where a document goes to the output; else None, the output itself."""
    from whynan.session.files import stream

    return sys.stderr if any(path is not None and stream(path) == 1 for path in documents) else None
