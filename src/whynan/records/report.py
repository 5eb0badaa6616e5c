"""The report: what whynan found, as one validated document (``whynan.report/2``)."""

from __future__ import annotations

from typing import Any, Final, Literal, Self, TextIO, cast

from pydantic import ConfigDict, Field, computed_field, model_validator
from pydantic.json_schema import SkipJsonSchema

from whynan.records.base import Number, Record, Site
from whynan.records.divergence import Aligned, Attribution, Divergence, OutputError
from whynan.records.neighbourhood import Neighbourhood
from whynan.records.notes import KINDS, Note, read_typed_notes, sentence, written_note, written_notes

# -- How an ONNX model was run, as its report tells it -----------------------------------------------------------------


class Fed(Record):
    """What one input of an ONNX model was given, and from where: a file, or how it was ``generated``."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    origin: str
    generated: bool = False


class Inference(Record):
    """How an ONNX model was run: on which engine, which graph of it, and whether looking changed its outputs.

    ``bit_equal``: the outputs of the run that was looked at have the bits of those of a bare session; null where there
    was nothing to compare them with. ``placement`` counts the executed nodes of each execution provider.
    """

    model: str
    sha256: str | None = None
    engine: Literal["onnxruntime", "reference"] = "onnxruntime"
    graph: Literal["optimized", "original"] = "optimized"
    level: str | None = None
    opset: dict[str, int] = Field(default_factory=dict)
    providers: tuple[str, ...] = ()
    placement: dict[str, int] = Field(default_factory=dict)
    nodes: int = 0
    nodes_as_written: int = 0
    segments: int = 1
    bit_equal: bool | None = None
    inputs: tuple[Fed, ...] = ()
    case: int | None = None
    cases: int = 1


# -- The report: what whynan found, as one validated document (``whynan.report/2``) ------------------------------------
#
# Every number may be one of the strings ``"NaN"``, ``"Infinity"``, ``"-Infinity"`` in JSON. What is unknown is
# ``null``, never a guess.


SCHEMA: Final = "whynan.report/2"
_EARLIER: Final = "whynan.report/1"
Verdict = Literal["clean", "damaged", "nonfinite", "divergent", "hazard", "inconclusive"]
BirthKind = Literal["overflow", "pole", "invalid", "entered", "literal"]
DamageKind = Literal["overwritten", "vanished", "stalled", "steep", "zeroed", "saturated"]
Phase = Literal["data", "forward", "backward", "accumulation", "optimizer", "buffer", "collective", "inference"]
Fate = Literal["escaped", "damaging", "absorbed"]
Role = Literal["cause", "birth", "step", "sink"]
Origin = Literal["live", "window", "rerun", "gone"]
SinkKind = Literal["loss", "gradient", "parameter", "buffer", "output", "observed"]


class Operand(Record):
    """One operand of the offending element: its value, and where the value was had from.

    ``min`` and ``max`` are those of the row that a reduction ran over.
    """

    name: str
    expression: str | None = None
    index: tuple[int, ...] | None = None
    value: Number | bool | str | None = None
    dtype: str | None = None
    origin: Origin = "gone"
    shape: tuple[int, ...] | None = None
    min: Number | None = None
    max: Number | None = None


class Element(Record):
    """The first offending element in row-major order, and how many of how many were born here.

    Of a tensor in parts over several processes (``DTensor``) all that is of the part of this one; ``global_index`` and
    ``global_shape`` are of the whole tensor, where the part is a block of it.
    """

    index: tuple[int, ...] | None
    output: int = 0
    list_index: int | None = None
    tensor: str | None = None
    shape: tuple[int, ...]
    dtype: str
    value: Number | None
    count: int
    total: int
    operands: tuple[Operand, ...] = ()
    global_index: tuple[int, ...] | None = None
    global_shape: tuple[int, ...] | None = None


class ForwardOperand(Record):
    """An operand of the forward operation whose backward bore the bad number."""

    name: str
    expression: str | None = None
    index: tuple[int, ...] | None = None
    value: Number | bool | str | None = None
    dtype: str | None = None
    origin: Origin = "gone"


class Data(Record):
    """Where a value came from: a batch of a loader, an array of NumPy's, a value that was made a tensor, a file.

    ``name`` is the place in the batch or file, or the expression of the value; ``site`` is where it became a tensor,
    ``computed`` the expression that made it before, where the source surely tells, or a fix at it was proved.
    ``batch`` and ``rows`` count from 0, as indices do, ``passed`` (which pass over the data) from 1. ``rows`` are those
    that hold bad values, at most 16 of ``n_rows``, and ``indices`` their entries in the dataset, which are certain only
    ``in_order``: torch's own collation keeps the order, another may not.
    """

    kind: Literal["batch", "numpy", "value", "file"]
    name: str | None = None
    file: str | None = None
    site: Site | None = None
    computed: Site | None = None
    batch: int | None = None
    passed: int | None = None
    worker: int | None = None
    rows: tuple[int, ...] = ()
    n_rows: int = 0
    indices: tuple[int | str, ...] = ()
    in_order: bool = True


class Damage(Record):
    """Silent damage: numbers that are finite and wrong, or lost, where nothing non-finite was born.

    ``overwritten`` by a guard, ``vanished`` in rounding, parameters that have ``stalled``, gradients that are ``steep``
    or all ``zeroed``, numbers that a cast has ``saturated``. It concerns so many elements of a total; ``numbers`` are
    what its sentence is made of, by name.
    """

    kind: DamageKind
    concerned: int
    total: int
    numbers: dict[str, Number] = Field(default_factory=dict)


class ChainLink(Record):
    """One event on the path from the cause of the bad operand to the sink, in order of execution.

    ``summary`` says ``typed_summary``.
    """

    role: Role
    op: str | None
    phase: Phase | None = None
    site: Site | None = None
    node: str | None = None
    typed_summary: Note

    @computed_field(repr=False)
    @property
    def summary(self) -> str:
        """What the event did."""
        return sentence(self.typed_summary)

    @model_validator(mode="before")
    @classmethod
    def _with_summary(cls, held: Any) -> Any:
        return read_typed_notes(held, "summary", "typed_summary", written_note)


class Reach(Record):
    """A sink that the bad number reached; ``value`` is what all its bad elements are, None where that is not known."""

    kind: SinkKind
    name: str | None
    bad: int
    total: int
    value: Number | None = None


STATUSES: Final = ("verified", "guarded", "distorting", "unverified", "rejected")
"""What a proof of a fix has found, the best first."""
APPLICABLE: Final = STATUSES[:2]
"""Those of a fix that `whynan fix --apply` makes without being told which."""


Lack = Literal["undefined", "infinite", "beyond", "steep", "unknown", "rounding"]
"""Why there is no exact value in reach: it is undefined, as 0 / 0 is, or infinite, as 1 / 0 is, or beyond the range of
the dtype, or so steep that its gradient is, or unknown, since what was read had been rounded to its limit, or the
rounding of what leads to it is as large as it is itself."""


class StandIn(Record):
    """What a fix gives of one output where there is no exact value in reach, or none that is known.

    ``output`` is null for the gradient of what comes in, where the value itself is exact. ``least`` and ``greatest``
    are of what is given on the failing input, in ``count`` of ``total`` elements, null where not all were looked at.
    ``exact_least`` and ``exact_greatest`` are of the exact values beyond the range, too ``steep`` for it by their
    gradient or lost in ``rounding``, or of those of what rounds to that which was read, where such were looked at.
    ``gradient_zero``: whether each gradient that was bad is 0 now, null where none was.
    """

    output: int | None
    lack: Lack
    least: Number
    greatest: Number
    count: int | None
    total: int
    exact_least: Number | None = None
    exact_greatest: Number | None = None
    gradient_zero: bool | None = None


class FixVerdict(Record):
    """What proof of a fix found (promise 5 of the design).

    ``stand_ins`` are what a ``guarded`` fix gives where there is no exact value; other verdicts have none.
    ``reason`` is why nothing was proved, where something follows from that: the edit is ``unfit`` for how the source is
    written, or the program was ``run_once`` and ``whynan run --rerun`` would prove it.
    """

    status: Literal["verified", "guarded", "distorting", "rejected", "unverified"]
    forward_finite: bool | None = None
    backward_finite: bool | None = None
    healthy_elements: int | None = None
    healthy_worse: int | None = None
    max_ulp: Number | None = None
    max_rel: Number | None = None
    undecided: int | None = None
    why: str = ""
    reason: Literal["unfit", "run_once"] | None = None
    stand_ins: tuple[StandIn, ...] = ()

    def as_status(
        self,
        status: Literal["rejected", "unverified"],
        why: str,
        reason: Literal["unfit", "run_once"] | None = None,
    ) -> FixVerdict:
        """The same counts with a worse status, which leaves nothing to be stated of stand-ins."""
        return self.model_copy(update={"status": status, "why": why, "reason": reason, "stand_ins": ()})


class Further(Record):
    """A birth that the first edit of a fix would leave, and that the fix mends as well: its rule, and its place then.

    The place is that in the text which the edits before it have made.
    """

    rule: str
    birth: BirthKind | None
    phase: Phase
    op: str | None
    forward_op: str | None = None
    site: Site


class Fix(Record):
    """A concrete edit, never shown without its verdict; ``further`` is what it mends beside its finding, in order."""

    title: str
    kind: Literal["source", "graph", "setting"]
    patch: str | None
    verdict: FixVerdict
    further: tuple[Further, ...] = ()


class Member(Record):
    """Another birth of the cause of a finding: its place, operation and rule, and how often it was born."""

    site: Site | None
    phase: Phase
    op: str | None
    rule: str
    count: int = 1


class ScaleFall(Record):
    """Steps that a loss scaler skipped in vain: on end, or since its scale last rose; the scale then and at the last.

    ``first`` and ``last`` are null where the program scales by hand.
    """

    skipped: int
    on_end: bool
    first: Number | None = None
    last: Number | None = None


class Transfer(Record):
    """A bad number on its way from one rank to another: by which collective, from where to where.

    ``sequence`` counts the calls of the collective's group, from 1; null for what is no call of the program's, as the
    buckets of DistributedDataParallel. ``sender`` and the sites are null where they are not known.
    """

    operation: str
    sequence: int | None = None
    sender: int | None = None
    receivers: tuple[int, ...] = ()
    sender_site: Site | None = None
    receiver_site: Site | None = None


class Finding(Record):
    """One cause of bad numbers: where the first was born, why, from what, and what it reached.

    ``also`` are the other births of the same cause. Of silent ``damage`` ``birth`` is null, since nothing non-finite
    was born, and ``element`` the first concerned; so it is of a ``divergence`` of two runs, whose ``op``, ``node``,
    ``value`` and ``site`` are those of B. ``origin`` is where a bad number came from that no operation bore.
    ``rank`` is the first of the ``ranks`` on which it was born, and ``transfers`` how it came to others.
    ``attributions`` are what further replays of a bad step say of what makes it bad.
    """

    rule: str = "WN000"
    name: str = "unexplained"
    severity: Literal["error", "warning", "info"]
    fate: Fate
    birth: BirthKind | None
    phase: Phase
    op: str | None
    grad_fn: str | None = None
    forward_op: str | None = None
    step: int | None = None
    micro: int | None = None
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    site: Site | None
    library_site: Site | None = None
    node: str | None = None
    value: str | None = None
    made_of: str | None = None
    occurrences: int = 1
    modules: tuple[str, ...] = ()
    also: tuple[Member, ...] = ()
    element: Element
    damage: Damage | None = None
    divergence: Divergence | None = None
    data: Data | None = None
    origin: Note | None = None
    forward_operands: tuple[ForwardOperand, ...] = ()
    message: str = ""
    explanation: str = ""
    matched: tuple[str, ...] = ()
    chain: tuple[ChainLink, ...] = ()
    reaches: tuple[Reach, ...] = ()
    scale_fall: ScaleFall | None = None
    attributions: tuple[Attribution, ...] = ()
    fixes: tuple[Fix, ...] = ()
    allowed: str | None = None
    # for the rules: no part of the document
    around: SkipJsonSchema[Neighbourhood | None] = Field(default=None, exclude=True)


class ExitStatus(Record):
    """Exit status of the user's script (null when whynan stopped it) and of whynan."""

    script: int | None
    whynan: int


