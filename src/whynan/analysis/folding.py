"""One bug, one finding: the births of one cause, of which the first is told and the others stand in its ``also``."""

from __future__ import annotations

import ast
import itertools
import math
import re
from typing import TYPE_CHECKING, Final

from whynan.analysis.chains import sink_links
from whynan.ops.names import base_name
from whynan.ops.table import TORCH
from whynan.records import APPLICABLE, STATUSES, Member, Note, gives_infinity, is_infinite
from whynan.source.copies import is_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from whynan.records import ChainLink, Finding, Fix, Reach, Site
    from whynan.source.text import Place

    Read = Callable[[str], Place | None]

_BORN: Final = ("overflow", "pole", "invalid")
_FAR_OUT: Final = {"bfloat16": 2.0**32, "float32": 2.0**32, "float64": 2.0**256}
"""The fourth root of the greatest number of each wide dtype."""
_SUMS_OF_INFINITY: Final = frozenset({"WN103", "WN104", "WN105"})
_MOST_BETWEEN: Final = 2
"""So many operations may lie between a number and what two births make of it."""
Told = tuple[tuple["Finding", ...], tuple["Finding", ...]]


def fold_findings(escaped: Sequence[Finding], damaging: Sequence[Finding], read: Read) -> Told:
    """The escaped and the damaging findings with one for each cause, in their order.

    `read` gives a file of the program as it was in the run; None where it is not there.
    """
    groups = cause_groups((*escaped, *damaging), read)
    heads = {id(finding) for finding in escaped}
    first = tuple(_merged(group) for group in groups if id(group[0]) in heads)
    return first, tuple(_merged(group) for group in groups if id(group[0]) not in heads)


