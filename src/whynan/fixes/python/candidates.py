"""Candidates: what would mend a hazard, as edits of the file that the birth's site is in."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from whynan.expr.from_python import Reader, find_helper
from whynan.expr.log_space import logarithms
from whynan.expr.match import Match, Matcher, is_divisor
from whynan.expr.pattern import pattern
from whynan.expr.term import Term
from whynan.fixes.candidates import Candidate, Declined, Instance
from whynan.fixes.python import double_where
from whynan.fixes.python.branches import harmless_branches
from whynan.fixes.python.double_where import roots_of, twins_of
from whynan.fixes.python.edit import Edited, Editor, by_statement, insertions
from whynan.fixes.python.formula import assignment_source, formula_pair, functional, helpers_in, return_source
from whynan.fixes.python.imports import statements_of, with_imports
from whynan.fixes.python.write import NAMINGS, UnwritableError
from whynan.ops.signatures import CASTS, ELEMENTWISE, VIEWS
from whynan.ops.table import TORCH
from whynan.records.intents import FixIntent
from whynan.rules.intents import ABOVE
from whynan.source.calls import operator_of
from whynan.source.text import (
    Place,
    apply_edits,
    changed_statements,
    is_python,
    own_names,
    place_of,
    shortened,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whynan.fixes.python.edit import Root
    from whynan.fixes.python.formula import Edit
    from whynan.fixes.python.write import Naming
    from whynan.records import Finding
    from whynan.records.intents import FixKind
    from whynan.source.dataflow import Definition
    from whynan.source.text import Library


# -- What the operands of an expression were made of, as far up in its function as that is safe to compute again -------


_MOST_LEVELS: Final = 6
_FOLLOWED: Final = ELEMENTWISE | VIEWS | CASTS | TORCH.having("followed")
"""Operators that can make a 0 of what is none, or pass it on, and whose exact values are cheap."""
_PRODUCTS: Final = TORCH.having("product-sum") | {"ones_like", "zeros_like"}
"""Others, where a half format makes the difference: their exact values are not."""
_READ: Final = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.keyword, ast.Tuple),
    *(ast.List, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context),
)


def levels(reader: Reader, root: Root, known: Sequence[Definition]) -> Iterator[list[Definition]]:
    """The definitions of what an expression and the known definitions read, one level after the other.

    Each level has all before it. A definition is followed where no other can have made the value there, where it is an
    expression of PyTorch's operators alone, and where it was computed under the same context managers.
    """
    found = list(known)
    pieces: list[Root] = [root, *(d.value for d in known if d.value is not None)]
    for _ in range(_MOST_LEVELS):
        read = [name for piece in pieces for name in _names(piece)]
        new = [d for d in dict.fromkeys(traceable_definition(reader, root, name) for name in read) if d is not None]
        new = [d for d in new if d not in found]
        if not new:
            return
        found += new
        pieces = [d.value for d in new if d.value is not None]
        yield list(found)


def _names(piece: Root) -> list[ast.Name]:
    """The names that an expression reads, that of an augmented assignment's target among them."""
    target = [piece.target] if isinstance(piece, ast.AugAssign) and isinstance(piece.target, ast.Name) else []
    return [*target, *(n for n in ast.walk(piece) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))]


def traceable_definition(reader: Reader, root: Root, name: ast.Name, *, products: bool = False) -> Definition | None:
    """The definition of a name where it is read, if it is one that can be followed; through matrix ``products`` too."""
    place = reader.place
    found = reader.reaching.single_definition(name)
    if found is None or found.written or not isinstance(found.value, ast.expr):
        return None
    statement = place.statement(found.value)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is not found.value:
        return None
    if place.is_deferred(name) or not isinstance(found.node, ast.Name) or not reader.is_pure(found.value):
        return None
    same = _managers(place, statement) == _managers(place, place.statement(root))
    is_traceable = all(_is_traceable(place, node, products) for node in ast.walk(found.value))
    return found if same and is_traceable else None


def _managers(place: Place, statement: ast.stmt) -> list[ast.AST]:
    """The context managers that a statement is under."""
    return [node for node in place.above(statement) if isinstance(node, (ast.With, ast.AsyncWith))]


