"""The one call of ``explain``'s target, and a second one from the same state, which may fail without harming it."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whynan.errors import WhynanError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from whynan.capture.torch.targets import Target
    from whynan.session.watching import Watching


class Call:
    """A target with its arguments; what fails around its call is reported, and the call is made all the same."""

    def __init__(self, target: Callable[..., Any], inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._target = target
        self._inputs = inputs
        self._kwargs = kwargs
        self._known: Target | None = None

    def prepare(self, watching: Watching, *, twice: bool) -> None:
        """Name the arguments, and keep the state for a second call; raises ``MetaTensorError`` at the door."""
        from whynan.capture.torch.targets import Target

        try:
            known = Target(self._target, self._inputs, self._kwargs)
            if twice:
                known.remember()
            self._known = known
        except WhynanError:
            raise
        except Exception:
            watching.fail()

    def run(self, watching: Watching) -> None:
        """Call the target; `watching` sees its arguments, and its value as a sink."""
        known = self._known
        if known is not None:
            watching.tell(known.introduce)
        result = self._target(*self._inputs, **self._kwargs)
        watching.tell(lambda capture: capture.target_returned(result))
        if known is not None:
            watching.tell(lambda _: known.keep(result))

    def again(self, watching: Watching) -> None:
        """Call the target for a fix, as it is written: nothing of it compiled, and its value is not kept."""
        known = self._known
        if known is not None:
            watching.tell(known.introduce)
        with _uncompiled():
            result = self._target(*self._inputs, **self._kwargs)
        watching.tell(lambda capture: capture.target_returned(result))

    def rewind(self, watching: Watching) -> bool:
        """Put the state of the first call back; False, and the state as it is, where that cannot be done."""
        if self._known is None:
            return False
        try:
            self._known.rewind()
        except Exception:
            self.restore(watching)
            watching.fail()
            return False
        return True

    def advanced(self, watching: Watching) -> str | None:
        """An iterator that the call has taken from, where it cannot be put back; in words."""
        try:
            return None if self._known is None else self._known.advanced
        except Exception:
            watching.fail()
            return None

    def restore(self, watching: Watching) -> None:
        """Put the state after the first call back."""
        assert self._known is not None
        try:
            self._known.restore()
        except Exception:
            watching.fail()
            # once more: the state is the user's
            self._known.restore()

    def identical(self, watching: Watching) -> bool:
        """Whether both calls returned the same bits."""
        try:
            return self._known is not None and self._known.identical
        except Exception:
            watching.fail()
            return False


def _uncompiled() -> AbstractContextManager[Any]:
    import torch

    return torch.compiler.set_stance("force_eager")
