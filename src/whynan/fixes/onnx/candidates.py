"""Candidates: the edits of a model that might mend a finding, one for each intent, shown as two lines."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from whynan.fixes.candidates import Declined
from whynan.fixes.onnx.build import Unwritable
from whynan.fixes.onnx.edit import Edit, downstream, finding_nodes, uneditable_reason, with_inferred_types
from whynan.fixes.onnx.read import ONE_AXIS, GraphMatch, matches, number_of
from whynan.fixes.onnx.special import islands, masks
from whynan.fixes.onnx.write import Writer, call_of
from whynan.ops.names import FUNCTIONS
from whynan.ops.table import ONNX
from whynan.records.intents import FixIntent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx
    import onnx_ir as ir

    from whynan.records import Finding
    from whynan.records.intents import FixKind


# -- An edit of a graph as two lines of text: the expression before and after ------------------------------------------


_LONGEST: Final = 240
_MOST: Final = 12
"""Nodes that are named of a long expression."""
_TELLING: Final = ("axis", "axes", "to", "keepdims")


def describe_edit(before: ir.Value, old: Sequence[ir.Node], after: ir.Value, new: Sequence[ir.Node]) -> str:
    """``- Log(Softmax(x))`` and ``+ LogSoftmax(x)``; a long expression as the types of its nodes."""
    return f"{_lines('-', before, old)}\n{_lines('+', after, new)}\n"


def _lines(sign: str, value: ir.Value, nodes: Sequence[ir.Node]) -> str:
    whole = _text(value, nodes)
    if len(whole) <= _LONGEST:
        return f"{sign} {whole}"
    made = [node.op_type for node in nodes if node.op_type != "Constant"]
    more = f" and {len(made) - _MOST} more" if len(made) > _MOST else ""
    return f"{sign} {len(made)} nodes: {', '.join(made[:_MOST])}{more}"


def _text(value: ir.Value, nodes: Sequence[ir.Node]) -> str:
    held = number_of(value)
    if held is not None:
        return f"{held:.7g}"
    node = value.producer()
    if node is None or all(node is not one for one in nodes):
        return value.name or "?"
    inputs = [_text(one, nodes) if one is not None else "" for one in node.inputs]
    said = [f"{name}={attribute.value}" for name, attribute in node.attributes.items() if name in _TELLING]
    return f"{node.op_type}({', '.join([*inputs, *said])})"


# -- The edits of a model that might mend a finding: one for each intent that can be written there, or why it cannot


_HOPS: Final = 7
"""Nodes from a birth to what must be replaced."""
OWN: Final = (
    FixIntent(
        "the angle without a quotient of zeros, instead of the exporter's chain from Div to Atan",
        "reformulation",
        "atan2(y, x)",
        "atan2(y, x)",
    ),
    FixIntent(
        "equal weights for a row of which a mask has left nothing",
        "guard",
        "softmax(x, d)",
        "softmax(where(amax(x, d, True) < finfo(x).min, 0, x), d)",
    ),
)
"""What graphs need beside: how an exporter wrote an operator that ONNX lacks, and a softmax without one of its own."""


@dataclass(frozen=True, slots=True)
class GraphCandidate:
    """An edited model; ``inputs`` and ``outputs`` are the values that the edited part reads and gives.

    ``patch`` shows the part before (``-``) and after (``+``).
    """

    title: str
    kind: FixKind
    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    patch: str


def candidates(
    model: onnx.ModelProto, finding: Finding, intents: Sequence[FixIntent]
) -> list[GraphCandidate | Declined]:
    """What might mend an escaped finding, in the order of the intents, then what only graphs need.

    The model stays as it is. There are none for an absorbed birth, and none where a fix stands already.
    """
    if finding.fate == "absorbed":
        return []
    written = [intent for intent in intents if intent.kind != "setting"]
    why = uneditable_reason(model)
    if why is not None:
        return [Declined(intent.title, why) for intent in written]
    known = with_inferred_types(model)
    read = Edit(model, known)
    here = [intent for intent in (*written, *OWN) if _has_match(read, finding, intent)]
    made = (_intent_candidate(model, known, finding, intent) for intent in here)
    return _unique_candidates([*(one for one in made if one is not None), *_special(model, finding)])


def _special(model: onnx.ModelProto, finding: Finding) -> list[GraphCandidate | Declined]:
    found: list[GraphCandidate | Declined] = []
    for edits in (masks, islands):
        for made in edits(model, finding):
            try:
                proto = made.edit.checked_model()
            except Unwritable as error:
                found.append(Declined(made.title, str(error)))
                continue
            found.append(GraphCandidate(made.title, made.kind, proto, made.inputs, made.outputs, made.patch))
    return found


def _unique_candidates(found: list[GraphCandidate | Declined]) -> list[GraphCandidate | Declined]:
    """Each edit once, by its first title."""
    known: dict[object, GraphCandidate | Declined] = {}
    for one in found:
        key: object = (one.title, one.why) if isinstance(one, Declined) else one.model.SerializeToString()
        known.setdefault(key, one)
    return list(known.values())


def _has_match(read: Edit, finding: Finding, intent: FixIntent) -> bool:
    """Whether the pattern of an intent is found; one that a graph could not have is not."""
    if not all(map(_is_graph_expressible, (intent.pattern, intent.replacement))):
        return False
    return _nearest_match(read, finding, intent.pattern) is not None


def _is_graph_expressible(text: str) -> bool:
    """Whether an expression has only what a graph can: no subscript, no setting that is a word."""
    try:
        parts = list(ast.walk(_tree(text)))
    except SyntaxError:
        return False
    # an attribute is a limit of a dtype: finfo(x).max
    values = [getattr(part, "value", None) for part in parts if not isinstance(part, ast.keyword)]
    return all(isinstance(part, _LANGUAGE) for part in parts) and not any(isinstance(v, str | ast.Name) for v in values)


_LANGUAGE: Final = (
    *(ast.Name, ast.Constant, ast.BinOp, ast.Compare, ast.UnaryOp, ast.Call, ast.keyword, ast.Attribute),
    *(ast.operator, ast.unaryop, ast.cmpop, ast.expr_context),
)


def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _intent_candidate(
    model: onnx.ModelProto, known: onnx.ModelProto, finding: Finding, intent: FixIntent
) -> GraphCandidate | Declined | None:
    """The edit of one intent."""
    replacement = _tree(intent.replacement)
    edit = Edit(model, known)
    found = _nearest_match(edit, finding, intent.pattern)
    if found is None:
        return None
    root, match = found
    try:
        builder = edit.builder(root, finding)
        if (
            builder.opset < ONE_AXIS
            and _onnx_op_types(_tree(intent.pattern)) & ONNX.having("row")
            and _onnx_op_types(replacement) & ONNX.having("reduction")
        ):
            raise Unwritable(f"a softmax of opset {builder.opset} runs over more than one axis")
        made = Writer(builder, match.bound).value(replacement)
        for node in match.moved:
            made = builder.clone_node(node, [made, *node.inputs[1:]])
        patch = describe_edit(root.outputs[0], match.nodes, made, builder.nodes)
        edit.replace(root, made, builder, match.nodes)
        proto = edit.checked_model()
    except Unwritable as error:
        return Declined(intent.title, str(error))
    return GraphCandidate(intent.title, intent.kind, proto, _input_names(match), _output_names(made), patch)


def _nearest_match(edit: Edit, finding: Finding, pattern: str) -> tuple[ir.Node, GraphMatch] | None:
    """The first node from the birth on at which the pattern is found, the birth a part of it."""
    for anchor in finding_nodes(edit.model, finding):
        for root in downstream(anchor, _HOPS):
            for match in matches(pattern, root.outputs[0], edit.reader(root)) if root.outputs else ():
                if any(node is anchor for node in match.nodes):
                    return root, match
    return None


def _onnx_op_types(tree: ast.expr) -> set[str]:
    """The operators of ONNX that an expression asks for."""
    calls = (call_of(node) for node in ast.walk(tree) if isinstance(node, ast.expr))
    return {FUNCTIONS[call.operator] for call in calls if call is not None and call.operator in FUNCTIONS}


def _input_names(match: GraphMatch) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.name for one in match.bound.values() if getattr(one, "name", None)))  # type: ignore[union-attr]


def _output_names(value: ir.Value) -> tuple[str, ...]:
    return (value.name,) if value.name else ()