def _is_traceable(place: Place, node: ast.AST, products: bool) -> bool:
    if isinstance(node, ast.Call):
        name, in_place = operator_of(place, node)
        return (name in _FOLLOWED or (products and name in _PRODUCTS)) and not in_place
    return isinstance(node, _READ) and (products or not isinstance(node, ast.MatMult))


# -- Candidates: what would mend a hazard, as edits of the file that the birth's site is in ----------------------------


_MOST_MATCHES: Final = 6
_NEVER_NEGATIVE: Final = tuple(
    pattern(text)[0]
    for text in ("sum(x**2, d, k)", "mean(x**2, d, k)", "x**2", "exp(x)", "abs(x)", "vector_norm(x, p, d, k)")
)


@dataclass(frozen=True)
class Spot:
    """Where a birth is: the file, the expression, and the terms of its function, or of one that calls it.

    ``numbers`` are expressions that it read numbers of Python's from.
    """

    path: str
    place: Place
    birth: Root
    reader: Reader
    call: ast.Call | None = None
    numbers: frozenset[str] = frozenset()

    @property
    def start(self) -> Root:
        """The expression of the function that the birth is, or is in a call of."""
        return self.birth if self.call is None else self.call


def candidates(
    text: str, finding: Finding, intents: Sequence[FixIntent], *, library: Library = "torch"
) -> list[Candidate | Declined]:
    """For each intent the edit of a file's text that it comes to at a finding's site, or why there is none.

    `text` is that of the file of the site, as it was when the program ran. In the order of the intents; a guard that
    follows from what left the birth out comes first. Settings are no edits, and an absorbed birth is not mended.
    """
    wanted = [intent for intent in intents if intent.kind != "setting"]
    if finding.fate == "absorbed":
        return []
    spots = related_spots(text, finding, library)
    if isinstance(spots, str):
        return [Declined(intent.title, spots) for intent in wanted]
    spot = spots[0]
    left_out = None if finding.around is None else finding.around.left_out
    masked = left_out is not None and left_out.op.split(".")[1] in ("mul", "nan_to_num")
    wanted = _with_all_below(spot, wanted)
    found = [*_double_where_candidates(spot, masked), *(_first_candidate(spots, intent) for intent in wanted)]
    found += _candidates_of_entry(spot, finding)
    if not any(isinstance(one, Candidate) and one.kind == "reformulation" for one in found):
        for at in spots:
            if made := _log_space_candidates(at, finding.element.dtype):
                found += made
                break
    return _without_repeats(found)


def consistent_candidates(text: str, finding: Finding, intents: Sequence[FixIntent]) -> list[Candidate | Declined]:
    """All that `candidates` may have made of a finding, of which a report holds less than the run knew."""
    wanted = [intent for intent in intents if intent.kind != "setting"]
    spots = related_spots(text, finding)
    if isinstance(spots, str):
        return [Declined(intent.title, spots) for intent in wanted]
    wanted = _with_all_below(spots[0], wanted)
    found = [one for masked in (False, True) for one in _double_where_candidates(spots[0], masked)]
    found += _candidates_of_entry(spots[0], finding)
    found += [one for at in spots for one in _log_space_candidates(at, finding.element.dtype)]
    return _without_repeats([*found, *(_candidate(at, intent) for at in spots for intent in wanted)])


def numpy_texts(text: str, path: str, intents: Sequence[FixIntent], lines: Sequence[int]) -> list[str]:
    """What intents make of a file's text at the NumPy expressions of some lines."""
    place = place_of(text, "numpy")
    spots = (
        Spot(path, place, node, Reader(place, place.function(node)))
        for node in place.parents
        if isinstance(node, (ast.BinOp, ast.Call, ast.AugAssign)) and node.lineno in lines
    )
    made = (_candidate(spot, intent) for spot in spots for intent in intents)
    return list(dict.fromkeys(one.edited for one in made if isinstance(one, Candidate)))


def _double_where_candidates(spot: Spot, masked: bool) -> list[Candidate | Declined]:
    """The guard that a selection asks for, where there is one; ``masked``: a product with a mask is one."""
    chosen = double_where.double_where(spot.reader, spot.birth, masked=masked)
    found = [] if chosen is None else [_selection_candidate(spot, chosen)]
    branches = harmless_branches(spot.reader, spot.birth)
    return found if branches is None else [*found, _selection_candidate(spot, *branches)]


