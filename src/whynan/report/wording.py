"""The words of one finding: headline, place, element, values, chain, reach."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from whynan.floats import format_value

if TYPE_CHECKING:
    # one line of a report is said without what loads the records
    from whynan.records import (
        Attribution,
        ChainLink,
        Damage,
        Element,
        Finding,
        FixVerdict,
        ForwardOperand,
        Member,
        Operand,
        Reach,
        SinkKind,
        Site,
        StandIn,
        Transfer,
    )
    from whynan.records.base import Number
    from whynan.records.report import Step

# -- Values, types, indices and counts as the terminal report writes them ----------------------------------------------


_DTYPE: Final = re.compile(r"(?:torch\.)?(bfloat|float|complex|uint|int)(\d.*)")
_SHORT: Final = {"bfloat": "bf", "float": "f", "complex": "c", "uint": "u", "int": "i"}
_WORDS: Final = {"NaN": "NaN", "Infinity": "Inf", "-Infinity": "-Inf"}
"""A value that is text may be a number's name in JSON."""


def array_of(dtype: str, shape: Sequence[int]) -> str:
    """The type of an array: ``f32[8, 4, 340]``, ``bf16[2]``, ``i64[]``."""
    known = _DTYPE.fullmatch(dtype)
    short = dtype.removeprefix("torch.") if known is None else _SHORT[known[1]] + known[2]
    return short + index_text(shape)


def index_text(index: Sequence[int]) -> str:
    """An index or a shape: ``[0, 3, 117]``."""
    return f"[{', '.join(str(i) for i in index)}]"


def value_text(value: object) -> str:
    """A value, text in quotation marks: ``1e-20``, ``NaN``, ``True``, ``'mean'``."""
    if isinstance(value, str):
        try:
            return _WORDS.get(value) or format_value(complex(value))
        except ValueError:
            return f"'{value}'"
    return format_value(value)


def bad_word(value: float | None) -> str:
    """``NaN``, ``Inf`` or ``-Inf``; a complex number that is bad is known as no value, and is called NaN."""
    return "NaN" if value is None or value != value else ("Inf" if value > 0 else "-Inf")


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun: ``1 element``, ``10,880 elements``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"


def percent_text(part: int, total: int) -> str:
    """How large a part is, in percent: ``50.6%``, ``0.02%``; ``100%`` for the whole."""
    return "100%" if part >= total else f"{100 * part / total:.3g}%"


def share_text(bad: int, total: int) -> str:
    """How many elements of how many: ``3 of 12 elements``, ``all 12 elements``; nothing for the one of one."""
    if total <= 1:
        return ""
    return f"all {total:,} elements" if bad >= total else f"{bad:,} of {total:,} elements"


# -- The words for one finding: its headline, its place, its element, what made it, what it reached --------------------


_NAMES_SHOWN: Final = 3
_NAME_LENGTH: Final = 60
"""A name that the program made itself, such as the key of a dictionary, can be of any length."""
_CAUSES_SHOWN: Final = 4
_MEMBERS_SHOWN: Final = 3
_OPERANDS_SHOWN: Final = 16
_POSITIONS: Final = frozenset(("self", "other", "input", "src", "source", "value", "tensor1", "tensor2"))
"""Names of operands that say no more than where they stand."""

_PLACES: Final[dict[SinkKind, str]] = {
    "loss": "the loss",
    "gradient": "the gradients",
    "parameter": "the parameters",
    "output": "the output",
    "buffer": "a buffer",
}

_ONE: Final[dict[SinkKind, str]] = {
    "gradient": "the gradient of",
    "parameter": "the parameter",
    "buffer": "the buffer",
}

_TURNS: Final = {
    "float64_differs": "finite there, but not what float64 would have given",
    "drops_nan": "finite there, but a NaN was left out on the way",
    "place_of_nan": "finite there, but a NaN was taken for a place on the way",
    "made_of_bad": "finite there, but made of {bad}",
}
"""By the kind of the step in which a bad number became a finite one: what is to be known of that one."""

_PHASES: Final = {
    "accumulation": "(where gradients are added up)",
    "optimizer": "(in the optimizer's step)",
    "buffer": "(where a buffer is updated)",
    "collective": "(in a collective operation)",
    "data": "(as data came in)",
}


