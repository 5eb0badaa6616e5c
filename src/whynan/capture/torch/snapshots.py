"""The state that a target can see, taken before its run and put back for a second one."""

from __future__ import annotations

import copy
import random
import sys
import types
from typing import TYPE_CHECKING, Any

import torch

from whynan.capture.torch.names import tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor


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
        if a.is_floating_point() or a.is_complex():
            a, b = torch.view_as_real(a) if a.is_complex() else a, torch.view_as_real(b) if b.is_complex() else b
            if not bool(((a == b) | (torch.isnan(a) & torch.isnan(b))).all()):
                return False
        elif not torch.equal(a, b):
            return False
    return True
