"""Local proof: the verdict on an edit inside one function, from the recorded values of the function's variables."""

# pyright: basic

from __future__ import annotations

import ast
import inspect
import math
import sys
import textwrap
from dataclasses import dataclass, replace
from functools import cache
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from whynan.errors import UsageError
from whynan.floats import format_value
from whynan.ops.signatures import MODULES, SIGNATURES
from whynan.ops.table import TORCH
from whynan.records import FixVerdict
from whynan.verify.formula import calls, lift_expressions
from whynan.verify.in_place.instrument import CONSTRUCTION
from whynan.verify.in_place.swap import is_same_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from whynan.fixes.candidates import Candidate, Declined, Formula
    from whynan.fixes.python import Known
    from whynan.records import Finding
    from whynan.records.intents import FixKind
    from whynan.verify.in_place.visits import Visit, Visits

_MOST_FAILING: Final = 3
_MOST_HEALTHY: Final = 5
_MOST_LOOKED_AT: Final = 64
_MOST_BEFORE_BAD: Final = 8
"""So many visits are looked at before one that something bad came into."""
_COMPUTES: Final = frozenset({"torch", "math", "numpy", "einops"})
"""Libraries whose functions compute."""
_DOING: Final = frozenset("print open input exec eval next setattr delattr breakpoint".split())
_EACH: Final = {name: given.index("reduction") for name, given in SIGNATURES.items() if "reduction" in given}
"""Losses that give the mean of their elements, or each: so many arguments come before the one that says which."""
_UNROUNDED: Final = TORCH.having("value-free", "no-gradient")
"""What is made of no number, or decides: no rounding of an operand is in its result."""
_WHOLE: Final = frozenset({"program_writes", "outside", "drew", "computed"})
"""What a chain says of one number, all of whose history it tells."""
_GREATEST_EPSILON: Final = 1e-2
_MOST_BEFORE: Final = 24
_MOST_FURTHER: Final = 3
"""So many statements behind an edit may it take for what it computes to come to the same."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the operands of a finding come from.

    ``rounded`` are the functions that they came through, whose results are as a rule not exact where they are 0 or 1; a
    guard cannot be told to be right by what they gave. ``infinite``: the Inf or -Inf that the program wrote one of
    them as.
    """

    rounded: frozenset[str] = frozenset()
    infinite: float | None = None

    @classmethod
    def of(cls, finding: Finding) -> Origin:
        """That of a finding's operands."""
        values = (operand.value for operand in finding.element.operands)
        written = (value for value in values if isinstance(value, float) and math.isinf(value))
        rounded = frozenset[str]() if _is_exact_zero(finding) else saturating(finding)
        # one that was born would be the finding itself
        return cls(rounded, next(written, None) if finding.birth == "invalid" else None)


def judge_candidate(candidate: Candidate, visits: Visits, origin: Origin | None = None) -> FixVerdict:
    """The verdict on a candidate by its function's visits; raises ``UsageError`` where a formula cannot be made."""
    origin = origin or Origin()
    verdict = _judged(candidate, visits, origin)
    if verdict.status == "unverified" and verdict.forward_finite and verdict.healthy_elements is None:
        # nothing healthy is known with a number that is computed of others, which do not vary
        pair = _with_free_numbers(candidate.original, candidate.repaired, visits)
        if pair is not None:
            return _judged(replace(candidate, original=pair[0], repaired=pair[1]), visits, origin)
    return verdict


