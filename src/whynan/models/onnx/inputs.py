"""The inputs that a model is run on: read from files and folders or generated, and checked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from whynan.errors import UsageError
from whynan.models.listing import excerpt
from whynan.models.onnx.arrays import name_in_pb, read_npy, read_npz, read_pb
from whynan.models.onnx.binding import Binding, check_sizes, shape_of, signatures_text
from whynan.models.onnx.model import Signature, name_of
from whynan.models.onnx.opening import OnnxModel
from whynan.models.onnx.specs import HOW, Filled, Generated, InFile, Nothing, Spec, guess, make, spec_of
from whynan.models.strangers import unreadable
from whynan.records.report import Fed
from whynan.traces.json import escape_surrogates

# -- Which files of a folder, or which single file, give which inputs of a model; and its test data sets ---------------


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


# -- The inputs that an ONNX model is run on: read or generated, and checked against what it takes ---------------------


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs: values by name, what is told of each, and what the set is called; None for the only one.

    A value is an array (of objects for strings, in the dtypes of ml_dtypes for what NumPy lacks), a list for a
    sequence, or None for an optional that holds nothing.
    """

    values: dict[str, Any]
    told: tuple[Fed, ...]
    name: str | None = None


@dataclass(frozen=True, slots=True)
class _FileValue:
    """A value from a file, and from which."""

    value: Any
    origin: str


_Source: TypeAlias = "_FileValue | Generated | Filled | Nothing | None"
"""What an input is made from; None where nothing is said, and it is to be generated."""


def read_inputs(
    model: OnnxModel, given: Sequence[str], *, seed: int | None = None, sizes: Mapping[str, int] | None = None
) -> list[Case]:
    """The cases that were given for a model: one, or as many as a folder has test data sets.

    Args:
        model: that takes them.
        given: files, folders and ``name=...``, as the hint of every error says.
        seed: what is not given is generated from it; None where that is an error. Without it, what was given as a
            distribution is drawn from seed 0.
        sizes: of dimensions that the model leaves open, by name.

    Raises:
        UsageError: with the model's signature beside what was given.
    """
    check_sizes(model, sizes or {})
    return [_case(model, sources, seed, name, sizes or {}) for name, sources in _given(model, given)]


def generate_cases(
    model: OnnxModel, given: Sequence[str], seed: int, n: int, *, sizes: Mapping[str, int] | None = None
) -> Iterator[Case]:
    """Cases of the seeds `seed`, `seed` + 1, ... : for each of `n`, those of :func:`read_inputs`.

    Raises ``UsageError`` as it does, and where nothing is generated, so that all would be the same.
    """
    check_sizes(model, sizes or {})
    sets = _given(model, given)
    if n > 1 and not any(_draws(model, sources) for _, sources in sets):
        raise UsageError(
            f"{n} cases were asked for, and all inputs are given, so that they would be the same",
            "leave an input out, or give it as name=normal(0,1)",
        )
    for number in range(seed, seed + n):
        for name, sources in sets:
            yield _case(model, sources, number, name or f"seed {number}", sizes or {})


def case_of(model: OnnxModel, values: Mapping[str, Any]) -> Case:
    """The case that a program's own values make, NumPy's arrays or what gives one; raises ``UsageError``."""
    _check_known(model, list(values))
    sources: dict[str, _Source] = {name: _FileValue(_as_array(value), "given") for name, value in values.items()}
    return _case(model, sources, None, None, {})


def _as_array(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list | tuple) and any(hasattr(one, "dtype") for one in cast("list[Any]", value)):
        return [_as_array(one) for one in cast("list[Any]", value)]
    given = cast("Any", value)
    if hasattr(given, "detach"):
        # a tensor of torch's
        given = given.detach().cpu()
    made: NDArray[Any] = np.asarray(given)
    return made.astype(object) if made.dtype.kind == "U" else made


def _draws(model: OnnxModel, sources: Mapping[str, _Source]) -> bool:
    made = [sources.get(signature.name) for signature in model.inputs]
    return any(source is None or (isinstance(source, Generated) and source.generator in _SEEDED) for source in made)


