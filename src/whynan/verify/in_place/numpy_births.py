"""NumPy births: where the program's own NumPy makes NaN or Inf, and its expressions as PyTorch's, which proofs need."""

# pyright: basic

from __future__ import annotations

import ast
import sys
import textwrap
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whynan.errors import UsageError
from whynan.ops.table import TORCH
from whynan.source.ownership import Owner, owner_of
from whynan.source.positions import resolve
from whynan.verify.in_place.visits import ARRAY

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import CodeType

    from whynan.fixes.candidates import Formula
    from whynan.records import Site
    from whynan.verify.in_place.visits import Visits

_MOST: Final = 64
"""So many expressions are heard of."""
_LIBRARY: Final = "torch._numpy"
"""NumPy's functions on tensors, as the compiler traces them."""


_HEARD: Final[dict[str, Any]] = dict.fromkeys(("divide", "over", "invalid"), "call")


def _listening(given: dict[str, Any]) -> dict[str, Any]:
    """What the program asks NumPy for, where that is to say nothing or to warn; what is to raise does.

    What it does not speak of stays as it is.
    """
    asked = {name: given.get(name) or given.get("all") for name in ("divide", "over", "under", "invalid")}
    return {name: kind if kind in (None, "raise") else _HEARD.get(name, kind) for name, kind in asked.items()}


class NumpyBirths:
    """The expressions at which NumPy divides by 0, leaves a function's domain or the range of a dtype."""

    def __init__(self) -> None:
        self._heard: dict[tuple[CodeType, int], None] = {}
        self.sites: tuple[Site, ...] = ()
        """Where they are, in order of time, in the text that ran."""

    @contextmanager
    def apply(self) -> Generator[None]:
        """Hear every one while the block runs, in place of NumPy's warnings, and where the program wants none."""
        own = {name: getattr(np, name) for name in ("errstate", "seterr")}
        try:
            with np.errstate(**_HEARD, call=self._born):
                np.errstate = lambda **given: own["errstate"](**_listening(given), call=self._born)
                np.seterr = lambda *kinds, **given: own["seterr"](
                    **_listening(signature(own["seterr"]).bind(*kinds, **given).arguments)
                )
                yield
        finally:
            for name, function in own.items():
                setattr(np, name, function)
            self.sites = tuple(dict.fromkeys(resolve(code, instruction) for code, instruction in self._heard))

    heard = apply

    def _born(self, kind: str, flag: int) -> None:
        del kind, flag
        frame = sys._getframe(1)
        while frame is not None and owner_of(frame.f_code.co_filename) is not Owner.USER:
            frame = frame.f_back
        if frame is not None and len(self._heard) < _MOST:
            self._heard.setdefault((frame.f_code, frame.f_lasti))


def reductions_in(formula: Formula) -> frozenset[str]:
    """What a formula calls functions by whose results another library rounds otherwise."""
    called = (node.func for node in ast.walk(ast.parse(textwrap.dedent(formula.body))) if isinstance(node, ast.Call))
    reducing = TORCH.having("reduction")
    return frozenset(ast.unparse(one) for one in called if isinstance(one, ast.Attribute) and one.attr in reducing)


def with_arrays(visits: Visits) -> Visits:
    """Visits in which NumPy's arrays stand under their own names; without any, numbers stand as arrays do."""
    told = []
    for visit in visits.visits:
        arrays = {name.removeprefix(ARRAY): value for name, value in visit.values.items() if name.startswith(ARRAY)}
        told.append(replace(visit, values={**visit.values, **arrays}))
    return replace(visits, visits=tuple(told))


def on_tensors(formula: Formula) -> Formula:
    """A formula of NumPy's functions as one of the same functions on tensors."""
    imports = tuple(
        line.replace("import numpy", f"import {_LIBRARY}", 1).replace("from numpy", f"from {_LIBRARY}", 1)
        for line in formula.imports
    )
    named = tuple(f"{line} as numpy" if line == f"import {_LIBRARY}" else line for line in imports)
    return replace(formula, imports=named)


def taking_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """What NumPy's functions compute of tensors, as tensors.

    Raises:
        UsageError: where there is no such function of tensors.
    """
    import torch

    arrays: Any = import_module(_LIBRARY)

    def taken(**given: Any) -> Any:
        try:
            with _numpy_dtypes():
                made = function(
                    **{n: arrays.asarray(v) if isinstance(v, torch.Tensor) else v for n, v in given.items()}
                )
        except (AttributeError, ImportError) as error:
            raise UsageError("NumPy's functions on tensors do not compute it", str(error)) from error
        return tuple(map(_tensor, made)) if isinstance(made, tuple) else _tensor(made)

    def _tensor(made: Any) -> Any:
        return made.tensor if isinstance(made, arrays.ndarray) else made

    return taken


@contextmanager
def _numpy_dtypes() -> Generator[None]:
    """NumPy's own dtypes of what is given none: the library would load the compiler to ask for its settings."""
    import torch

    settings: Any = import_module(f"{_LIBRARY}._dtypes_impl")
    held, usual = settings._default_dtypes, torch.get_default_dtype()
    settings._default_dtypes = settings.DefaultDTypes(torch.float64, torch.complex128, torch.int64)
    torch.set_default_dtype(torch.float64)  # which a number of Python's is made a tensor of
    try:
        yield
    finally:
        torch.set_default_dtype(usual)
        settings._default_dtypes = held


def as_arrays(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a formula is given, with its numbers as arrays where it is given nothing but numbers."""
    import torch

    if any(isinstance(value, torch.Tensor) for one in given for value in one.values()):
        return given

    def array(value: Any) -> Any:
        return torch.tensor(float(value), dtype=torch.float64, device="cpu") if type(value) in (int, float) else value

    return [{name: array(value) for name, value in one.items()} for one in given]
