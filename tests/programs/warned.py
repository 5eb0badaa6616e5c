"""Warnings at a module's level, a stack level up, and as errors."""

import sys
import warnings

if "torch" in sys.argv:
    import torch

    assert torch.zeros(2).sum() == 0


def old():
    warnings.warn("old() is deprecated", DeprecationWarning, stacklevel=2)


warnings.warn("here", stacklevel=1)
old()
for _ in range(3):
    warnings.warn("once only", UserWarning)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    old()
print([(w.category.__name__, str(w.message), w.lineno, w.filename == __file__) for w in caught])
warnings.simplefilter("error")
warnings.warn("now an error")