def _given(model: OnnxModel, given: Sequence[str]) -> list[tuple[str | None, dict[str, _Source]]]:
    """What each case was given, by input."""
    common: dict[str, _Source] = {}
    sets: list[tuple[str | None, dict[str, _Source]]] = []
    for item in given:
        spoken = _spoken(model, item)
        if spoken is not None:
            _add(model, common, spoken[0], spoken[1])
            continue
        path = Path(item)
        cases = cases_in(path)
        if cases and sets:
            raise UsageError(f"{escape_surrogates(item)} is a second folder of test data sets", "give one of them")
        if cases:
            sets = [(case.name, dict(_files(model, case))) for case in cases]
            continue
        for name, read in _files(model, path).items():
            _add(model, common, name, read)
    for _, sources in sets:
        for name, source in common.items():
            _add(model, sources, name, source)
    return sets or [(None, common)]


def _spoken(model: OnnxModel, item: str) -> tuple[str, _Source] | None:
    """The input and the value of ``name=...``; None for what is no such thing."""
    names = [signature.name for signature in (*model.inputs, *model.optional_inputs)]
    # a name may hold an equals sign itself
    name = max((name for name in names if item.startswith(f"{name}=")), key=len, default=None)
    if name is None:
        before, equals, _ = item.partition("=")
        if not equals or os.path.exists(item):
            return None
        raise _unknown(model, [before])
    spec: Spec = spec_of(name, item[len(name) + 1 :])
    return name, _loaded(model, name, spec.path) if isinstance(spec, InFile) else spec


def files_of(model: OnnxModel, given: Sequence[str]) -> list[Path]:
    """The files that what was given for a model may be read from; nothing is read."""
    names = [signature.name for signature in (*model.inputs, *model.optional_inputs)]
    texts = [item[len(name) + 1 :] for item in given for name in names if item.startswith(f"{name}=")]
    paths = [Path(text) for text in (*given, *texts) if os.path.exists(text)]
    return [file for path in paths for folder in (path, *cases_in(path)) for file in values_in(folder)]


def _loaded(model: OnnxModel, name: str, path: Path) -> _FileValue:
    origin = escape_surrogates(str(path))
    match path.suffix:
        case ".npz":
            arrays = read_npz(path)
            if len(arrays) != 1:
                raise UsageError(
                    f"{origin} holds {len(arrays)} arrays, and {name} takes one", f"give {origin} without {name}="
                )
            return _FileValue(next(iter(arrays.values())), origin)
        case ".pb":
            return _FileValue(read_pb(path, _signature(model, name)), origin)
        case _:
            return _FileValue(read_npy(path), origin)


def _files(model: OnnxModel, path: Path) -> dict[str, _FileValue]:
    """What a file or a folder gives to which input."""
    if path.suffix == ".npz" and not path.is_dir():
        arrays = read_npz(path)
        _check_known(model, list(arrays))
        return {name: _FileValue(array, escape_surrogates(str(path))) for name, array in arrays.items()}
    files = files_in(path, [info.name for info in model.proto.graph.input], [held.name for held in model.inputs])
    _check_known(model, list(files))
    return {name: _loaded(model, name, file) for name, file in files.items()}


def _check_known(model: OnnxModel, names: Sequence[str]) -> None:
    known = {signature.name for signature in (*model.inputs, *model.optional_inputs)}
    if unknown := [name for name in names if name not in known]:
        raise _unknown(model, unknown)


def _unknown(model: OnnxModel, names: Sequence[str]) -> UsageError:
    what = "is no input of the model" if len(names) == 1 else "are no inputs of the model"
    optional = f", or {signatures_text(model.optional_inputs)}" if model.optional_inputs else ""
    return UsageError(f"{excerpt(names, 4)} {what}", f"it takes {signatures_text(model.inputs) or 'nothing'}{optional}")


def _add(model: OnnxModel, sources: dict[str, _Source], name: str, source: _Source) -> None:
    if name in sources:
        raise UsageError(f"{name} is given twice", f"give each input once: {signatures_text(model.inputs)}")
    sources[name] = source


