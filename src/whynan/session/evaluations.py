"""What a watched program computes without gradients, between its steps and after them: looked at where it is new."""

# pyright: strict

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from whynan.records import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from whynan.records import Report
    from whynan.session.region import Region


class Look:
    """A look at one evaluation as it runs; `told` is given its report, and gives what to raise after it."""

    def __init__(self, region: Region, told: Callable[[Report], BaseException | None]) -> None:
        self._region = region
        self._told = told
        region.__enter__()

    def end(self) -> BaseException | None:
        """The evaluation is over, and what it gave is all that leaves it."""
        self._region.watching.tell(lambda capture: capture.nothing_follows())
        self._region.end(early=True)
        return self._told(self._region.report)


def again(region: Region, run: Callable[[Callable[[], AbstractContextManager[object]]], str | None]) -> Report | str:
    """The report of an evaluation that is run again, or why there is none."""

    @contextmanager
    def looked() -> Generator[None]:
        with region:
            try:
                yield
            finally:
                region.watching.tell(lambda capture: capture.nothing_follows())
                region.end(early=True)

    why = run(looked)
    if why is not None:
        return why
    report = region.report
    replay = Replay(kind="step", faithful=True, why="the same elements of the outputs are bad, by calling the module")
    return report.model_copy(update={"run": report.run.model_copy(update={"replay": replay})})
