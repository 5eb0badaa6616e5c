"""Where a thread of a training stands, and who is told of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from whynan.capture.torch.falling import Falling
from whynan.capture.torch.judging import Losses
from whynan.capture.torch.together import Together

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.judging import Judged, Probes
    from whynan.capture.torch.loaders import Came


class TakenByHand(BaseException):
    """A replay was about to take from an iterator of the program's, which would lack it afterwards."""


class InGraph(BaseException):
    """A replay was about to capture or to replay a CUDA graph, whose writes cannot be put back."""


class Here(threading.local):
    """Where one thread is: two may train at once."""

    def __init__(self) -> None:
        self.losses = Losses()
        self.replaying = False
        self.fresh: list[Any] = []
        """The loaders' iterators that a replay has begun itself, and may take from."""
        self.depth = 0
        """How many backwards are under way, one inside the other."""
        self.differentiates = True
        """Whether gradients were enabled where the outermost of them began: inside of it they are not."""
        self.inside = False
        """Whether a module is being called."""
        self.arrive: Callable[[Judged], None] | None = None
        """In the replay of what led to a number that was read: what is told of one."""
        self.deciding = False
        """Whether only a number counts there on which the program decides."""
        self.seen: Any = None
        """The tensor that it was read from."""
        self.raised: BaseException | None = None
        """What a replay has raised as the program had, for a number that is NaN or Inf."""
        self.stepped = False
        """Whether an optimizer has stepped in one of them."""
        self.model_wanted = True
        """No module has been called since the last step or backward."""
        self.scaler: Any = None
        self.reached = False
        """Whether a scaler's step has come to the optimizer's."""
        self.falling = Falling()
        """What scalers have skipped."""
        self.probes: Probes | None = None
        self.together = Together()

    def is_fresh(self, iterator: Any) -> bool:
        """Whether a replay has begun with an iterator of a loader; the program's own would lack what it takes."""
        if getattr(iterator, "_num_yielded", 0) == 0:
            self.fresh.append(iterator)
        return any(iterator is one for one in self.fresh)


class Marking(Protocol):
    """Who is told where the program stands."""

    def made(self) -> None:
        """An optimizer has been made: what follows leads to its first step."""

    def step(self, scaler: Any) -> None:
        """A step has been made, perhaps by a loss scaler."""

    def scales(self, scaler: Any) -> None:
        """A loss scaler has scaled a loss."""

    def model(self) -> None:
        """A module is about to be called: the first since a step or a backward."""

    def backward(self) -> None:
        """A backward is about to begin."""

    def batch(self, batch: Any, came: Came) -> None:
        """A loader has given a batch, and where that came from."""


class Unmarked:
    """Keeps nothing of where the program stands; `stepped` is called after each step."""

    def __init__(self, stepped: Callable[[], None]) -> None:
        self._stepped = stepped

    def made(self) -> None:
        """Nothing is kept."""

    def step(self, scaler: Any) -> None:
        """A step has been made."""
        del scaler
        self._stepped()

    def scales(self, scaler: Any) -> None:
        """Nothing is kept."""

    def model(self) -> None:
        """Nothing is kept."""

    def backward(self) -> None:
        """Nothing is kept."""

    def batch(self, batch: Any, came: Came) -> None:
        """Nothing is kept."""
