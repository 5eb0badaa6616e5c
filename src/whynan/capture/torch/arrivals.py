"""The other ways by which values come in: files that are read, arrays that become tensors."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import torch

from whynan.capture.torch.doors import noting
from whynan.capture.torch.loaders import watch_loaders
from whynan.capture.torch.origins import Source
from whynan.records import Data

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.capture.torch.origins import Origins
    from whynan.capture.torch.tracer import Tracer

MOST_IN_FILE: Final = 1 << 16
"""So many tensors of a file have their names."""


def watch_origins(tracer: Tracer, replace: Callable[[Any, str, Callable[[Any], Any]], None]) -> None:
    """Note what loaders give, what files hold, and which tensors are arrays."""
    watch_loaders(tracer, replace)
    load = noting(tracer.context, _reading(tracer.origins, "f"))(torch.load)
    for home in (torch, torch.serialization):
        # one function in both places: pickle looks for it in its own module
        replace(home, "load", lambda _: load)

    def made(args: Any, _kwargs: Any, out: Any) -> None:
        if args and hasattr(args[0], "__array_interface__"):
            tracer.origins.note_array(out, tracer.context.sites.here())

    # not `as_tensor`: dynamo knows that one by what it is
    replace(torch, "from_numpy", noting(tracer.context, made, name="from_numpy"))
    safetensors = _safetensors()
    if safetensors is not None:
        replace(safetensors, "load_file", noting(tracer.context, _reading(tracer.origins, "filename")))
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        replace(numpy, "load", noting(tracer.context, _reading(tracer.origins, "file")))


def _safetensors() -> Any:
    """The module that reads safetensors into torch, before the program takes its functions out of it."""
    try:
        import safetensors.torch
    except Exception:
        # whatever another one of this name does
        return None
    return safetensors.torch if hasattr(safetensors.torch, "load_file") else None


def _reading(origins: Origins, argument: str) -> Callable[[Any, Any, Any], None]:
    """A note of what a file held that was given as the first argument, or by this name."""

    def read(args: Any, kwargs: Any, out: Any) -> None:
        name = _file_name(args[0] if args else kwargs.get(argument))
        if name is not None:
            origins.note(out, Source(Data(kind="file", file=name)), most=MOST_IN_FILE)

    return read


def _file_name(source: Any) -> str | None:
    """The name of a file by its path, or of one that is open."""
    if not isinstance(source, (str, bytes, os.PathLike)):
        source = getattr(source, "name", None)
    return os.fsdecode(source) if isinstance(source, (str, bytes, os.PathLike)) else None