def bad_step(finding: Finding, history: Sequence[Step]) -> int | None:
    """The step whose loss or gradients are bad, where what made them so was born in an earlier one; else None."""
    last = history[-1] if history else None
    if last is None or finding.step is None or last.step <= finding.step:
        return None
    is_bad = any(number is not None and not math.isfinite(float(number)) for number in (last.loss, last.norm))
    return last.step if is_bad and any(reach.kind in ("loss", "gradient") for reach in finding.reaches) else None


def headline(finding: Finding, *, raised: bool, bad_at: int | None = None) -> str:
    """What is bad, where, and at which step: ``NaN in the loss at step 3``; `raised`: by an exception the run ended.

    `bad_at`: that step, where it is a later one than that of the birth.
    """
    word = bad_word(finding.element.value)
    if finding.damage is not None:
        what = damaged(finding.damage)
    elif finding.fate == "absorbed":
        what = f"{word} that did no harm"
    elif finding.fate == "damaging":
        what = f"{word} turned into a wrong finite value{_damaged_place(finding)}"
    elif not finding.reaches:
        what = f"{word} in the run"
    else:
        what = f"{_reached_word(finding, word)} in {_first_place(finding, raised=raised)}"
    step = "" if finding.step is None else f" at step {finding.step}"
    rank = "" if finding.rank is None else f" on {ranks_text(finding.ranks or (finding.rank,))}"
    if bad_at is not None:
        return f"{what} at step {bad_at}, born in step {finding.step}{rank}"
    micro = f", backward {finding.micro}" if step and finding.micro is not None and finding.micro > 1 else ""
    warning = "warning: " if finding.severity == "warning" else ""
    return f"{warning}{what}{step}{micro}{rank}"