def _judged(candidate: Candidate, visits: Visits, origin: Origin) -> FixVerdict:
    from whynan.verify.verdict import judge

    tried = recorded_trial(candidate, visits)
    if isinstance(tried, str):
        return FixVerdict(status="unverified", why=tried)
    is_rounded = bool(origin.rounded - _written(candidate.original.body)[0])
    given = _chosen(tried.before, tried.given)
    # a loss of one element hides in a mean which of its terms are healthy
    (original, how), (repaired, then) = _each(candidate.original), _each(candidate.repaired)
    if how is not None and how == then:
        apart = recorded_trial(replace(candidate, original=original, repaired=repaired), visits)
        tried = tried if isinstance(apart, str) else apart
    return judge(
        tried.before,
        tried.after,
        given,
        kind=candidate.kind,
        rounded=is_rounded,
        infinite=filled_with(candidate.original.body) if origin.infinite is None else origin.infinite,
        widens=candidate.widens,
    )


def _with_free_numbers(original: Formula, repaired: Formula, visits: Visits) -> tuple[Formula, Formula] | None:
    """Two formulas that read the numbers which both begin by computing; None where there are none."""
    bodies = [ast.parse(textwrap.dedent(formula.body)).body for formula in (original, repaired)]
    there = [visit.values for visit in visits.visits if visit.line == original.line]
    stored = [n.id for body in bodies for s in body for n in ast.walk(s) if _is_stored(n)]
    names: dict[int, str] = {}
    for number, (one, other) in enumerate(zip(*bodies, strict=False)):
        match one:
            case ast.Assign(targets=[ast.Name(id=name)]) if ast.dump(one) == ast.dump(other):
                once = stored.count(name) == len(bodies)
                if once and there and all(isinstance(values.get(name), float) for values in there):
                    names[number] = name
            case ast.FunctionDef() if ast.dump(one) == ast.dump(other):
                pass
            case _:
                break
    if not names:
        return None
    read = (*dict.fromkeys(names.values()),)
    made = [ast.Module([s for n, s in enumerate(body) if n not in names], []) for body in bodies]
    first, second = (
        replace(one, inputs=(*one.inputs, *read), parameters=(*one.parameters, *read), body=ast.unparse(tree))
        for one, tree in zip((original, repaired), made, strict=True)
    )
    return first, second


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _each(formula: Formula) -> tuple[Formula, str | None]:
    """A formula that ends in a loss as the loss of each element, and how it reduces them; any other as it is."""
    tree = ast.parse(textwrap.dedent(formula.body))
    match tree.body[-1]:
        case ast.Return(value=ast.Call(func=ast.Attribute(attr=name), args=given, keywords=keywords)) if len(
            given
        ) <= _EACH.get(name, -1) and all(keyword.arg for keyword in keywords):
            reduction = next((keyword.value for keyword in keywords if keyword.arg == "reduction"), None)
            keywords[:] = [keyword for keyword in keywords if keyword.arg != "reduction"]
            keywords.append(ast.keyword("reduction", ast.Constant("none")))
            how = "" if reduction is None else ast.unparse(reduction)
            return replace(formula, body=ast.unparse(tree)), how
        case _:
            return formula, None


@dataclass(frozen=True, slots=True)
class RecordedTrial:
    """A candidate's formulas as functions, and what their parameters were at each visit."""

    before: Callable[..., Any]
    after: Callable[..., Any]
    given: list[dict[str, Any]]


def recorded_trial(candidate: Candidate, visits: Visits) -> RecordedTrial | str:
    """A candidate ready to be run on the visits of its function; or why it cannot be."""
    from whynan.verify.in_place.numpy_births import reductions_in, with_arrays

    if candidate.library == "torch":
        return _ready(candidate, visits)
    visits = with_arrays(visits)
    made = _ready(candidate, visits)
    if isinstance(made, str) or any(_fails(made.before, one) for one in made.given):
        return made
    # what is bad by its last digits is so as NumPy has rounded it
    lifted = _ready(candidate, visits, reductions_in(candidate.original))
    return made if isinstance(lifted, str) else lifted


