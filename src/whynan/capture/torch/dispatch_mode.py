"""The dispatch mode: the user's operation first, exactly once; everything of ours after it, and guarded."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._C._dynamo.eval_frame import set_eval_frame as _set_eval_frame
from torch.utils._python_dispatch import TorchDispatchMode

from whynan.capture.torch.interposition.wrappers import call_fenced, strip_own_frames
from whynan.capture.torch.operators import KNOWN, VALUES_NOTE, operator_of
from whynan.capture.torch.provenance import interventions
from whynan.capture.torch.shadow_memory import FLOATS, is_readable

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from whynan.capture.torch.context import TraceContext
    from whynan.capture.torch.operators import Operator
    from whynan.capture.torch.tracer import Tracer


# -- Copies of what an operation is about to overwrite, taken where an explanation may ask for them --------------------


SMALL = 1 << 16
COPY_LIMIT = 1 << 24
FEW_ELEMENTS = 1 << 8

_current_node = torch._C._current_autograd_node


def copy_overwritten(context: TraceContext, operator: Operator, args: Any, kwargs: Any) -> dict[int, Tensor] | None:
    """What the operation is about to overwrite, by tensor id; in an optimizer's step a small tensor, or none."""
    everything = context.copy_all
    stepping = context.stepping
    if stepping:
        if not everything and not (operator.writes_first and args[0].numel() <= FEW_ELEMENTS):
            return None
        if operator.writes_first:
            target = args[0]
            return {id(target): target.clone()} if target.dtype in FLOATS and is_readable(target) else None
    if not everything and operator.foreach:
        return None
    hot = stepping or _current_node() is not None
    limit = SMALL if operator.pointwise and hot else COPY_LIMIT
    copies: dict[int, Tensor] = {}
    for key in operator.mutable:
        value: Any = kwargs.get(key) if isinstance(key, str) else args[key] if key < len(args) else None
        for target in interventions.tensors_in(value):
            if target.dtype not in FLOATS or not is_readable(target):
                continue
            if everything or target.numel() * target.element_size() <= limit:
                copies[id(target)] = target.clone()
    return copies


# -- The dispatch mode: the user's operation first, exactly once; everything of ours after it, and guarded -------------


_others = torch._C._len_torch_dispatch_stack
_functions = torch._C._len_torch_function_stack
_no_dispatch = torch._C._disabled_torch_dispatch_impl


# these cannot be unwrapped by refusing: their operation is run as it is
_PASSING = frozenset(("FakeTensor", "FunctionalTensor", "ProxyTensor"))


def _below(function: Any, *args: Any) -> Any:
    """Run below the user's own modes, which must not see what is ours."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        return function(*args)


_REFUSAL: Final = "Expected a value of type 'Tensor'"
"""What an operator says, before it runs, of an argument that is none."""
_RECORDED: Final = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""The dtype that ``torch.jit`` records a number in."""


