"""The ways in which a program ends; the first argument names one."""

import _thread
import atexit
import os
import signal
import sys
import threading

if "torch" in sys.argv:
    import torch

    layer = torch.nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()


class Strange(Exception):
    def __str__(self):
        raise ValueError("no text")


def deep(n):
    return deep(n + 1)


def too_deep():
    try:
        deep(0)
    except RecursionError as error:
        # how deep it was depends on what stands below
        raise error.with_traceback(None) from None


def failing():
    try:
        {}["missing"]
    except KeyError as error:
        raise RuntimeError("while looking") from error


def noted():
    error = ValueError("with a note")
    error.add_note("first note")
    raise error


def several():
    raise ExceptionGroup("several", [ValueError(1), TypeError("two")])


def in_a_thread():
    thread = threading.Thread(target=failing, name="worker")
    thread.start()
    thread.join()


class Handler:
    def __repr__(self):
        return "<handler>"

    def __call__(self):
        raise OSError("at exit")


def leaving_late():
    atexit.register(lambda: print("last"))
    atexit.register(Handler())
    atexit.register(lambda: print("first"))


def in_finally():
    try:
        raise RuntimeError("lost")
    finally:
        sys.exit(4)


def thread_outlives():
    gate = threading.Event()
    threading.Thread(target=lambda: (gate.wait(), print("the thread ends"))).start()
    atexit.register(print, "atexit")
    threading.Thread(target=lambda: (threading.main_thread().join(), print("main is over"), gate.set())).start()


def unraisable():
    class Doomed:
        __del__ = Handler()

    Doomed()


WAYS = {
    "end": lambda: None,
    "three": lambda: sys.exit(3),
    "message": lambda: sys.exit("a message"),
    "nothing": lambda: sys.exit(),
    "minus": lambda: sys.exit(-1),
    "tuple": lambda: sys.exit((1, "two")),
    "quit": lambda: quit(6),
    "exception": failing,
    "strange": lambda: (_ for _ in ()).throw(Strange()),
    "recursion": too_deep,
    "notes": noted,
    "group": several,
    "keyboard": lambda: signal.raise_signal(signal.SIGINT),
    "interrupted": lambda: (_thread.interrupt_main(), deep(0)),
    "os_exit": lambda: (sys.stdout.flush(), os._exit(5)),
    "terminated": lambda: (sys.stdout.flush(), os.kill(os.getpid(), signal.SIGTERM)),
    "killed": lambda: (sys.stdout.flush(), os.kill(os.getpid(), signal.SIGKILL)),
    "aborted": lambda: (sys.stdout.flush(), os.abort()),
    "thread": in_a_thread,
    "atexit": leaving_late,
    "finally": in_finally,
    "outlived": thread_outlives,
    "unraisable": unraisable,
}

print("before", sys.argv[1])
WAYS[sys.argv[1]]()
print("after", sys.argv[1])