class Replay(Record):
    """How the operand values were had, and whether the second run was faithful; ``why`` says ``typed_why``."""

    kind: Literal["step", "loop", "rerun", "none"] = "none"
    faithful: bool | None = None
    typed_why: Note | None = None

    @computed_field(repr=False)
    @property
    def why(self) -> str:
        """What is said of it."""
        return "" if self.typed_why is None else sentence(self.typed_why)

    @model_validator(mode="before")
    @classmethod
    def _with_why(cls, held: Any) -> Any:
        return read_typed_notes(held, "why", "typed_why", lambda text: written_note(text) if text != "" else None)


class Step(Record):
    """One attempt at an optimizer's step: the last loss differentiated for it, the norm of its gradients, the scale.

    ``scale`` is that of a loss scaler, by which the loss and the norm have been divided; ``skipped`` by it.
    """

    step: int
    loss: Number | None = None
    norm: Number | None = None
    scale: Number | None = None
    skipped: bool = False


class Source(Record):
    """A source file as it was during the run."""

    file: str
    sha256: str


class RankRun(Record):
    """How one of several ranks ended; ``verdict`` and ``script`` are null where it left no report.

    ``end``: it ``ended`` by itself, was ``stopped`` with the others or where it was ``blocked``, was ``terminated`` by
    its launcher, or has left no report and is ``missing``.
    """

    rank: int
    end: Literal["ended", "stopped", "blocked", "terminated", "missing"]
    verdict: Verdict | None = None
    script: int | None = None


