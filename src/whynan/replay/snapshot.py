"""The snapshot of state: what a target can see, random number generators, torch's switches; put back."""

from __future__ import annotations

import contextvars
import copy
import ctypes
import decimal
import functools
import importlib
import random
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from whynan.capture.torch.names import tensors_of

# -- The state that a target can see, taken before its run and put back for a second one -------------------------------


def reachable(target: Any, values: Iterable[Any]) -> list[Any]:
    """Modules, optimizers and tensors that a call can see: its target, arguments, closure and globals by name."""
    roots: list[Any] = [target, *values]
    function: Any = getattr(target, "__func__", target)
    if isinstance(target, types.MethodType):
        roots.append(target.__self__)
    if isinstance(function, types.FunctionType):
        for cell in function.__closure__ or ():
            try:
                roots.append(cell.cell_contents)
            except ValueError:
                continue
        roots += [function.__globals__[n] for n in function.__code__.co_names if n in function.__globals__]
        roots += list(function.__defaults__ or ()) + list((function.__kwdefaults__ or {}).values())
    return roots


class Snapshot:
    """Tensors with their gradients, optimizer states and random number generators, as they were."""

    def __init__(self, roots: Iterable[Any]) -> None:
        tensors: dict[int, Tensor] = {}
        self._optimizers: list[tuple[Any, Any]] = []
        self._modes: list[tuple[Any, bool]] = []
        self._generators: list[tuple[torch.Generator, Tensor]] = []
        for root in roots:
            self._take(root, tensors)
        self._tensors = [
            (t, t.detach().clone(), None if t.grad is None else (t.grad, t.grad.detach().clone()))
            for t in tensors.values()
            if t.layout is torch.strided and not t.is_nested and t.is_leaf
        ]
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
        self._python = random.getstate()
        numpy: Any = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None

    def _take(self, root: Any, tensors: dict[int, Tensor]) -> None:
        if isinstance(root, torch.nn.Module):
            self._modes += [(m, m.training) for m in root.modules()]
            for tensor in (*root.parameters(), *root.buffers()):
                tensors[id(tensor)] = tensor
        elif isinstance(root, torch.optim.Optimizer):
            self._optimizers.append((root, copy.deepcopy(root.state_dict())))
            for group in root.param_groups:
                for tensor in group["params"]:
                    tensors[id(tensor)] = tensor
        elif isinstance(root, torch.Generator):
            self._generators.append((root, root.get_state()))
        else:
            for _, tensor in tensors_of(root, ""):
                tensors[id(tensor)] = tensor

    def restore(self) -> None:
        """Put everything back, in place."""
        with torch.no_grad():
            for tensor, value, grad in self._tensors:
                tensor.copy_(value)
                if grad is None:
                    tensor.grad = None
                else:
                    grad[0].copy_(grad[1])
                    tensor.grad = grad[0]
        for optimizer, state in self._optimizers:
            optimizer.load_state_dict(copy.deepcopy(state))
        for module, training in self._modes:
            module.training = training
        for generator, held in self._generators:
            generator.set_state(held)
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


def same_bits(first: list[Tensor], second: list[Tensor]) -> bool:
    """Whether two lists of tensors are equal bit for bit, NaN included."""
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        a, b = a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg()
        if a.is_floating_point() or a.is_complex():
            a, b = torch.view_as_real(a) if a.is_complex() else a, torch.view_as_real(b) if b.is_complex() else b
            if not bool(((a == b) | (torch.isnan(a) & torch.isnan(b))).all()):
                return False
        elif not torch.equal(a, b):
            return False
    return True


# -- The random number generators of the process and torch's switches: at one moment, and put back ---------------------


_MT19937_BYTES: Final = 2500
"""What NumPy keeps of a Mersenne twister: 624 words and where it is in them."""


@dataclass(frozen=True, slots=True)
class Rng:
    """The random number generators, torch's switches and the context variables, at one moment."""

    torch: Tensor
    cuda: tuple[Tensor, ...] | None
    python: Any
    numpy: Any
    switches: tuple[Any, ...]
    inference: bool
    """Whether it was in inference mode; `restore` cannot go there or away."""
    context: contextvars.Context
    """What context variables hold; `restore` leaves them: what runs again is run in `context_of` it."""


def rng() -> Rng:
    """The state of every generator that a program uses without naming it, of the switches and context variables."""
    return Rng(
        torch=torch.default_generator.get_state(),
        cuda=tuple(g.get_state() for g in torch.cuda.default_generators) if torch.cuda.is_initialized() else None,
        python=random.getstate(),
        numpy=_numpy(),
        switches=tuple(read() for read, _ in _SWITCHES),
        inference=torch.is_inference_mode_enabled(),
        context=contextvars.copy_context(),
    )


def rng_document() -> dict[str, Any]:
    """The state of the generators of the processor as a document for another process.

    NumPy's is made, if the program has NumPy: else it would begin anywhere, later.
    """
    _load_numpy()
    state = rng()
    numpy = state.numpy
    if numpy is not None:
        # another process begins with a generator of this kind
        twister = numpy["bit_generator"] == "MT19937"
        inner = numpy["state"]
        numpy = {**numpy, "state": {**inner, "key": inner["key"].tolist()}} if twister else None
    return {"torch": state.torch.numpy().tobytes().hex(), "python": state.python, "numpy": numpy}