def _signature(model: OnnxModel, name: str) -> Signature:
    return next(held for held in (*model.inputs, *model.optional_inputs) if held.name == name)


def _case(
    model: OnnxModel, given: Mapping[str, _Source], seed: int | None, name: str | None, sizes: Mapping[str, int]
) -> Case:
    if seed is not None and seed < 0:
        raise UsageError(f"a seed is a whole number from 0 on, and {seed} was given", "give one as in --random 0")
    sources = dict(given)
    missing = [held for held in model.inputs if held.name not in sources]
    if missing and seed is None:
        raise _missing(model, missing, sources)
    for held in missing:
        sources[held.name] = None
    binding = Binding(model, _shown(sources), sizes)
    values = _values(model, sources, binding, seed or 0)
    ordered = [held for held in (*model.inputs, *model.optional_inputs) if held.name in values]
    told = tuple(_fed(held, values[held.name], sources[held.name], seed or 0) for held in ordered)
    return Case({held.name: values[held.name] for held in ordered}, told, name)


def _missing(model: OnnxModel, missing: Sequence[Signature], sources: Mapping[str, _Source]) -> UsageError:
    taken = signatures_text(model.inputs)
    if not sources:
        return UsageError(f"the model takes {taken}, and was given nothing", HOW)
    lacking = excerpt([held.name for held in missing], 8)
    given = ", ".join(_shown(sources).values())
    return UsageError(f"nothing was given for {lacking}: the model takes {taken}, and was given {given}", HOW)


def _shown(sources: Mapping[str, _Source]) -> dict[str, str]:
    """What was given, as far as it is known before it is made: ``x: float64[2, 4]``."""
    shown: dict[str, str] = {}
    for name, source in sources.items():
        if isinstance(source, _FileValue):
            shown[name] = f"{name}: {shape_of(source.value)}"
        elif source is not None:
            shown[name] = f"{name}={source.text}"
    return shown


def _values(model: OnnxModel, sources: Mapping[str, _Source], binding: Binding, seed: int) -> dict[str, Any]:
    """The values: those of files first, for they say how long the dimensions are that others share."""
    values: dict[str, Any] = {}
    for name, source in sources.items():
        if isinstance(source, _FileValue):
            values[name] = binding.bind_value(_signature(model, name), source.value, source.origin)
    for name, source in sources.items():
        if isinstance(source, Generated | Filled) and source.dims is not None:
            values[name] = _make_value(binding, _signature(model, name), source, seed)
    for name, source in sources.items():
        if name not in values and not isinstance(source, _FileValue):
            values[name] = _make_value(binding, _signature(model, name), source, seed)
    return values


def _make_value(binding: Binding, signature: Signature, source: Generated | Filled | Nothing | None, seed: int) -> Any:
    if isinstance(source, Nothing):
        if signature.kind != "optional":
            raise UsageError(f"{signature.name}=none, and the model takes {signature}", HOW)
        return None
    if signature.kind in ("optional", "sequence") and signature.holds is not None:
        made = _make_value(binding, replace(signature.holds, name=signature.name), source, seed)
        return [made] if signature.kind == "sequence" else made
    if signature.kind != "tensor" or signature.dtype is None:
        raise UsageError(f"{signature} cannot be generated", f"give {signature.name}=FILE.pb")
    spec = guess(signature.dtype) if source is None else source
    dims = binding.dims(signature, spec)
    return make(spec, signature.name, signature.dtype, dims, seed)


def _fed(signature: Signature, value: Any, source: _Source, seed: int) -> Fed:
    if isinstance(source, _FileValue):
        origin = source.origin
    elif source is None or isinstance(source, Generated):
        spec = guess(signature.dtype or "float32") if source is None else source
        origin = f"{spec.text}, seed {seed}" if spec.generator in _SEEDED else spec.text
    else:
        origin = source.text
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        dtype, shape = name_of(array.dtype), array.shape
    else:
        dtype, shape = signature.dtype or signature.kind, None
    generated = source is None or isinstance(source, Generated)
    return Fed(name=signature.name, dtype=dtype, shape=shape, origin=origin, generated=generated)


_SEEDED: Final = ("uniform", "normal", "randint")
