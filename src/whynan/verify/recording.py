"""What a function of tensors does, operation by operation, as a program without views and in-place writes."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from whynan.ops.table import TORCH
from whynan.verify.arrays import array_of, dtype_name, tensors_in, with_tensors
from whynan.verify.memory import Memory, Name, UnrecordableError, layout_of
from whynan.verify.oracle.calls import Program, Ref, Step, names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

_VALUELESS: Final = ("_like", "lift_fresh_copy")
_MOVED: Final = frozenset(("aten::set_", "aten::resize_", "aten::resize_as_"))


def record_program(
    function: Callable[..., Any], arguments: Mapping[str, Any], *, needs_grad: frozenset[str] = frozenset()
) -> Program:
    """The forward of ``function`` as it ran on ``arguments``, by name; tensors in tuples and lists are ``xs[0]``.

    ``needs_grad`` names the inputs that a gradient is wanted of. What does not depend on the inputs' values (zeros,
    random numbers, what the function closed over) is a constant; masks and indices carry the values that they had. A
    value that left the graph (``detach``, ``no_grad``) passes an ``aten.detach``. Raises ``UnrecordableError``, and
    whatever the function raises.
    """
    given, inputs = _attached(arguments, needs_grad)
    recorder = _Recorder()
    for name, tensor in inputs.items():
        recorder.enter(name, tensor)
    # its fused forms hide what they compute, and some of them say that they draw random numbers
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), recorder:
        returned = function(**given)
    outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
    for output in outputs:
        if isinstance(output, torch.Tensor):
            _refuse_own_backward(output)
    names = tuple(recorder.name_of(o) for o in outputs if isinstance(o, torch.Tensor))
    return recorder.program(tuple(inputs), names, frozenset(needs_grad & inputs.keys()))


def _attached(arguments: Mapping[str, Any], needs_grad: frozenset[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Arguments with tensors of their own, which may be written to in place, and these tensors by name."""
    fresh = {
        name: tensor.detach().clone().requires_grad_().clone() if name in needs_grad else tensor.detach().clone()
        for name, tensor in tensors_in(arguments).items()
    }
    return with_tensors(arguments, fresh), fresh