def fold_causes(told: Sequence[Finding], absorbed: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Findings, each with the Inf that one of its causes is in its ``also``, and the absorbed ones that are none."""
    left: list[Finding] = []
    found = list(told)
    for one in absorbed:
        event = _event(one.op, one.site)
        behind = (n for n, other in enumerate(found) if one.site is not None and event in _infinities_behind(other))
        number = next(behind, None)
        if number is None or one.birth not in ("overflow", "pole"):
            left.append(one)
            continue
        also = dict.fromkeys((*found[number].also, _member(one), *one.also))
        found[number] = found[number].model_copy(update={"also": tuple(also)})
    return found, left


def _infinities_behind(finding: Finding) -> set[tuple[object, ...]]:
    """The operations among a finding's causes that gave an Inf of what was none."""
    return {_event(link.op, link.site) for link in _operand_causes(finding) if gives_infinity(link.typed_summary)}


def cause_groups(findings: Sequence[Finding], read: Read) -> list[list[Finding]]:
    """The findings, those of one cause together; the first of each in their order."""
    causes = _Causes(read)
    groups: list[list[Finding]] = []
    for finding in findings:
        same = [g for g in groups if any(causes.is_one(known, finding) for known in g)]
        if not same:
            groups.append([finding])
            continue
        same[0].append(finding)
        for other in same[1:]:
            same[0] += other
            groups.remove(other)
    order = {id(finding): number for number, finding in enumerate(findings)}

    def place(finding: Finding, group: list[Finding]) -> tuple[bool, bool, int]:
        is_effect = any(_leads_to(other, finding) for other in group)
        return not _has_derivative(finding, group), is_effect, order[id(finding)]

    return [sorted(group, key=lambda finding, group=group: place(finding, group)) for group in groups]


def _leads_to(one: Finding, other: Finding) -> bool:
    """Whether another birth is told after one, as what it has made."""
    made = one.fate == other.fate and _is_made_of_infinity(one, other)
    return made or _has_spoilt(one, other) or _is_made_of_literal(one, other)


class _Causes:
    """Whether two births have one cause; where that is not certain, they have two."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._places: dict[str, Place | None] = {}
        self._nodes: dict[Site, list[ast.AST]] = {}

    def is_one(self, one: Finding, other: Finding) -> bool:
        """Whether one change would be the right one for both."""
        if one.rank != other.rank or "inference" in (one.phase, other.phase):
            return False
        both_born = _is_born(one) and _is_born(other)
        alike, led_back = (_ALIKE, _LED_BACK) if both_born else (_ALIKE_WITH_LITERAL, _LED_BACK_TO_LITERAL)
        if any(way(one, other) for way in alike) or any(way(one, other) or way(other, one) for way in led_back):
            return True
        if not both_born:
            return False
        if one.site is None or other.site is None or one.site.file != other.site.file:
            return False
        if one.rule != other.rule and not _is_one_place(one.library_site, other.library_site):
            # two faults in one call of a library
            return False
        if _is_derivative_beside(one, other) or _is_derivative_beside(other, one):
            return True
        if _is_one_expression(one, other) or self._is_one_formula(one, other, one.site, other.site):
            return True
        return self._is_copy(one, other, one.site, other.site)

    def _is_one_formula(self, one: Finding, other: Finding, here: Site, there: Site) -> bool:
        """Whether two births are terms of one expression, under one rule or from one bad operand."""
        same_rule = one.rule == other.rule and one.rule != "WN000"
        if here.function != there.function or not (same_rule or _shares_cause(one, other)):
            return False
        mine, yours = self._expressions_around(here), self._expressions_around(there)
        joint = _first_of_both(mine, yours)
        if joint is None:
            uses = itertools.product(self._where_named(here), self._where_named(there))
            return any(isinstance(_first_of_both(*pair), ast.BinOp) for pair in uses)
        return not isinstance(joint, (ast.Tuple, ast.Dict))

    def _is_copy(self, one: Finding, other: Finding, here: Site, there: Site) -> bool:
        """Whether two births are the same part of a formula that was written again for other names, line by line."""
        same = one.rule == other.rule != "WN000" and (one.op, one.phase) == (other.op, other.phase)
        if not same or here.function != there.function or one.element.shape != other.element.shape:
            return False
        if _steps(one) != _steps(other):
            # what has made their operands is another thing
            return False
        place, mine, yours = self._place_of(here.file), self._expressions_around(here), self._expressions_around(there)
        return place is not None and bool(mine and yours) and is_copy(place, mine[0], yours[0])

    def _expressions_around(self, site: Site) -> list[ast.AST]:
        """The expression at a site and those that it is part of, within its function; none where it is not known."""
        if site not in self._nodes:
            place = self._place_of(site.file)
            node = None if place is None else place.node_of(site)
            self._nodes[site] = [] if place is None or node is None else _enclosing(place, node)
        return self._nodes[site]

    def _where_named(self, site: Site) -> list[list[ast.AST]]:
        """The expressions around each use of the one name that a statement gives the expression at a site.

        What is summed up first is a loss of its own, and is no term of what follows; nor are two arguments of a call.
        """
        around, place = self._expressions_around(site), self._place_of(site.file)
        if place is None or not around or not all(isinstance(n, (ast.BinOp, ast.UnaryOp)) for n in around[1:]):
            return []
        match place.statement(around[0]):
            case ast.Assign(targets=[ast.Name(id=name)]):
                function = place.function(around[0])
                uses = (n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name)
                return [_enclosing(place, use) for use in uses if isinstance(use.ctx, ast.Load)]
            case _:
                return []

    def _place_of(self, file: str) -> Place | None:
        if file not in self._places:
            self._places[file] = self._read(file)
        return self._places[file]


def _enclosing(place: Place, node: ast.AST) -> list[ast.AST]:
    """An expression and those that it is part of, up to the statement or the lambda."""
    parts = itertools.chain([node], place.above(node))
    return list(itertools.takewhile(lambda part: not isinstance(part, (ast.Lambda, ast.stmt)), parts))


def _first_of_both(mine: Sequence[ast.AST], yours: Sequence[ast.AST]) -> ast.AST | None:
    return next((node for node in mine if any(node is other for other in yours)), None)


def _is_born(finding: Finding) -> bool:
    return finding.birth in _BORN


def _is_of_literal(one: Finding, other: Finding) -> bool:
    """Whether a constant of the program's and a birth do harm in one call, as a learning rate of Inf does in a step."""
    together = one.birth == "literal" and _is_born(other) and one.phase == other.phase == "optimizer"
    return together and one.site is not None and one.site == other.site


def _is_made_of_literal(one: Finding, other: Finding) -> bool:
    """Whether a birth was computed of a parameter that an update has made a constant of the program's."""
    known = one.birth == "literal" and _is_born(other) and one.site != other.site and _reads_infinity(other)
    return known and bool(_updates_of(one, "cause", "birth") & _updates_of(other, "cause"))


def _updates_of(finding: Finding, *roles: str) -> set[object]:
    """The operations of optimizers among a finding's causes, or that it is."""
    return {(link.op, link.site) for link in finding.chain if link.role in roles and link.phase == "optimizer"}


def _is_derivative_of_literal(one: Finding, other: Finding) -> bool:
    """Whether the derivative of an expression is bad because of a constant of the program's that the loss holds too."""
    causes = ([link for link in finding.chain if link.role == "cause"] for finding in (one, other))
    behind = one.birth == "literal" and _is_born(other) and one.phase == "forward" and other.phase == "backward"
    return behind and any(reach.kind == "loss" for reach in one.reaches) and _end_alike(*causes)


def _has_spoilt(one: Finding, other: Finding) -> bool:
    """Whether a birth has spoilt the buffer or weight that is bad where a later step begins."""
    entry = next((link.typed_summary for link in other.chain if link.role == "birth"), None)
    if entry is None or entry.kind != "entered" or one.step is None or other.step is None:
        return False
    if not 0 <= other.step - one.step <= 1:
        return False
    spoilt = {reach.name for reach in one.reaches if reach.kind in ("buffer", "parameter") and reach.name is not None}
    since, name = entry.values.get("since"), entry.values.get("tensor")
    if not _is_born(one) or not isinstance(since, Note):
        return False
    # what the weights are called where they are read may not be known
    is_unnamed = name is None and entry.values.get("sort") == "parameter" and since.values.get("step") == one.step
    return name in spoilt or (is_unnamed and bool(spoilt))


def _has_derivative(one: Finding, group: Iterable[Finding]) -> bool:
    return any(_is_derivative_of_literal(one, other) for other in group)


def _are_of_one_literal(one: Finding, other: Finding) -> bool:
    """Whether one element that came in, or that the program wrote, has arrived at both."""
    mine, yours = ([link for link in finding.chain if link.role == "cause"] for finding in (one, other))
    return one.birth == other.birth and one.rule == other.rule and _end_alike(mine, yours)


def _are_of_the_same_samples(one: Finding, other: Finding) -> bool:
    """Whether what came in bad are parts of the same samples of one batch, as features and target."""
    mine, yours = one.data, other.data
    if mine is None or yours is None or not mine.rows or one.birth != other.birth:
        return False
    return mine.kind == yours.kind == "batch" and mine == yours.model_copy(update={"name": mine.name})


def _read_one_entry(one: Finding, other: Finding) -> bool:
    """Whether an infinity of the same data has come in, of which two sums of one function have made NaN."""
    mine, yours = (finding.data for finding in (one, other))
    if mine is None or mine != yours or not {one.rule, other.rule} <= _SUMS_OF_INFINITY:
        return False
    first, second = (next((link for link in f.chain if link.role == "cause"), None) for f in (one, other))
    is_entry = first is not None and first.typed_summary.kind == "holds"
    return is_entry and first == second and one.phase == other.phase and _function(one) == _function(other)


def _read_one_zero(one: Finding, other: Finding) -> bool:
    """Whether two expressions of one function, of which one may fail in its derivative, read one 0.

    They do so by one name, or the one reads what was multiplied with it.
    """
    if one.phase == other.phase or _function(one) is None or _function(one) != _function(other):
        return False
    if _place_in_tensor(one) != _place_in_tensor(other) or not (_zeros_read(one) and _zeros_read(other)):
        return False
    near, far = sorted((_operand_causes(one), _operand_causes(other)), key=len)
    further = far[len(near) :]
    if not further:
        return bool(_zeros_read(one) & _zeros_read(other)) and _end_alike(near, far)
    products = all(base_name(link.op or "") == "mul" for link in further)
    return products and len(further) <= _MOST_BETWEEN and _end_alike(near, far[: len(near)])


def _zeros_read(finding: Finding) -> set[str]:
    """The expressions whose value is 0 for a birth; for one in the backward those of the operation ahead of it."""
    read = finding.forward_operands if finding.phase == "backward" else finding.element.operands
    return {operand.expression for operand in read if operand.expression is not None and operand.value == 0}


def _stand_on_one_pole(one: Finding, other: Finding) -> bool:
    """Whether what is divided by, or has no logarithm, is one number that one event has made."""
    here, there = _on_pole(one), _on_pole(other)
    if here is None or there is None or one.phase != other.phase:
        return False
    mine, yours = _operand_causes(one), _operand_causes(other)
    # of two operations both are mended where that number is used
    same = here == there if one.rule == other.rule else here[-1] == there[-1] and _function(one) == _function(other)
    if not same or _end_alike(mine, yours):
        return same
    # computed twice in one function, of one number
    again = here == there and _function(one) == _function(other) and _is_one_line(one.site, other.site)
    return again and _end_alike(mine[:-1], yours[:-1])


def _fail_on_one_number(one: Finding, other: Finding) -> bool:
    """Whether one operation fails for one reason on one number, or on what little was computed of it."""
    near, far = sorted((one, other), key=lambda finding: len(_operand_causes(finding)))
    mine, yours = _operand_causes(near), _operand_causes(far)
    # in a gradient two that meet are each a root
    same = one.rule == other.rule != "WN000" and one.op == other.op and one.phase == other.phase != "backward"
    if not (same and mine) or _place_in_tensor(one) != _place_in_tensor(other):
        return False
    # what has made it larger may be what is wrong
    between = _MOST_BETWEEN if _largest_operand(far) <= _largest_operand(near) else 0
    return any(_end_alike(mine, yours[: len(yours) - more]) for more in range(between + 1))


def _read_one_factor(one: Finding, other: Finding) -> bool:
    """Whether one factorization has made what two births fail on, for one reason."""
    links = [{(link.op, link.site) for link in _operand_causes(finding)} for finding in (one, other)]
    shared = (base_name(op or "") for op, _ in links[0] & links[1])
    return one.rule == other.rule != "WN000" and not TORCH.having("factorization").isdisjoint(shared)


def _is_inner_part(inner: Finding, outer: Finding) -> bool:
    """Whether one rule speaks of two operations, of which the inner makes what the outer fails on: log(sum(exp(x)))."""
    same = inner.rule == outer.rule != "WN000" and inner.op != outer.op and inner.phase == outer.phase
    return same and _function(inner) == _function(outer) and _event(inner.op, inner.site) in _operand_events(outer)


def _ranges_left(finding: Finding) -> set[object]:
    """The exponentials that left the range of their dtype: what a birth is, or what made a 0 of its operand."""
    left = [(link.op, link.site) for link in _operand_causes(finding) if link.typed_summary.values.get("smallest")]
    if finding.birth == "overflow" and finding.site is not None:
        left.append((finding.op, finding.site))
    return {_event(*each) for each in left if base_name(each[0] or "") in TORCH.having("exponential")}


def _are_of_one_cut(one: Finding, other: Finding) -> bool:
    """Whether two births of one element in one function begin with a number that was cut off to a bound."""
    mine, yours = ([link.typed_summary for link in _operand_causes(finding)[:1]] for finding in (one, other))
    places = [(f.phase, _function(f), *_place_in_tensor(f)) for f in (one, other)]
    return bool(mine) and mine == yours and mine[0].kind == "turned_into" and places[0] == places[1]


def _have_run_away(one: Finding, other: Finding) -> bool:
    """Whether the numbers of one later step have grown out of the range of a wide dtype at two places.

    Only what was far out already leaves it: by the fourth root of the greatest number. Where a first step does so, its
    numbers were not grown but written.
    """
    if one.step is None or one.step != other.step or one.step < 2:
        return False
    return one.rule == other.rule == "WN701" and all(
        finding.birth == "overflow" and _largest_read(finding) > _FAR_OUT.get(finding.element.dtype, math.inf)
        for finding in (one, other)
    )


def _is_made_of_infinity(one: Finding, other: Finding) -> bool:
    """Whether an Inf that was born has made a number what another birth fails on: what is divided by it is 0.

    What the other birth is led back to has borne that Inf or carries it on, and is no Inf that came from elsewhere.
    """
    carried = {_event(link.op, link.site) for link in one.chain if link.role in ("birth", "step")}
    causes = _operand_causes(other)
    is_lost = any(_holds_infinity(link) and not is_infinite(link.typed_summary.values.get("result")) for link in causes)
    first = next((link for link in other.chain if link.role == "cause"), None)
    begins = first is not None and _holds_infinity(first) and _event(first.op, first.site) in carried
    return one.birth in ("overflow", "pole") and is_lost and begins


def _holds_infinity(link: ChainLink) -> bool:
    """Whether an operation read, or gave, an Inf."""
    values = link.typed_summary.values
    operands = values.get("operands")
    known = (*(operands if isinstance(operands, (list, tuple)) else ()), values.get("high"), values.get("low"))
    return any(map(is_infinite, (*known, values.get("result"))))


def _reads_infinity(finding: Finding) -> bool:
    """Whether an operand of a birth, or what made it, is Inf."""
    read = (number for o in finding.element.operands for number in (o.value, o.min, o.max))
    return any(map(is_infinite, read)) or any(map(_holds_infinity, finding.chain))


def _is_pole_of(inner: Finding, outer: Finding) -> bool:
    """Whether what is Inf at one element is what is too large at another: over 0, or of an exponential out of range."""
    is_exponential = base_name(inner.op or "") in TORCH.having("exponential") and outer.rule == "WN701"
    known = (inner.birth == "pole" or is_exponential) and outer.birth == "overflow" and inner.phase == outer.phase
    return known and _event(inner.op, inner.site) in _operand_events(outer)


def _are_of_one_count(one: Finding, other: Finding) -> bool:
    """Whether one update divides twice by a number that is 0, as by ``1 - beta ** step`` ahead of its count."""
    same = one.rule == other.rule != "WN000" and one.phase == other.phase == "optimizer" and one.step == other.step
    mine, yours = _number_divided_by(one), _number_divided_by(other)
    return same and _function(one) == _function(other) and mine is not None and mine == yours


def _number_divided_by(finding: Finding) -> str | None:
    """The source of a 0 that a whole tensor is divided by, its own number left out: ``bias_correction1`` and ``2``."""
    operands = finding.element.operands[1:2]
    is_division = base_name(finding.op or "").rstrip("_") in ("div", "true_divide", "_foreach_div")
    zeros = (o.expression for o in operands if is_division and o.value == 0 and not o.index and not o.shape)
    text = next(zeros, None)
    return None if text is None else re.sub(r"(?<=\w)\d+\b", "", text)


def _function(finding: Finding) -> object:
    return finding.site and (finding.site.file, finding.site.function)


def _place_in_tensor(finding: Finding) -> tuple[object, object]:
    return finding.element.index, finding.element.shape


def _largest_operand(finding: Finding) -> float:
    numbers = (operand.value for operand in finding.element.operands)
    return max((abs(number) for number in numbers if isinstance(number, (int, float))), default=0.0)


def _largest_read(finding: Finding) -> float:
    """The greatest magnitude among operands that are tensors, in the rows that were summed up too."""
    tensors = (o for o in finding.element.operands if o.index is not None or o.min is not None)
    rows = ((o.value, o.min, o.max) for o in tensors)
    return max((abs(n) for row in rows for n in row if isinstance(n, (int, float)) and math.isfinite(n)), default=0.0)


def _is_derivative_beside(one: Finding, other: Finding) -> bool:
    """Whether a birth in the backward is of the operation, and of the element, that made the other's operand."""
    here = _place_in_tensor(one) == _place_in_tensor(other)
    made = _operand_events(other)[-_MOST_BETWEEN:]
    return one.phase == "backward" != other.phase and here and _event(one.forward_op, one.site) in made


def _on_pole(finding: Finding) -> tuple[object, ...] | None:
    """The operand on a pole of the operation that a birth is, as far as it is known."""
    name, poles = TORCH.poles.get(base_name(finding.op or "").rstrip("_"), ("", ()))
    at = next((o for o in finding.element.operands if o.name == name and o.value in poles), None)
    return None if at is None or at.expression is None else (at.expression, at.index, at.value)


def _divide_by_one_name(one: Finding, other: Finding) -> bool:
    """Whether two expressions of one function, of which one may fail in its derivative, have one variable on a pole."""
    mine, yours = (_name_on_pole(finding) for finding in (one, other))
    same = mine is not None and mine == yours and one.step == other.step
    return same and _function(one) == _function(other) and one.element.index == other.element.index


def _name_on_pole(finding: Finding) -> str | None:
    """The variable that is on a pole of the operation of a birth, or of the one that a birth differentiates."""
    behind = finding.phase == "backward" and finding.forward_op is not None
    op, read = (finding.forward_op, finding.forward_operands) if behind else (finding.op, finding.element.operands)
    name, poles = TORCH.poles.get(base_name(op or "").rstrip("_"), ("", ()))
    at = next((o.expression for o in read if o.name == name and o.value in poles), None)
    return at if at is not None and at.isidentifier() else None


def _end_alike(mine: Sequence[ChainLink], yours: Sequence[ChainLink]) -> bool:
    """Whether the last of some causes are known and the same, in place and numbers."""
    last, other = ([(link.op, link.site, link.typed_summary) for link in links[-1:]] for links in (mine, yours))
    return bool(last) and last == other


def _one_edit(one: Finding, other: Finding) -> bool:
    """Whether one edit of the source has been proved for both: what it takes to mend the one mends the other."""
    return bool(_edits(one) & _edits(other))


def _edits(finding: Finding) -> set[str]:
    alone = (f for f in finding.fixes if f.verdict.status in APPLICABLE and f.kind == "source" and not f.further)
    return {fix.patch for fix in alone if fix.patch is not None}


def _is_one_expression(one: Finding, other: Finding) -> bool:
    """Whether two births are those of one expression, in the forward, in its backward or in both."""
    here, there = one.site, other.site
    is_one_place = here is not None and here.column is not None and _event(None, here) == _event(None, there)
    if not is_one_place or "accumulation" in (one.phase, other.phase):
        # a sum of gradients stands at the first use of its leaf, and is no derivative of that
        return False
    if one.phase == other.phase == "backward" and _place_in_tensor(one) == _place_in_tensor(other):
        # its first and its second derivative
        return True
    # a function that is called at two places can fail for two reasons
    return one.phase != other.phase or one.rule == other.rule


def _is_one_line(here: Site | None, there: Site | None) -> bool:
    return here is not None and there is not None and (here.file, here.line) == (there.file, there.line)


def _is_one_place(here: Site | None, there: Site | None) -> bool:
    """Whether two places in a library are one, as far as they are known."""
    return here is None or there is None or _contains(here, there) or _contains(there, here)


def _contains(outer: Site, inner: Site) -> bool:
    if outer.file != inner.file:
        return False
    begin, end = (outer.line, outer.column or 0), (outer.end_line or outer.line, outer.end_column or 0)
    return begin <= (inner.line, inner.column or 0) and (inner.end_line or inner.line, inner.end_column or 0) <= end


def _shares_cause(one: Finding, other: Finding) -> bool:
    """Whether one event has made the operands of both what they are, or what bore the one has made the other's."""
    mine, yours = ({*_operand_events(finding)} for finding in (one, other))
    return bool(mine & yours) or _event(one.op, one.site) in yours or _event(other.op, other.site) in mine


def _event(op: str | None, site: Site | None) -> tuple[object, ...]:
    """What an operation at a place is known by; the causes of a birth do not know the module that they ran in."""
    return op, site and (site.file, site.line, site.column, site.end_line, site.end_column, site.function)


def _operand_events(finding: Finding) -> list[tuple[object, ...]]:
    return [_event(link.op, link.site) for link in _operand_causes(finding)]


def _steps(finding: Finding) -> list[tuple[str | None, str]]:
    """What has made a birth's operand, operation by operation, whatever it was of."""
    return [(link.op, link.typed_summary.kind) for link in finding.chain if link.role == "cause"]


def _operand_causes(finding: Finding) -> list[ChainLink]:
    return [link for link in finding.chain if link.role == "cause" and link.site is not None]


# -- The one finding of a group ------------------------------------------------------------------------------------


def _merged(group: list[Finding]) -> Finding:
    first, others = group[0], group[1:]
    if not others:
        return first
    also = dict.fromkeys((*first.also, *(m for other in others for m in (_member(other), *other.also))))
    reached: dict[object, Reach] = {}
    for reach in (reach for finding in group if finding.fate == first.fate for reach in finding.reaches):
        known = reached.setdefault((reach.kind, reach.name), reach)
        if known.bad < reach.bad:
            reached[reach.kind, reach.name] = reach
    way = (link for link in first.chain if link.role != "sink" or link.site is not None)
    worst = "error" if any(f.severity == "error" and f.fate == first.fate for f in group) else first.severity
    return first.model_copy(
        update={
            "severity": worst,
            "also": tuple(also),
            "chain": (*way, *sink_links(reached.values())),
            "reaches": tuple(reached.values()),
            "fixes": _fixes(group),
        }
    )


def _member(finding: Finding) -> Member:
    return Member(site=finding.site, phase=finding.phase, op=finding.op, rule=finding.rule, count=finding.occurrences)


def _fixes(group: list[Finding]) -> tuple[Fix, ...]:
    """The fixes of all, the best first; each change once, with the worst that was proved of it."""
    found: dict[object, Fix] = {}
    for fix in (fix for finding in group for fix in finding.fixes):
        key = (fix.kind, fix.title if fix.patch is None else fix.patch)
        known = found.setdefault(key, fix)
        if known is not fix:
            proved = [f for f in (known, fix) if f.verdict.status != "unverified"]
            found[key] = max(proved or [known], key=lambda f: STATUSES.index(f.verdict.status))
    return tuple(sorted(found.values(), key=lambda f: (f.patch is None, STATUSES.index(f.verdict.status))))


def _leave_one_range(one: Finding, other: Finding) -> bool:
    """Whether what leads to both left the range at one place."""
    return bool(_ranges_left(one) & _ranges_left(other))


_ALIKE_WITH_LITERAL: Final = (_are_of_one_literal, _are_of_the_same_samples)
"""Ways in which two findings, one of them no birth, have one cause, whichever is the first."""
_LED_BACK_TO_LITERAL: Final = (_is_of_literal, _is_made_of_literal, _is_derivative_of_literal, _has_spoilt)
"""Ways in which one of such two leads to the other."""
_ALIKE: Final = (
    _read_one_entry,
    _read_one_zero,
    _one_edit,
    _stand_on_one_pole,
    _divide_by_one_name,
    _fail_on_one_number,
    _leave_one_range,
    _are_of_one_cut,
    _have_run_away,
    _are_of_one_count,
    _read_one_factor,
)
"""Ways in which two births have one cause, whichever is the first."""
_LED_BACK: Final = (_is_pole_of, _is_inner_part, _is_made_of_infinity)
"""Ways in which one of two births is led back to the other, or to what that is of."""
