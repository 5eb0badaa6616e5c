"""Imports torch late, oddly and again: blocked at first, in a thread, by name, with an import function of its own."""

import builtins
import importlib.util
import sys
import threading

sys.modules["torch"] = None
try:
    import torch
except ImportError as error:
    print(type(error).__name__, error)
del sys.modules["torch"]
names, original = [], builtins.__import__


def importing(name, *args, **kwargs):
    if name == "torch":
        names.append(name)
    return original(name, *args, **kwargs)


class Finder:
    def find_spec(self, name, path, target=None):
        if name == "torch":
            print("asked for torch")


builtins.__import__ = importing
sys.meta_path.insert(0, Finder())
print(importlib.util.find_spec("torch").name, "torch" in sys.modules)
thread = threading.Thread(target=lambda: importlib.import_module("torch").ones(2).sum())
thread.start()
thread.join()
import torch

builtins.__import__ = original
weight = torch.ones(2, requires_grad=True)
(weight * 4).sum().backward()
print(weight.grad.tolist(), names[-1:], torch.__spec__.loader.__class__.__name__, sorted(vars(torch.__spec__.loader)))
