"""A node of an ONNX model from a capsule, run again by itself on ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from whynan.capsule import OperationReplay
from whynan.capsule.document import PackedNode
from whynan.errors import UsageError
from whynan.models.extras import need

if TYPE_CHECKING:
    from whynan.capsule import Capsule
    from whynan.records import Element, Finding

_REFUSED: Final = "{path} cannot be replayed ({why})"
_HINT: Final = "give a capsule that whynan wrote, and the version of ONNX Runtime of its run"


def run_again(capsule: Capsule) -> OperationReplay:
    """Run the node of a capsule; raises ``UsageError`` where that cannot be done."""
    need("onnx")
    need("ort")
    import numpy as np

    from whynan.capture.onnx.arrays import give_tensor, read_ort_value, run_session

    packed = capsule.document.operation
    assert isinstance(packed, PackedNode)
    model = _checked(capsule, packed)
    try:
        values = {name: _array(capsule, name) for name in capsule.tensors}
        node = model.graph.node[0]
        if packed.runner == "reference":
            found = [np.asarray(value) for value in _evaluated(model, values)]
        else:
            fed = {info.name: give_tensor(values[info.name]) for info in model.graph.input}
            held = run_session(_session(model), [name for name in node.output if name], fed)
            found = [np.array(read_ort_value(value)) for value in held]
    except UsageError:
        raise
    except Exception as error:
        # whatever an engine and its bindings make of a stranger's values
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(_REFUSED.format(path=capsule.directory, why=why), _HINT) from None
    recorded = [values[name] for name in packed.results]
    if [(a.shape, a.dtype) for a in found] != [(a.shape, a.dtype) for a in recorded] or packed.bad >= len(found):
        raise UsageError(_REFUSED.format(path=capsule.directory, why="it gives results of other shapes"), _HINT)
    changed = sum(_differing(one, other) for one, other in zip(found, recorded, strict=True))
    inputs = [values[name] if name else None for name in packed.inputs]
    element, value = _element(capsule.finding, packed, node, inputs, found[packed.bad], equal=not changed)
    return OperationReplay(element, value, changed, sum(a.size for a in found), "cpu")


def _checked(capsule: Capsule, packed: PackedNode) -> Any:
    """The model of a capsule, if it is one node of a known operator with all that it reads."""
    import onnx

    from whynan.capture.onnx.single_node import PUBLIC

    def refused(why: str) -> UsageError:
        return UsageError(_REFUSED.format(path=capsule.directory, why=why), _HINT)

    try:
        model = onnx.ModelProto.FromString(capsule.node or b"")
    except Exception:
        raise refused("node.onnx is no model") from None
    graph = model.graph
    if len(graph.node) != 1 or model.functions or graph.sparse_initializer:
        raise refused("node.onnx is no model of one node")
    node = graph.node[0]
    if (node.op_type, node.domain) != (packed.op, packed.domain):
        raise refused("node.onnx holds another operator than capsule.json names")
    if node.domain not in PUBLIC:
        raise UsageError(
            f"{node.op_type} is an operator of the domain {node.domain}, which needs the library that brings it",
            "run the model itself again: whynan onnx --custom-ops LIBRARY",
        )
    if any(a.type not in (1, 2, 3, 4, 6, 7, 8) for a in node.attribute):
        raise refused("its node holds a graph of its own")
    held = [*graph.initializer, *(a.t for a in node.attribute if a.type == onnx.AttributeProto.TENSOR)]
    if any(t.data_location == onnx.TensorProto.EXTERNAL or t.external_data for t in held):
        raise refused("node.onnx refers to other files")
    there = {t.name for t in graph.initializer}
    if any(info.name not in capsule.tensors for info in graph.input) or not there <= set(packed.inputs):
        raise refused("node.onnx reads what is not in the capsule")
    return model


def _evaluated(model: Any, values: dict[str, Any]) -> list[Any]:
    """The outputs of a model by the reference evaluator of onnx."""
    import numpy as np
    from onnx.reference import ReferenceEvaluator

    with np.errstate(all="ignore"):
        fed = {info.name: values[info.name] for info in model.graph.input}
        return list(ReferenceEvaluator(model).run(None, fed))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _session(model: Any) -> Any:
    from whynan.capture.onnx.arrays import ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _array(capsule: Capsule, name: str) -> Any:
    import ml_dtypes
    import numpy as np

    stored = capsule.tensors[name]
    dtype = np.dtype(getattr(ml_dtypes, stored.dtype, stored.dtype))
    return np.frombuffer(stored.data, dtype=dtype).reshape(stored.shape)


def _differing(one: Any, other: Any) -> int:
    """How many elements have other bits; a NaN is as good as another."""
    from whynan.capture.onnx.counts import is_floating, nan_mask

    if not one.size:
        return 0
    a, b = (array.reshape(-1) for array in (one, other))
    bits = (a.view("u1").reshape(a.size, -1) != b.view("u1").reshape(b.size, -1)).any(axis=1)
    if is_floating(one):
        bits &= ~(nan_mask(a) & nan_mask(b))
    return int(bits.sum())


def _element(
    finding: Finding, packed: PackedNode, proto: Any, inputs: list[Any], result: Any, *, equal: bool
) -> tuple[Element | None, float | None]:
    """The bad element of a finding as it is now, or what it is instead."""
    import numpy as np

    from whynan.capture.onnx.counts import bad_mask, first_index, value_at
    from whynan.capture.onnx.execution import Node
    from whynan.capture.onnx.provenance.operands import element_of, element_operands

    told = finding.element
    bad = bad_mask(result)
    wanted = told.index
    there = wanted is not None and len(wanted) == result.ndim
    if not bad.any():
        value = value_at(result, wanted) if there and wanted is not None else None
        return None, value if isinstance(value, float) else None
    index = wanted if there and bool(bad[wanted]) else first_index(bad)
    assert index is not None
    node = Node(0, "", packed.op, packed.domain, tuple(proto.input), tuple(proto.output), proto)
    with np.errstate(all="ignore"):
        operands = element_operands(node, inputs, index)
    expressions = {operand.name: operand.expression for operand in told.operands}
    operands = tuple(o.model_copy(update={"expression": expressions.get(o.name)}) for o in operands)
    mask = np.zeros_like(bad)
    mask[index] = True
    made = element_of(result, mask, index, told.output, operands)
    return made.model_copy(update={"count": told.count if equal else int(bad.sum())}), None
