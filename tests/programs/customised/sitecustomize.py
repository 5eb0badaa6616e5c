"""What somebody has Python do before every program."""

import sys

print("customised", __name__, sorted(n for n in sys.modules if n == "torch"))
