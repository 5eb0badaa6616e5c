"""What a program knows of itself."""

import os
import sys

if "torch" in sys.argv:
    import torch

    assert torch.ones(2).sum() == 2

answer: int = 42

print(__file__, __name__, __package__, __spec__ and __spec__.name, __doc__, __annotations__, __builtins__, sep="\n")
print(type(__loader__).__name__, [name for name in globals() if name != "torch"])
print(sys.executable, sys.argv, sys.orig_argv, sys.path, sep="\n")
print(sys.flags, sys.warnoptions, sys._xoptions, sys.pycache_prefix, sep="\n")
print(os.getcwd(), dict(sorted(os.environ.items())), sep="\n")
print([name for name in ("sitecustomize", "usercustomize", "__main__") if name in sys.modules])
print(sys.modules["__main__"].__dict__ is globals())
