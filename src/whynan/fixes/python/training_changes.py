"""Changes of how a program trains: a smaller learning rate, clipped gradients, float32 in place of float16."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from whynan.fixes.python.constructors import ArgumentEdit, Construction, constructions
from whynan.fixes.python.imports import visible, with_imports
from whynan.fixes.python.precision import in_format
from whynan.records.intents import ArgumentIntent
from whynan.rules.arguments import LARGEST_NORMS, LEARNING_RATES, PEAK_RATES
from whynan.source.text import Place, apply_edits, is_python, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["rate", "clipping", "float32"]
_ATOMS: Final = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_PARTS: Final = tuple(
    (parts, f"a {word} of the learning rate")
    for parts, word in ((10, "tenth"), (100, "hundredth"), (1000, "thousandth"))
)
_NAMES: Final = ("lr", "learning_rate", "base_lr", "max_lr", "peak_lr")
_PARAMETERS: Final = re.compile(r"(\w+)[\w.]*\.parameters\(\)")


@dataclass(frozen=True, slots=True)
class TrainingChange:
    """A change of one file; gradients are clipped to a norm of ``largest``, the rate is divided by ``parts``."""

    title: str
    kind: Kind
    path: str
    before: str
    edited: str
    largest: float = 0.0
    parts: int = 1

    @property
    def place(self) -> tuple[str, int]:
        """The file and the first line that are changed."""
        pairs = zip(self.before.splitlines(), self.edited.splitlines(), strict=False)
        return self.path, next((number for number, (one, two) in enumerate(pairs, 1) if one != two), 0)


def training_changes(path: str, text: str) -> Iterator[TrainingChange]:
    """Every change that a file offers a place for, whether or not it mends anything."""
    calls = [(call, default) for cls, default in LEARNING_RATES for call in _calls(path, text, cls)]
    peaks = [(call, parameters) for cls, parameters in PEAK_RATES for call in _calls(path, text, cls)]
    place = place_of(text)
    numbers = [node for node in map(_rate, place.parents) if node is not None]
    for parts, title in _PARTS:
        made = [_slower(call, default, parts) for call, default in calls]
        made += [_slower(call, None, parts, parameters) for call, parameters in peaks]
        made += [_with_part(place, node, parts) for node in numbers]
        for edited in dict.fromkeys(one for one in made if one is not None):
            yield TrainingChange(title, "rate", path, text, edited, parts=parts)
    yield from _clippings(path, place, [call for call, _ in calls])
    if (change := in_float32(path, text)) is not None:
        yield change


def in_float32(path: str, text: str) -> TrainingChange | None:
    """float32 wherever a file asks for float16; None where it does not, or asks autocast for it, which has no other."""
    edited = None if re.search(r"\bautocast\b\s*\(", text) else in_format(text, "float", "float32")
    title = "float32, wherever the file asks for float16"
    return None if edited is None else TrainingChange(title, "float32", path, text, edited)


def _calls(path: str, text: str, cls: str) -> list[Construction]:
    found = constructions({path: text}, cls) if cls.rpartition(".")[2] in text else []
    return [] if isinstance(found, str) else found


def _slower(
    call: Construction, default: str | None, parts: int, parameters: tuple[str, ...] = ("params", "lr")
) -> str | None:
    """The text with a part of the learning rate that an optimizer, or the schedule of one, is constructed with."""
    intent = ArgumentIntent((), (), parameters[-1], "setting", (), owner="optimizer", parameters=parameters)
    given = call.given(intent)
    text = default if given is None else call.code(given)
    if text is None:
        return None
    try:
        value = _part(text, parts)
    except ValueError:
        value = f"{1 / parts:g} * {text}" if isinstance(given, _ATOMS) else f"{1 / parts:g} * ({text})"
    edit = call.edit(intent, value, "")
    return edit.edited if isinstance(edit, ArgumentEdit) else None


def _rate(node: ast.AST) -> ast.expr | None:
    """The number that a node gives to the name of a learning rate: an assignment, a key, an argument, a default."""
    match node:
        case ast.keyword(arg=name, value=value) | ast.Assign(targets=[ast.Name(id=name)], value=value):
            pairs = [(name, value)]
        case (
            ast.Assign(targets=[ast.Attribute(attr=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=value)
        ):
            pairs = [(name, value)]
        case ast.Dict(keys=keys, values=values):
            pairs = [(k.value, v) for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant)]
        case ast.arguments(args=args, defaults=defaults, kwonlyargs=named, kw_defaults=theirs):
            given = args[len(args) - len(defaults) :]
            pairs = [(a.arg, v) for a, v in (*zip(given, defaults, strict=True), *zip(named, theirs, strict=True))]
        case ast.Call(
            func=ast.Attribute(attr="add_argument"), args=[ast.Constant(value=str(name)), *_], keywords=given
        ):
            pairs = [(name.lstrip("-").replace("-", "_"), k.value) for k in given if k.arg == "default"]
        case _:
            return None
    return next((v for name, v in pairs if str(name).lower() in _NAMES and _is_number(v)), None)


def _is_number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _with_part(place: Place, node: ast.expr, parts: int) -> str:
    """The text with a part of a number."""
    return apply_edits(place.text, [(*place.span(node), _part(place.code(node), parts))])


def _part(number: str, parts: int) -> str:
    return repr(float(f"{float(number) / parts:.6g}"))


def _clippings(path: str, place: Place, calls: list[Construction]) -> Iterator[TrainingChange]:
    """The norm of the gradients clipped ahead of a step that stands on a line of its own."""
    text = place.text
    known = {call.target.name for call in calls if call.target is not None}
    for node in place.parents:
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="step"), args=args, keywords=[])) if (
                len(args) < 2
            ):
                start = place.span(node)[0]
                line = place.line_start(node.lineno)
                optimizer, indent = place.code(args[0] if args else owner), text[line:start]
            case _:
                continue
        if indent.strip() or not re.fullmatch(r"[\w.]+", optimizer):
            continue
        if known and optimizer.rpartition(".")[2] not in known:
            # much else has steps: a scheduler, an environment
            continue
        parameters = _parameters(place, node, optimizer, calls)
        end = "\r\n" if "\r\n" in text else "\n"
        # what a scaler has multiplied is divided first
        unscaled = f"{indent}{place.code(owner)}.unscale_({optimizer}){end}" if args else ""
        for largest in LARGEST_NORMS:
            added = f"{indent}torch.nn.utils.clip_grad_norm_({parameters}, max_norm={largest}){end}"
            edited = apply_edits(text, [(line, line, unscaled + added)])
            if visible(place, node).get("torch") != "torch":
                edited = with_imports(edited, ["torch"])
            if is_python(edited):
                title = f"gradients clipped to a norm of {largest}"
                yield TrainingChange(title, "clipping", path, text, edited, largest=float(largest))


def _parameters(place: Place, step: ast.stmt, optimizer: str, calls: list[Construction]) -> str:
    """What an optimizer steps, as its constructor was given it, where that is the same at the step."""
    scope = place.scope(step)
    known = {node.id for node in ast.walk(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    for call in calls:
        target, first = call.target, next(iter(call.call.args), None)
        given = None if first is None else _PARAMETERS.fullmatch(call.code(first))
        is_its = target is not None and optimizer.rpartition(".")[2] == target.name
        if given is not None and is_its and given[1] in known:
            return given[0]
    return f'[p for group in {optimizer}.param_groups for p in group["params"]]'
