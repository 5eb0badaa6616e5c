"""What becomes of the standard streams; the first argument names it."""

import io
import os
import sys

if "torch" in sys.argv:
    import torch

    assert torch.ones(1).sum().item() == 1


class Loud(io.TextIOBase):
    def __init__(self, under):
        self.under = under

    def write(self, text):
        return self.under.write(text.upper())

    def flush(self):
        self.under.write("[flush]")
        self.under.flush()


def as_bytes():
    sys.stdout.buffer.write(bytes(range(256)))
    os.write(1, b"past the buffer\n")


def closed():
    print("before", flush=True)
    sys.stdout.close()


def wrapped():
    sys.stdout, sys.stderr = Loud(sys.stdout), Loud(sys.stderr)
    print("whispered")
    print("to stderr", file=sys.stderr)


def gone():
    sys.stdout = None
    print("nowhere")


def both_gone():
    sys.stderr = sys.stdout = None
    raise ValueError("unheard")


def descriptor_closed():
    print("lost in the buffer")
    os.close(1)


def to_stderr():
    sys.stdout.flush()
    os.dup2(2, 1)
    print("on stderr")


def detached():
    raw = sys.stdout.detach()
    raw.write(b"raw\n")
    raw.flush()


def surrogate():
    print("\ud800")


def reconfigured():
    sys.stdout.reconfigure(encoding="utf-16", line_buffering=True)
    print("é")


def full():
    sys.stdout.flush()
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    print("no room")


def unflushed():
    print("in the buffer", end="")
    sys.stderr.write("unfinished line")


WAYS = dict(globals())
WAYS[sys.argv[1]]()
