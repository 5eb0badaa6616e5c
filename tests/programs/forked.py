"""Forks that end in every way."""

import os
import sys

if "torch" in sys.argv:
    import torch

    torch.set_num_threads(1)
    weight = torch.ones(3, requires_grad=True)
    (weight * 2).sum().backward()


def in_child(body):
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        body()
        return True
    print("child ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return False


def leave():
    if "torch" in sys.argv:
        (weight * 3).sum().backward()
        print(weight.grad.tolist(), flush=True)
    os._exit(5)


in_child(leave)
in_child(lambda: os.kill(os.getpid(), 15))
in_child(lambda: os.execv(sys.executable, [sys.executable, "-c", "print('replaced')"]))
try:
    in_child(lambda: sys.exit(6))
except SystemExit:
    print("the child unwinds")
    raise
if in_child(lambda: print("the child goes to the end")):
    sys.exit(8)
print("the parent ends")
