"""The document of a capsule (``capsule.json``), and the operators that a capsule may name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from whynan.errors import UsageError
from whynan.records import Neighbourhood
from whynan.records.base import Record

if TYPE_CHECKING:
    from collections.abc import Iterator


# -- What a capsule says besides its tensors: ``capsule.json``, as one validated document (``whynan.capsule/1``) -------


SCHEMA: Final = "whynan.capsule/1"
SCHEMA_FILE: Final = "whynan.capsule-1.json"
_DEEPEST: Final = 1 << 62
Size = Annotated[int, Field(ge=0, le=_DEEPEST)]
Word = Literal["NaN", "Infinity", "-Infinity"]


class Part(Record):
    """Frozen base of all parts; what is not known to it is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", strict=True)


class Tensor(Part):
    """A tensor, by its name in the file of tensors."""

    kind: Literal["tensor"] = "tensor"
    name: str


class Real(Part):
    """A floating-point number."""

    kind: Literal["float"] = "float"
    value: float | Word


class Whole(Part):
    """An integer."""

    kind: Literal["int"] = "int"
    value: int


class Truth(Part):
    """A boolean."""

    kind: Literal["bool"] = "bool"
    value: bool


class Complex(Part):
    """A complex number."""

    kind: Literal["complex"] = "complex"
    real: float | Word
    imag: float | Word


class Text(Part):
    """A string, or something of torch's that has a name: a dtype, a device, a layout, a memory format."""

    kind: Literal["str", "dtype", "device", "layout", "memory_format"]
    value: str


class Nothing(Part):
    """None."""

    kind: Literal["none"] = "none"


class Generator(Part):
    """A generator of random numbers, whose state stands among the tensors as that of the operation."""

    kind: Literal["generator"] = "generator"
    device: str


class Several(Part):
    """A list, or a tuple."""

    kind: Literal["list", "tuple"]
    values: tuple[Value, ...]


Value = Annotated[
    Tensor | Real | Whole | Truth | Complex | Text | Nothing | Generator | Several, Field(discriminator="kind")
]
"""An argument of an operation."""


class Layout(Part):
    """How a tensor lay: its type, shape, strides in elements, and the device that it was on.

    What has stride 0 is stored once.
    """

    dtype: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    device: str = "cpu"


class State(Part):
    """What decided of the operation's numbers besides its arguments."""

    grad: bool
    inference: bool
    threads: Annotated[int, Field(ge=1, le=1 << 16)]
    deterministic: bool
    matmul_precision: str
    default_dtype: str
    flush_denormal: bool


class Packed(Part):
    """One operation of PyTorch with its arguments.

    ``results`` names what it wrote, in order: the arguments that it changed, then what it returned; ``bad`` is the
    place among them of the one with the bad number. ``random`` names
    the state that it drew random numbers from. ``entry``: of a foreach operator's lists only that entry is here;
    ``cut``: of an operation that works element by element only that element.
    """

    engine: Literal["torch"] = "torch"
    op: str
    args: tuple[Value, ...] = ()
    kwargs: dict[str, Value] = Field(default_factory=dict)
    results: tuple[str, ...]
    bad: Size = 0
    random: str | None = None
    entry: int | None = None
    cut: tuple[Size, ...] | None = None
    state: State


class PackedNode(Part):
    """One node of an ONNX model, which stands in ``node.onnx`` as a model of its own; ``None`` is an input left out."""

    engine: Literal["onnx"] = "onnx"
    op: str
    domain: str
    runner: Literal["onnxruntime", "reference"] = "onnxruntime"
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    bad: Size = 0


class Document(Part):
    """All that a capsule says. ``finding`` is its place among those of ``report.json``; ``why`` there is no operation.

    ``around`` are the operations around the birth, which the rules look at. ``source``: the file whose text is here.
    """

    schema_: Literal["whynan.capsule/1"] = Field(default="whynan.capsule/1", alias="schema")
    finding: Size
    operation: Annotated[Packed | PackedNode, Field(discriminator="engine")] | None = None
    why: str | None = None
    layouts: dict[str, Layout] = Field(default_factory=dict)
    around: Neighbourhood | None = None
    source: str | None = None

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="strings", strict=True, populate_by_name=True
    )


class Visited(Part):
    """One visit of a statement, as ``verify/in_place/visits`` has it; tensors by name."""

    line: int
    values: dict[str, Value]
    needs_grad: tuple[str, ...] = ()


class VisitedFunction(Part):
    """The visits of one function."""

    schema_: Literal["whynan.visits/1"] = Field(default="whynan.visits/1", alias="schema")
    path: str
    sha256: str
    function: str | None = None
    visits: tuple[Visited, ...] = ()
    left_out: Size = 0
    layouts: dict[str, Layout] = Field(default_factory=dict)

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="strings", strict=True, populate_by_name=True
    )


def names_in(value: BaseModel | Any) -> Iterator[str]:
    """The tensors that a value names."""
    if isinstance(value, Tensor):
        yield value.name
    elif isinstance(value, Several):
        for each in value.values:
            yield from names_in(each)


def make_capsule_schema() -> dict[str, Any]:
    """The published JSON Schema of a capsule's document, as the record types imply it."""
    from whynan.report.json import make_schema

    return make_schema(Document, SCHEMA)


# -- The operators that a capsule may name: PyTorch's own, and those of libraries that the user has loaded -------------


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