def _candidates_of_entry(spot: Spot, finding: Finding) -> list[Candidate | Declined]:
    """What keeps out of an expression what came in bad, and what the program leaves out only later."""
    if finding.birth != "entered" or spot.place.library != "torch":
        return []
    return [_selection_candidate(spot, one) for one in double_where.double_wheres_of_operands(spot.reader, spot.birth)]


def _first_candidate(spots: Sequence[Spot], intent: FixIntent) -> Candidate | Declined:
    """The candidate in the birth's own function, else in one that calls it."""
    found = [_candidate(spot, intent) for spot in spots[:1]]
    for spot in spots[1:]:
        if isinstance(found[-1], Candidate):
            break
        found.append(_candidate(spot, intent))
    return found[-1] if isinstance(found[-1], Candidate) else found[0]


def _callers(spot: Spot, finding: Finding) -> list[Spot]:
    """The calls of the birth's function in the file, where it is a small one that only computes a value.

    Those in functions that the finding's chain goes through come first.
    """
    place, function = spot.place, spot.reader.reaching.function
    if not isinstance(function, ast.FunctionDef):
        return []
    calls = [
        node
        for node in place.parents
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == function.name
        and find_helper(place, node.func) is function
    ]
    passed = {link.site.function for link in finding.chain if link.site is not None}
    calls.sort(key=lambda c: (place.qualified_name(place.function(c)) not in passed, c.lineno, c.col_offset))
    readers = {caller: Reader(place, caller) for caller in {place.function(c) for c in calls} if caller is not function}
    return [
        Spot(spot.path, place, spot.birth, readers[caller], call)
        for call in calls
        if (caller := place.function(call)) in readers
    ]


def _without_repeats(found: list[Candidate | Declined]) -> list[Candidate | Declined]:
    texts: set[str] = set()
    kept: list[Candidate | Declined] = []
    for candidate in found:
        if isinstance(candidate, Candidate):
            if candidate.edited in texts:
                continue
            texts.add(candidate.edited)
        kept.append(candidate)
    return kept


def related_spots(text: str, finding: Finding, library: Library = "torch") -> list[Spot] | str:
    """Where a finding's birth is in a file's text, and the calls of the small function that it is in; or why not."""
    spot = spot_of(text, finding, library)
    return spot if isinstance(spot, str) else [spot, *_callers(spot, finding)]


def spot_of(text: str, finding: Finding, library: Library = "torch") -> Spot | str:
    """Where a finding's birth is in a file's text; or why that is not known."""
    if finding.site is None:
        return "it is not known where in the source it is"
    place = place_of(text, library)
    if place.tree is None or not is_python(text):
        return f"{finding.site.file} does not parse"
    birth = place.node_of(finding.site)
    if birth is None:
        return f"no expression stands at line {finding.site.line} where the run had one"
    read = [o for o in finding.element.operands if o.value is not None and o.dtype is None]
    numbers = frozenset(o.expression for o in read if o.expression)
    return Spot(finding.site.file, place, birth, Reader(place, place.function(birth)), numbers=numbers)


def _candidate(spot: Spot, intent: FixIntent) -> Candidate | Declined:
    wanted, tree = pattern(intent.pattern)
    repaired = pattern(intent.replacement)[0]
    if intent.kind != "reformulation" and any(_matches(spot, repaired)):
        return Declined(intent.title, "it is written so already")
    reason, unfit = f"{shortened(spot.place.code(spot.birth), 60)} is not written as {intent.pattern}", True
    for root, match in _matches(spot, wanted):
        for naming in NAMINGS:
            if naming == "nowhere" and not _is_repeatable(spot, match):
                break
            try:
                edited = Editor(spot.reader, naming, spot.numbers).edit_match(root, tree, intent, match)
                return _match_candidate(spot, intent, match, [edited, *_twins(spot, root, intent, naming)])
            except UnwritableError as error:
                reason, unfit = str(error), False
    return Declined(intent.title, reason, unfit)


_IN_LOG_SPACE: Final = "the logarithm made of those of its parts, in which no exponential is left"