def _ready(candidate: Candidate, visits: Visits, taken: frozenset[str] = frozenset()) -> RecordedTrial | str:
    """A candidate's formulas as functions; ``taken``: the functions whose results are taken as they were."""
    from whynan.verify.formula import compile_formula
    from whynan.verify.in_place.numpy_births import as_arrays, on_tensors, taking_tensors

    if (other := _other_instance(candidate.original, visits)) is not None:
        return other
    namespace, is_numpy = namespace_of(candidate.path), candidate.library == "numpy"
    foreign = foreign_in(candidate.original, namespace) | foreign_in(candidate.repaired, namespace) | taken
    original, repaired = _readable(candidate.original, candidate.repaired, visits, foreign)
    given = parameter_values(original, visits)
    if isinstance(given, str):
        return given
    if unrun := calls(original, foreign) or calls(repaired, foreign):
        return f"it calls {unrun}, which may do more than compute and is not run again and again for a proof"
    if is_numpy:
        given, original, repaired = as_arrays(given), on_tensors(original), on_tensors(repaired)
    before, after = (_accept_extra(compile_formula(one, namespace), one) for one in (original, repaired))
    return (
        RecordedTrial(taking_tensors(before), taking_tensors(after), given)
        if is_numpy
        else RecordedTrial(before, after, given)
    )


def cures(candidate: Candidate, visits: Visits, *, silent: bool = False) -> bool:
    """Whether a candidate is finite at the visits at which the original is not; where there are none, ``silent``."""
    try:
        tried = recorded_trial(candidate, visits)
    except UsageError:
        return False
    if isinstance(tried, str):
        return False
    failing = [one for one in _chosen(tried.before, tried.given) if _fails(tried.before, one)]
    return (bool(failing) or silent) and not any(_fails(tried.after, one, raising=True) for one in failing)


def values_at(visits: Visits) -> Callable[[int], Mapping[str, Known]]:
    """The tensors of a function's visits, by line and text: their dtype, and whether they were ever bad there."""
    import torch

    from whynan.fixes.python import Known
    from whynan.verify.torch_program import bad_kinds

    @cache
    def at(line: int) -> dict[str, Known]:
        found: dict[str, Known] = {}
        for visit in visits.visits:
            for text, value in visit.values.items() if visit.line == line else ():
                if isinstance(value, torch.Tensor):
                    bad = (text in found and found[text].bad) or bool(bad_kinds([value]))
                    found[text] = Known(str(value.dtype).removeprefix("torch."), bad)
        return found

    return at


def judge_edit(before: str, after: str, path: str, finding: Finding, visits: Visits) -> FixVerdict:
    """The verdict on somebody's own edit of a file, on the visits that were recorded of the finding's function.

    Args:
        before: the text that ran.
        after: the edited text.
        path: of the file.
        finding: what the edit is to mend.
        visits: of the function that holds the finding's expression.
    """
    from whynan.fixes.candidates import Candidate, Declined

    if finding.site is None:
        return FixVerdict(status="unverified", why="the bad number was born at no place of the source that is known")
    pair = alike(before, after, path, finding.site.line, visits)
    if isinstance(pair, Declined):
        return FixVerdict(status="unverified", why=pair.why)
    first, origin = None, Origin.of(finding)
    for further, pair in wider_pairs(before, after, path, finding.site.line, visits):
        candidate = Candidate("", kind_of(*pair), path, after, *pair, function=visits.function)
        if further and not cures(candidate, visits, silent=finding.fate == "damaging"):
            # what is known where it begins may be of other visits than those that fail
            continue
        verdict = judge_candidate(candidate, visits, origin)
        first = first or verdict
        if verdict.status == "verified":
            return verdict
        if first.status not in ("rejected", "distorting"):
            break
    assert first is not None
    return first


