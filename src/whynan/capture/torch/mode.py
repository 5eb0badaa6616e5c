"""The dispatch mode: the user's operation first, exactly once; everything of ours after it, and guarded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from whynan.capture.torch.experiments import tensors_in
from whynan.capture.torch.operators import KNOWN, operator_of

if TYPE_CHECKING:
    from whynan.capture.torch.tracer import Tracer

_others = torch._C._len_torch_dispatch_stack
_functions = torch._C._len_torch_function_stack
_is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_set_excluded = torch._C._dispatch_tls_set_dispatch_key_excluded
_VIEWS = torch._C.DispatchKey.ADInplaceOrView
VIEWS_NOTE = (
    "what {} gave in inference mode does not require a gradient, as it would without a trace: a matrix product of it "
    "may take another formula of PyTorch's"
)
_no_dispatch = torch._C._disabled_torch_dispatch_impl


# these cannot be unwrapped by refusing: their operation is run as it is
_PASSING = frozenset(("FakeTensor", "FunctionalTensor", "ProxyTensor"))


def _below(function: Any, *args: Any) -> Any:
    """Run below the user's own modes, which must not see what is ours."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        return function(*args)


def _taken_apart(func: Any, args: Any, kwargs: Any) -> Any:
    """Run a composite operator as without a mode.

    Below a mode its parts would run without the kernels of views, and a view of a parameter would not require a
    gradient: ``matmul`` then takes another formula.
    """
    excluded = _is_excluded(_VIEWS)
    _set_excluded(_VIEWS, not torch.is_inference_mode_enabled() and excluded)
    try:
        return func(*args, **kwargs)
    finally:
        _set_excluded(_VIEWS, excluded)


class TraceMode(TorchDispatchMode):
    """Shows every dispatcher call of the threads that entered it to a tracer."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # otherwise importing torch._dynamo and a wrapper at every call; pytorch#164143
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # a compiled region stays compiled; pytorch#164143
        return True

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        if types:
            for kind in types:
                # a subclass without a dispatch of its own is a tensor like any other below autograd
                if kind is not torch.Tensor and kind.__torch_dispatch__ is not _no_dispatch:
                    if kind.__name__ in _PASSING:
                        return func(*args, **kwargs)
                    return NotImplemented
        tracer = self.tracer
        if not tracer.active:
            return func(*args, **kwargs)
        before = operator = None
        try:
            operator = KNOWN.get(id(func)) or operator_of(func)
            if operator.copies and (not tracer.stepping or tracer.copies_in_step(operator, args)):
                if _others() or _functions():
                    before = _below(tracer.before, operator, args, kwargs)
                else:
                    before = tracer.before(operator, args, kwargs)
        except Exception:
            tracer.fail()
        if operator is not None and operator.composite and not operator.gives_list:
            out = _taken_apart(func, args, kwargs)
        else:
            out = func(*args, **kwargs) if kwargs else func(*args)
        if operator is not None and tracer.active:
            try:
                if operator.composite and operator.gives_list and any(t.requires_grad for t in tensors_in(list(args))):
                    # the kernels of views refuse a list of them below a mode
                    tracer.notes[VIEWS_NOTE.format(operator.name)] = None
                if _others() or _functions():
                    _below(tracer.after, operator, args, kwargs, out, before)
                else:
                    tracer.after(operator, args, kwargs, out, before)
            except Exception:
                tracer.fail()
        return out
