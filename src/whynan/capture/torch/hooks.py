"""The global hooks around every optimizer's step, and who listens to them.

Torch walks over its hooks while it calls them: one that puts another on or takes one off meanwhile ends the program's
step with an error. So they are put on once, and listen to whom they are told to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from whynan.capture.torch.doors import stands

if TYPE_CHECKING:
    from collections.abc import Callable

_left: list[Any] = []
"""Handles of hooks that were called when they were to be taken off; they listen to nobody."""


class StepHooks:
    """The hooks of one capture; `before` and `after` are called with the optimizer and its step's arguments.

    `fail`: what to do where that cannot be. While dynamo compiles a step nobody is called.
    """

    def __init__(self, fail: Callable[[], bool]) -> None:
        self._fail = fail
        self.before: Callable[[Any, Any, Any], Any] | None = None
        self.after: Callable[[Any, Any, Any], Any] | None = None
        self._handles: list[Any] = []
        self._walks = 0
        """How many steps, one inside the other or beside it, are in one of the hooks."""

    def install(self) -> None:
        """Put the hooks on."""
        while _left:
            _left.pop().remove()

        def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
            return self._call(self.before, optimizer, args, kwargs)

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            self._call(self.after, optimizer, args, kwargs)

        for register, hook in ((register_optimizer_step_pre_hook, before), (register_optimizer_step_post_hook, after)):
            stands(hook)
            self._handles.append(register(hook))

    def remove(self) -> None:
        """Listen no further, and take the hooks off where no step walks over them."""
        self.before = self.after = None
        if not self._walks:
            self._take_off()
        else:
            _left.extend(h for h in self._handles if h not in _left)

    def _take_off(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _call(self, listener: Callable[[Any, Any, Any], Any] | None, optimizer: Any, args: Any, kwargs: Any) -> None:
        try:
            if listener is None or torch.compiler.is_compiling():
                return None
        except Exception:
            if self._fail():
                raise
            return None
        self._walks += 1
        try:
            return listener(optimizer, args, kwargs)
        except BaseException:
            if self.before is None and self.after is None and self._walks == 1:
                # an error ends the walk
                self._take_off()
            raise
        finally:
            self._walks -= 1
