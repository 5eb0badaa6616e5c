"""The operators that a capsule may name: PyTorch's own, and those of libraries that the user has loaded."""

from __future__ import annotations

import re
from typing import Any, Final

from whynan.errors import UsageError

OWN: Final = ("aten", "prims")
_NAME: Final = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*\.[A-Za-z_]\w*", re.ASCII)


def resolved(name: str) -> Any:
    """The overload of a name such as ``aten.div.Tensor``.

    Raises ``UsageError`` for one that there is not, that is no operation on tensors, or whose library is not loaded.
    """
    import torch

    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r} is no operator", "give a capsule that whynan wrote")
    library, base, overload = name.split(".")
    try:
        found: Any = getattr(getattr(getattr(torch.ops, library), base), overload)
    except (AttributeError, RuntimeError):
        found = None
    schema: Any = getattr(found, "_schema", None)
    if schema is None or not callable(found):
        if library in OWN:
            raise UsageError(f"PyTorch {torch.__version__} has no operator {name}", "use the version of the run")
        raise UsageError(
            f"{name} is an operator of the library {library}, which is not loaded",
            "name the Python module that registers it: whynan replay --import MODULE DIR",
        )
    if not any("Tensor" in str(argument.type) for argument in schema.arguments):
        # nothing that reads a file, or only makes room
        raise UsageError(f"{name} computes from no tensor", "give a capsule that whynan wrote")
    return found