def saturating(finding: Finding) -> frozenset[str]:
    """The functions that a finding's operands came through and whose rounded results stand at their limits."""
    around = finding.around
    if around is None:
        return frozenset()
    made = {operation.event: operation for operation in around.operations}
    waiting, found = [around.middle], dict[int, str]()
    while waiting:
        operation = made.get(waiting.pop())
        if operation is not None and operation.event not in found:
            found[operation.event] = operation.op.split(".")[1].strip("_") if "." in operation.op else operation.op
            if found[operation.event] in _UNROUNDED:
                continue
            waiting += [argument.event for argument in operation.arguments if argument.event is not None]
    return frozenset(found.values()) & TORCH.having("saturating")


def _is_exact_zero(finding: Finding) -> bool:
    """Whether the one operand is 0 because it was multiplied with a 0 of a mask, or of data: nothing was rounded.

    Of a row, or of a sum, only one element is followed, and the others may have been.
    """
    read = finding.forward_operands if finding.phase == "backward" else finding.element.operands
    known = [operand.value for operand in read if operand.index is not None]
    said = [link.typed_summary for link in finding.chain if link.role == "cause"]
    if known != [0] or not said or any(note.kind not in _WHOLE for note in said):
        return False
    computed = [note for note in said if note.kind == "computed"]
    operators = [str(note.values["operator"]).removesuffix("_") for note in computed]
    is_compared = said[0].kind == "computed" and operators[0] in TORCH.having("comparison")
    followed = list(zip(operators, computed, strict=True))[is_compared:]
    others = (note.values["operands"] for operator, note in followed if operator != "mul")
    alone = all(isinstance(operands, tuple) and len(operands) == 1 for operands in others)
    is_begun = is_compared or said[0].kind != "computed"
    return is_begun and alone and "mul" in operators and TORCH.having("saturating").isdisjoint(operators)


def alike(
    before: str, after: str, path: str, line: int, visits: Visits, *, further: int = 0
) -> tuple[Formula, Formula] | Declined:
    """Two versions of a file as formulas that read the same, if there are such that begin at a line that was visited.

    What one reads and the other computes would be two inputs that know nothing of each other. `further`: with so many
    statements behind those that differ.
    """
    from whynan.fixes.candidates import Declined
    from whynan.fixes.python import compare_versions

    first = compare_versions(before, after, path, line, further=further)
    earlier = sorted({visit.line for visit in visits.visits if visit.line < line}, reverse=True)
    for at in (line, *earlier[:_MOST_BEFORE]):
        pair = compare_versions(before, after, path, at, further=further)
        if not isinstance(pair, Declined) and _parameters_read(pair[0]) == _parameters_read(pair[1]):
            return pair
    return first


def wider_pairs(
    before: str, after: str, path: str, line: int, visits: Visits
) -> Iterator[tuple[int, tuple[Formula, Formula]]]:
    """Two versions of a file as formulas, as `alike` has them, with more and more statements behind those that differ.

    With each the number of these; up to the first that there are none of.
    """
    for further in range(_MOST_FURTHER + 1):
        pair = alike(before, after, path, line, visits, further=further)
        if not isinstance(pair, tuple):
            return
        yield further, pair


def _parameters_read(formula: Formula) -> set[str]:
    """The parameters that a formula's body reads."""
    tree = ast.parse(textwrap.dedent(formula.body))
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & {*formula.parameters}


def _readable(original: Formula, repaired: Formula, visits: Visits, foreign: frozenset[str]) -> tuple[Formula, Formula]:
    """The formulas, as what is known at their line can be put into them."""
    there = [visit for visit in visits.visits if visit.line == original.line]
    is_known = any(all(name in visit.values for name in original.inputs) for visit in there)
    if not there or (is_known and not calls(original, foreign) and not calls(repaired, foreign)):
        return original, repaired
    most = max(there, key=lambda visit: len(visit.values))
    return lift_expressions(original, repaired, most.values, foreign) or (original, repaired)


