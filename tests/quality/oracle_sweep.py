"""The oracle beside what PyTorch and ONNX say of their own operators: torch's samples in float64, onnx's node cases."""

from __future__ import annotations

import functools
import itertools
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch.utils._pytree import tree_flatten, tree_unflatten

from whynan.verify.memory import UnrecordableError
from whynan.verify.oracle import Unsupported, exact
from whynan.verify.oracle.calls import Program, Ref, Step
from whynan.verify.oracle.onnx import ONNX
from whynan.verify.recording import record_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.quality.conformance import Case

BITS: Final = 256
_NARROW: Final = ("float16", "bfloat16", "float32")
LEFT_OUT: Final = ("fft", "_refs", "linalg.", "sparse", "signal", "jiterator", "empty", "new_empty")
"""Families of torch's operators of which the oracle has hardly any, that need a GPU, or that write no numbers."""
KNOWN: Final = {
    "cholesky": "of an empty matrix the oracle knows nothing, and fails",
    "corrcoef": "the gradient differs by 4e-9 relative, and it is not known why",
    "nn.functional.hardsigmoid": "torch's derivative is the float32 nearest to 1/6, in float64 too",
    "nn.functional.softplus": "torch's is x beyond a threshold, which the exact one is only nearly",
}
"""Operators of torch that are left out because they differ."""
MOST_ELEMENTS: Final = 3000
MOST_SAMPLES: Final = 12
"""Of one operator of torch."""


@dataclass
class Swept:
    """What came of the samples of one operator: how many agree, and what is wrong or not known of the others."""

    name: str
    agreed: int = 0
    wrong: list[str] = field(default_factory=list)
    unknown: dict[str, None] = field(default_factory=dict)


# -- torch ---------------------------------------------------------------------------------------------------------