def _log_space_candidates(spot: Spot, dtype: str) -> list[Candidate]:
    """The logarithm of an expression around the birth by those of its parts, in each of its forms."""
    for root in roots_of(spot.reader, spot.start):
        forms = logarithms(spot.reader, spot.reader.read(root), dtype)
        made = (_log_space_candidate(spot, root, *form) for form in forms)
        if found := [one for one in made if one is not None]:
            return found
    return []


def _log_space_candidate(
    spot: Spot, root: Root, formula: str, match: Match, names: tuple[tuple[str, str], ...]
) -> Candidate | None:
    if spot.birth not in match.nodes:
        return None
    intent = FixIntent(_IN_LOG_SPACE, "reformulation", "log(x)", formula, names)
    for naming in NAMINGS:
        with suppress(UnwritableError):
            editor = Editor(spot.reader, naming, spot.numbers)
            edited = editor.edit_match(root, pattern(intent.pattern)[1], intent, match)
            return _match_candidate(spot, intent, match, [edited])
    return None


def _is_repeatable(spot: Spot, match: Match) -> bool:
    terms = [value for value in match.variables.values() if isinstance(value, Term)]
    return all(term.node is None or spot.reader.is_pure(term.node) for term in terms)


def _matches(spot: Spot, wanted: Term) -> Iterator[tuple[Root, Match]]:
    """Where a pattern matches with the birth as one of its own operators, the smallest expression first."""
    matcher = Matcher(spot.reader)
    count = 0
    for root in roots_of(spot.reader, spot.start):
        found = (m for m in matcher.matches(wanted, spot.reader.read(root)) if spot.birth in m.nodes)
        first = next(found, None)
        if first is not None:
            every = [first, *itertools.islice(found, _MOST_MATCHES)]
            best = _with_divisor(spot, every)
            yield root, best
            if _numbers(best):
                # of an only factor and 1: it may be a product by another name
                yield from ((root, match) for match in every if not _numbers(match))
            count += 1
        if count >= _MOST_MATCHES:
            return
    if count == 0 and spot.call is None:
        yield from _operands(spot, matcher, wanted)


def _with_divisor(spot: Spot, found: Sequence[Match]) -> Match:
    """The first match that has what the birth divides by for one of its variables, where one has; else the first.

    A quotient of several divisors is a quotient by each of them.
    """
    quotient = spot.reader.read(spot.birth)
    factors = quotient.operands if quotient.name == "mul" else (quotient,)
    divisors = [(f.origin or f.operands[0]).key for f in factors if is_divisor(f) and spot.birth in f.own]
    having = (m for m in found if any(isinstance(v, Term) and v.key in divisors for v in m.variables.values()))
    return next(having, found[0])


def _numbers(match: Match) -> bool:
    """Whether a variable stands for a number."""
    return any(isinstance(value, Term) and value.name == "number" for value in match.variables.values())


def _operands(spot: Spot, matcher: Matcher, wanted: Term) -> Iterator[tuple[Root, Match]]:
    """Where a pattern is what an operand of the birth is made of: no operator of its own is to be changed."""
    for operand in spot.reader.read(spot.birth).operands:
        made = operand
        while (following := spot.reader.expand(made)) is not None:
            made = following
        if made.node is not None and wanted.name == made.name:
            match = next((m for m in matcher.matches(wanted, made) if made.node in m.nodes), None)
            if match is not None:
                yield made.node, match


def _twins(spot: Spot, root: Root, intent: FixIntent, naming: Naming) -> list[Edited]:
    """The same expression of the same values elsewhere in the function, mended alike."""
    wanted, tree = pattern(intent.pattern)
    found: list[Edited] = []
    for twin in twins_of(spot.reader, root):
        match = next(Matcher(spot.reader).matches(wanted, spot.reader.read(twin)), None)
        for other in NAMINGS[NAMINGS.index(naming) :]:
            if match is None:
                break
            with suppress(UnwritableError):
                found.append(Editor(spot.reader, other).edit_match(twin, tree, intent, match))
                break
    return found


