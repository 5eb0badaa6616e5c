"""What somebody has Python do before every program, whynan itself included."""

import sys

if sys.argv[1:2] != ["run"]:
    print("customised", __name__, sorted(n for n in sys.modules if n == "torch"), sys.argv)