def ranks_text(ranks: Sequence[int]) -> str:
    """Some ranks on one line: ``rank 3``, ``ranks 3, 7 and 41``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > _NAMES_SHOWN + 1:
        return f"ranks {', '.join(map(str, ranks[:_NAMES_SHOWN]))} and {len(ranks) - _NAMES_SHOWN:,} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def transfer_text(transfer: Transfer) -> str:
    """How a bad number came to other ranks: ``rank 1 through all_reduce 3 at train.py:9, sent at train.py:7``."""
    count = "" if transfer.sequence is None else f" {transfer.sequence:,}"
    there = "" if transfer.receiver_site is None else f" at {transfer.receiver_site.file}:{transfer.receiver_site.line}"
    here = ""
    if transfer.sender_site is not None and transfer.sender_site != transfer.receiver_site:
        here = f", sent at {transfer.sender_site.file}:{transfer.sender_site.line}"
    sender = "" if transfer.sender is None else f"from rank {transfer.sender} "
    return f"{sender}to {ranks_text(transfer.receivers)} through {transfer.operation}{count}{there}{here}"


def attribution_text(attribution: Attribution) -> str:
    """What a further replay says of a source: ``not the data: with the batch before the step is bad as well``."""
    source = {"order": "the order of operations", "mathematics": "the mathematics", "data": "the data"}.get(
        attribution.source, attribution.source
    )
    head = {True: source, False: f"not {source}", None: f"{source}?"}[attribution.holds]
    return f"{head}: {attribution.evidence}"


def damaged(damage: Damage) -> str:
    """What silent damage is: ``a guard overwrites 50% of the values``."""
    match damage.kind:
        case "overwritten":
            return f"a guard overwrites {percent_text(damage.concerned, damage.total)} of the values"
        case "vanished":
            return "a constant rounds away where it is needed"
        case "stalled":
            return "a parameter that no step moves"
        case "steep":
            return "a gradient out of all proportion"
        case "zeroed":
            return f"{percent_text(damage.concerned, damage.total)} of the gradients become 0"
        case "saturated":
            return f"{percent_text(damage.concerned, damage.total)} of the values saturate in a cast"


def _reached_word(finding: Finding, word: str) -> str:
    """What arrives: NaN stays NaN, but Inf that went through operations may have become NaN on the way.

    Of a constant no steps are kept: it is what the place holds, which may have the other sign.
    """
    carried = any(link.role == "step" for link in finding.chain)
    if finding.birth == "literal" and word != "NaN":
        held = next((reach.value for reach in finding.reaches if reach.value is not None), None)
        return word if held is None else bad_word(held)
    return "Inf or NaN" if carried and word != "NaN" else word


def _damaged_place(finding: Finding) -> str:
    kinds: list[SinkKind] = [reach.kind for reach in finding.reaches]
    spoiled: list[SinkKind] = [kind for kind in kinds if kind != "observed"]
    return f" in {_PLACES[spoiled[0]]}" if spoiled else ""


def _first_place(finding: Finding, *, raised: bool) -> str:
    # reaches are in the order of time; what was merely read on the way comes after what it did
    kinds: list[SinkKind] = [reach.kind for reach in finding.reaches]
    spoiled: list[SinkKind] = [kind for kind in kinds if kind != "observed"]
    first: SinkKind = (spoiled or kinds)[0]
    if finding.phase == "buffer" and "buffer" in kinds:
        first = "buffer"
    if first == "observed":
        named = next((reach.name for reach in finding.reaches if reach.name), None)
        return "a value that was read" if named is None else _held_names_text(named, raised=raised)
    return _PLACES[first]


def _held_names_text(names: str, *, raised: bool) -> str:
    return f"{names} as the program raised" if raised else names


def birth_place(finding: Finding) -> list[str]:
    """The place of a birth: file, line and column, function, module, and the phase where it is not the forward."""
    if finding.site is None:
        if finding.phase == "inference" and finding.op is None and finding.node is None and finding.value:
            # an output that no node reads or writes
            return [f"{finding.value}, which leaves the graph as it came in"]
        named = node(finding) or finding.node or finding.op or "a value"
        module = [f"in {_module(finding.modules[0])}"] if finding.modules else []
        return [f"{named}, whose line is not known", *module, *_phase(finding)]
    return [*place(finding.site), *_phase(finding)]


def node(finding: Finding) -> str:
    """The node of an ONNX model: ``Div /head/Div, which writes ratio``; nothing for what is none."""
    if finding.phase != "inference" or finding.op is None:
        return ""
    named = f"{finding.op} {finding.node}" if finding.node and finding.node != finding.op else finding.op
    wrote = finding.value if finding.value and finding.value != finding.node else None
    return f"{named}, which writes {wrote}" if wrote else named


def place(site: Site) -> list[str]:
    """A place: ``net.py:40:16``, ``in Net.forward, module encoder.0``."""
    column = "" if site.column is None else f":{site.column}"
    function = f"in {site.function}" if site.function and site.function != "<module>" else ""
    module = _module(site.module) if site.module else ""
    inside = ", ".join(part for part in (function, module) if part)
    return [f"{site.file}:{site.line}{column}", *([inside] if inside else [])]


def _module(name: str) -> str:
    """A module by its name; of a redacted report the name is ``module 1`` already."""
    return name if name.startswith("module ") else f"module {name}"


def _phase(finding: Finding) -> list[str]:
    if finding.phase == "backward":
        return [f"(in its backward, {finding.grad_fn})" if finding.grad_fn else "(in its backward)"]
    words = _PHASES.get(finding.phase)
    return [] if words is None else [words]


def element(found: Element, *, entered: bool = False, lost: bool = False) -> str:
    """The first element concerned, its value, and how many more: ``[0, 3] of f32[8, 4] is NaN, and 8 more of 32``.

    What has `entered` is nobody's result; of what is `lost` the value is not known.
    """
    array = array_of(found.dtype, found.global_shape or found.shape)
    index = found.index if found.global_index is None else found.global_index
    named = [found.tensor] if found.tensor else []
    if found.list_index is not None:
        named.append(f"list entry {found.list_index}")
    elif found.output:
        named.append(f"output {found.output}")
    if not found.shape and not named:
        named = ["the value" if entered else "the result"]
    holder = f"{', '.join(named)}, {array}," if named else array
    where = "an element of " if index is None else f"{index_text(index)} of " if index else ""
    others = found.count - 1
    of = f"{found.total:,}" if found.global_index is None else f"the {found.total:,} on this rank"
    more = f", and {others:,} more of {of}" if others > 0 else f", 1 of {of}"
    finite = found.value is not None and math.isfinite(found.value)
    value = f" is {value_text(found.value) if finite else bad_word(found.value)}"
    return f"{where}{holder}{'' if lost else value}{more if found.total > 1 else ''}"


def operands(found: Iterable[Operand | ForwardOperand]) -> list[str]:
    """The values that the operation met, each told once: ``imag = 1e-20``."""
    told = list(dict.fromkeys(text for operand in found if (text := _operand(operand))))
    if len(told) <= _OPERANDS_SHOWN:
        return told
    return [*told[:_OPERANDS_SHOWN], f"and {len(told) - _OPERANDS_SHOWN:,} more operands"]


def _operand(operand: Operand | ForwardOperand) -> str:
    """An operand's value; of a row its range; of one that is not held any more, a question mark."""
    written = _is_number(operand.expression)
    if written and operand.name in _POSITIONS:
        # the line of source shows it
        return ""
    name = operand.name if written else operand.expression or operand.name
    shape = getattr(operand, "shape", None)
    array = array_of(operand.dtype, shape) if operand.dtype and shape is not None else ""
    low, high = getattr(operand, "min", None), getattr(operand, "max", None)
    if low is not None or high is not None:
        least, most = value_text(low), value_text(high)
        nan = isinstance(operand.value, float) and operand.value != operand.value and least != "NaN"
        holder = f", in {array}" if array else ""
        ends = f"of {least} only" if least == most and not nan else f"from {least} to {most}"
        return f"{name}: a row {ends}{', and NaN' if nan else ''}{holder}"
    if operand.value is not None:
        return f"{name} = {value_text(operand.value)}"
    if operand.origin == "gone":
        return f"{name} = ?"
    return f"{name}: {array}" if array else ""