def _match_candidate(spot: Spot, intent: FixIntent, match: Match, everywhere: Sequence[Edited]) -> Candidate:
    edits = sorted({edit for edited in everywhere for edit in edited.edits})
    imports = {module for edited in everywhere for module in edited.imports}
    root = everywhere[0].root
    definitions = match.definitions
    if intent.kind == "guard" and isinstance(root, ast.expr):
        around = double_where.enclosing_selection(spot.reader, root)
        if around is not None:
            root, more = around
            definitions = (*definitions, *more)
    signs = _signs(spot, intent, match, {d.name for d in definitions})
    return build_candidate(spot, intent.title, intent.kind, root, definitions, edits, imports, everywhere, signs)


def _signs(spot: Spot, intent: FixIntent, match: Match, made: set[str]) -> list[str]:
    """Lines ahead of a formula: what a rewrite takes the root of is made of squares or the like, so not below 0."""
    rooted = [v for n, v in match.variables.items() if isinstance(v, Term) and f"sqrt({n})" in intent.replacement]
    named = [(t, t.node.id) for t in rooted if isinstance(t.node, ast.Name) and t.node.id not in made]
    known = [name for term, name in named if intent.kind == "reformulation" and _is_never_negative(spot.reader, term)]
    return [assignment_source(name, f"abs({name})") for name in dict.fromkeys(known)]


def _is_never_negative(reader: Reader, term: Term) -> bool:
    """Whether it is seen in the function that an expression is 0 or above, whatever it reads."""
    made = reader.expand(term) or term
    if made.name == "number":
        return made.value >= 0
    if made.name == "mul":
        # of a product a square may be a part
        return all(_is_never_negative(reader, part) for part in made.operands)
    return any(next(Matcher(reader).matches(wanted, made), None) is not None for wanted in _NEVER_NEGATIVE)


def _with_all_below(spot: Spot, intents: Sequence[FixIntent]) -> list[FixIntent]:
    """The intents; a guard at 0 is one at 0 and below, where a root or a logarithm is that of a difference.

    What is 0 there by rounding is as well a little less.
    """
    root = spot.reader.read(spot.birth)
    of = root.operands[0] if root.operands else root
    while isinstance(of.node, ast.Subscript):
        of = spot.reader.read(of.node.value)
    made = spot.reader.expand(of) or of
    cancels = made.name == "add" and not all(_is_never_negative(spot.reader, part) for part in made.operands)
    return [ABOVE.get(intent, intent) if cancels else intent for intent in intents]


def _selection_candidate(
    spot: Spot, chosen: double_where.DoubleWhere, everywhere: Sequence[Edited] = ()
) -> Candidate | Declined:
    if isinstance(chosen.edits, str):
        return Declined(chosen.title, chosen.edits)
    everywhere = everywhere or [Edited(chosen.root, list(chosen.edits), chosen.imports)]
    edits = sorted({edit for edited in everywhere for edit in edited.edits})
    imports = {module for edited in everywhere for module in edited.imports}
    try:
        return build_candidate(spot, chosen.title, "guard", chosen.root, chosen.definitions, edits, imports, everywhere)
    except UnwritableError as error:
        return Declined(chosen.title, str(error))


