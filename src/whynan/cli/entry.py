"""Where the command begins: from here on an interrupt ends it in one line, while it is still being loaded too."""

# pyright: strict

from __future__ import annotations

import sys


def main() -> int:
    """Run the command of the arguments; gives its exit status."""
    try:
        from whynan.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("whynan: interrupted", file=sys.stderr)
        return 130
