"""Files of safetensors: a header that its library checks, and tensors mapped from the disk one by one."""

# pyright: strict

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import safetensors

from whynan.models.contents import Unread
from whynan.models.files import damaged, unreadable
from whynan.models.order import steps_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from torch import Tensor

    from whynan.records.base import Number


class SafeFile:
    """An open file of safetensors."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def steps(self) -> dict[str, Number]:
        """What its metadata says of how far the training had come."""
        return steps_of(self._handle.metadata())

    def contents(self) -> Iterator[tuple[str, Tensor | Unread]]:
        """Each tensor, in the order in which they lie in the file."""
        # safetensors before 0.5 gives names in the order of the header only
        names = getattr(self._handle, "offset_keys", self._handle.keys)()
        for name in names:
            yield name, self._tensor(name)

    def _tensor(self, name: str) -> Tensor | Unread:
        try:
            return self._handle.get_tensor(name)
        except safetensors.SafetensorError as error:
            held = self._handle.get_slice(name)
            return Unread(held.get_dtype(), tuple(held.get_shape()), str(error))


@contextmanager
def opened(path: Path) -> Generator[SafeFile]:
    """A file, open for as long as it is looked at; raises ``UsageError`` where it is not what it says it is."""
    try:
        with cast("Any", safetensors).safe_open(str(path), framework="pt", device="cpu") as handle:
            yield SafeFile(handle)
    except OSError as error:
        raise unreadable(path, error) from error
    except safetensors.SafetensorError as error:
        raise damaged(path, str(error).removeprefix("Error while deserializing header: ")) from error
