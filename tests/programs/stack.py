"""The stack as the program sees it, down to its own first frame."""

import inspect
import sys
import threading
import traceback

if "torch" in sys.argv:
    import torch

    assert torch.ones(1).item() == 1


def inner():
    return [(f.function, f.lineno, f.code_context[0].strip()) for f in inspect.stack() if f.filename == __file__]


class Meta(type):
    def __new__(cls, name, bases, space):
        space["made_at"] = sys._getframe(1).f_lineno
        return super().__new__(cls, name, bases, space)


class Made(metaclass=Meta):
    pass


print(inner(), Made.made_at, sep="\n")
traceback.print_stack(limit=1)
depths = []
thread = threading.Thread(target=lambda: depths.append([f.function for f in inspect.stack()]))
thread.start()
thread.join()
print(depths)
print([f.name for f in traceback.extract_stack() if f.filename == __file__], inspect.getmodule(inner).__name__)