def foreign_in(formula: Formula, namespace: Mapping[str, Any]) -> frozenset[str]:
    """What a formula calls functions by that are the program's own and may do more than compute.

    Those of other files, whose source it does not hold; of its own file those that print, read or keep something.
    """
    tree = ast.parse(textwrap.dedent(formula.body))
    own = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        first, *attributes = name.split(".")
        if name in own:
            if _does_more(own[name]):
                found.add(name)
            continue
        value = namespace.get(first)
        if attributes and not isinstance(value, ModuleType):
            continue
        for attribute in attributes:
            value = getattr(value, attribute, None)
        if isinstance(value, FunctionType) and value.__module__.partition(".")[0] not in _COMPUTES:
            found.add(name)
    return frozenset(found)


def _does_more(function: ast.FunctionDef) -> bool:
    nodes = list(ast.walk(function))
    called = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return bool(called & _DOING) or any(isinstance(n, ast.Global | ast.Nonlocal) for n in nodes)


def _other_instance(formula: Formula, visits: Visits) -> str | None:
    """Why a module that a formula has the function of is another where it is called; None where all are the same."""
    import torch

    for instance in formula.instances:
        cls = next(name for name, (function, _) in MODULES.items() if function == instance.function)
        given, defaults = dict(instance.settings), inspect.signature(getattr(torch.nn, cls)).parameters
        for visit in (visit for visit in visits.visits if visit.line == formula.line):
            held: Any = visit.values.get(f"{instance.callee}.{CONSTRUCTION}")
            if not isinstance(held, list) or not held or held[0] != instance.function:
                return f"{instance.callee} is no plain {cls} where it is called"
            for setting in held[1:]:
                key, _, value = setting.partition("=")
                text = given.get(key, repr(defaults[key].default))
                if text is not None and repr(ast.literal_eval(text)) != value:
                    return f"{instance.callee} has another {key} than it was constructed with"
    return None


def parameter_values(formula: Formula, visits: Visits) -> list[dict[str, Any]] | str:
    """What a formula's parameters were at each visit of its line; or why that is not known."""
    there = [visit for visit in visits.visits if visit.line == formula.line]
    if not there:
        where = visits.function or "the module"
        return f"{where} did not come to line {formula.line} when it was run again"
    complete = [visit for visit in there if all(name in visit.values for name in formula.inputs)]
    if not complete:
        lost = next(name for name in formula.inputs if any(name not in visit.values for visit in there))
        return f"what {lost} was there could not be kept: it is no plain tensor, number, text or list of these"
    return [_parameters(formula, visit) for visit in complete]


def _parameters(formula: Formula, visit: Visit) -> dict[str, Any]:
    import torch

    given: dict[str, Any] = {}
    for name, parameter in zip(formula.inputs, formula.parameters, strict=True):
        value = visit.values[name]
        if isinstance(value, torch.Tensor) and name in visit.needs_grad:
            value = value.detach().clone().requires_grad_()
        given[parameter] = value
    return given


def _accept_extra(function: Callable[..., Any], formula: Formula) -> Callable[..., Any]:
    """A formula's function, which takes more than its parameters and leaves that alone."""

    def taken(**given: Any) -> Any:
        return function(**{name: given[name] for name in formula.parameters})

    return taken