class _Recorder(TorchDispatchMode):
    """Runs each operation and writes it down."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # otherwise torch._dynamo is imported below the mode, which fails; pytorch#164143
        return False

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.constants: dict[str, Any] = {}
        self.dtypes: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._memories: dict[int, Memory] = {}
        self._alive: list[Tensor] = []
        self._moving: set[str] = set()
        """Names through which a gradient passes to an input."""

    def enter(self, name: str, tensor: Tensor) -> None:
        """An input, as the function is given it."""
        self.dtypes[name], self.shapes[name] = dtype_name(tensor), tuple(tensor.shape)
        if tensor.requires_grad:
            self._moving.add(name)
        self._remember(tensor, name)

    def program(self, inputs: tuple[str, ...], outputs: tuple[str, ...], differentiable: frozenset[str]) -> Program:
        """What was written down, without what no output needs."""
        needed, steps = set(outputs), list[Step]()
        for step in reversed(self.steps):
            if needed.intersection(step.outputs):
                steps.append(step)
                needed.update(names_in(step.arguments))
        return Program(
            "aten",
            inputs,
            tuple(reversed(steps)),
            outputs,
            self.dtypes,
            self.shapes,
            {name: value for name, value in self.constants.items() if name in needed},
            differentiable,
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        if schema.name in _MOVED or not isinstance(func, torch._ops.OpOverload):
            raise UnrecordableError(str(func))
        with self:
            parts = (
                _decompositions().get(func) if _base(func) in TORCH.having("decomposed") else None
            ) or func.decompose
            if (made := parts(*args, **kwargs)) is not NotImplemented:
                return made
        bound = {
            a.name: args[i] if i < len(args) else kwargs.get(a.name, a.default_value)
            for i, a in enumerate(schema.arguments)
        }
        written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if written and _base(func).rstrip("_") in TORCH.having("decomposed"):
            return self._write_parts(func, bound[written[0]], args, kwargs)
        kept = {n: self._argument(v) for n, v in bound.items() if n not in written or n == schema.arguments[0].name}
        out = func(*args, **kwargs)
        self._record(func, bound, kept, written, out)
        return out

    def _record(self, func: Any, bound: dict[str, Any], kept: dict[str, Any], written: list[str], out: Any) -> None:
        outs = [o for o in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(o, torch.Tensor)]
        if not outs:
            return
        if written:
            if len(written) != 1 or any(o is not bound[written[0]] for o in outs):
                raise UnrecordableError(str(func))
            self._write(bound[written[0]], self._written_value(func, bound, kept, written[0]))
            return
        if _base(func) in TORCH.having("uninitialised"):
            # it may be filled without an operator, and is read where it is used
            self._alive += outs
            return
        if _is_value_free(func, kept):
            for each in outs:
                self._remember(each, self._constant(each))
            return
        cut = func._schema.name == "aten::detach"
        if cut and kept["self"].name not in self._moving:
            self._remember(outs[0], kept["self"].name)
            return
        names = self._step(str(func), kept, outs, _results(func, outs))
        parted = cut or not torch.is_grad_enabled()
        if parted and not cut and self._moving.intersection(names):
            names = tuple(self._detach(name) for name in names)
        for name, each in zip(names, outs, strict=True):
            self._remember(each, name, detached=parted or self._is_detached(bound))

    def _write_parts(self, func: Any, target: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an in-place operation that is written down as what its functional form is made of."""
        _, base, overload = _functional(_base(func).rstrip("_"), func._overloadname).split(".")
        with self:
            made = getattr(getattr(torch.ops.aten, base), overload)(*args, **kwargs)
        name = self._copied(self.name_of(made), target)
        out = func(*args, **kwargs)
        self._write(target, name)
        return out

    def _written_value(self, func: Any, bound: dict[str, Any], kept: dict[str, Any], target: str) -> str:
        """The name of what an operation wrote to one of its arguments."""
        base, overload = _base(func), func._overloadname
        tensor, operator = bound[target], base.rstrip("_")
        if torch.Tag.nondeterministic_seeded in func.tags or base == "zero_" or (base, overload) == ("fill_", "Scalar"):
            return self._constant(tensor)
        if base in ("fill_", "copy_"):
            return self._copied(kept["value" if base == "fill_" else "src"].name, tensor)
        return self._step(_functional(operator, overload), kept, [tensor], None)[0]

    def _copied(self, name: str, target: Tensor) -> str:
        """A value in the shape and dtype of what it is copied to."""
        shape, kind = tuple(target.shape), dtype_name(target)
        if self.shapes[name] != shape:
            arguments = {"self": Ref(name), "size": list(shape), "implicit": False}
            name = self._append_step("aten.expand.default", arguments, self.dtypes[name], shape)
        if self.dtypes[name] != kind:
            name = self._append_step("aten._to_copy.default", {"self": Ref(name), "dtype": kind}, kind, shape)
        return name

    def _write(self, tensor: Tensor, name: str) -> None:
        """Let the memory of a tensor hold what ``name`` is, in all its views."""
        self.name_of(tensor)
        layout, memory = layout_of(tensor), self._memories[tensor.untyped_storage()._cdata]
        known = memory.find_alias(layout, tensor.requires_grad)
        whole = layout == memory.layout
        apart = not torch.is_grad_enabled() or (known is not None and known.detached)
        if apart and memory.root in self._moving:
            name = self._passed_through(tensor, name)
        if whole:
            memory.root = name
        else:
            positions = memory.positions(layout)
            flat = self._reshaped(memory.root, (-1,))
            index = self._made_constant(positions)
            values = self._reshaped(name, (-1,))
            arguments = {"self": Ref(flat), "indices": [Ref(index)], "values": Ref(values), "accumulate": False}
            shape = self.shapes[flat]
            put = self._append_step("aten.index_put.default", arguments, self.dtypes[flat], shape)
            memory.root = self._reshaped(put, memory.layout.shape)
        memory.version += 1
        memory.names = {k: v for k, v in memory.names.items() if v.detached}
        if whole:
            memory.names[layout, tensor.requires_grad] = Name(name, memory.version, False)

    def _passed_through(self, tensor: Tensor, name: str) -> str:
        """The values of ``name``, and the gradient of what they overwrite: a write that autograd does not see."""
        old = self.name_of(tensor)
        kind, shape = self.dtypes[old], self.shapes[old]
        apart = self._append_step("aten.sub.Tensor", {"self": Ref(name), "other": Ref(old), "alpha": 1}, kind, shape)
        step = self._detach(apart)
        return self._append_step("aten.add.Tensor", {"self": Ref(old), "other": Ref(step), "alpha": 1}, kind, shape)

    def name_of(self, tensor: Tensor) -> str:
        """What a tensor is called now; what is not known is a constant."""
        layout = layout_of(tensor)
        memory = self._memories.get(tensor.untyped_storage()._cdata)
        if memory is None:
            name = self._constant(tensor)
            self._remember(tensor, name)
            return name
        known = memory.find_alias(layout, tensor.requires_grad)
        if known is not None and known.version == memory.version:
            return known.name
        if layout == memory.layout:
            name = memory.root
        elif memory.version == 0 and memory.root in self.constants:
            name = self._constant(tensor)
        else:
            index = self._made_constant(memory.positions(layout))
            flat = self._reshaped(memory.root, (-1,))
            shape = (tensor.numel(),)
            chosen = self._append_step(
                "aten.index.Tensor", {"self": Ref(flat), "indices": [Ref(index)]}, self.dtypes[flat], shape
            )
            name = self._reshaped(chosen, layout.shape)
        if known is not None and known.detached:
            name = self._detach(name)
        memory.names[layout, tensor.requires_grad] = Name(name, memory.version, known is not None and known.detached)
        return name

    def _is_detached(self, bound: dict[str, Any]) -> bool:
        """Whether the tensor that an operation may make a view of is a detached alias."""
        first = next((v for v in bound.values() if isinstance(v, torch.Tensor)), None)
        memory = None if first is None else self._memories.get(first.untyped_storage()._cdata)
        known = None if memory is None or first is None else memory.find_alias(layout_of(first), first.requires_grad)
        return known is not None and known.detached

    def _remember(self, tensor: Tensor, name: str, *, detached: bool = False) -> None:
        self._alive.append(tensor)  # so that no other memory has its address
        layout, key = layout_of(tensor), tensor.untyped_storage()._cdata
        memory = self._memories.get(key)
        if memory is None:
            memory = self._memories[key] = Memory(name, layout)
        needs = tensor.requires_grad or (name in self._moving and not detached)
        memory.names[layout, needs] = Name(name, memory.version, detached and memory.root != name)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return Ref(self.name_of(value))
        if isinstance(value, (tuple, list)):
            return [self._argument(v) for v in value]
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, complex):
            raise UnrecordableError("a complex number")
        return None

    def _detach(self, name: str) -> str:
        return self._append_step("aten.detach.default", {"self": Ref(name)}, self.dtypes[name], self.shapes[name])

    def _reshaped(self, name: str, shape: tuple[int, ...]) -> str:
        held = self.shapes[name]
        if held == shape or (shape == (-1,) and len(held) == 1):
            return name
        size = 1
        for n in held:
            size *= n
        full = (size,) if shape == (-1,) else shape
        return self._append_step("aten.view.default", {"self": Ref(name), "size": list(full)}, self.dtypes[name], full)

    def _append_step(self, op: str, arguments: dict[str, Any], dtype: str, shape: tuple[int, ...]) -> str:
        """One more step, of which torch did not run any."""
        name = f"v{len(self.dtypes)}"
        self.dtypes[name], self.shapes[name] = dtype, shape
        self.steps.append(Step(op, arguments, (name,), (dtype,), (shape,)))
        if op != "aten.detach.default" and self._moving.intersection(names_in(arguments)):
            self._moving.add(name)
        return name

    def _step(
        self, op: str, arguments: dict[str, Any], outs: list[Tensor], result: tuple[Any, ...] | None
    ) -> tuple[str, ...]:
        moving = op != "aten.detach.default" and bool(self._moving.intersection(names_in(arguments)))
        names: list[str] = []
        for each in outs:
            name = f"v{len(self.dtypes)}"
            self.dtypes[name], self.shapes[name] = dtype_name(each), tuple(each.shape)
            if moving and (each.is_floating_point() or each.is_complex()):
                self._moving.add(name)
            names.append(name)
        kinds, shapes = tuple(self.dtypes[n] for n in names), tuple(self.shapes[n] for n in names)
        self.steps.append(Step(op, arguments, tuple(names), kinds, shapes, result))
        return tuple(names)

    def _constant(self, tensor: Tensor) -> str:
        return self._made_constant(array_of(tensor), dtype_name(tensor))

    def _made_constant(self, values: Any, dtype: str = "int64") -> str:
        name = f"v{len(self.dtypes)}"
        self.dtypes[name], self.shapes[name] = dtype, tuple(values.shape)
        self.constants[name] = values
        return name


