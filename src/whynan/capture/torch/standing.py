"""Where a thread of a training stands, and who is told of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from whynan.capture.torch.judging import Losses

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.judging import Probes


class TakenByHand(BaseException):
    """A replay was about to take from an iterator of the program's, which would lack it afterwards."""


class Here(threading.local):
    """Where one thread is: two may train at once."""

    def __init__(self) -> None:
        self.losses = Losses()
        self.replaying = False
        self.fresh: list[Any] = []
        """The loaders' iterators that a replay has begun itself, and may take from."""
        self.depth = 0
        """How many backwards are under way, one inside the other."""
        self.stepped = False
        """Whether an optimizer has stepped in one of them."""
        self.model_wanted = True
        """No module has been called since the last step or backward."""
        self.scaler: Any = None
        self.reached = False
        """Whether a scaler's step has come to the optimizer's."""
        self.skips = 0
        """Steps that scalers have skipped on end."""
        self.probes: Probes | None = None


class Marking(Protocol):
    """Who is told where the program stands."""

    def step(self, scaler: Any) -> None:
        """A step has been made, perhaps by a loss scaler."""

    def model(self) -> None:
        """A module is about to be called: the first since a step or a backward."""

    def backward(self) -> None:
        """A backward is about to begin."""

    def batch(self, batch: Any) -> None:
        """A loader has given a batch."""


class Unmarked:
    """Keeps nothing of where the program stands; `stepped` is called after each step."""

    def __init__(self, stepped: Callable[[], None]) -> None:
        self._stepped = stepped

    def step(self, scaler: Any) -> None:
        """A step has been made."""
        del scaler
        self._stepped()

    def model(self) -> None:
        """Nothing is kept."""

    def backward(self) -> None:
        """Nothing is kept."""

    def batch(self, batch: Any) -> None:
        """Nothing is kept."""
