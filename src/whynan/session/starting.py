"""How a program is started so that whynan attends it: the environment, of which it sees nothing."""

# pyright: strict

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_BOOT: Final = str(Path(__file__).parent / "boot")


def environment_of(
    environ: Mapping[str, str], told: str, status: str, *, hashseed: str | None = None, again: str | None = None
) -> dict[str, str]:
    """The environment of a program that is attended.

    Args:
        environ: what the program is to see of it.
        told: what was asked for, as text.
        status: the file in which the program's process leaves how that went.
        hashseed: of Python's hashes, where they have to be the same as in another process.
        again: which further run it is; None of the first.
    """
    environment = dict(environ)
    environment["_WHYNAN_RUN"] = told
    environment["_WHYNAN_STATUS"] = status
    before = environment.get("PYTHONPATH")
    if before is not None:
        environment["_WHYNAN_PYTHONPATH"] = before
    environment["PYTHONPATH"] = os.pathsep.join([_BOOT, before] if before else [_BOOT])
    if hashseed is not None:
        environment["_WHYNAN_HASHSEED"] = environment.get("PYTHONHASHSEED", "")
        environment["PYTHONHASHSEED"] = hashseed
    if again is not None:
        environment["_WHYNAN_AGAIN"] = again
    return environment


def hashseed_for(environ: Mapping[str, str]) -> str | None:
    """A seed that a second process can have too, where Python would draw one; None where it is given."""
    given = environ.get("PYTHONHASHSEED", "")
    return str(int.from_bytes(os.urandom(4), "little") or 1) if given in ("", "random") else None
