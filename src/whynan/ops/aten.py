"""The names of ATen's operators, taken apart."""

from __future__ import annotations


def base_name(name: str) -> str:
    """``aten.add.Tensor`` -> ``add``; a foreach operator gives the name of what it does to each tensor.

    >>> base_name("aten._foreach_add_.List")
    'add_'
    """
    parts = name.split(".")
    base = parts[1] if len(parts) > 1 else name
    return base.removeprefix("_foreach_")


def is_foreach(name: str) -> bool:
    """Whether the operator works on lists of tensors, entry by entry."""
    base = name.split(".")[1] if "." in name else name
    return base.startswith(("_foreach_", "_fused_", "_amp_foreach_"))
