"""``python -m whynan``."""

import sys

from whynan.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
