"""Ranks that a program starts itself, by ``torch.multiprocessing.spawn``: each is watched, and the program reports.

The program's process serves the store that they need, to this machine alone; each start has one of its own.
"""

from __future__ import annotations

import functools
import socket
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from whynan.faults import report_internal_error
from whynan.records import Report
from whynan.run.ranks.channel import MERGED

if TYPE_CHECKING:
    from collections.abc import Callable

    Watched = Callable[[Any, int, tuple[str, int]], Any]

_HOST: Final = "127.0.0.1"
_PATIENCE: Final = timedelta(seconds=5)


class Spawning:
    """Stands at the function that starts processes.

    `watched`: gives what is run in one of so many processes in the place of the program's function, which finds a store
    at an address.
    """

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._stores: list[Any] = []
        self._undo: list[Callable[[], object]] = []

    def install(self) -> None:
        """Stand there, under both of its names."""
        from whynan.capture.torch.interposition.wrappers import install_door, register_door

        owners = [sys.modules["torch.multiprocessing.spawn"], sys.modules["torch.multiprocessing"]]
        door = functools.wraps(start := vars(owners[0])["start_processes"])(functools.partial(self._start, start))
        for owner in owners:
            self._undo.append(install_door(owner, "start_processes", lambda _: door))
        register_door(door)

    def remove(self) -> None:
        """Leave."""
        while self._undo:
            self._undo.pop()()

    def reports(self) -> list[Report]:
        """What the ranks of each start have handed over, if they have."""
        stores = [store for store in self._stores if store.check([MERGED])]
        return [Report.from_json(store.get(MERGED)) for store in stores]

    def _start(self, original: Any, fn: Any, args: Any = (), nprocs: int = 1, *others: Any, **named: Any) -> Any:
        """As the function that it stands for; what torch itself starts has a launcher of torch's."""
        way = others[2] if len(others) > 2 else named.get("start_method", "spawn")
        if nprocs > 1 and way == "spawn" and not str(getattr(fn, "__module__", "")).startswith("torch."):
            try:
                fn = self._watched(fn, nprocs, self._serve())
            except Exception:
                report_internal_error()
        return original(fn, args, nprocs, *others, **named)

    def _serve(self) -> tuple[str, int]:
        import torch.distributed

        distributed: Any = torch.distributed
        listening = socket.create_server((_HOST, 0))
        port = listening.getsockname()[1]
        served = distributed.TCPStore(
            _HOST,
            port,
            is_master=True,
            timeout=_PATIENCE,
            wait_for_workers=False,
            master_listen_fd=listening.detach(),
        )
        self._stores.append(served)
        return _HOST, port