@functools.cache
def torch_operators() -> dict[str, list[Any]]:
    """Torch's own samples of its operators, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, list[Any]] = {}
    for one in op_db:
        if torch.float64 in one.dtypes and not one.name.startswith(LEFT_OUT) and one.name not in KNOWN:
            found.setdefault(one.name, []).append(one)
    return found


def swept(name: str) -> Swept:
    """An operator of torch, value and gradient, on torch's samples."""
    torch.manual_seed(0)
    found = Swept(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in torch_operators()[name]:
            for sample in itertools.islice(_samples(one), MOST_SAMPLES):
                _sample(one, sample, found)
    return found


def _samples(one: Any) -> Iterator[Any]:
    try:
        yield from one.sample_inputs("cpu", torch.float64, requires_grad=one.supports_autograd)
    except (RuntimeError, NotImplementedError, ImportError):
        # torch makes none of this variant here
        return


def _sample(one: Any, sample: Any, found: Swept) -> None:
    flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    given = {f"t{i}": value for i, value in enumerate(flat) if isinstance(value, torch.Tensor)}
    if sum(value.numel() for value in given.values()) > MOST_ELEMENTS:
        return
    if any(value.is_complex() or value.layout != torch.strided for value in given.values()):
        return

    def function(**tensors: Any) -> tuple[Any, ...]:
        leaves = [tensors.get(f"t{i}", value) for i, value in enumerate(flat)]
        first, args, kwargs = tree_unflatten(leaves, spec)
        made = one.op(first, *args, **kwargs)
        made = made if isinstance(made, (tuple, list)) else (made,)
        return tuple(value for value in made if isinstance(value, torch.Tensor))

    wanted = frozenset(name for name, value in given.items() if value.is_floating_point() and value.requires_grad)
    tensors = {name: value.detach().clone().requires_grad_(name in wanted) for name, value in given.items()}
    try:
        outputs = function(**tensors)
        if any(value.is_complex() for value in outputs):
            return
        cotangents, gradients = _gradients(outputs, {name: tensors[name] for name in sorted(wanted)})
        program = record_program(function, tensors, needs_grad=wanted)
    except UnrecordableError as error:
        found.unknown[str(error)] = None
        return
    except (RuntimeError, NotImplementedError):
        # torch itself refuses it
        return
    narrow = any(dtype in _NARROW for step in program.steps for dtype in step.dtypes)
    if narrow or len(set(program.outputs)) != len(program.outputs):
        # what torch rounds on the way is not exact
        return
    named = dict(zip(program.outputs, outputs, strict=True))
    against = {name: cotangents[i] for i, name in enumerate(program.outputs) if i in cotangents}
    try:
        made = exact(program, {n: v.detach() for n, v in tensors.items() if n in program.inputs}, against, bits=BITS)
    except Unsupported as error:
        found.unknown[error.op] = None
        return
    pairs = [(name, balls.midpoint(), named[name]) for name, balls in made.outputs.items()]
    pairs += [
        (f"gradient of {n}", made.gradients[n].midpoint(), g) for n, g in gradients.items() if n in made.gradients
    ]
    for what, got, value in pairs:
        expected = value.detach().double().numpy(force=True)
        miss = difference(got, expected, relative=1e-9, absolute=1e-11)
        if miss is not None:
            found.wrong.append(f"{name_of(one)}, {what}: {miss}")
            return
    found.agreed += 1


def _gradients(outputs: tuple[Any, ...], leaves: dict[str, Any]) -> tuple[dict[int, Any], dict[str, Any]]:
    """What flows into each differentiable output, and what torch makes of it."""
    which = [i for i, value in enumerate(outputs) if value.requires_grad]
    cotangents = {i: torch.randn(outputs[i].shape, dtype=outputs[i].dtype) for i in which}
    if not which:
        return {}, {}
    found = torch.autograd.grad(
        [outputs[i] for i in which], list(leaves.values()), list(cotangents.values()), allow_unused=True
    )
    return cotangents, {name: value for name, value in zip(leaves, found, strict=True) if value is not None}


def name_of(one: Any) -> str:
    """An operator of torch with its variant."""
    return f"{one.name}.{one.variant_test_name}" if one.variant_test_name else str(one.name)


CASES_LEFT_OUT: Final = {
    "test_mod_float_edge_cases_fmod_0_float": "the remainder of an infinite divisor is undefined to the oracle",
    "pytorch-converted/test_PReLU": "the slopes of a PRelu before opset 7 are per channel, and the oracle fails",
    "test_reduce_max_empty_set": "the greatest of nothing is 0 to the oracle",
    "test_reduce_min_empty_set": "the least of nothing is 0 to the oracle",
    "pytorch-converted/test_ConstantPad2d/model.onnx": "the value of a Pad before opset 11 is 0 to the oracle",
}
"""What the oracle is known to get wrong, by how the names begin."""


# -- onnx ----------------------------------------------------------------------------------------------------------


def of_one_node(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Those of some cases that are of one node, and of an operator that the oracle has, by its type."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        opsets = {entry.domain for entry in case.proto.opset_import}
        if len(case.proto.graph.node) == 1 and opsets <= {"", "ai.onnx"}:
            found.setdefault(case.proto.graph.node[0].op_type, []).append(case)
    return {name: cases for name, cases in found.items() if name in ONNX}


def swept_node(name: str, cases: Iterable[Case]) -> Swept:
    """An operator of ONNX on cases of onnx's own, beside onnx's own evaluator."""
    found = Swept(name)
    for case in cases:
        if case.name.startswith(tuple(CASES_LEFT_OUT)):
            continue
        given = {name: np.asarray(value) for name, value in case.feeds.items() if value is not None}
        if sum(value.size for value in given.values()) > MOST_ELEMENTS or len(given) < len(case.feeds):
            continue
        try:
            outputs = [np.asarray(value) for value in ReferenceEvaluator(case.proto).run(None, given)]
        except (TypeError, ValueError, RuntimeError, NotImplementedError):
            # the evaluator itself cannot
            continue
        every = (*given.values(), *outputs)
        if any(value.dtype.kind not in "fiub" or value.dtype.name.startswith("float8") for value in every):
            continue
        program = _program(case.proto, given, outputs)
        try:
            made = exact(program, given, {}, bits=BITS)
        except Unsupported as error:
            found.unknown[error.op] = None
            continue
        (output,) = program.outputs
        relative = 1e-2 if outputs[0].dtype == np.float16 else 1e-4
        expected = outputs[0].astype(np.float64)
        miss = difference(made.outputs[output].midpoint(), expected, relative=relative, absolute=1e-5)
        if miss is None:
            found.agreed += 1
        else:
            found.wrong.append(f"{case.name}: {miss}")
    return found


def _program(model: onnx.ModelProto, inputs: dict[str, Any], outputs: list[Any]) -> Program:
    (node,) = model.graph.node
    schema = onnx.defs.get_schema(node.op_type, model.opset_import[0].version, "")
    arguments: dict[str, Any] = {}
    for i, name in enumerate(node.input):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        ref = Ref(name) if name else None
        if formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic:
            arguments.setdefault(formal.name, []).append(ref)
        else:
            arguments[formal.name] = ref
    for attribute in node.attribute:
        held = helper.get_attribute_value(attribute)
        arguments[attribute.name] = held.decode() if isinstance(held, bytes) else held
    written = [name for name in node.output if name]
    step = Step(
        node.op_type,
        arguments,
        tuple(written),
        tuple(str(value.dtype) for value in outputs),
        tuple(value.shape for value in outputs),
    )
    dtypes = {name: str(value.dtype) for name, value in inputs.items()}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return Program("onnx", tuple(inputs), (step,), tuple(written[:1]), dtypes, constants=constants)


def difference(found: Any, expected: Any, *, relative: float, absolute: float) -> str | None:
    """Where exact values are not what an engine gives; where it gives no number, or none in range, none is asked."""
    if found.shape != expected.shape:
        return f"the shape {found.shape} instead of {expected.shape}"
    same = np.isclose(found, expected, rtol=relative, atol=absolute, equal_nan=True)
    same |= np.isnan(expected) | (np.isinf(expected) & np.isnan(found))
    if same.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{found[at]} instead of {expected[at]} at {list(at)}"
