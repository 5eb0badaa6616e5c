"""The graph of a session whose providers compile parts of it: ONNX Runtime cannot write that one.

What can be written is the graph before it is handed out to the providers. It is handed out once more as it is then, and
what they compile in it is put together into one node each.
"""

# pyright: strict

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import onnx
from onnx.shape_inference import infer_shapes

from whynan.capture.onnx.executable import without_weights
from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.partitions import Partition, alike, folded, named, partitions_of
from whynan.capture.onnx.remainder import remainder_optimised
from whynan.capture.onnx.sessions import CPU, EngineSettings, as_executed, as_user

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_TELLS: Final = {"session.record_ep_graph_assignment_info": "1"}
_FILES: Final[Any] = onnx
"""What reads and writes models, which says little of its types."""
_UNWRITABLE: Final = "compiled nodes"
"""What ONNX Runtime says where a graph with such nodes is to be written."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A session as production makes it, the graph that stands for what it runs, and what is to be said of that."""

    session: Any
    model: onnx.ModelProto
    notes: tuple[str, ...]


def is_unwritable(error: RunError) -> bool:
    """Whether a session could not be made because its graph, in parts compiled, was to be written."""
    return _UNWRITABLE in error.what


def compiled(settings: EngineSettings, written: Path, profile: Path) -> Compiled:
    """Open a model of which providers compile parts; raises ``RunError``, also where they do not tell which parts."""
    asking = replace(settings, session_config={**settings.session_config, **_TELLS})
    session = as_user(asking, None, profile)
    theirs = partitions_of(session)
    if theirs is None:
        what = "a provider has compiled parts of it, and this ONNX Runtime does not tell which; 1.24 and later do"
        raise RunError(what, 0)
    first: tuple[onnx.ModelProto, Sequence[Partition]] | None = None
    for model in _before(settings, written):
        made = named(model)
        _FILES.save(model, written)
        ours = partitions_of(as_executed(asking, str(written))) or ()
        found = folded(model, ours, made)
        if alike(ours, theirs):
            return Compiled(session, remainder_optimised(settings, found, written.parent), tuple(_told(ours)))
        first = first or (found, ours)
    assert first is not None
    model, ours = first
    other = "the partitions may be others than those of production: the graph that they were made of could not be had"
    return Compiled(session, model, (*_told(ours), other))


def _before(settings: EngineSettings, written: Path) -> Iterator[onnx.ModelProto]:
    """The graph before providers take parts of it, with the types of its values.

    It is the one that the first optimisations give, or else, where that is another, as it is in the file.
    """
    level = "basic" if settings.level != "disabled" else settings.level
    as_user(replace(settings, providers=(CPU,), level=level), written, None)
    yield infer_shapes(without_weights(written))
    from onnx.inliner import inline_local_functions

    whole = inline_local_functions(_FILES.load(settings.path))
    beside = f"{written.stem}-written.bin"
    _FILES.save(whole, written, save_as_external_data=True, location=beside, size_threshold=1024)
    yield infer_shapes(without_weights(written))


def _told(partitions: Sequence[Partition]) -> Iterator[str]:
    for provider in dict.fromkeys(part.provider for part in partitions):
        own = [part for part in partitions if part.provider == provider]
        nodes = sum(len(part.names) for part in own)
        parts = "one partition" if len(own) == 1 else f"{len(own):,} partitions"
        yield (
            f"{provider} compiled {nodes:,} nodes into {parts}: only what enters and leaves a partition is looked at,"
            " and of what is born inside it is not known in which node"
        )