def _chosen(original: Callable[..., Any], given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A few of the visits: of those at which the original fails, and of the others; the last count most.

    Where one fails, what it gave may come in again, as in a recurrence: what fails of that is no failure of its own.
    """
    from whynan.verify.arrays import tensors_in
    from whynan.verify.torch_program import bad_kinds

    kinds = [bad_kinds(tensors_in(one).values()) for one in given]
    looked = _looked_at(kinds)
    failing = [number for number in looked if _fails(original, given[number])]
    healthy = [given[number] for number in looked if number not in failing]
    bad = [given[number] for number in failing if kinds[number] <= kinds[failing[0]]]
    return [*bad[-_MOST_FAILING:], *healthy[-_MOST_HEALTHY:]]


def _looked_at(kinds: Sequence[frozenset[str]]) -> list[int]:
    """The latest visits, and those before the first that bad numbers of another kind came into."""
    ends, known = [len(kinds)], frozenset[str]()
    for number, kind in enumerate(kinds):
        if kind - known:
            ends.append(number)
            known |= kind
    looked = {number for end in ends[1:] for number in range(max(0, end - _MOST_BEFORE_BAD), end)}
    return sorted(looked | {*range(max(0, len(kinds) - _MOST_LOOKED_AT), len(kinds))})


def _fails(original: Callable[..., Any], given: Mapping[str, Any], *, raising: bool = False) -> bool:
    """Whether a formula's value or one of its gradients is NaN or Inf where its inputs are finite or not.

    ``raising``: what it says of one that raises.
    """
    import torch

    from whynan.verify.torch_program import isolated_random_state

    leaves = [v for v in given.values() if isinstance(v, torch.Tensor) and v.requires_grad]
    try:
        with isolated_random_state(), torch.inference_mode(False), torch.enable_grad():
            out = original(**{n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in given.items()})
            outs = [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, torch.Tensor)]
            outs = [o for o in outs if o.is_floating_point() or o.is_complex()]
            ways = [o for o in outs if o.requires_grad]
            grads = (
                torch.autograd.grad(ways, leaves, [torch.ones_like(o) for o in ways], allow_unused=True)
                if ways and leaves
                else ()
            )
        return any(not bool(torch.isfinite(t).all()) for t in (*outs, *grads) if t is not None)
    except Exception:
        # the judge says why
        return raising


def namespace_of(path: str) -> dict[str, Any]:
    """The names of the module that was loaded from a file; none where there is no such module."""
    for module in list(sys.modules.values()):
        file: Any = getattr(module, "__file__", None)
        if isinstance(file, str) and is_same_file(file, path):
            return vars(module)
    return {}


def kind_of(original: Formula, repaired: Formula) -> FixKind:
    """How somebody's own edit is to be judged: by what it writes that was not there before.

    A selection, a bound or a comparison is a guard, a small constant an epsilon, anything else a reformulation.
    """
    calls, numbers = _written(original.body)
    new_calls, new_numbers = _written(repaired.body)
    if (new_calls - calls) & {*TORCH.having("guard"), "compare"}:
        return "guard"
    if any(0 < abs(n) <= _GREATEST_EPSILON for n in new_numbers - numbers):
        return "epsilon"
    return "reformulation"


def filled_with(body: str) -> float | None:
    """The infinity that a formula puts where a mask says so, at its end: it is meant. None where it puts none."""
    from whynan.fixes.python import written_infinity

    last = ast.parse(textwrap.dedent(body)).body[-1]
    match last:
        case ast.Return(value=ast.Call(func=ast.Attribute(attr="masked_fill" | "where")) as call):
            found = [number for argument in call.args if (number := written_infinity(argument)) is not None]
            return found[0] if len(found) == 1 else None
        case _:
            return None


def _written(body: str) -> tuple[set[str], set[float]]:
    calls: set[str] = set()
    numbers: set[float] = set()
    for node in ast.walk(ast.parse(textwrap.dedent(body))):
        match node:
            case ast.Call(func=ast.Attribute(attr="max" | "min")) if _reduces(node):
                # the greatest of a row, which selects nothing
                continue
            case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
                calls.add(name)
            case ast.Compare():
                calls.add("compare")
            case ast.Constant(value=float() as number):
                numbers.add(number)
            case _:
                continue
    return calls, numbers


def _reduces(node: ast.Call) -> bool:
    """Whether ``x.max(-1)``, ``torch.max(x, dim=0)`` or ``x.max()`` is the greatest of a row, and not of two."""
    if any(keyword.arg in ("dim", "keepdim", "axis") for keyword in node.keywords):
        return True
    match node.func:
        case ast.Attribute(value=ast.Name(id="torch")):
            others = node.args[1:]
        case _:
            others = node.args
    return not node.keywords and all(_is_whole_number(other) for other in others[:1])


def _is_whole_number(node: ast.expr) -> bool:
    try:
        return type(ast.literal_eval(node)) is int
    except ValueError:
        return False


# -- What the program makes, a few statements on, of what a guard gives: where that was finite it has to stay ----------


_MOST_VISITS: Final = 4
_TOLERANCE: Final = 1e-3
_ROUNDINGS: Final = 4


def moved_behind(wider: Sequence[Candidate], visits: Visits) -> str | None:
    """Why a guard is none: of what was finite behind it, it moves something; None where it is not seen to do so.

    Looked at on what was recorded, and with each input as it was beside other values of the others. What is moved may
    be left out again: where all is finite further on, and nothing of that is moved, it is no more than that.

    Args:
        wider: the guard, with more and more statements behind it.
        visits: of its function.
    """
    found: str | None = None
    for candidate in wider:
        try:
            tried = recorded_trial(candidate, visits)
        except UsageError:
            break
        if isinstance(tried, str):
            continue
        seen = _moved_there(tried)
        if seen is None:
            # a number made of a question is no number of the program's
            break
        moved, is_finite = seen
        found = None if moved is None and is_finite else found or moved
    return found


def _moved_there(tried: RecordedTrial) -> tuple[str | None, bool] | None:
    """What a guard moves in what some statements give, and whether all that they gave in the run was finite.

    None where they ask whether something is bad.
    """
    import torch

    is_finite, found = True, None
    for inputs, is_mixed in (one for given in tried.given[:_MOST_VISITS] for one in _mixed(given)):
        outputs = _outputs(tried.before, inputs)
        if outputs is None:
            return None
        is_finite = is_finite and (is_mixed or all(bool(torch.isfinite(one).all()) for one in outputs))
        moved = _moved(outputs, _outputs(tried.after, inputs) or [])
        if moved is not None and found is None:
            count, total, old, new = moved
            what = "an element" if is_mixed else f"{count:,} of {total:,} elements"
            how = ", of these numbers in another order" if is_mixed else ""
            becomes = f"{format_value(old, digits=4)} becomes {format_value(new, digits=4)}"
            found = f"moves {what} finite behind it{how}: {becomes}"
    return found, is_finite


def _mixed(given: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Inputs as they were, and with the elements of one of them in another order."""
    import torch

    yield given, False
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1:
            rolled = value.detach().roll(1).requires_grad_(value.requires_grad)
            yield {**given, name: rolled}, True


def _outputs(function: Any, given: Mapping[str, Any]) -> list[Any] | None:
    """The floating-point outputs of a formula; none where it raises, None where it asks whether something is bad."""
    import torch

    from whynan.verify.torch_program import Questions, outcome

    try:
        with Questions() as asked:
            outputs = outcome(function, given).outputs
    except Exception:
        # the judge says why
        return []
    if asked.of_bad:
        return None
    return [one for one in outputs if isinstance(one, torch.Tensor) and one.is_floating_point()]


def _moved(before: list[Any], after: list[Any]) -> tuple[int, int, float, float] | None:
    """How many finite elements of how many became another, and one of them before and after."""
    import torch

    for old, new in zip(before, after, strict=False):
        if old.shape != new.shape or old.dtype != new.dtype:
            return None
        finite = torch.isfinite(old)
        limits, sizes = torch.finfo(old.dtype), old.abs()
        # what is nothing beside the others may be as much as a few roundings of those
        greatest = float(sizes[finite].max()) if bool(finite.any()) else 0.0
        bound = _TOLERANCE * sizes + max(limits.tiny, _ROUNDINGS * limits.eps * greatest)
        wrong = finite & ~((new - old).abs() <= bound)
        if bool(wrong.any()):
            return int(wrong.sum()), int(finite.sum()), float(old[wrong][0]), float(new[wrong][0])
    return None
