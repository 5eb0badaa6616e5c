"""What a process holds open that Python was not told of, and a second run would open as well."""

from __future__ import annotations

import errno
import os
import socket
from typing import NoReturn

import pytest

from whynan.session.leaving import has_connections


def test_a_socket_of_a_network_is_a_connection() -> None:
    assert not has_connections()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM):
        assert has_connections()
    assert not has_connections()


def test_local_sockets_and_files_are_none() -> None:
    one, other = socket.socketpair()
    with one, other, open(__file__, "rb"):
        assert not has_connections()


def test_a_socket_that_cannot_be_looked_at_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_number: int) -> NoReturn:
        raise OSError(errno.EMFILE, "too many open files")

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM):
        monkeypatch.setattr(os, "dup", full)
        with pytest.raises(OSError, match="too many"):
            has_connections()
