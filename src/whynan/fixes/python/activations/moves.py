"""A softmax or sigmoid that is computed elsewhere, moved to the function that takes its logarithm."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from whynan.expr.from_python import Reader
from whynan.fixes.python.activations.callers import autocasts, caller_edits, is_call_of, reached, reached_calls
from whynan.fixes.python.activations.parameters import GivenActivation, given_activations
from whynan.fixes.python.activations.producers import (
    Producer,
    activation_of,
    is_only_called,
    producers_of,
    sequence_of,
)
from whynan.fixes.python.candidates import related_spots
from whynan.fixes.python.imports import visible
from whynan.source.text import Place, apply_edits, is_python, parse_or_none, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from whynan.fixes.python.candidates import Spot
    from whynan.fixes.python.formula import Edit
    from whynan.records import Finding

_LOOKS_INSIDE: Final = r"\.register_\w*hook|\.forward\s*=[^=]|\bsymbolic_trace\b|\bjit\.script"
"""A program that hears what its modules give, or has their code read, may see the logits."""
_LOGITS_OF: Final = {
    "softmax": {"Categorical", "OneHotCategorical", "OneHotCategoricalStraightThrough", "RelaxedOneHotCategorical"},
    "sigmoid": {"Bernoulli", "RelaxedBernoulli", "ContinuousBernoulli", "Geometric", "Binomial", "NegativeBinomial"},
}
"""The distributions whose probabilities are an activation of their logits."""
_MOST: Final = 3
"""So many ways of moving an activation are tried."""


@dataclass(frozen=True, slots=True)
class MovedActivation:
    """The files of a program that computes the same, with an activation in the function that a birth is in.

    ``text`` is that of the birth's file, after its ``stages`` of edits; ``others`` are the path, the text and the
    edited text of each other file. ``lines`` are the statements that compute the activation where it is used.
    """

    title: str
    before: str
    text: str
    others: tuple[tuple[str, str, str], ...]
    stages: tuple[Sequence[Edit], ...]
    lines: tuple[str, ...]
    callee: str | None = None
    """The function, or the class of it, that is called otherwise than before, by all that call it."""

    def without_unread(self, edited: str) -> str:
        """An edited text without the activations that nothing reads there any more."""
        place = place_of(edited)
        unread = [node for node in place.parents if isinstance(node, ast.Assign) and self._is_unread(place, node)]
        lines = ((place.line_start(n.lineno), place.line_start((n.end_lineno or n.lineno) + 1), "") for n in unread)
        return apply_edits(edited, lines)

    def _is_unread(self, place: Place, node: ast.Assign) -> bool:
        if place.code(node) not in self.lines or not isinstance(node.targets[0], ast.Name):
            return False
        names = (n for n in ast.walk(place.function(node)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        return all(name.id != node.targets[0].id for name in names)

    def relocated(self, finding: Finding) -> Finding:
        """A finding of the file as it is at the same expression of the edited one."""
        site, place, moved = finding.site, place_of(self.before), place_of(self.text)
        node = None if site is None else place.node_of(site)
        if site is None or node is None:
            return finding
        start, end = place.span(node)
        for edits in self.stages:
            start, end = (
                start + sum(len(new) - (b - a) for a, b, new in edits if b <= start),
                end + sum(len(new) - (b - a) for a, b, new in edits if a < end),
            )
        (line, column), (end_line, end_column) = moved.position(start), moved.position(end)
        there = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
        return finding.model_copy(update={"site": site.model_copy(update=there)})


def moved_activations(
    texts: Mapping[str, str], path: str, finding: Finding, others: Sequence[Finding] = ()
) -> Iterator[MovedActivation]:
    """The ways to have the activation whose logarithm a finding is of in the function that takes the logarithm.

    ``texts`` are the program's files by their paths, ``path`` that of the finding's site. It is moved to the functions
    of the ``others`` of the same file too, which call it for a logarithm of their own.
    """
    spots = related_spots(texts[path], finding)
    if isinstance(spots, str) or any(re.search(_LOOKS_INSIDE, text) for text in texts.values()):
        return
    defined = [function for text in texts.values() for function in _defined(text)]
    # what hands any keyword on may make something else of the logits
    handing = {node.name for node in defined if not isinstance(node, ast.ClassDef) and node.args.kwarg is not None}
    known = [producer for file, text in texts.items() for producer in producers_of(file, text)]
    models, times = _models(texts.values()), Counter(node.name for node in defined)
    known = [
        replace(producer, rivals=tuple(model for owner, model in models.items() if owner != producer.owner))
        for producer in known
        if not handing & {producer.name, "__call__"} and (producer.name == "forward" or times[producer.name] == 1)
    ]
    site = finding.site
    there = [other for other in others if site is not None and other.site is not None and other.site.file == site.file]
    further = [found[0] for other in there if not isinstance(found := related_spots(texts[path], other), str)]
    names = {node.name for node in defined}
    made = (_moved(texts, path, [spot, *further], known, names) for spot in spots)
    drawn = _of_distributions(texts[path], [*spots, *further])
    yield from itertools.islice(itertools.chain(itertools.chain.from_iterable(made), drawn), _MOST)
    given = given_activations(texts, path, spots[0], known, names)
    moved = (one for each in given if (one := _given(texts, path, each)) is not None)
    yield from itertools.islice(moved, _MOST)


def _given(texts: Mapping[str, str], path: str, moved: GivenActivation) -> MovedActivation | None:
    after: dict[str, str] = {}
    for file, stages in moved.stages.items():
        after[file] = texts[file]
        for edits in stages:
            after[file] = apply_edits(after[file], edits)
    others = tuple((file, texts[file], text) for file, text in after.items() if file != path)
    if not all(map(is_python, after.values())):
        return None
    stages = moved.stages[path]
    return MovedActivation(moved.title, texts[path], after[path], others, stages, (moved.line,), moved.callee)


def _of_distributions(text: str, spots: Sequence[Spot]) -> Iterator[MovedActivation]:
    """The probabilities of distributions as what these compute them by, of their logits."""
    found: dict[tuple[int, int], tuple[str, str]] = {}
    for spot in spots:
        place = spot.reader.place
        for node in reached(spot.reader, [spot.start]):
            if isinstance(node, ast.Attribute) and node.attr == "probs":
                torch = next((name for name, meaning in visible(place, node).items() if meaning == "torch"), None)
                if torch is not None:
                    found[place.span(node)] = torch, place.code(node.value)
    owners = ", ".join(dict.fromkeys(owner for _, (_, owner) in sorted(found.items())))
    given = _given_probabilities(place_of(text)) if found else {}
    for name, call in (("softmax", "{}.softmax({}.logits, dim=-1)"), ("sigmoid", "{}.sigmoid({}.logits)")):
        edits = *given.get(name, ()), *((*span, call.format(*parts)) for span, parts in found.items())
        if found and is_python(edited := apply_edits(text, edits)):
            yield MovedActivation(f"that {owners} gives", text, edited, (), (edits,), ())


def _given_probabilities(place: Place) -> dict[str, list[Edit]]:
    """The edits that give distributions the logits of which they are given an activation, by its name.

    One is of its last dimension; what another dimension is of a tensor, a run tells where it is the only one.
    """
    edits: dict[str, list[tuple[bool, Edit]]] = {}
    for node in place.parents:
        call = place.parents.get(node)
        if not isinstance(node, ast.keyword) or node.arg != "probs" or not isinstance(call, ast.Call):
            continue
        names = place.meaning(call.func) or [""]
        found = activation_of(Reader(place, place.function(node)), node.value)
        activation = "" if found is None else found[0].removeprefix("torch.").partition("(")[0]
        if found is None or names[:2] != ["torch", "distributions"] or names[-1] not in _LOGITS_OF.get(activation, ()):
            continue
        operand = found[1] if isinstance(found[1], str) else place.code(found[1])
        is_last = activation == "sigmoid" or "dim=-1" in found[0]
        edit = *place.span(cast("ast.expr", node)), f"logits={operand}"
        edits.setdefault(activation, []).append((is_last, edit))
    return {name: [edit for is_last, edit in made if is_last or len(made) == 1] for name, made in edits.items()}


def _moved(
    texts: Mapping[str, str], path: str, spots: Sequence[Spot], known: Sequence[Producer], defined: set[str]
) -> Iterator[MovedActivation]:
    found: dict[Producer, dict[str | None, tuple[Reader, list[ast.Call]]]] = {}
    for spot in spots:
        reader, calls = spot.reader, reached_calls(spot.reader, spot.start)
        function, around = reader.place.qualified_name(reader.reaching.function), autocasts(reader.place, spot.start)
        own = [one for call in calls if (one := sequence_of(reader, call)) is not None]
        for producer in [*known, *(one for one in own if is_only_called(texts.values(), one.name))]:
            called = [call for call in calls if is_call_of(reader, call, producer, defined)]
            called = [call for call in called if autocasts(reader.place, call) <= around]
            if called and (spot is spots[0] or producer in found):
                found.setdefault(producer, {}).setdefault(function, (reader, called))
    for producer, functions in found.items():
        made = [caller_edits(reader, producer, called) for reader, called in functions.values()]
        kept = [one for one in made if one is not None]
        if made[0] is None:
            continue
        here = producer.path == path
        edits = [*(edit for one, _ in kept for edit in one), *(producer.edits if here else ())]
        text = apply_edits(texts[path], edits)
        others = () if here or not producer.edits else ((producer.path, texts[producer.path]),)
        both = tuple((file, before, apply_edits(before, producer.edits)) for file, before in others)
        if is_python(text) and all(is_python(after) for _, _, after in both):
            lines = tuple(line for _, added in kept for line in added)
            yield MovedActivation(f"that {producer.qualified} gives", texts[path], text, both, (edits,), lines)


def _defined(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The functions and classes of a file."""
    tree = parse_or_none(text)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)] if tree is not None else []


def _models(texts: Iterable[str]) -> dict[str, ast.FunctionDef]:
    """The ``forward`` of the classes that are made elsewhere than as a part of another one, by the class's name."""
    places = [place_of(text) for text in texts]
    classes = {
        node.name: each
        for place in places
        for node in place.parents
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.FunctionDef) and each.name == "forward"
    }
    calls = ((place, node) for place in places for node in place.parents if isinstance(node, ast.Call))
    return {
        node.func.id: classes[node.func.id]
        for place, node in calls
        if isinstance(node.func, ast.Name)
        and node.func.id in classes
        and not any(isinstance(above, ast.ClassDef) for above in place.above(node))
    }