def _numbers_wrapped(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Arguments with a tensor for each number that stands for one; None where none does.

    A mode is given the number in ``x * 2`` where ``torch.jit`` has recorded it as a tensor, which few operators take.
    """
    places = [
        place
        for place, (argument, value) in enumerate(zip(func._schema.arguments, args, strict=False))
        if type(value) in _RECORDED and isinstance(argument.type, torch.TensorType)
    ]
    made = (torch.tensor(v, dtype=_RECORDED[type(v)], device="cpu") if n in places else v for n, v in enumerate(args))
    return tuple(made) if places else None


def enter_below(mode: TorchDispatchMode) -> None:
    """Enter a mode below all that this thread is in: those that the program is in it will leave before.

    Not by ``__enter__``, which sets switches of the whole process, to be set back in the order of a stack.
    """
    above = [torch._C._pop_torch_dispatch_stack(None) for _ in range(_others())]
    try:
        torch._C._push_on_torch_dispatch_stack(mode)
    finally:
        for other in reversed(above):
            torch._C._push_on_torch_dispatch_stack(other)


def leave(mode: TorchDispatchMode, *, entered: bool = False) -> None:
    """Leave a mode, from below those of the program's that are entered still; `entered`: that was so in torch's way."""
    at = next((i for i in reversed(range(_others())) if torch._C._get_dispatch_stack_at(i) is mode), None)
    if at is None:
        return
    if entered and at == _others() - 1:
        mode.__exit__(None, None, None)
        return
    above = [torch._C._pop_torch_dispatch_stack(None) for _ in range(_others() - at)]
    for other in reversed(above[:-1]):
        torch._C._push_on_torch_dispatch_stack(other)


# The dispatch keys of a thread in inference mode without a mode above. Below a mode the parts of a composite operator
# run without the kernels of views and of conjugates: a view of a parameter does not require a gradient, so that
# `matmul` takes another formula, and a conjugate is not resolved (pytorch 2.13).
with torch.inference_mode():
    _BARE = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()


class BesideCompiled(TorchDispatchMode):
    """A mode under which what is compiled stays so."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # otherwise importing torch._dynamo and a wrapper at every call; pytorch#164143
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


class TraceMode(BesideCompiled):
    """Shows every dispatcher call of the threads that entered it to a tracer."""

    supports_higher_order_operators = True

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer
        self.context = tracer.context
        self.keeper = tracer.keeper
        self._known = KNOWN
        self._first_event: Callable[[], None] | None = None
        self._copied = (
            functools.partial(copy_overwritten, self.context) if self.keeper is None else self.keeper.copy_inputs
        )

    def call_at_first_event(self, listener: Callable[[], None]) -> None:
        """Have a listener called before the next operation runs."""
        self._known, self._first_event = {}, listener

    def _operator_of(self, func: Any) -> Operator:
        listener, self._first_event = self._first_event, None
        self._known = KNOWN
        if listener is not None:
            _below(listener)
        return operator_of(func)

    def _refused(self, error: Exception, args: Any, kwargs: Any) -> None:
        """An operation has raised."""
        with self.context.one_at_a_time:
            self.tracer.bad.sinks.record_refusal(error, args, kwargs)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        context = self.context
        looking = context.active
        if types:
            for kind in types:
                # a subclass without a dispatch of its own is a tensor like any other below autograd
                if kind is not torch.Tensor and kind.__torch_dispatch__ is not _no_dispatch:
                    if kind.__name__ not in _PASSING:
                        return NotImplemented
                    looking = False
        before = operator = bare = wrapped = out = None
        try:
            if looking:
                operator = self._known.get(id(func)) or self._operator_of(func)
                if operator.composite and torch.is_inference_mode_enabled() and not _others():
                    bare = torch._C._ForceDispatchKeyGuard(*_BARE)
                if operator.copies if self.keeper is None else self.keeper.asks(operator):
                    if _others() or _functions():
                        before = _below(self._copied, operator, args, kwargs)
                    else:
                        before = self._copied(operator, args, kwargs)
        except Exception:
            if context.fail():
                raise
        try:
            if bare is not None:
                with bare:
                    out = func(*args, **kwargs)
            else:
                out = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException as error:
            if type(error) is RuntimeError and _REFUSAL in str(error):
                wrapped = call_fenced(context.fail, _numbers_wrapped, func, args)
            if wrapped is None:
                if looking and context.active and isinstance(error, Exception):
                    call_fenced(context.fail, self._refused, error, args, kwargs)
                strip_own_frames(error)
                raise
        if wrapped is not None:
            try:
                args, out = wrapped, func(*wrapped, **kwargs)
            except BaseException as error:
                strip_own_frames(error)
                raise
        if operator is not None and context.active:
            outside = None
            try:
                # below a compiled function that went back to Python, dynamo would compile what is ours
                outside = _set_eval_frame(None)
                with context.one_at_a_time:
                    # another thread may have ended the trace while this one waited
                    if context.active:
                        if operator.computes_vectors and not args[0].requires_grad:
                            context.notes[VALUES_NOTE] = None
                        if _others() or _functions():
                            _below(self.tracer.record_event, operator, args, kwargs, out, before)
                        else:
                            self.tracer.record_event(operator, args, kwargs, out, before)
            except Exception:
                if context.fail():
                    raise
            finally:
                if outside is not None:
                    _set_eval_frame(outside)
        return out