def build_candidate(
    spot: Spot,
    title: str,
    kind: FixKind,
    root: Root,
    definitions: Sequence[Definition],
    edits: Sequence[Edit],
    imports: set[str],
    everywhere: Sequence[Edited],
    known: Sequence[str] = (),
) -> Candidate:
    """The candidate of some edits, judged as the value of a root; raises ``UnwritableError``.

    ``known`` are lines ahead of both formulas that say what is known of what they read.
    """
    place, first = spot.place, everywhere[0]
    if any(a[1] > b[0] for a, b in itertools.pairwise(edits)):
        raise UnwritableError("its parts overlap")
    lines = by_statement(place, everywhere)
    edited = apply_edits(place.text, [*edits, *insertions(place, lines)])
    if not is_python(edited) or not _is_kept(place, edited, edits, sum(map(len, lines.values()))):
        raise UnwritableError("it cannot be written there")
    if imports:
        edited = with_imports(edited, imports)
        if not is_python(edited):
            raise UnwritableError("its imports cannot be added")
    chain, line = _chain(spot, kind, root, definitions)
    own = first.rewritten if isinstance(first.root, ast.AugAssign) or _rebinds(place, first) else None
    pieces: list[Root] = [root, *(d.value for d in chain if d.value is not None)]
    calls = [edit for piece in pieces for edit in _function_edits(spot, piece)]
    edits = [*edits, *(c for c in calls if not any(a <= c[0] < b or a < c[1] <= b for a, b, _ in edits))]
    imports = imports | ({"torch"} if calls else set())
    before = [*(assignment_source(d.name, functional(place, d.value, calls)) for d in chain if d.value is not None)]
    after: list[str] = []
    for d in chain:
        if d.value is not None:
            after += [assignment_source(*line) for line in lines.pop(place.statement(d.value), ())]
            after.append(assignment_source(d.name, functional(place, d.value, edits)))
    after += [assignment_source(*line) for line in lines.pop(place.statement(root), ())]
    is_root = root is first.root and own is not None
    before.append(return_source(functional(place, root, calls)))
    after.append(return_source(own if is_root and own is not None else functional(place, root, edits)))
    before, after = ([*helpers_in(place, body), *known, *body] for body in (before, after))
    function = spot.reader.reaching.function
    original, repaired = formula_pair(before, after, line, statements_of(place), imports, own=own_names(function))
    original = replace(original, instances=_instances(spot, pieces))
    found = Candidate(title, kind, spot.path, edited, original, repaired, place.qualified_name(function))
    return replace(found, library=place.library)


def _function_edits(spot: Spot, piece: Root) -> list[Edit]:
    """The edits that make of calls of instances of modules those of functions, which need no instance."""
    found: list[Edit] = []
    for node in ast.walk(piece):
        known = spot.reader.instance_function(node) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and known is not None:
            function, settings = known
            keywords = ", ".join(f"{k}={v or f'{spot.place.code(node.func)}.{k}'}" for k, v in settings.items())
            end = spot.place.span(node)[1] - 1
            separator = "" if spot.place.text[:end].rstrip().endswith((",", "(")) else ", "
            found += [(*spot.place.span(node.func), function), (end, end, separator + keywords if keywords else "")]
    return found


def _instances(spot: Spot, pieces: Sequence[Root]) -> tuple[Instance, ...]:
    """The modules that are called in some expressions by names, and that a formula has the functions of."""
    found: dict[str, Instance] = {}
    for node in (node for piece in pieces for node in ast.walk(piece)):
        known = spot.reader.instance_function(node) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and known is not None and not isinstance(node.func, ast.Call):
            callee = spot.place.code(node.func)
            found[callee] = Instance(callee, known[0].rpartition(".")[2], tuple(known[1].items()))
    return tuple(found.values())


def _chain(spot: Spot, kind: FixKind, root: Root, definitions: Sequence[Definition]) -> tuple[list[Definition], int]:
    """The definitions that a formula has, in the order of the source, and the line at which it begins.

    What changes a value is compared in terms of what the operands were made of: 0 may be no 0 but what a softmax
    underflowed to.
    """
    chain = _sorted_definitions(spot, definitions)
    if kind == "reformulation":
        chain = _with_earlier_values(spot, root, chain)
    line = _line(spot, root, chain)
    if kind == "reformulation":
        return _from_first_call(spot, root, chain, line)
    for more in levels(spot.reader, root, chain):
        further = _sorted_definitions(spot, more)
        try:
            chain, line = further, _line(spot, root, further)
        except UnwritableError:
            break
    return chain, line


def _with_earlier_values(spot: Spot, root: Root, chain: list[Definition]) -> list[Definition]:
    """The definitions with those of the values that names had which the definitions give others."""
    reader = spot.reader
    for _ in range(_MOST_LEVELS):
        with suppress(UnwritableError):
            _line(spot, root, chain)
            break
        made = {d.name for d in chain}
        pieces: list[Root] = [*(d.value for d in chain if d.value is not None), root]
        read = [n for piece in pieces for n in _names(piece) if n.id in made]
        found = [reader.reaching.single_definition(n) for n in read]
        new = [d for d in found if d is not None and d not in chain and not d.written]
        new = [d for d in dict.fromkeys(new) if isinstance(d.value, ast.expr) and reader.is_pure(d.value)]
        if not new:
            break
        chain = _sorted_definitions(spot, [*chain, *new])
    return chain