class Run(Record):
    """What ran: command, versions, device, flags that change numbers; ``ranks`` are those that were merged."""

    command: str
    exit_status: ExitStatus
    versions: dict[str, str] = Field(default_factory=dict)
    device: str = "cpu"
    flags: dict[str, bool | str | int | float | None] = Field(default_factory=dict)
    replay: Replay = Replay()
    history: tuple[Step, ...] = ()
    sources: tuple[Source, ...] = ()
    data: str | None = None
    exception: str | None = None
    inference: Inference | None = None
    ranks: tuple[RankRun, ...] = ()


class Coverage(Record):
    """What was looked at: dispatcher calls, those seen eagerly, compiled regions, and what was left out.

    ``notes`` are the sentences of ``typed_notes``; of a document that has sentences alone each is a note by itself.
    """

    events: int = 0
    eager: int = 0
    compiled_regions: int = 0
    skipped_steps: int = 0
    aligned: Aligned | None = None
    typed_notes: tuple[Note, ...] = ()

    @computed_field(repr=False)
    @property
    def notes(self) -> tuple[str, ...]:
        """What the notes say."""
        return tuple(map(sentence, self.typed_notes))

    @model_validator(mode="before")
    @classmethod
    def _with_notes(cls, held: Any) -> Any:
        return read_typed_notes(held, "notes", "typed_notes", written_notes)

    def notes_of(self, kind: str) -> tuple[Note, ...]:
        """The notes of a kind."""
        assert kind in KINDS, kind
        return tuple(note for note in self.typed_notes if note.kind == kind)

    def with_notes(self, *notes: Note) -> Self:
        """The same with those of some notes that it does not have."""
        new = tuple(note for note in dict.fromkeys(notes) if note not in self.typed_notes)
        return self.model_copy(update={"typed_notes": (*self.typed_notes, *new)})


