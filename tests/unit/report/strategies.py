"""Reports of any content that the record types allow."""

from __future__ import annotations

from typing import TypeVar, get_args

from hypothesis import strategies as st

from whynan.records import (
    Aligned,
    Attribution,
    BirthKind,
    ChainLink,
    Coverage,
    Damage,
    DamageKind,
    Divergence,
    Element,
    ExitStatus,
    Fate,
    Finding,
    Fix,
    FixVerdict,
    ForwardOperand,
    Growth,
    IntroducedError,
    Member,
    Note,
    Operand,
    Origin,
    OutputError,
    Phase,
    PropagatedError,
    Range,
    Reach,
    Replay,
    Report,
    Role,
    Run,
    ScaleFall,
    SinkKind,
    Site,
    Source,
    Verdict,
)

T = TypeVar("T")

# the names of numbers are told from text by their names alone, and so are no text here
TEXT = st.text(max_size=12).filter(lambda text: text not in ("NaN", "Infinity", "-Infinity"))
COUNT = st.integers(0, 2**63 - 1)
SHOWN = st.none() | st.booleans() | TEXT | st.integers(-(2**53), 2**53) | st.floats()
STEPS = st.one_of(
    st.builds(
        lambda operands, result: Note.create(
            "computed", operator="mul", operands=operands, result=result, arithmetic=True, dtype=None, smallest=None
        ),
        st.lists(SHOWN, max_size=3).map(tuple),
        SHOWN,
    ),
    st.builds(lambda count: Note.create("more_events", count=count), st.none() | COUNT),
    st.builds(
        lambda bad: Note.create("bears", operator=None, bad=bad, back=False), st.sampled_from(["NaN", "Inf", "-Inf"])
    ),
)
NOTES = st.one_of(
    st.builds(lambda steps: Note.create("watched", steps=steps), COUNT),
    st.builds(lambda text: Note.create("written", sentence=text), TEXT),
    st.builds(lambda thread: Note.create("thread_not_entered", thread=thread), st.none() | TEXT),
    st.builds(lambda names, why: Note.create("no_replay", way=names, eager=False, why=why), TEXT, st.none() | TEXT),
)
LINE = st.integers(1, 10**6)
NUMBER = st.floats() | st.integers(-(2**63), 2**63 - 1)
SHAPE = st.lists(COUNT, max_size=3).map(tuple)
DTYPE = st.sampled_from(["float16", "bfloat16", "float32", "float8_e4m3fn", "complex64", "int64", "bool", "odd"])