def _from_first_call(spot: Spot, root: Root, chain: list[Definition], line: int) -> tuple[list[Definition], int]:
    """The definitions with those that stand between them, where what is called in the first is known there alone."""
    place, reader = spot.place, spot.reader
    values = [d.value for d in chain if d.value is not None]
    first = min((place.statement(value).lineno for value in values), default=line)
    if first >= line or all(reader.is_pure(value) for value in values):
        return chain, line
    pieces: list[Root] = [*values, root]
    read = dict.fromkeys(reader.reaching.single_definition(name) for piece in pieces for name in _names(piece))
    made = [d for d in read if d is not None and isinstance(d.value, ast.expr) and d.node is not None]
    between = [d for d in made if d.value is not None and first <= place.statement(d.value).lineno < line]
    with suppress(UnwritableError):
        further = _sorted_definitions(spot, [*chain, *between])
        return further, _line(spot, root, further)
    return chain, line


def _rebinds(place: Place, first: Edited) -> bool:
    """Whether a statement that wrote in place now gives the name another value."""
    statement = place.statement(first.root)
    return first.rewritten is not None and isinstance(statement, ast.Expr) and statement.value is first.root


def _sorted_definitions(spot: Spot, definitions: Sequence[Definition]) -> list[Definition]:
    """The definitions that were followed, and what these were written into, in the order of the source."""
    found = list(dict.fromkeys(definitions))
    for definition in found:  # grows: what is written in place has an earlier value
        value = definition.value
        if not definition.written or value is None:
            continue
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and node.id == definition.name:
                earlier = spot.reader.reaching.single_definition(node)
                if earlier is not None and earlier.value is not None and earlier not in found:
                    found.append(earlier)
    return sorted(found, key=lambda d: spot.place.span(d.value)[0] if d.value is not None else 0)


def _line(spot: Spot, root: Root, chain: Sequence[Definition]) -> int:
    """The line before which what the pieces read has the values that they read."""
    place, reaching = spot.place, spot.reader.reaching
    pieces: list[Root] = [*(d.value for d in chain if d.value is not None), root]
    if place.is_deferred(root):
        return place.statement(root).lineno
    made = {d.name: d for d in chain}
    loads = [n for piece in pieces for n in ast.walk(piece) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    loads += [n.target for n in pieces if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)]
    own = {n for piece in pieces for n in _own_targets(piece)}
    outer = [n for n in loads if n not in own and not (n.id in made and reaching.definitions_at(n) <= frozenset(chain))]
    if any(_is_redefined(place, n, chain) for n in outer):
        raise UnwritableError("what it reads is never all there at one statement")
    # the earliest: a visit learns what the calls behind it give
    for statement in sorted({place.statement(p) for p in pieces}, key=lambda s: s.lineno):
        if all(reaching.definitions_before(statement, n.id) == reaching.definitions_at(n) for n in outer):
            return statement.lineno
    raise UnwritableError("what it reads is never all there at one statement")


def _own_targets(piece: Root) -> Iterator[ast.Name]:
    """The names in a piece that a comprehension in it gives their values."""
    for node in ast.walk(piece):
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            targets = (n for each in node.generators for n in ast.walk(each.target))
            bound = {n.id for n in targets if isinstance(n, ast.Name)}
            yield from (n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in bound)


def _is_redefined(place: Place, name: ast.Name, chain: Sequence[Definition]) -> bool:
    """Whether a definition that was followed gives a name another value than it has where it is read."""
    start = place.span(place.statement(name))[0]
    values = [d.value for d in chain if d.name == name.id and d.value is not None]
    return any(place.span(place.statement(value))[0] < start for value in values)


def _is_kept(place: Place, edited: str, edits: Sequence[Edit], added: int) -> bool:
    """Whether every statement without an edit in it is what it was, and there are so many more as were added."""
    kept: Counter[str] = Counter()
    touched = 0
    changed, made = changed_statements(place, edited)
    for statement in changed:
        start, end = place.span(statement)
        if any(start - 1 <= edit[0] <= end for edit in edits):
            touched += 1
        else:
            kept[ast.dump(statement)] += 1
    found = Counter(map(ast.dump, made))
    return kept <= found and (found - kept).total() == touched + added
