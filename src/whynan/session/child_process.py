"""A child process that ends with its parent, is waited for a limited time, and ended where somebody is impatient."""

# pyright: strict

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

INTERRUPTED: Final = "it was interrupted"
_DEATH_SIGNAL: Final = 1
"""``PR_SET_PDEATHSIG`` of Linux's prctl."""
_ENDING: Final[tuple[Any, ...]] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
)


def run_child(command: Sequence[str], environment: Mapping[str, str], *, cwd: str, seconds: float) -> str | None:
    """Run a command out of sight, without anything that this process has open; gives why it was ended, if it was."""
    with _interruptible() as interrupts:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=binding(),
        )
        interrupts.process = process.pid
        try:
            process.wait(0 if interrupts.came else seconds)
        except subprocess.TimeoutExpired:
            return INTERRUPTED if interrupts.came else f"it took more than {seconds:,.0f} seconds"
        finally:
            interrupts.kill()
            process.wait()
    return INTERRUPTED if interrupts.came else None


class _Interrupts:
    """Whether somebody does not want to wait for a process and its workers any more."""

    def __init__(self) -> None:
        self.came = False
        self.process: int | None = None

    def kill(self) -> None:
        """End them."""
        if self.process is not None:
            with suppress(OSError):
                os.killpg(self.process, signal.SIGKILL)


@contextmanager
def _interruptible() -> Generator[_Interrupts]:
    """Have what would end this process end the one that it waits for, so that the report still comes."""
    interrupts = _Interrupts()

    def interrupted(*_: object) -> None:
        interrupts.came = True
        interrupts.kill()

    # what is ignored stays so; only the main thread handles signals
    handles = threading.current_thread() is threading.main_thread()
    before = {s: signal.getsignal(s) for s in _ENDING if handles and signal.getsignal(s) is not signal.SIG_IGN}
    for one in before:
        signal.signal(one, interrupted)
    try:
        yield interrupts
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def binding() -> Callable[[], object]:
    """What a process calls that has just begun, so that whoever kills its parent kills it too; nothing where not Linux.

    All that it needs is found here: nothing is loaded after a fork.
    """
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except Exception:
        return _nothing
    return lambda: prctl(_DEATH_SIGNAL, signal.SIGKILL)


def _nothing() -> None:
    return
