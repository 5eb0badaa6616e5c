"""What is to be said of how an engine ran a model."""

# pyright: strict

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whynan.records import Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whynan.capture.onnx.profile import Profile
    from whynan.capture.onnx.sessions import EngineSettings
    from whynan.capture.onnx.walk import Walk

_MOST: Final = 8


def remarks(settings: EngineSettings, providers: Sequence[str], profile: Profile, walk: Walk) -> Iterator[Note]:
    """Providers that ran less than was asked of them, and float16 that is none."""
    asked = settings.provider_names
    for name in asked:
        if name not in providers:
            yield Note.of("provider_missing", provider=name, others=tuple(providers))
    placement = profile.placement
    elsewhere = {name: count for name, count in placement.items() if asked and name != asked[0]}
    if asked and asked[0] in providers and elsewhere:
        others, counts = tuple(elsewhere), tuple(elsewhere.values())
        yield Note.of(
            "provider_partial", provider=asked[0], others=others, counts=counts, nodes=sum(placement.values())
        )
    if walk.emulated:
        yield Note.of("float16_emulated", values=walk.emulated)
    for name, greatest in walk.overflows[:_MOST]:
        yield Note.of("float16_overflow", value_name=name, greatest=float(greatest))
    if len(walk.overflows) > _MOST:
        yield Note.of("float16_overflows", count=len(walk.overflows) - _MOST)
