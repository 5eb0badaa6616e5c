"""A comparison of two programs, from what the user names to the report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from whynan.compare.alignment import Aligner, Alignment, unaligned
from whynan.compare.attribution import Setting
from whynan.compare.bodies import Inner, inner_culprit
from whynan.compare.effects import apart, bad_places, matters
from whynan.compare.introduced import Search
from whynan.compare.localisation import shared_weights
from whynan.compare.sides.double import is_floating
from whynan.compare.sides.operations import UnavailableError
from whynan.compare.sides.values import ValueStore
from whynan.compare.stretches import SideRun
from whynan.compare.unfolding import unfolded
from whynan.errors import UsageError
from whynan.run.comparison.feeds import as_arrays, feeds_of, read_arrays
from whynan.run.comparison.pairing import output_errors, pair_outputs
from whynan.run.comparison.settings import Settings
from whynan.run.comparison.sources import OnnxSource, open_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whynan.compare.sides.operations import Array, Side
    from whynan.compare.stretches import Culprit
    from whynan.records import OutputError
    from whynan.run.comparison.feeds import Feeds
    from whynan.run.comparison.settings import Request
    from whynan.run.comparison.sources import Source

LEAST_ALIGNED: Final = 0.2
"""Programs of which fewer values are aligned are taken for different ones."""
_SAME_MODEL: Final = 0.5
"""Of the weights; who holds as many of them is a form of the model, however early the two part."""
_TRIED: Final = 12
"""Operations out of line that are looked at for one that changes an output."""
_PLAIN: Final = 64.0
"""Unit roundoffs, of the largest magnitude, that optimisation may change an output by."""


@dataclass(slots=True)
class Found:
    """What a comparison came to; ``moved`` is what optimisation makes of outputs, where that is the divergence."""

    a: SideRun
    b: SideRun
    sources: tuple[Source, Source]
    alignment: Alignment
    outputs: tuple[OutputError, ...]
    pairs: Mapping[str, str]
    feeds: Feeds
    roundoff: float
    culprit: Culprit | None = None
    inner: Inner | None = None
    """The culprit within a body, where the culprit is a node that holds one."""
    others: list[Culprit] = field(default_factory=lambda: [])
    harmless: list[Culprit] = field(default_factory=lambda: [])
    unjudged: list[str] = field(default_factory=lambda: [])
    notes: list[str] = field(default_factory=lambda: [])
    setting: Setting | None = None
    both_bad: bool = False


def compare(request: Request) -> Found:
    """Run both programs, align them, and look for the first operation where they part; raises ``UsageError``."""
    first, second, setting = _sources(request)
    given = read_arrays(request.files) if request.inputs is None else as_arrays(request.inputs, first)
    feeds = feeds_of(first, second, given, request.seed)
    found = compare_sides((first, second), (first.side(feeds.a), second.side(feeds.b)), feeds, request, setting=setting)
    if found.culprit is None and not found.both_bad:
        return _optimisation(found, request) or found
    return found


def _sources(request: Request) -> tuple[Source, Source, Setting | None]:
    if request.b is not None:
        return open_source(request.a, Settings()), open_source(request.b, request.settings), None
    settings = request.settings
    if settings == Settings():
        raise UsageError("one program is given, and no setting of B", "give B, or one of --b-opt-level, --b-dtype, ...")
    plain = Settings(level="all") if settings.level is not None else Settings()
    return open_source(request.a, plain), open_source(request.a, settings), _setting(settings)


def _setting(settings: Settings) -> Setting:
    if settings.dtype is not None:
        return Setting("precision", f"its arithmetic, {settings.dtype}")
    if settings.level is not None:
        return Setting("optimisation", f"the level of optimisation, all for A and {settings.level} for B")
    if settings.provider is not None:
        return Setting("provider", f"the execution provider, {settings.provider}")
    if settings.compiled:
        return Setting("compiler", "torch.compile")
    return Setting("engine", settings.words)


def compare_sides(
    sources: tuple[Source, Source],
    sides: tuple[Side, Side],
    feeds: Feeds,
    request: Request,
    *,
    setting: Setting | None = None,
) -> Found:
    """Compare two sides; raises ``UsageError`` where they are of different programs."""
    a = _ran(sides[0], feeds.a, request.budget, "A")
    b = _ran(sides[1], feeds.b, request.budget, "B")
    notes = [*feeds.notes]
    for source in sources:
        notes += source.notes
    outputs = pair_outputs(a, b, notes)
    if not outputs:
        raise UsageError(
            f"A gives {_shapes(a)}, and B {_shapes(b)}: they have no output in common", "compare programs of one result"
        )
    errors = output_errors(a, b, outputs)
    alignment = Aligner(a, b, _graph_inputs(a, b, feeds), outputs).align()
    search = Search(a, b, alignment)
    found = Found(a, b, sources, alignment, errors, outputs, feeds, search.roundoff, notes=notes, setting=setting)
    if _agree(a, b, outputs, request, search.roundoff):
        found.both_bad = _both_bad(a, b, outputs)
        return found
    for culprit in search.culprits():
        ours = a.value(culprit.other_value)
        if ours is None or matters(b, culprit, ours, search.roundoff):
            found.culprit = unfolded(a, b, alignment, search.localised(culprit))
            found.inner = inner_culprit(a, b, found.culprit)
            break
        found.harmless.append(culprit)
        if len(found.harmless) >= _TRIED:
            break
    if not search.narrowed:
        _check_aligned(a, b, alignment)
    found.unjudged = list(search.unjudged)
    if search.random:
        notes.append(f"{search.random[0]} draws random numbers, which are not compared")
    found.both_bad = found.culprit is None and _both_bad(a, b, outputs)
    return found


def _ran(side: Side, feeds: Mapping[str, Array], budget: int, which: str) -> SideRun:
    values = ValueStore(budget)
    try:
        side.run(feeds, values)
    except UnavailableError as error:
        raise UsageError(f"{which} ({side.label}) cannot be run: {error}", "run it by itself to see why") from None
    return SideRun(side, values)


def _graph_inputs(a: SideRun, b: SideRun, feeds: Feeds) -> dict[str, str]:
    """Of each input value of B that of A, by the names that the values have."""
    ours = dict(zip(a.side.inputs, a.side.input_values, strict=True))
    theirs = dict(zip(b.side.inputs, b.side.input_values, strict=True))
    return {theirs[there]: ours[here] for there, here in feeds.pairs.items() if there in theirs and here in ours}


def _check_aligned(a: SideRun, b: SideRun, alignment: Alignment) -> None:
    made = [name for name in b.producers if name in alignment.pairs]
    least = min(len(a.producers), len(b.producers))
    if least and len(made) < LEAST_ALIGNED * least and shared_weights(a, b) < _SAME_MODEL:
        raise UsageError(
            f"only {len(made)} of {least} values of A and B could be aligned, which are taken for other programs",
            "compare two forms of one model",
        )


def _agree(a: SideRun, b: SideRun, outputs: Mapping[str, str], request: Request, roundoff: float) -> bool:
    """Whether the outputs are as good as the same, or as near as the user asks for."""
    asked = request.rtol is not None or request.atol is not None
    for other, one in outputs.items():
        x, y = a.value(one), b.value(other)
        if x is None or y is None or x.shape != y.shape:
            return False
        if not is_floating(x) or not is_floating(y):
            if bool((x != y).any()):
                return False
            continue
        first, second = x.astype(np.float64), y.astype(np.float64)
        relative = (request.rtol or 0.0) if asked else 4 * roundoff
        with np.errstate(all="ignore"):
            near = np.abs(first - second) <= relative * np.abs(first) + (request.atol or 0.0)
            near &= np.isfinite(first)
        if not bool((near | (first == second) | (np.isnan(first) & np.isnan(second))).all()):
            return False
    return True


def _both_bad(a: SideRun, b: SideRun, outputs: Mapping[str, str]) -> bool:
    """Whether an output is NaN or infinite in the same places on both sides."""
    for other, one in outputs.items():
        x, y = a.value(one), b.value(other)
        if x is not None and y is not None and x.shape == y.shape and is_floating(x):
            bad = bad_places(x)
            if bool(np.asarray(bad).any()) and np.array_equal(bad, bad_places(y)):
                return True
    return False


def _optimisation(found: Found, request: Request) -> Found | None:
    """What the engine's optimisations make of a model whose graph as written agrees with A; None where nothing."""
    from whynan.capture.onnx.execution import RunError
    from whynan.run.comparison.onnx_sides import open_side, production_outputs

    for run, source, feeds in ((found.b, found.sources[1], found.feeds.b), (found.a, found.sources[0], found.feeds.a)):
        if not isinstance(source, OnnxSource) or source.settings.words:
            continue
        try:
            outputs = production_outputs(source.label, source.settings, feeds)
        except RunError as error:
            found.notes.append(
                f"{source.label} was compared as it is written: optimised it does not run ({error.what})"
            )
            continue
        if not _moved(run, outputs, found.roundoff):
            continue
        optimised = replace(source.settings, level="all")
        sides = open_side(source.label, Settings(level="disabled")), open_side(source.label, optimised)
        same = replace(found.feeds, a=dict(feeds), b=dict(feeds), pairs={name: name for name in feeds})
        moved = compare_sides(
            (source, source), sides, same, request, setting=Setting("optimisation", "ONNX Runtime's optimisations")
        )
        if moved.culprit is not None:
            moved.notes.append(
                f"as written the two agree; the optimised graph of {source.label} parts from the one that is written"
            )
            return moved
    return None


def _moved(run: SideRun, outputs: Mapping[str, Any], roundoff: float) -> bool:
    for name, value in outputs.items():
        before = run.value(name)
        if before is None or not isinstance(value, np.ndarray):
            continue
        if apart(before, cast("Array", value), _PLAIN * roundoff):
            return True
    return False


def _shapes(run: SideRun) -> str:
    values = [run.value(name) for name in run.side.output_values]
    return ", ".join("nothing" if value is None else f"{value.dtype.name}{list(value.shape)}" for value in values[:4])


def left_out(found: Found) -> list[str]:
    """The values of B that have no partner, in order."""
    return list(unaligned(found.b, found.alignment.pairs))