def _is_number(expression: str | None) -> bool:
    """Whether the source writes an operand as a number: ``2``, ``-1e-3``."""
    try:
        complex(expression or "")
    except ValueError:
        return False
    return True


def turn_text(finding: Finding) -> str:
    """Where the bad numbers of a damaging finding turned into finite ones, and into which."""
    links = [link for link in finding.chain if link.role == "step" and _turn(link)]
    file = None if finding.site is None else finding.site.file
    return _link_place(links[0], file) if links and finding.fate == "damaging" else ""


def finite_but_wrong(finding: Finding) -> str:
    """What is to be known of a damaging finding where it ends: nothing bad is seen there."""
    if finding.fate != "damaging" or finding.damage is not None:
        return ""
    known = [said for link in finding.chain if link.role == "step" and (said := _turn(link))]
    return known[-1] if known else f"finite there, but computed from {bad_word(finding.element.value)}"


def _turn(link: ChainLink) -> str:
    return _TURNS.get(link.typed_summary.kind, "").format(**link.typed_summary.values)


def lost_operands(finding: Finding) -> list[str]:
    """The operands whose values were not held any more when they were wanted."""
    all_of = (*finding.forward_operands, *finding.element.operands)
    names = (o.expression or o.name for o in all_of if o.value is None and o.origin == "gone" and not _ranged(o))
    lost = list(dict.fromkeys(names))
    if len(lost) <= _OPERANDS_SHOWN:
        return lost
    return [*lost[:_OPERANDS_SHOWN], f"and {len(lost) - _OPERANDS_SHOWN:,} more operands"]


def _ranged(operand: Operand | ForwardOperand) -> bool:
    return getattr(operand, "min", None) is not None or getattr(operand, "max", None) is not None


def told_before(finding: Finding, earlier: Sequence[Finding]) -> int | None:
    """Which of the findings that were told was born in the same expression; None if none was."""
    if finding.site is None or finding.site.column is None:
        return None
    return next((n for n, known in enumerate(earlier) if known.site == finding.site), None)


def causes(finding: Finding, like: Finding | None = None) -> list[str]:
    """What made the operand bad, in order; of a long chain where it began, and what came last there and elsewhere.

    What the sentence of the finding has said already is not said again, nor a path that a finding `like` it has shown.
    """
    if like is not None and _path(finding) == _path(like):
        return []
    file = None if finding.site is None else finding.site.file
    links = [link for link in finding.chain if link.role == "cause" and _is_news(link, finding)]
    if finding.data is not None and finding.birth == "entered":
        # the sentence says where it came from, and the first line where it was read
        links = [link for link in links if link.site != finding.site]
    places: dict[str, ChainLink] = {}
    for link in links:
        places.setdefault(_link_place(link, file), link)
    told = list(places)
    if len(told) <= _CAUSES_SHOWN:
        return told
    from whynan.records import gives_infinity

    # what the birth's own line does, the reader has before them
    line = None if finding.site is None else (finding.site.file, finding.site.line)
    sites = [link.site for link in places.values()]
    elsewhere = [n for n, site in enumerate(sites) if site is not None and (site.file, site.line) != line]
    bearing = [
        n for n, link in enumerate(places.values()) if 0 < n < len(told) - 1 and gives_infinity(link.typed_summary)
    ]
    shown = sorted({0, len(told) - 1, *(bearing or elsewhere)[-1:]})
    shown = shown if len(shown) == _CAUSES_SHOWN - 1 else sorted({*shown, len(told) - 2})
    found: list[str] = []
    for before, number in zip([-1, *shown], shown, strict=False):
        skipped = number - before - 1
        found += [f"({count_text(skipped, 'step')} between)"] if skipped else []
        found.append(told[number])
    return found


