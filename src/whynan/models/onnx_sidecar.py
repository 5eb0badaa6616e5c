"""A map from the values of an ONNX model to the source, kept in a file of its own: for a descendant that lost its own.

It is written of a model that still carries its lines, and read for one that was stripped or optimised: names of values
survive that.
"""

# pyright: strict

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from whynan.errors import UsageError
from whynan.models.onnx_files import read_file, text_of
from whynan.models.onnx_walking import nodes_of
from whynan.records import Site
from whynan.source.onnx import Exported, Place
from whynan.source.positions import file_of_site

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnx import NodeProto

    from whynan.models.onnx_opening import OnnxModel

_LARGEST: Final = 1 << 28
_LONGEST: Final = 1 << 16
_MOST: Final = 1 << 22
_ANY: Final = "give a file that whynan onnx --sidecar wrote"
_OTHER: Final = "name another file to write to"

_Text = Annotated[str, Field(max_length=_LONGEST)]
_Line = Annotated[int, Field(ge=0, lt=1 << 31)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


class StoredSite(_Strict):
    """A site, its file as an absolute path where it is one."""

    file: _Text
    line: _Line
    column: _Line | None = None
    end_line: _Line | None = None
    end_column: _Line | None = None
    code: _Text | None = None
    function: _Text | None = None

    def site(self, module: str | None) -> Site:
        """The site, its file relative to the working directory if it lies inside."""
        return Site.model_validate(self.model_dump() | {"file": file_of_site(self.file), "module": module})


class Source(_Strict):
    """Where one value comes from: the node that writes it, its op type, its sites and its module."""

    node: _Text
    op: _Text
    module: _Text | None = None
    site: StoredSite | None = None
    library_site: StoredSite | None = None

    @property
    def place(self) -> Place:
        """The same, as it is told of a model that carries its lines."""
        library = None if self.library_site is None else self.library_site.site(None)
        return Place(None if self.site is None else self.site.site(self.module), library, self.module)


_Values = Annotated[dict[_Text, Source], Field(max_length=_MOST)]


class Sidecar(_Strict):
    """Where the values of a model come from, by name; those in functions by ``domain::name`` of the function first."""

    schema_: Literal["whynan.sidecar/1"] = Field(default="whynan.sidecar/1", alias="schema")
    model: _Text
    """The file name of the model, and the SHA-256 of its file."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    values: _Values
    functions: Annotated[dict[_Text, _Values], Field(max_length=_MOST)] = Field(default_factory=lambda: {})

    def to_json(self) -> str:
        """The document, as :func:`read` reads it."""
        return self.model_dump_json(by_alias=True, indent=1)

    @property
    def located(self) -> int:
        """How many values have a site."""
        found = (self.values, *self.functions.values())
        return sum(source.site is not None for values in found for source in values.values())


def sidecar_of(model: OnnxModel) -> Sidecar:
    """What a model says of where its values come from."""
    proto = model.proto
    return Sidecar(
        model=_shortened(os.path.basename(model.path)),
        sha256=model.sha256,
        values=_sources(proto.graph.node),
        functions={f"{function.domain}::{function.name}": _sources(function.node) for function in proto.functions},
    )


def write(model: OnnxModel, path: str | os.PathLike[str]) -> Sidecar:
    """Write the map of a model, whole or not at all, for its owner to read; raises ``UsageError`` where that fails."""
    sidecar = sidecar_of(model)
    try:
        descriptor, made = tempfile.mkstemp(dir=Path(path).parent, prefix=".whynan-")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(sidecar.to_json())
            os.replace(made, path)
        except BaseException:
            os.unlink(made)
            raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{os.fspath(path)} cannot be written ({why})", _OTHER) from error
    return sidecar


def read(path: str | os.PathLike[str]) -> Sidecar:
    """Read a map that :func:`write` wrote; raises ``UsageError`` for anything else."""
    file = Path(path)
    data = read_file(file, _ANY, most=_LARGEST)
    try:
        return Sidecar.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"][:6]))
        raise UsageError(f"{file} is no sidecar{f', by its {where}' if where else ''}", _ANY) from error


def _sources(nodes: Iterable[NodeProto]) -> dict[str, Source]:
    found: dict[str, Source] = {}
    listed = [(node, {entry.key: entry.value for entry in node.metadata_props}) for node in nodes_of(nodes)]
    exported = Exported(metadata for _, metadata in listed)
    for node, metadata in listed:
        place = exported.place_of(metadata, name=node.name, doc=node.doc_string)
        source = Source(
            node=_shortened(node.name),
            op=_shortened(node.op_type),
            module=place.module,
            site=_stored(place.site),
            library_site=_stored(place.library_site),
        )
        # the names in a body may be those of another: the first one holds
        for output in node.output:
            if output and len(output) <= _LONGEST:
                found.setdefault(output, source)
    return found


def _stored(site: Site | None) -> StoredSite | None:
    if site is None:
        return None
    file = site.file if site.file.startswith("<") else _absolute(site.file)
    return StoredSite.model_validate(site.model_dump(exclude={"module"}) | {"file": file})


def _absolute(file: str) -> str:
    # the working directory may have been removed
    with suppress(OSError):
        return os.path.abspath(file)
    return file


def _shortened(text: str) -> str:
    return (text_of(text) or "")[:_LONGEST]
