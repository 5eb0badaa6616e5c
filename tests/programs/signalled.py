"""Signals that a program sends to itself, to its group and has sent by a child."""

import os
import signal
import subprocess
import sys
import threading

if "torch" in sys.argv:
    import torch

    assert torch.ones(3).sum() == 3

seen = []


def heard(number, frame):
    seen.append((signal.Signals(number).name, frame is not None and frame.f_code.co_filename == __file__))


for name in ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGHUP", "SIGALRM", "SIGCHLD", "SIGWINCH"):
    signal.signal(getattr(signal, name), heard)

os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR2)
os.killpg(os.getpgrp(), signal.SIGTERM)
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
signal.pthread_kill(threading.main_thread().ident, signal.SIGWINCH)
subprocess.run([sys.executable, "-c", "import os, signal; os.kill(os.getppid(), signal.SIGHUP)"], check=True)
print(seen)

try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt as error:
    print("interrupted", repr(error), len(seen))

signal.signal(signal.SIGINT, signal.SIG_IGN)
subprocess.run(["kill", "-INT", "0"], check=True)
print("not interrupted")