class Range(Record):
    """Counters and finite range of one tensor that an event wrote; of an ONNX model, of one value of a node.

    ``node``, ``value`` and ``provider`` are those of an ONNX model. ``headroom``: the greatest magnitude over the
    greatest number of the dtype; null for what is no floating-point number, or has no finite element.
    """

    event: int
    op: str
    phase: Phase
    output: int
    dtype: str
    shape: tuple[int, ...]
    n: int
    n_nan: int
    n_posinf: int
    n_neginf: int
    n_zero: int
    n_subnormal: int
    finite_min: Number | None
    finite_max: Number | None
    headroom: Number | None = None
    node: str | None = None
    value: str | None = None
    provider: str | None = None
    site: Site | None = None


class Report(Record):
    """All of one run."""

    schema_: Literal["whynan.report/2"] = Field(default="whynan.report/2", alias="schema")
    verdict: Verdict
    run: Run
    findings: tuple[Finding, ...] = ()
    damaging: tuple[Finding, ...] = ()
    absorbed: tuple[Finding, ...] = ()
    absorbed_count: int = 0
    unused_allows: tuple[str, ...] = ()
    coverage: Coverage = Coverage()
    ranges: tuple[Range, ...] = ()
    outputs: tuple[OutputError, ...] = ()

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, held: Any) -> Any:
        # version 2 added `Finding.also`, and nothing else
        if not isinstance(held, dict):
            return held
        document = cast("dict[str, Any]", held)
        return {**document, "schema": SCHEMA} if document.get("schema") == _EARLIER else document

    def to_json(self, indent: int | None = 2) -> str:
        """The JSON document of this report."""
        from importlib import import_module

        return import_module("whynan.report.json").to_json(self, indent=indent)

    def show(self, *, show_all: bool = False, to: TextIO | None = None) -> None:
        """Print the terminal report, to standard output or to another stream."""
        from importlib import import_module

        import_module("whynan.report.terminal").show(self, show_all=show_all, to=to)

    def __str__(self) -> str:
        from importlib import import_module

        return import_module("whynan.report.terminal").render(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """Read a report written by :meth:`to_json`; raises ``pydantic.ValidationError`` on anything else."""
        return cls.model_validate_json(text)