def some(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | strategy


def few(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(strategy, max_size=2).map(tuple)


SITES = st.builds(
    Site,
    file=TEXT,
    line=LINE,
    column=some(LINE),
    end_line=some(LINE),
    end_column=some(LINE),
    code=some(TEXT),
    function=some(TEXT),
    module=some(TEXT),
)
VALUES = st.none() | NUMBER | st.booleans() | TEXT
ORIGINS = st.sampled_from(get_args(Origin))
OPERANDS = st.builds(
    Operand,
    name=TEXT,
    expression=some(TEXT),
    index=some(SHAPE),
    value=VALUES,
    dtype=some(DTYPE),
    origin=ORIGINS,
    shape=some(SHAPE),
    min=some(NUMBER),
    max=some(NUMBER),
)
FORWARD_OPERANDS = st.builds(
    ForwardOperand,
    name=TEXT,
    expression=some(TEXT),
    index=some(SHAPE),
    value=VALUES,
    dtype=some(DTYPE),
    origin=ORIGINS,
)
ELEMENTS = st.builds(
    Element,
    index=some(SHAPE),
    output=st.integers(0, 9),
    list_index=some(COUNT),
    tensor=some(TEXT),
    shape=SHAPE,
    dtype=DTYPE,
    value=some(NUMBER),
    count=COUNT,
    total=COUNT,
    operands=few(OPERANDS),
)
LINKS = st.builds(
    ChainLink,
    role=st.sampled_from(get_args(Role)),
    op=some(TEXT),
    phase=some(st.sampled_from(get_args(Phase))),
    site=some(SITES),
    typed_summary=NOTES | STEPS,
)
REACHES = st.builds(Reach, kind=st.sampled_from(get_args(SinkKind)), name=some(TEXT), bad=COUNT, total=COUNT)
VERDICTS = st.builds(
    FixVerdict,
    status=st.sampled_from(["verified", "distorting", "rejected", "unverified"]),
    forward_finite=some(st.booleans()),
    healthy_elements=some(COUNT),
    max_ulp=some(NUMBER),
    max_rel=some(NUMBER),
    why=TEXT,
)
FIXES = st.builds(
    Fix, title=TEXT, kind=st.sampled_from(["source", "graph", "setting"]), patch=some(TEXT), verdict=VERDICTS
)
DAMAGES = st.builds(
    Damage,
    kind=st.sampled_from(get_args(DamageKind)),
    concerned=COUNT,
    total=COUNT,
    numbers=st.dictionaries(TEXT, NUMBER, max_size=2),
)
FALLS = st.builds(ScaleFall, skipped=COUNT, on_end=st.booleans(), first=some(NUMBER), last=some(NUMBER))
MEMBERS = st.builds(
    Member, site=some(SITES), phase=st.sampled_from(get_args(Phase)), op=some(TEXT), rule=TEXT, count=COUNT
)
INTRODUCED = st.builds(
    IntroducedError,
    max_abs=some(NUMBER),
    max_rel=some(NUMBER),
    max_ulp=some(NUMBER),
    index=SHAPE,
    a=some(NUMBER) | st.booleans(),
    b=some(NUMBER) | st.booleans(),
    exact=some(NUMBER) | st.booleans(),
)
DIVERGENCES = st.builds(
    Divergence,
    introduced=INTRODUCED,
    propagated=st.builds(PropagatedError, max_abs=some(NUMBER), max_rel=some(NUMBER)),
    tolerance=some(NUMBER),
    count=COUNT,
    total=COUNT,
    other_node=TEXT,
    other_op=TEXT,
    other_value=TEXT,
    other_site=some(SITES),
    why=TEXT,
    nodes=few(TEXT),
    growth=few(st.builds(Growth, value=TEXT, op=TEXT, max_rel=some(NUMBER))),
    attributions=few(st.builds(Attribution, source=st.sampled_from(["model", "lowering", "engine"]), evidence=TEXT)),
)
ALIGNED = st.builds(Aligned, values=COUNT, of=COUNT, by=st.dictionaries(TEXT, COUNT, max_size=2), unaligned=few(TEXT))
OUTPUTS = st.builds(OutputError, name=TEXT, max_abs=some(NUMBER), max_rel=some(NUMBER), nan_mismatch=COUNT)
FINDINGS = st.builds(
    Finding,
    rule=TEXT,
    name=TEXT,
    severity=st.sampled_from(["error", "warning", "info"]),
    fate=st.sampled_from(get_args(Fate)),
    birth=some(st.sampled_from(get_args(BirthKind))),
    phase=st.sampled_from(get_args(Phase)),
    op=some(TEXT),
    grad_fn=some(TEXT),
    step=some(COUNT),
    micro=some(COUNT),
    rank=some(COUNT),
    site=some(SITES),
    library_site=some(SITES),
    node=some(TEXT),
    occurrences=COUNT,
    modules=few(TEXT),
    also=few(MEMBERS),
    element=ELEMENTS,
    damage=some(DAMAGES),
    divergence=some(DIVERGENCES),
    forward_operands=few(FORWARD_OPERANDS),
    message=TEXT,
    explanation=TEXT,
    matched=few(TEXT),
    chain=few(LINKS),
    reaches=few(REACHES),
    scale_fall=some(FALLS),
    fixes=few(FIXES),
    allowed=some(TEXT),
)
RUNS = st.builds(
    Run,
    command=TEXT,
    exit_status=st.builds(ExitStatus, script=some(st.integers(-255, 255)), whynan=st.integers(0, 2)),
    versions=st.dictionaries(TEXT, TEXT, max_size=2),
    device=TEXT,
    flags=st.dictionaries(TEXT, VALUES, max_size=2),
    replay=st.builds(
        Replay, kind=st.sampled_from(["step", "loop", "rerun", "none"]), faithful=some(st.booleans()), why=TEXT
    ),
    sources=few(st.builds(Source, file=TEXT, sha256=TEXT)),
    data=some(TEXT),
    exception=some(TEXT),
)
RANGES = st.builds(
    Range,
    event=COUNT,
    op=TEXT,
    phase=st.sampled_from(get_args(Phase)),
    output=COUNT,
    dtype=DTYPE,
    shape=SHAPE,
    n=COUNT,
    n_nan=COUNT,
    n_posinf=COUNT,
    n_neginf=COUNT,
    n_zero=COUNT,
    n_subnormal=COUNT,
    finite_min=some(NUMBER),
    finite_max=some(NUMBER),
    site=some(SITES),
)


def reports() -> st.SearchStrategy[Report]:
    """Any report."""
    return st.builds(
        Report,
        verdict=st.sampled_from(get_args(Verdict)),
        run=RUNS,
        findings=few(FINDINGS),
        damaging=few(FINDINGS),
        absorbed=few(FINDINGS),
        absorbed_count=COUNT,
        unused_allows=few(TEXT),
        coverage=st.builds(Coverage, events=COUNT, skipped_steps=COUNT, aligned=some(ALIGNED), typed_notes=few(NOTES)),
        ranges=few(RANGES),
        outputs=few(OUTPUTS),
    )
