"""A PyTorch program as a side: its exported graph, run node by node."""

from __future__ import annotations

import operator
import warnings
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np

from whynan.compare.sides.operations import Operation, UnavailableError
from whynan.compare.spelling import base
from whynan.ops.table import TORCH
from whynan.source.exporter_metadata import SCOPES, STACK, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from whynan.compare.sides.operations import Array
    from whynan.compare.sides.values import ValueStore
    from whynan.records import Site

_ELEMENTWISE: Final = TORCH.having("pointwise", "movement", "transparent")
_STILL: Final = ("getitem",)
_DROPPING: Final = "dropout"
_COPY: Final = "aten.clone.default"
_NARROW: Final = ("float32", "float16", "bfloat16")


class TorchSide:
    """A program as a side.

    Args:
        label: what the user calls it.
        program: a ``torch.export.ExportedProgram``.
        names: of its inputs for the user, in the order of the graph's.
        device: that it runs on.
    """

    kind: Literal["onnx", "torch"] = "torch"
    roundoff: float | None = None

    def __init__(self, label: str, program: Any, *, device: str = "cpu", names: Sequence[str] | None = None) -> None:
        self.label = label
        self._torch: Any = import_module("torch")
        self._device = device
        self._program = program
        if not all(_is_functional(node) for node in program.graph_module.graph.nodes):
            # without any decomposition: what operations do in place is made an operation that gives something new
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._program = program.run_decompositions({})
        self._graph: Any = self._program.graph_module.graph
        signature: Any = self._program.graph_signature
        self.input_values = tuple(str(name) for name in signature.user_inputs if isinstance(name, str))
        self.inputs = tuple(names) if names is not None and len(names) == len(self.input_values) else self.input_values
        self._weights = self._bound(signature)
        self._arrays: dict[str, Array | None] = {}
        self.aliases: Mapping[str, str] = {
            str(node.name): f"{node.args[0].name}.{node.args[1]}"
            for node in self._graph.nodes
            if _is_getitem(node) and not _is_getitem(node.args[0])
        }
        """Elements of what gives several values, by the names of the nodes that take them out."""
        self.output_values = tuple(self._named(name) for name in signature.user_outputs if isinstance(name, str))
        self.outputs = self.output_values
        self._nodes: list[Any] = []
        self.operations: Sequence[Operation] = tuple(self._listed())

    def _bound(self, signature: Any) -> dict[str, Any]:
        """The tensors of placeholders that are parameters, buffers or constants."""
        program, found = self._program, dict[str, Any]()
        for placeholder, name in signature.inputs_to_parameters.items():
            found[placeholder] = program.state_dict[name]
        for placeholder, name in signature.inputs_to_buffers.items():
            held = program.state_dict if name in program.state_dict else program.constants
            found[placeholder] = held[name]
        for placeholder, name in signature.inputs_to_lifted_tensor_constants.items():
            found[placeholder] = program.constants[name]
        return found

    def _named(self, name: str) -> str:
        return self.aliases.get(name, name)

    def _listed(self) -> Iterator[Operation]:
        for node in self._graph.nodes:
            if node.op != "call_function" or _is_getitem(node):
                continue
            operation = self._operation(len(self._nodes), node)
            if operation is not None:
                self._nodes.append(node)
                yield operation

    def _operation(self, index: int, node: Any) -> Operation | None:
        meta = node.meta.get("val")
        if meta is None and node.target.__class__.__name__ != "HigherOrderOperator" and not node.users:
            return None
        outputs = (str(node.name),)
        if isinstance(meta, tuple | list):
            outputs = tuple(f"{node.name}.{n}" for n in range(len(cast("list[Any]", meta))))
        stack = list(node.meta.get("nn_module_stack", {}).values())
        return Operation(
            index=index,
            name=str(node.name),
            op=_COPY if _is_idle(node) else _op_name(node.target),
            inputs=tuple(self._named(str(one.name)) for one in _tensors(node)),
            outputs=outputs,
            node=str(node.name),
            module=str(stack[-1][0]) if stack else None,
            elementwise=self._torch.Tag.pointwise in getattr(node.target, "tags", ())
            or base(_op_name(node.target)) in _ELEMENTWISE,
            settings=repr([_spelled(one) for one in (*node.args, *node.kwargs.items())]),
        )

    def constant(self, name: str) -> Array | None:
        """A parameter, a buffer or a constant."""
        if name not in self._arrays:
            held = self._weights.get(name, self._attributes.get(name))
            self._arrays[name] = None if held is None else _shared(held)
        return self._arrays[name]

    @cached_property
    def _attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for node in self._graph.nodes:
            if node.op == "get_attr":
                held: Any = self._program.graph_module
                for part in str(node.target).split("."):
                    held = getattr(held, part)
                found[str(node.name)] = held
        return {name: held for name, held in found.items() if isinstance(held, self._torch.Tensor)}

    def site(self, operation: Operation) -> Site | None:
        """The line of the program."""
        node = self._nodes[operation.index]
        stack = node.meta.get("stack_trace")
        if not stack:
            return None
        scopes = repr([str(entry[0]) for entry in node.meta.get("nn_module_stack", {}).values()] + [str(node.name)])
        return place_of({STACK: str(stack), SCOPES: scopes}).site

    def unfolded(self, operations: Sequence[Operation], given: Mapping[str, Array], wanted: str) -> TorchSide:
        """What some calls make of values that are given, up to one, by the core operators that they are made of.

        Raises ``UnavailableError`` where they cannot be exported by themselves.
        """
        fx: Any = import_module("torch.fx")
        graph, root, made = fx.Graph(), self._torch.nn.Module(), dict[str, Any]()
        for name in given:
            made[name] = graph.placeholder(f"given_{len(made)}")
        own = {operation.name for operation in operations}

        def copied(node: Any) -> Any:
            name = self._named(str(node.name))
            if name not in made:
                held = self._weights.get(name, self._attributes.get(name))
                if held is not None:
                    root.register_buffer(f"held_{len(made)}", held)
                    made[name] = graph.get_attr(f"held_{len(made)}")
                elif str(node.name) in own or _is_getitem(node):
                    made[name] = graph.node_copy(node, copied)
                else:
                    raise UnavailableError(f"the value {name} is not known")
            return made[name]

        last, _, number = wanted.partition(".")
        try:
            end = copied(next(node for node in self._nodes if str(node.name) == last))
            graph.output((graph.call_function(operator.getitem, (end, int(number))) if number else end,))
            module = fx.GraphModule(root, graph)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                inputs = tuple(self._tensor(value) for value in given.values())
                program = self._torch.export.export(module, inputs, strict=False)
                program = program.run_decompositions(_finest(self._torch))
        except Exception as error:
            raise UnavailableError(" ".join(str(error).split())[:200]) from None
        return TorchSide(self.label, program, device=self._device, names=tuple(given))

    def run(self, feeds: Mapping[str, Array], values: ValueStore) -> None:
        """Run it once, and keep every value; raises ``UnavailableError``."""
        operations = self.operations
        uses: dict[str, int] = {}
        for operation in operations:
            uses |= dict.fromkeys(operation.inputs, operation.index)
        alive: dict[str, Any] = {}
        for name, outside in zip(self.input_values, self.inputs, strict=True):
            if outside not in feeds:
                raise UnavailableError(f"nothing is given for the input {outside}")
            values.keep(name, feeds[outside])
            alive[name] = self._tensor(feeds[outside])
        self._torch.manual_seed(0)
        for operation in operations:
            found = self._call(operation, lambda name: alive.get(name), exact=False)
            for name, tensor in zip(operation.outputs, found, strict=False):
                alive[name] = tensor
                if isinstance(tensor, self._torch.Tensor):
                    values.keep(name, to_numpy(tensor))
            for name in operation.inputs:
                if uses[name] <= operation.index:
                    alive.pop(name, None)

    def evaluate(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """A call on other operands."""
        return self._arrays_of(self._call(operation, self._given(operands), exact=False))

    def exact(self, operation: Operation, operands: Mapping[str, Array]) -> list[Array]:
        """A call in float64."""
        return self._arrays_of(self._call(operation, self._given(operands), exact=True))

    def _arrays_of(self, found: list[Any]) -> list[Array]:
        return [to_numpy(tensor) if isinstance(tensor, self._torch.Tensor) else np.asarray(tensor) for tensor in found]

    def _given(self, operands: Mapping[str, Array]) -> Callable[[str], Any]:
        return lambda name: self._tensor(operands[name]) if name in operands else None

    def _call(self, operation: Operation, lookup: Callable[[str], Any], *, exact: bool) -> list[Any]:
        node = self._nodes[operation.index]

        def fetched(one: Any) -> Any:
            name = self._named(str(one.name))
            value = lookup(name)
            if value is None:
                value = self._weights.get(name, self._attributes.get(name))
            if value is None and one.op == "get_attr":
                return getattr(self._program.graph_module, str(one.target))
            if value is None:
                raise UnavailableError(f"the value {name} is not known")
            if not isinstance(value, self._torch.Tensor):
                # a size that hangs on the data
                return value
            value = value.to(self._device)
            return value.double() if exact and value.is_floating_point() else value

        map_arg: Any = import_module("torch.fx.node").map_arg
        args, kwargs = map_arg(node.args, fetched), map_arg(node.kwargs, fetched)
        if exact:
            args, kwargs = self._doubled(args), self._doubled(kwargs)
        if "device" in kwargs and self._device != "cpu":
            kwargs = {**kwargs, "device": self._device}
        try:
            with self._torch.no_grad():
                found = node.target(*args, **kwargs)
        except Exception as error:
            raise UnavailableError(f"{operation.op}: {' '.join(str(error).split())[:200]}") from None
        return list(cast("list[Any]", found)) if isinstance(found, tuple | list) else [found]

    def _doubled(self, held: Any) -> Any:
        """Arguments with float64 in place of every narrower dtype."""
        if isinstance(held, self._torch.dtype) and str(held).removeprefix("torch.") in _NARROW:
            return self._torch.float64
        if isinstance(held, dict):
            return {name: self._doubled(one) for name, one in cast("dict[Any, Any]", held).items()}
        if isinstance(held, tuple | list):
            several = [self._doubled(one) for one in cast("list[Any]", held)]
            return tuple(several) if isinstance(held, tuple) else several
        return held

    def _tensor(self, value: Array) -> Any:
        return from_numpy(value).to(self._device)


def _finest(torch: Any) -> Any:
    """What core operators are made of, normalisations as well."""
    aten, table = torch.ops.aten, torch.export.default_decompositions()
    table.update(import_module("torch._decomp").get_decompositions([aten.native_group_norm, aten.native_layer_norm]))
    return table


def to_numpy(tensor: Any) -> Array:
    """A tensor as an array of its own, bfloat16 in the dtype of ml_dtypes."""
    return np.array(_shared(tensor))


def _shared(tensor: Any) -> Array:
    """A tensor as an array, on the same memory where it lies in that of the processor."""
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        import ml_dtypes

        torch: Any = import_module("torch")
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def from_numpy(value: Array) -> Any:
    """An array as a tensor of its own."""
    torch: Any = import_module("torch")
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(np.array(value).view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(value))


def _is_idle(node: Any) -> bool:
    """Whether a call is a dropout that is left out in evaluation."""
    return _DROPPING in _op_name(node.target) and node.args[-1] is False


def _is_functional(node: Any) -> bool:
    """Whether a call changes none of its arguments, as far as its schema tells."""
    schema = getattr(node.target, "_schema", None)
    return node.op != "call_function" or _is_getitem(node) or (schema is not None and not schema.is_mutable)


def _is_getitem(node: Any) -> bool:
    return getattr(node.target, "__name__", "") in _STILL and node.op == "call_function"


def _op_name(target: Any) -> str:
    name = getattr(target, "_opname", None)
    if name is None:
        return str(getattr(target, "__name__", target))
    return f"{target.namespace}.{name}.{target._overloadname}"


def _tensors(node: Any) -> Iterator[Any]:
    """The nodes among the arguments of a call, in the order in which they are written."""
    stack: list[Any] = [*node.args, *node.kwargs.values()]
    while stack:
        one = stack.pop(0)
        if isinstance(one, tuple | list):
            stack[:0] = list(cast("list[Any]", one))
        elif hasattr(one, "all_input_nodes"):
            yield one


def _spelled(argument: Any) -> Any:
    """A scalar argument as it is; a tensor, whatever it is called, as a place."""
    if isinstance(argument, tuple | list):
        return [_spelled(one) for one in cast("list[Any]", argument)]
    return "tensor" if hasattr(argument, "all_input_nodes") else str(argument)
