"""What becomes of an error inside whynan: one warning, the traceback in a file, the user's run unharmed."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
import warnings


def report_internal_error() -> None:
    """Called while an exception is being handled; raises it again where our own tests ask for that."""
    if os.environ.get("WHYNAN_RAISE_INTERNAL") == "1":
        raise  # noqa: PLE0704  (re-raises the exception being handled)
    text = traceback.format_exc()
    try:
        descriptor, path = tempfile.mkstemp(prefix="whynan-", suffix=".traceback")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        path = "(the traceback could not be written)"
    kind = sys.exc_info()[0]
    warnings.warn(
        f"whynan met an error of its own ({kind.__name__ if kind else 'unknown'}) and is off for the rest of this "
        f"trace; your run goes on unharmed. Traceback: {path}",
        RuntimeWarning,
        stacklevel=4,
    )
