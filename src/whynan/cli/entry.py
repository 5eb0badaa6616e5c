"""Where the command begins: from here on an interrupt ends it in one line, while it is still being loaded too."""

from __future__ import annotations

import sys

AT_START = frozenset(sys.modules)
"""What Python has loaded by itself."""


def main() -> int:
    """Run the command of the arguments; gives its exit status."""
    try:
        from whynan.cli.main import command

        made = command()
    except KeyboardInterrupt:
        print("whynan: interrupted", file=sys.stderr)
        return 130
    # a program, whose interrupts are its own
    return made if isinstance(made, int) else made()
