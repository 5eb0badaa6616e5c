"""A piece of the program's source as a function that can be called."""

# pyright: strict

from __future__ import annotations

import builtins
import math
import textwrap
from typing import TYPE_CHECKING, Any, Final

from whynan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whynan.fixes.candidates import Formula

_NAME: Final = "_formula"


def compiled(formula: Formula, namespace: Mapping[str, Any] = {}) -> Callable[..., Any]:
    """The formula as a function of its parameters, given by keyword; it returns what the body returns.

    The body sees ``torch``, ``math`` and the builtins, above these ``namespace`` (the globals of the file that it was
    taken from), and above all what its own imports bring. Raises ``UsageError`` where an import fails or the body is
    no Python.
    """
    import torch

    names: dict[str, Any] = {"torch": torch, "math": math, **namespace, "__builtins__": builtins}
    for statement in formula.imports:
        try:
            exec(compile(statement, "<import>", "exec"), names)  # the program's own import, which the program has run
        except Exception as error:
            raise UsageError(
                f"line {formula.line} needs {statement.strip()!r}, which fails here: {error}",
                "install what it names, or run where the program ran",
            ) from error
    signature = f"*, {', '.join(formula.parameters)}" if formula.parameters else ""
    text = f"def {_NAME}({signature}):\n{textwrap.indent(textwrap.dedent(formula.body), '    ')}\n"
    try:
        exec(compile(text, f"<formula at line {formula.line}>", "exec"), names)
    except SyntaxError as error:
        raise UsageError(
            f"the formula at line {formula.line} is no Python: {error.msg}", "report this, with the line"
        ) from error
    return names[_NAME]
