"""``python -m whynan``."""

import sys

from whynan.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
