"""Which files of a folder, or which single file, give which inputs of a model; and its test data sets."""

# pyright: strict

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from whynan.errors import UsageError
from whynan.models.files import unreadable
from whynan.models.onnx_arrays import name_in_pb
from whynan.models.onnx_specs import HOW

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_NUMBERED: Final = re.compile(r"input_([0-9]{1,6})\.pb")
_SET: Final = re.compile(r"test_data_set_([0-9]{1,9})")
_ENDINGS: Final = (".npy", ".pb")


def cases_in(path: Path) -> list[Path]:
    """The folders ``test_data_set_0``, ``test_data_set_1``, ... in a folder, in order."""
    if not os.path.isdir(path):
        return []
    numbered = sorted((int(found[1]), name) for name in _names(path) if (found := _SET.fullmatch(name)))
    return [path / name for _, name in numbered if os.path.isdir(path / name)]


def files_in(path: Path, all_inputs: Sequence[str], required: Sequence[str]) -> dict[str, Path]:
    """The file for each input: ``x.npy`` in a folder is for x, and ``input_0.pb`` for the first.

    The name that a tensor bears goes before its number, where all of a folder's bear the name of an input. A single
    ``.npy`` or ``.pb`` is for the only input. Raises ``UsageError`` where there is nothing of that kind.
    """
    if not os.path.isdir(path):
        return _single(path, all_inputs, required)
    names = _names(path)
    numbered = sorted((int(found[1]), name) for name in names if (found := _NUMBERED.fullmatch(name)))
    named = [name for name in names if name.endswith(_ENDINGS) and not name.startswith("output_")]
    files = {os.path.splitext(name)[0]: path / name for name in named if not _NUMBERED.fullmatch(name)}
    if len(files) < len(named) - len(numbered):
        raise UsageError(f"{path} holds an input both as .npy and as .pb", "take one of them away")
    if numbered:
        files |= _numbered(path, numbered, all_inputs, required)
    if not files and required:
        raise UsageError(f"{path} holds no inputs, neither .npy files nor input_0.pb", HOW)
    return files


def values_in(path: Path) -> list[Path]:
    """The files of a folder that may hold values; of what is no folder itself."""
    return [path / name for name in _names(path) if name.endswith(_ENDINGS)] if os.path.isdir(path) else [path]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise unreadable(folder, error) from error


def _single(path: Path, all_inputs: Sequence[str], required: Sequence[str]) -> dict[str, Path]:
    if path.suffix not in _ENDINGS:
        what = "holds no inputs that whynan reads" if os.path.exists(path) else "does not exist"
        raise UsageError(f"{path} {what}", HOW)
    if path.suffix == ".pb" and (name := name_in_pb(path)) in all_inputs:
        return {str(name): path}
    if len(required) != 1:
        raise UsageError(
            f"{path} is one value, and the model takes {len(required)} inputs", f"say for which: name={path}"
        )
    return {required[0]: path}


def _numbered(
    folder: Path, numbered: Sequence[tuple[int, str]], all_inputs: Sequence[str], required: Sequence[str]
) -> dict[str, Path]:
    borne = [name_in_pb(folder / name) for _, name in numbered]
    if all(name in all_inputs for name in borne) and len(set(borne)) == len(borne):
        return {str(name): folder / file for name, (_, file) in zip(borne, numbered, strict=True)}
    # models of old list their weights among the inputs, behind those that are given or all of them given
    names = required if len(numbered) <= len(required) else all_inputs
    last = numbered[-1]
    if last[0] >= len(names):
        raise UsageError(f"{folder / last[1]} is for an input that the model does not have", f"it takes {len(names)}")
    return {names[number]: folder / file for number, file in numbered}