def _is_news(link: ChainLink, finding: Finding) -> bool:
    """Whether the sentence of a finding does not say yet what a link does, or the place of what the program writes."""
    is_elsewhere = link.site is not None and link.site != finding.site
    written = is_elsewhere and (finding.birth == "literal" or (link.op is None and finding.birth != "entered"))
    return written or link.summary not in finding.message


def _path(finding: Finding) -> list[tuple[str | None, int | None]]:
    """The events behind a birth, whatever element it was that went through them."""
    links = [link for link in finding.chain if link.role == "cause"]
    return [(link.op, None if link.site is None else link.site.line) for link in links]


def _link_place(link: ChainLink, file: str | None) -> str:
    if link.site is None:
        return link.summary
    where = f"line {link.site.line}" if link.site.file == file else f"{link.site.file}:{link.site.line}"
    return f"{link.summary}, at {where}"


def repeats(finding: Finding) -> str:
    """How often, and in which modules, the same was born; nothing for one."""
    parts = [f"{finding.occurrences:,} times in all"] if finding.occurrences > 1 else []
    if len(finding.modules) > 1:
        named = all(name.startswith("module ") for name in finding.modules)
        parts.append(f"in {'' if named else 'modules '}{_listed(finding.modules)}")
    return ", ".join(parts)


def maker_text(finding: Finding, before: Finding) -> str:
    """What made what came in, where that was not known ``before`` a fix at it was proved; else nothing."""
    made = None if finding.data is None else finding.data.computed
    if made is None or (before.data is not None and before.data.computed == made):
        return ""
    place = f"at {made.file}:{made.line}"
    return place if made.code is None else f"by {made.code}, {place}"


def also_text(finding: Finding) -> str:
    """Where else the same was born: ``the same in line 15 (twice) and in its backward``; nothing where nowhere.

    What another rule explains is said to have the cause: ``from the same cause: WN102 in line 48``.
    """
    same = Counter(_member_place(m, finding) for m in finding.also if m.rule == finding.rule)
    others = Counter(f"{m.rule} {_member_place(m, finding)}" for m in finding.also if m.rule != finding.rule)
    parts = [("the same", same), ("from the same cause:", others)]
    return "; ".join(f"{start} {_places_text(places)}" for start, places in parts if places)


def _places_text(places: Counter[str]) -> str:
    told = [f"{place}{'' if n == 1 else ' (twice)' if n == 2 else f' ({n:,} times)'}" for place, n in places.items()]
    if len(told) > _MEMBERS_SHOWN:
        told = [*told[: _MEMBERS_SHOWN - 1], count_text(len(told) - _MEMBERS_SHOWN + 1, "more place")]
    return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)


def _member_place(member: Member, finding: Finding) -> str:
    site, here = member.site, finding.site
    if site is None:
        return f"in {member.op or 'an operation'}, whose line is not known"
    is_back = member.phase == "backward" and finding.phase != "backward"
    if site == here:
        is_ahead = member.phase == "forward" and finding.phase == "backward"
        return "in its backward" if is_back else "in its forward" if is_ahead else "in this expression"
    line = f"line {site.line}" if here is not None and site.file == here.file else f"{site.file}:{site.line}"
    if here is not None and (site.file, site.line) == (here.file, here.line):
        line = "this line" if site.code is None else site.code
    return f"in the backward of {line}" if is_back else f"in {line}"


def reach_lines(finding: Finding, *, raised: bool) -> list[str]:
    """What a finding reached, by kind: ``60 gradients: a, b, c and 57 more (all 2,160 elements)``."""
    groups: dict[SinkKind, list[Reach]] = {}
    for reach in finding.reaches:
        groups.setdefault(reach.kind, []).append(reach)
    graded = [reach.name for reach in groups.get("gradient", [])]
    told: list[str] = []
    if "gradient" in groups and "parameter" in groups:
        # "the same" comes after what it refers to
        groups["parameter"] = groups.pop("parameter")
    for kind, group in groups.items():
        if kind == "parameter" and len(group) > 1 and [reach.name for reach in group] == graded:
            told.append(f"the same {len(group):,} parameters{_share(group)}")
        elif kind == "observed":
            told += _observed(group, raised=raised)
        else:
            told.append(_group(kind, group))
    return [*told, *_decided(finding)]


