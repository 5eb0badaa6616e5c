"""The operator cache: the schema and the tables of ``ops`` for each dispatched overload."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import torch

from whynan.ops.names import base_name, is_foreach
from whynan.ops.table import TORCH
from whynan.records import Note

# -- What one dispatched operator is to capture: its schema and the tables of ``ops``, looked up once ------------------


_is_alias_of: Any = getattr(torch._C, "_is_alias_of")  # noqa: B009


class Operator:
    """An operator's name, arguments and role; one per overload, for the life of the process."""

    __slots__ = (
        "alias_returns",
        "arg_names",
        "base",
        "collective",
        "compares",
        "composite",
        "computes_vectors",
        "copies",
        "copying",
        "exchanges",
        "foreach",
        "func",
        "in_python",
        "leaves",
        "movement",
        "mutable",
        "name",
        "overwrites",
        "pointwise",
        "predicate",
        "random",
        "reduces",
        "selects",
        "uninitialised",
        "value_free",
        "view",
        "workspaces",
        "writes_first",
    )

    def __init__(self, func: Any) -> None:
        self.func = func
        schema = getattr(func, "_schema", None)
        self.name: str = str(func) if schema is not None else f"higher_order.{getattr(func, '__name__', func)}"
        self.collective = self.name.startswith(_COLLECTIVE)
        raw = self.name.split(".")[1] if "." in self.name else self.name
        self.base = base = base_name(self.name)
        if self.collective:
            # its result is no function of its operands: it has nothing but its name with others
            raw = base = ""
        plain = base.removesuffix("_") if not base.startswith("__") else base
        tags: set[Any] = set(getattr(func, "tags", ()))
        self.foreach = is_foreach(self.name)
        self.arg_names: list[str] = [a.name for a in schema.arguments] if schema is not None else []
        self.mutable: tuple[int | str, ...] = ()
        self.view = False
        self.alias_returns = False
        if schema is not None:
            positions: list[int | str] = []
            for i, argument in enumerate(schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    positions.append(argument.name if argument.kwarg_only else i)
            if torch.Tag.inplace_view in tags:
                # unsqueeze_ and its like change how a tensor is seen, and no element
                positions = []
                self.view = True
            # pytorch marks `grads` of the fused optimizers as written although only a scaler's unscaling does so
            self.mutable = (*positions, *TORCH.numbers("mutates").get(raw, ()))
            returns = schema.returns
            aliased = [r.alias_info is not None for r in returns]
            self.view = (
                self.view
                or (bool(returns) and all(aliased) and not self.mutable)
                or raw in TORCH.having("undeclared-view")
            )
            self.alias_returns = bool(returns) and all(aliased)
        overloaded_reduction = base in ("max", "min") and not self.name.endswith(".other")
        self.pointwise = not overloaded_reduction and (
            (self.foreach and base not in TORCH.having("whole-entry"))
            or torch.Tag.pointwise in tags
            or base in TORCH.having("pointwise")
            or plain in TORCH.having("pointwise")
        )
        # one written tensor, the first argument: what most in-place operators are
        self.writes_first = self.mutable == (0,) and self.alias_returns and not self.foreach and not self.view
        self.movement = raw in TORCH.having("movement")
        self.uninitialised = raw in TORCH.having("uninitialised")
        self.value_free = self.uninitialised or (
            base in TORCH.having("value-free") and not self.name.endswith("fill_.Tensor")
        )
        self.overwrites = raw in TORCH.having("overwrites") or raw.endswith(".out")
        # whether the operand that it overwrites may be asked for afterwards
        self.copies = bool(self.mutable) and not self.overwrites and not self.view and not self.collective
        self.predicate = base in TORCH.having("predicate")
        self.compares = base in TORCH.having("equality")
        self.reduces = plain in TORCH.having("reduces")
        self.selects = plain in TORCH.having("selects")
        # whether each element of the result is an element of an operand, or a constant
        self.copying = self.movement or self.view or self.value_free or plain in TORCH.having("copying")
        self.leaves = base in TORCH.having("leaves") and not self.mutable
        self.workspaces = TORCH.numbers("workspace").get(base, ())
        # whether it may bring what another process or device has computed
        self.exchanges = self.collective or (base == "copy_" and not self.foreach)
        self.random = torch.Tag.nondeterministic_seeded in tags
        self.computes_vectors = base in TORCH.having("vectors")
        self.composite = schema is not None and _is_composite(schema)
        self.in_python = schema is not None and _is_in_python(schema)

    def as_run(self, args: Any, out: Any) -> Operator:
        """What a composite operator came to that declares a view: `reshape` and `to` copy where no view will do."""
        if not args or type(out) is not torch.Tensor or not isinstance(args[0], torch.Tensor):
            return self
        return self if out.layout is not torch.strided or _is_alias_of(args[0], out) else _copying(self)


_COLLECTIVE: Final = (
    *("c10d.", "_c10d_functional.", "_c10d_functional_autograd.", "c10d_functional.", "symm_mem."),
    # what begins one, and writes an argument without saying so
    "fsdp.all_gather_copy_in",
)
"""What several processes do together: each of its calls is one of all of them."""


def _is_composite(schema: Any) -> bool:
    """Whether an operator is made of others, and has no kernel for views of its own.

    Such a one reaches a mode in inference mode only.
    """
    name = f"{schema.name}.{schema.overload_name}".removesuffix(".")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name, "CompositeImplicitAutograd") and not has(name, "ADInplaceOrView")


def _is_in_python(schema: Any) -> bool:
    """Whether an operator that a program registered computes in Python, where it may do more than compute."""
    if schema.name.startswith(("aten::", "prim::", "prims::")):
        return False
    kernels = torch._C._dispatch_dump(schema.name).splitlines()
    return any(".py:" in k and not k.startswith(("debug", "Meta", "Autograd", "Autocast")) for k in kernels)


@cache
def _copying(operator: Operator) -> Operator:
    """An operator that declares a view where it gives new memory; a cast by the name that it has in other modes."""
    found = Operator(operator.func)
    found.view = found.alias_returns = False
    found.movement = not found.pointwise
    if found.base == "to":
        found.name, found.base = "aten._to_copy.default", "_to_copy"
    found.copying = found.movement or found.base in TORCH.having("copying")
    return found


KNOWN: dict[int, Operator] = {}


def operator_of(func: Any) -> Operator:
    """The operator of an overload; overloads live as long as the process, so their identity is a key."""
    found = KNOWN.get(id(func))
    if found is None or found.func is not func:
        found = KNOWN[id(func)] = Operator(func)
    return found


# -- Where PyTorch itself computes by another formula while a dispatch mode is on, and what is said of it --------------


# (isTensorSubclassLike), 2.13; that of `eig` leaves out the check that the loss does not depend on the vectors' phase.
CHANGED_FORMULAS: Final = {"ProdBackward0": 0, "ProdBackward1": 0, "MaskedFillBackward1": 1, "LinalgEigBackward0": 0}
"""Nodes of the backward with a formula that is another while any dispatch mode is on: the operand that it is for."""
DEVICE_NOTE: Final = Note.create("no_silent_on_device")
VALUES_NOTE: Final = Note.create("other_values_formula")


@cache
def formula_note(node: str) -> Note:
    """The note of a node's formula."""
    return Note.create("other_gradient_formula", node=node)