def restore_rng_document(document: dict[str, Any]) -> None:
    """Put the generators of this process where those of another one were."""
    state = bytearray.fromhex(document["torch"])
    torch.default_generator.set_state(torch.frombuffer(state, dtype=torch.uint8))
    version, words, second = document["python"]
    random.setstate((version, tuple(words), second))
    if document["numpy"] is not None and _load_numpy():
        sys.modules["numpy.random"].set_state(document["numpy"])


def _load_numpy() -> bool:
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")
    return "numpy.random" in sys.modules


def restore(state: Rng) -> None:
    """Put the generators and the switches back; what autocast has cast is forgotten, for it is of a graph."""
    restore_generators(state)
    for (read, write), value in zip(_SWITCHES, state.switches, strict=True):
        if read() != value:
            write(value)
    torch.clear_autocast_cache()


_PUT_BACK: Final = ("numpy.ufunc.extobj", "decimal_context")
"""What a replay takes over as it is now: `restore` has written it, or who listens to NumPy."""


def context_of(state: Rng) -> contextvars.Context:
    """The context variables of a moment, in which something can be run without changing them."""
    context = state.context.copy()
    for variable, value in contextvars.copy_context().items():
        if variable.name in _PUT_BACK:
            context.run(variable.set, value)
    return context


def restore_generators(state: Rng) -> None:
    """Put the generators back, and nothing else."""
    torch.default_generator.set_state(state.torch)
    if state.cuda is not None:
        for generator, value in zip(torch.cuda.default_generators, state.cuda, strict=True):
            generator.set_state(value)
    random.setstate(state.python)
    if state.numpy is not None:
        sys.modules["numpy.random"].set_state(state.numpy)


_Switch = tuple["Callable[[], Any]", "Callable[[Any], object]"]


def _autocast(device: str) -> list[_Switch]:
    return [
        (
            functools.partial(torch.is_autocast_enabled, device),
            functools.partial(torch.set_autocast_enabled, device),
        ),
        (
            functools.partial(torch.get_autocast_dtype, device),
            functools.partial(torch.set_autocast_dtype, device),
        ),
    ]


def _deterministic() -> tuple[bool, bool]:
    return (
        torch._C._get_deterministic_algorithms(),
        torch._C._get_deterministic_algorithms_warn_only(),
    )


def _set_deterministic(value: tuple[bool, bool]) -> None:
    torch._C._set_deterministic_algorithms(value[0], warn_only=value[1])


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


_SWITCHES: Final[list[_Switch]] = [
    *_autocast("cpu"),
    *_autocast("cuda"),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (_deterministic, _set_deterministic),
    (torch._C._get_deterministic_fill_uninitialized_memory, torch._C._set_deterministic_fill_uninitialized_memory),
    (torch._C._get_cudnn_deterministic, torch._C._set_cudnn_deterministic),
    (torch._C._get_cudnn_benchmark, torch._C._set_cudnn_benchmark),
    (torch._C._get_float32_matmul_precision, torch._C._set_float32_matmul_precision),
    (_anomaly, lambda value: torch.set_anomaly_enabled(*value)),
    (np.geterr, lambda value: np.seterr(**value)),
    (lambda: decimal.getcontext().copy(), lambda value: decimal.setcontext(value.copy())),
]


_latest: list[tuple[bytes, dict[str, Any]]] = []
"""The words of NumPy's Mersenne twister as it was read last, and its state."""


def _numpy() -> dict[str, Any] | None:
    """The state of NumPy's global generator; None where the program does not have it.

    Its getter takes 35 us, twice a step, and is not asked again where nothing has been drawn since.
    """
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is None:
        return None
    words = _words(numpy.get_bit_generator())
    if words is not None and _latest and _latest[0][0] == words:
        return _latest[0][1]
    state: dict[str, Any] = numpy.get_state(legacy=False)
    if words is not None and not state["has_gauss"]:
        # the second of two normal numbers, made with the first, would be drawn without a change of the words
        inner = state["state"]
        _latest[:] = [(inner["key"].tobytes() + inner["pos"].to_bytes(4, sys.byteorder), state)]
    return state


def _words(bits: Any) -> bytes | None:
    """A Mersenne twister's 624 words and where it is in them, from the address that NumPy gives."""
    if type(bits).__name__ != "MT19937":
        return None
    return ctypes.string_at(bits.ctypes.state_address, _MT19937_BYTES)


class ScalerState:
    """What a ``GradScaler`` knows at one moment: its scale, and how far it is with each optimizer."""

    def __init__(self, scaler: Any) -> None:
        self.scaler = scaler
        self._stages = {key: dict(stage) for key, stage in scaler._per_optimizer_states.items()}
        self._scale, self._growth = (None if t is None else t.clone() for t in (scaler._scale, scaler._growth_tracker))

    def restore(self) -> None:
        """Have it know that again."""
        stages = self.scaler._per_optimizer_states
        stages.clear()
        stages.update({key: dict(stage) for key, stage in self._stages.items()})
        for tensor, kept in ((self.scaler._scale, self._scale), (self.scaler._growth_tracker, self._growth)):
            if tensor is not None and kept is not None:
                tensor.copy_(kept)
