"""Hooks of the program's own for what nobody catches."""

import sys
import threading

if "torch" in sys.argv:
    import torch

    assert torch.eye(2).trace() == 2


def uncaught(kind, error, traceback):
    depth = 0
    while traceback is not None:
        depth, traceback = depth + 1, traceback.tb_next
    print("uncaught", kind.__name__, error, depth)


sys.excepthook = uncaught
threading.excepthook = lambda args: print("in", args.thread.name, args.exc_type.__name__, args.exc_value)
sys.unraisablehook = lambda args: print("unraisable", args.exc_value, args.err_msg)
sys.displayhook = lambda value: print("shown", value)


class Doomed:
    def __del__(self):
        raise RuntimeError("in __del__")


def fail():
    raise ValueError("a thread's")


thread = threading.Thread(target=fail, name="one")
thread.start()
thread.join()
Doomed()
exec(compile("1 + 1", "<shown>", "single"))
raise LookupError("the last")
