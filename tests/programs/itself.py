"""Starts itself again: as a child, and in its own place."""

import os
import subprocess
import sys

if "torch" in sys.argv:
    import torch

    print(torch.arange(4.0).sum().item())

stage = sys.argv[1]
print(stage, sys.argv, sorted(n for n in os.environ if "WHYNAN" in n or n == "PYTHONPATH"), flush=True)
if stage == "first":
    subprocess.run([sys.executable, *sys.argv[:1], "child"], check=True)
    command = [argument.replace("first", "second") for argument in sys.orig_argv]
    os.execv(sys.executable, command)
sys.exit(11 if stage == "second" else 0)