def _base(func: Any) -> str:
    return func._schema.name.split("::")[-1]


@cache
def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    from torch._decomp import get_decompositions

    return get_decompositions([getattr(torch.ops.aten, name) for name in TORCH.having("decomposed")])


def _functional(base: str, overload: str) -> str:
    """The operator that computes what an in-place one writes: of the same overload, or of one that takes a tensor."""
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        raise UnrecordableError(f"aten.{base}_.{overload}")
    known = packet.overloads()
    if overload in known and str(getattr(packet, overload)._schema.arguments[0].type) == "Tensor":
        return f"aten.{base}.{overload}"
    if f"Tensor_{overload}" in known:
        return f"aten.{base}.Tensor_{overload}"
    raise UnrecordableError(f"aten.{base}_.{overload}")


def _is_value_free(func: Any, kept: dict[str, Any]) -> bool:
    """Whether an operation's result depends on no number that it is given: zeros, random numbers, a draw."""
    base = _base(func)
    drawn = torch.Tag.nondeterministic_seeded in func.tags
    if not any(True for _ in names_in(kept)) or base.endswith(_VALUELESS) or base.startswith(("new_", "empty")):
        return True
    if drawn and base in TORCH.having("drawn"):
        return True
    if drawn and base != "native_dropout":
        raise UnrecordableError(str(func))
    return False


def _results(func: Any, outs: list[Tensor]) -> tuple[Any, ...] | None:
    """The values of what is no floating-point number: masks and indices as they were, None for the rest."""
    if func._schema.name == "aten::detach" or all(o.is_floating_point() or o.is_complex() for o in outs):
        return None
    return tuple(None if o.is_floating_point() or o.is_complex() else array_of(o) for o in outs)


def _refuse_own_backward(output: Tensor) -> None:
    """A function with a backward of its own has no gradient that could be known from its forward."""
    seen, open_ = set[Any](), [output.grad_fn]
    while open_:
        node = open_.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            raise UnrecordableError(f"the autograd.Function {type(node).__name__.removesuffix('Backward')}")
        open_.extend(parent for parent, _ in node.next_functions)
