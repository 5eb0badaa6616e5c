"""A process that can make, change and remove no file but in one folder, whatever code runs in it: Linux's Landlock.

Python tells of what Python does. A library's own code, such as that of ``torch.save``, opens files without a word.
"""

# pyright: strict

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from typing import Final

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Linux's numbers of the system calls, the same on every machine."""
_ASK_FOR_VERSION: Final = 1
_BENEATH: Final = 1
_NO_NEW_PRIVILEGES: Final = 38

_WRITE: Final = 1 << 1
_REMOVE_FOLDER, _REMOVE, _MAKE_FILE, _TRUNCATE = 1 << 4, 1 << 5, 1 << 8, 1 << 14
_FILES: Final = ((1, _WRITE | sum(1 << n for n in range(4, 13))), (2, 1 << 13), (3, _TRUNCATE))
"""From which version on which changes of the file system can be refused: all but of modes, owners and times."""
_NET: Final = 0b11
"""Binding and connecting by TCP, from version 4 on."""
_SCOPES: Final = 0b11
"""Abstract sockets and signals to those that are not confined likewise, from version 6 on."""
_DEVICES: Final = "/dev"
_SHARED: Final = "/dev/shm"


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """How much the system can refuse; 0 where it can refuse nothing."""
    if sys.platform != "linux":
        return 0
    with suppress(Exception):
        return max(_call(_CREATE, None, ctypes.c_size_t(0), _ASK_FOR_VERSION), 0)
    return 0


def confine(folder: str) -> None:
    """Confine this thread, and all that it starts from here on, to a folder; devices and shared memory stay.

    Raises ``OSError`` where the system does not do so.
    """
    known = version()
    if not known:
        raise OSError("the system has no Landlock")
    files = sum(rights for since, rights in _FILES if known >= since)
    rules = _Rules(files, _NET if known >= 4 else 0, _SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    made = _checked(_call(_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), 0))
    try:
        _allow(made, folder, files)
        _allow(made, _DEVICES, files & (_WRITE | _TRUNCATE))
        # of workers
        _allow(made, _SHARED, files & (_WRITE | _TRUNCATE | _MAKE_FILE | _REMOVE))
        _checked(ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _checked(_call(_RESTRICT, made, 0))
    finally:
        os.close(made)


def _allow(rules: int, folder: str, rights: int) -> None:
    try:
        opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        beneath = _Beneath(rights, opened)
        _checked(_call(_ADD, rules, _BENEATH, ctypes.byref(beneath), 0))
    finally:
        os.close(opened)


def _call(number: int, *args: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *args))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
