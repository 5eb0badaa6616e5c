"""Step listeners: where a thread of a training stands, who is told, and the last steps as numbers."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from whynan.capture.torch.sinks.gradients import Losses, OptimizerGroup
from whynan.capture.torch.sinks.loss_scaling import ScaleFallCounter

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.interposition.data_loading import BatchOrigin
    from whynan.capture.torch.sinks.gradients import Probes, StepEvidence
    from whynan.training.step_checkpoint import StepCheckpoint


# -- Where a thread of a training stands, and who is told of it --------------------------------------------------------


class TakenByHand(BaseException):
    """A replay was about to take from an iterator of the program's, which would lack it afterwards."""


class InGraph(BaseException):
    """A replay was about to capture or to replay a CUDA graph, whose writes cannot be put back."""


class ThreadState(threading.local):
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
        self.arrive: Callable[[StepEvidence], None] | None = None
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
        self.is_left_out = False
        """Whether the step that is about to be made is bad here, and left out."""
        self.reached = False
        """Whether a scaler's step has come to the optimizer's."""
        self.falling = ScaleFallCounter()
        """What scalers have skipped."""
        self.probes: Probes | None = None
        self.together = OptimizerGroup()
        self.checkpoint: StepCheckpoint | None = None
        """Of the step that is made, or was made last, while it is traced."""

    def is_fresh(self, iterator: Any) -> bool:
        """Whether a replay has begun with an iterator of a loader; the program's own would lack what it takes."""
        if getattr(iterator, "_num_yielded", 0) == 0:
            self.fresh.append(iterator)
        return any(iterator is one for one in self.fresh)


class TrainingListener(Protocol):
    """Who is told where the program stands."""

    def record_optimizer(self) -> None:
        """An optimizer has been made: what follows leads to its first step."""

    def record_step(self, scaler: Any) -> None:
        """A step has been made, perhaps by a loss scaler."""

    def record_scaled_loss(self, scaler: Any) -> None:
        """A loss scaler has scaled a loss."""

    def record_module_call(self) -> None:
        """A module is about to be called: the first since a step or a backward."""

    def record_backward(self) -> None:
        """A backward is about to begin."""

    def record_batch(self, batch: Any, came: BatchOrigin) -> None:
        """A loader has given a batch, and where that came from."""


class StepListener(TrainingListener):
    """Keeps nothing of where the program stands; `stepped` is called after each step."""

    def __init__(self, stepped: Callable[[], None]) -> None:
        self._stepped = stepped

    def record_step(self, scaler: Any) -> None:
        """A step has been made."""
        del scaler
        self._stepped()


# -- The last steps of a training, as few numbers each: how a run came to its bad step ---------------------------------


KEPT: Final = 128


@dataclass(frozen=True)
class Entry:
    """One step attempt of an optimizer (its `id`): the last loss, the norm of the gradients, the scale of the loss."""

    optimizer: int
    step: int
    loss: float | None
    norm: float | None
    scale: float | None
    skipped: bool


class History:
    """The last steps, the latest last; `told` is given each of them by `tell`."""

    def __init__(self, told: Callable[[Entry], None] | None = None) -> None:
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._untold: deque[Entry] = deque()
        self._told = told

    def note(
        self,
        optimizer: Any,
        step: int,
        loss: float | None,
        norm: float | None,
        scale: float | None,
        *,
        skipped: bool = False,
    ) -> None:
        """A step is about to be made, or was skipped."""
        unscaled = None if loss is None else loss / (scale or 1.0)
        entry = Entry(id(optimizer), step, unscaled, norm, scale, skipped)
        self._entries.append(entry)
        if self._told is not None:
            self._untold.append(entry)

    def publish(self) -> None:
        """Tell of the steps that nobody was told of."""
        while self._told is not None and self._untold:
            self._told(self._untold.popleft())

    def steps_of(self, optimizer: Any) -> tuple[Entry, ...]:
        """The steps of one optimizer, and of none before it that was at the same address."""
        own = [e for e in self._entries if e.optimizer == id(optimizer)]
        began = max((n for n in range(1, len(own)) if own[n].step <= own[n - 1].step), default=0)
        return tuple(own[began:])
