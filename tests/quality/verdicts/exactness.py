"""The numbers of a program that is written in files: what it gives, and its gradients, in any dtype."""

from __future__ import annotations

import contextlib
import io
import sys
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from torch import Tensor

MAIN: Final = "program"
"""The name of the file that has a program's target."""
APART: Final = 1e-5
"""Numbers are others than the exact ones if they are so far from these, relative to the greatest of their tensor."""


@contextmanager
def _executed(files: Mapping[str, str], dtype: torch.dtype) -> Generator[dict[str, ModuleType]]:
    """The modules of a program, the main one last, while the default dtype is another."""
    kind = torch.get_default_dtype()
    modules = {name.removesuffix(".py"): ModuleType(name.removesuffix(".py")) for name in files}
    held = {name: sys.modules.get(name) for name in modules}
    try:
        torch.set_default_dtype(dtype)
        sys.modules.update(modules)
        for name in reversed(modules):
            exec(compile(files[f"{name}.py"], f"{name}.py", "exec"), vars(modules[name]))
        yield modules
    finally:
        torch.set_default_dtype(kind)
        for name, module in held.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module


def numbers(files: Mapping[str, str], values: Sequence[Any], learnt: int, dtype: torch.dtype) -> list[Tensor] | str:
    """What a program gives and all its gradients; or the exception that it raises."""
    try:
        with _executed(files, dtype) as modules:
            inputs = tensors(values, learnt, dtype)
            loss = modules[MAIN].target(*inputs)
            leaves = [*inputs[:learnt], *(p for one in _networks(modules) for p in one.parameters() if p.requires_grad)]
            return [t.detach() for t in (loss, *(torch.zeros(()) if x.grad is None else x.grad for x in leaves))]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def trained(files: Mapping[str, str], dtype: torch.dtype) -> list[Tensor] | str:
    """The weights that a training ends with; or the exception that it raises."""
    try:
        with _executed(files, dtype) as modules, contextlib.redirect_stdout(io.StringIO()):
            return [p.detach() for one in _networks(modules) for p in one.parameters()]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def tensors(values: Sequence[Any], learnt: int, dtype: torch.dtype = torch.float32) -> list[Any]:
    """The tensors of a program's values, of which the first few are differentiated by."""
    made = [torch.tensor(value) for value in values]
    made = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in made]
    return [tensor.requires_grad_() if number < learnt else tensor for number, tensor in enumerate(made)]


def _networks(modules: Mapping[str, ModuleType]) -> Iterator[torch.nn.Module]:
    return (one for module in modules.values() for one in vars(module).values() if isinstance(one, torch.nn.Module))


def differs(found: list[Tensor] | str, exact: list[Tensor] | str) -> bool:
    """Whether numbers are others than the exact ones, by far more than they are rounded."""
    if isinstance(found, str) or isinstance(exact, str):
        return True
    return any(_is_far(one.double(), other) for one, other in zip(found, exact, strict=True))


def _is_far(found: Tensor, exact: Tensor) -> bool:
    if found.shape != exact.shape:
        return True
    size = exact.abs().max().clamp(min=1e-30)
    return not bool(((found - exact).abs() <= APART * size).all())
