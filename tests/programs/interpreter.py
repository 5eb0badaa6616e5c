"""The state of the interpreter and its process, as a program finds it."""

import gc
import locale
import logging
import multiprocessing
import os
import resource
import signal
import sys
import threading
import warnings

if "torch" in sys.argv:
    import torch

    print(torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads())
    print(torch.is_inference_mode_enabled(), torch.is_anomaly_enabled(), torch.is_autocast_enabled("cpu"))
    print(torch._C._len_torch_function_stack(), torch.is_deterministic_algorithms_warn_only_enabled())

print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__)
print(sys.unraisablehook is sys.__unraisablehook__, threading.excepthook is threading.__excepthook__)
print(sys.breakpointhook is sys.__breakpointhook__, sys.gettrace(), sys.getprofile(), threading.gettrace())
print(sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), gc.get_threshold(), gc.callbacks)
print([thread.name for thread in threading.enumerate()], multiprocessing.active_children())
print(multiprocessing.current_process().name, multiprocessing.get_start_method(allow_none=True))
print(
    {
        s.name: repr(signal.getsignal(s)).partition(" at ")[0]
        for s in sorted(signal.valid_signals() - {32, 33})
        if s < 32
    }
)
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.set_wakeup_fd(-1))
print(sorted(os.listdir("/proc/self/fd"), key=int), [os.get_inheritable(n) for n in (0, 1, 2)])
print(
    [(s.encoding, s.errors, s.line_buffering, s.name, s.mode, s.isatty()) for s in (sys.stdin, sys.stdout, sys.stderr)]
)
print([getattr(sys, n) is getattr(sys, f"__{n}__") for n in ("stdin", "stdout", "stderr")])
print(locale.getlocale(), sys.getfilesystemencoding(), os.umask(0o22), os.nice(0), sys.getdlopenflags())
print([resource.getrlimit(n) for n in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_STACK)])
print(warnings.filters[:4] if "torch" in sys.argv else warnings.filters, logging.root.handlers, logging.root.level)
print(sys.getrefcount(threading.main_thread()) > 0, sys.stdout.write_through, sys.flags.dev_mode)
