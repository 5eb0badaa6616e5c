"""A program with a trace and a profile function of its own."""

import cProfile
import pstats
import sys
import threading

if "torch" in sys.argv:
    import torch

lines, calls = [], []


def work(n):
    total = 0
    for i in range(n):
        total += i
    if "torch" in sys.argv:
        total += int(torch.full((n,), 2.0).sum())
    return total


def traced(frame, event, arg):
    if frame.f_code.co_filename != __file__:
        return None
    lines.append((frame.f_code.co_name, event, frame.f_lineno))
    return traced


def profiled(frame, event, arg):
    if frame.f_code.co_filename == __file__:
        calls.append((frame.f_code.co_name, event, getattr(arg, "__name__", None) if event.startswith("c_") else None))


sys.settrace(traced)
work(3)
print(sys.gettrace() is traced)
sys.settrace(None)
sys.setprofile(profiled)
work(2)
print(sys.getprofile() is profiled)
sys.setprofile(None)
threading.settrace(traced)
thread = threading.Thread(target=work, args=(1,))
thread.start()
thread.join()
threading.settrace(None)
with cProfile.Profile() as profile:
    work(4)
counted = pstats.Stats(profile).stats
print([key[2] for key in counted if key[0] == __file__], *lines, *calls, sep="\n")