def _decided(finding: Finding) -> list[str]:
    """What the program does because of it: ``line 12 ends the program because the loss is NaN``."""
    file = None if finding.site is None else finding.site.file
    sites = [(link.site, link.summary) for link in finding.chain if link.role == "sink"]
    places = [
        (f"line {site.line}" if site.file == file else f"{site.file}:{site.line}", what) for site, what in sites if site
    ]
    return [f"{place} {what}" for place, what in places]


def _observed(group: Sequence[Reach], *, raised: bool) -> list[str]:
    named = [reach for reach in group if reach.name]
    unnamed = [reach for reach in group if not reach.name]
    told = (
        [f"{_held_names_text(_listed([str(reach.name) for reach in named]), raised=raised)}{_share(named)}"]
        if named
        else []
    )
    return [*told, f"a value that was read{_share(unnamed)}"] if unnamed else told


def _group(kind: SinkKind, group: Sequence[Reach]) -> str:
    names = [reach.name for reach in group if reach.name]
    share = _share(group)
    if kind == "loss":
        return f"the loss{share}"
    if kind == "output":
        return f"{'the output' if names in ([], ['output']) else _listed(names)}{share}"
    if len(group) == 1:
        return f"{_ONE[kind]} {shortened_name(names[0])}{share}" if names else f"a {kind}{share}"
    listed = f": {_listed(names)}" if names else ""
    return f"{count_text(len(group), kind)}{listed}{share}"


def _share(group: Sequence[Reach]) -> str:
    share = share_text(sum(reach.bad for reach in group), sum(reach.total for reach in group))
    return f" ({share})" if share else ""


def _listed(names: Sequence[str]) -> str:
    return excerpt([shortened_name(name) for name in names], _NAMES_SHOWN)


def excerpt(texts: Sequence[str], most: int) -> str:
    """The first of some texts on one line, and how many more there are."""
    shown = ", ".join(texts[:most])
    return f"{shown} and {len(texts) - most:,} more" if len(texts) > most else shown


def shortened_name(name: str, length: int = _NAME_LENGTH) -> str:
    """Beginning and end of a long name, which tell it from its neighbours."""
    half = length // 2 - 2
    return name if len(name) <= length else f"{name[:half]}...{name[-half:]}"


# -- The reason of a verdict, with what a guarded fix gives where there is no exact value ------------------------------


def reason_text(verdict: FixVerdict) -> str:
    """What proof found, what a guarded fix gives in place of an exact value first."""
    return "; ".join(filter(None, dict.fromkeys((*map(stand_in_text, verdict.stand_ins), verdict.why))))


_LACKS: Final = {
    "undefined": "there is no exact {of}",
    "infinite": "the exact {of} is infinite",
    "beyond": "the exact {of} is out of range",
    "steep": "the gradient of the exact {of} is out of range",
    "rounding": "rounding leaves no digit of the exact {of}",
    "unknown": "what comes in was rounded on its way, so no exact {of} is known",
}


def stand_in_text(given: StandIn) -> str:
    """What is given where there is no exact value, in how many elements, how far that may be off, and its gradient."""
    of = "gradient" if given.output is None else "value"
    lacks = _LACKS[given.lack].format(of=of)
    count, total = given.count, count_text(given.total, "element")
    where = " where it failed" if count is None else f" in {count:,} of {total}" if given.total > 1 else ""
    number = f" of the {_ordinal(given.output)} result" if given.output else ""
    told = f"{lacks}{where}{number}: {_range_text(given.least, given.greatest)} is given"
    if given.exact_least is None or given.exact_greatest is None:
        return told + _slope_text(given)
    exact = _range_text(given.exact_least, given.exact_greatest)
    if given.lack in ("beyond", "steep", "rounding"):
        return f"{told} for {exact}{_slope_text(given)}"
    return f"{told}{_slope_text(given)}; an operand that rounds to the same may have {exact}"


def _slope_text(given: StandIn) -> str:
    return ", and the gradient there is 0" if given.gradient_zero else ""


def _ordinal(index: int) -> str:
    """What comes at an index from 0, in words where these are short."""
    return ("first", "second", "third")[index] if index < 3 else f"{index + 1}th"


def _range_text(least: Number, greatest: Number) -> str:
    ends = dict.fromkeys((value_text(least), value_text(greatest)))
    return " to ".join(ends)
