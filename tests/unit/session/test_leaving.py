"""What a process holds open that Python was not told of, and a second run would open as well."""

from __future__ import annotations

import socket

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
