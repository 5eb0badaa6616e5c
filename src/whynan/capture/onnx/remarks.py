"""What is to be said of how an engine ran a model."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whynan.capture.onnx.profile import Profile
    from whynan.capture.onnx.sessions import EngineSettings
    from whynan.capture.onnx.walk import Walk

_MOST: Final = 8


def remarks(settings: EngineSettings, providers: Sequence[str], profile: Profile, walk: Walk) -> Iterator[str]:
    """Providers that ran less than was asked of them, and float16 that is none."""
    asked = settings.provider_names
    for name in asked:
        if name not in providers:
            yield f"{name} was asked for and is not there: the model ran on {', '.join(providers)}"
    placement = profile.placement
    elsewhere = {name: count for name, count in placement.items() if asked and name != asked[0]}
    if asked and asked[0] in providers and elsewhere:
        total = sum(placement.values())
        there = ", ".join(f"{count:,} of {total:,} nodes on {name}" for name, count in elsewhere.items())
        yield f"{asked[0]} did not run all of it: {there}"
    if walk.emulated:
        yield (
            f"float16 is computed in float32 here: {walk.emulated:,} values are kept in float32 between nodes;"
            " --engine reference computes in float16"
        )
    for name, greatest in walk.overflows[:_MOST]:
        yield f"{name} would overflow in float16: its greatest magnitude is {greatest:.6g}, the limit 65504"
    if len(walk.overflows) > _MOST:
        yield f"{len(walk.overflows) - _MOST:,} more values would overflow in float16"
