"""Reports made by hand, one for each thing that the terminal report has to tell, and the source they speak of."""

from __future__ import annotations

from typing import Any

from whynan.records import (
    ChainLink,
    Coverage,
    Damage,
    Element,
    ExitStatus,
    Finding,
    Fix,
    FixVerdict,
    ForwardOperand,
    Note,
    Operand,
    Phase,
    Reach,
    Replay,
    Report,
    Run,
    SinkKind,
    Site,
)
from whynan.traces.format import FAILED

NAN, INF = float("nan"), float("inf")

LINES = {
    3: "    hidden = features.relu()",
    12: "        phase = torch.atan2(imag, real)",
    20: "\tprobability = counts / counts.sum(dim=-1, keepdim=True)",
    21: "\tentropy = -(probability * 損失(probability, 0)).sum()",
    30: "    scores = torch.softmax(",
    31: "        scores.masked_fill(",
    32: "            mask,  # 1 is hidden",
    33: "            float('-inf'),",
    34: "        ),",
    35: "        dim=-1,",
    36: "    )",
    50: "    optimizer.step()",
    60: "    best = torch.full((), float('inf'))",
}

ALLOWED = Note.create(
    "allowed", code="WN101", name="zero-over-zero", file="net.py", line=20, reason="empty rows are meant"
)


def line_of(file: str, number: int) -> str | None:
    """The source of the programs; nothing is known of a library."""
    return LINES.get(number) if file == "net.py" else None


def site(line: int, code: str, **more: Any) -> Site:
    """A place in the source above, its columns found by its text."""
    column = LINES[line].index(code) + 1
    return Site(
        file="net.py", line=line, column=column, end_line=line, end_column=column + len(code), code=code, **more
    )


def reach(kind: SinkKind, name: str | None = None, bad: int = 1, total: int = 1) -> Reach:
    return Reach(kind=kind, name=name, bad=bad, total=total)


def cause(summary: str, line: int | None = None, file: str = "net.py") -> ChainLink:
    where = None if line is None else Site(file=file, line=line)
    return ChainLink(role="cause", op="aten.relu.default", phase="forward", site=where, summary=summary)


CARRIED = Note.create("carries_on", operator="mul")


def step(op: str = "aten.mul.Tensor", phase: Phase = "forward", said: Note = CARRIED) -> ChainLink:
    return ChainLink(role="step", op=op, phase=phase, typed_summary=said)


def value(name: str, held: Any, *, expression: str | None = None, **more: Any) -> Operand:
    return Operand(
        name=name, expression=expression, value=held, **{"dtype": "float32", "shape": (8, 4), "origin": "live"} | more
    )


def report(*findings: Finding, **more: Any) -> Report:
    """A report of a run in which these were found."""
    run: dict[str, Any] = {
        "command": "train.py",
        "exit_status": ExitStatus(script=0, whynan=1),
        "versions": {"whynan": "0.1.0", "python": "3.11.7", "torch": "2.13.0+cpu"},
    } | more.pop("run", {})
    coverage = Coverage(**{"events": 1581, "eager": 1581} | more.pop("coverage", {}))
    return Report(**{"verdict": "nonfinite", "findings": findings} | more, run=Run(**run), coverage=coverage)


def finding(**fields: Any) -> Finding:
    """A finding, by default of the entropy of an empty row."""
    usual: dict[str, Any] = {
        "rule": "WN101",
        "name": "zero-over-zero",
        "severity": "error",
        "fate": "escaped",
        "birth": "invalid",
        "phase": "forward",
        "op": "aten.div.Tensor",
        "step": 3,
        "site": site(20, "counts / counts.sum(dim=-1, keepdim=True)", function="entropy"),
        "element": ELEMENT,
        "message": "0 / 0 is NaN: both counts and its sum are 0 here",
        "explanation": "A quotient of two zeros has no value.",
        "chain": (cause("relu made -0.41 into 0", 3), cause("sum of a row of 0 is 0", 20), step()),
        "reaches": (reach("loss"),),
    }
    return Finding(**usual | fields)


ELEMENT = Element(
    index=(2, 0),
    shape=(8, 4),
    dtype="float32",
    value=NAN,
    count=4,
    total=32,
    operands=(
        value("self", 0.0, expression="counts", index=(2, 0)),
        value("other", 0.0, expression="counts.sum(dim=-1, keepdim=True)", index=(2, 0)),
    ),
)

FORWARD = finding()

BACKWARD = finding(
    rule="WN401",
    name="atan2-near-origin",
    birth="overflow",
    phase="backward",
    op="aten.reciprocal.default",
    grad_fn="Atan2Backward0",
    forward_op="aten.atan2.default",
    step=312,
    site=site(12, "torch.atan2(imag, real)", function="PhaseHead.forward", module="head"),
    element=Element(
        index=(0, 3, 117),
        shape=(8, 4, 340),
        dtype="float32",
        value=INF,
        count=9,
        total=10880,
        operands=(value("self", 2.0e-40, shape=(8, 4, 340)),),
    ),
    forward_operands=(
        ForwardOperand(name="self", expression="imag", value=1e-20, origin="window"),
        ForwardOperand(name="other", expression="real", value=1e-20, origin="window"),
    ),
    message="the derivative divides by imag² + real²; the reciprocal of 2e-40 exceeds the float32 maximum 3.4e38",
    explanation="real · Inf is Inf, and the sum of opposite infinities is NaN.",
    chain=(cause("1e-12 times 1e-8 is 1e-20", 3), step("aten.mul.Tensor", "backward")),
    reaches=tuple(reach("gradient", f"layers.{n}.weight", 64, 64) for n in range(212)),
    fixes=(
        Fix(
            title="keep the radius away from zero",
            kind="source",
            patch="--- a/net.py\n+++ b/net.py\n@@ -12 +12 @@\n"
            "-        phase = torch.atan2(imag, real)\n+        phase = torch.atan2(imag, guarded(real, imag))\n",
            verdict=FixVerdict(status="verified", why="none of 10,871 healthy elements further from the truth"),
        ),
        Fix(
            title="add 1e-6 to real",
            kind="source",
            patch="".join(f"+line {n}\n" for n in range(20)),
            verdict=FixVerdict(status="rejected", why="changes 50.6% of healthy elements"),
        ),
        Fix(title="train in float64", kind="setting", patch=None, verdict=FixVerdict(status="unverified")),
    ),
)

OPTIMIZER = finding(
    rule="WN801",
    name="optimizer-eps-zero",
    phase="optimizer",
    op="aten._foreach_addcdiv_.ScalarList",
    step=1,
    site=site(50, "optimizer.step()", function="train"),
    element=Element(
        index=(0,),
        list_index=1,
        tensor="head.bias",
        shape=(3,),
        dtype="bfloat16",
        value=NAN,
        count=3,
        total=3,
        operands=(
            value("self", None, origin="gone", shape=(3,)),
            value("tensor1", 0.0, shape=(3,)),
            value("tensor2", 0.0, shape=(3,)),
            value("scalars", -0.01, dtype=None, shape=None),
        ),
    ),
    message="the update divides 0 by 0 and makes the parameter NaN",
    explanation="The gradient of this element is 0, and eps is 0.",
    chain=(),
    reaches=(reach("parameter", "head.bias", 3, 3), reach("loss")),
)

ACCUMULATION = finding(
    rule="WN802",
    name="gradient-accumulation-overflow",
    birth="overflow",
    phase="accumulation",
    op="aten.add_.Tensor",
    micro=2,
    site=site(3, "features.relu()", function="train"),
    element=Element(
        index=(0,),
        shape=(3,),
        dtype="float16",
        value=INF,
        count=1,
        total=3,
        operands=(
            value("self", 40000.0, dtype="float16", shape=(3,)),
            value("other", 40000.0, dtype="float16", shape=(3,)),
        ),
    ),
    message="40000 + 40000 exceeds the float16 maximum 65504",
    explanation="",
    chain=(),
    reaches=(reach("gradient", "weight", 1, 3), reach("parameter", "weight", 1, 3)),
)

ENTERED = finding(
    rule="WN001",
    name="nan-in-data",
    birth="entered",
    phase="data",
    op=None,
    site=site(3, "features.relu()", function="Net.forward", module="encoder.0"),
    element=Element(index=(2, 1), tensor="x", shape=(6, 4), dtype="float32", value=NAN, count=1, total=24),
    message="argument x holds NaN at [2, 1]: 1 of its 24 elements",
    explanation="No operation of this run made it.",
    chain=(cause("argument x holds NaN at [2, 1]", 3), step()),
    reaches=(
        reach("loss"),
        reach("gradient", "a.weight", 4, 16),
        reach("gradient", "b.weight", 4, 4),
        reach("parameter", "a.weight", 4, 16),
        reach("parameter", "b.weight", 4, 4),
        reach("observed"),
    ),
)

LITERAL = finding(
    rule="WN003",
    name="literal-in-sink",
    birth="literal",
    op="aten.full.default",
    site=site(60, "torch.full((), float('inf'))", function="train"),
    element=Element(index=(), shape=(), dtype="float32", value=INF, count=1, total=1),
    message="a constant that full writes (Inf) arrives in the loss",
    explanation="The value was written on purpose, and then selected where it should have been left out.",
    chain=(),
)

TURNED = step("aten.rsqrt.default", said=Note.create("float64_differs", operator="rsqrt", result=0, meant=0.0033))
READ = finding(severity="warning", reaches=(reach("observed"),))
HELD = finding(step=None, reaches=(reach("observed", "a tensor still held", 4, 32),))
DAMAGING = finding(
    severity="warning",
    fate="damaging",
    reaches=(reach("output", "output", 1, 2),),
    element=ELEMENT,
    chain=(step(), TURNED),
)
ABSORBED = finding(severity="info", fate="absorbed", reaches=(), chain=(cause("argument x[0] is 0"),))

MASKED = finding(
    rule="WN501",
    name="softmax-all-masked",
    op="aten._softmax.default",
    site=Site(
        file="net.py",
        line=30,
        column=14,
        end_line=36,
        end_column=6,
        code="torch.softmax( scores.masked_fill( mask, float('-inf'), ), dim=-1, )",
        function="Attention.forward",
        module="layers.0.attention",
    ),
    element=ELEMENT.model_copy(
        update={
            "operands": (
                value("self", -INF, expression="scores", min=-INF, max=-INF),
                value("bias", 1.0, min=-0.5, max=2.73, dtype=None),
                value("dim", -1, dtype=None, shape=None),
                value("half_to_float", False, dtype=None, shape=None),
            )
        }
    ),
    message="the whole row is -Inf: softmax subtracts its maximum, and -Inf - (-Inf) is NaN",
    occurrences=12,
    modules=tuple(f"layers.{n}.attention" for n in range(12)),
    chain=(cause("a constant that masked_fill writes", 31), step()),
    reaches=(reach("output", "output.logits", 4, 12), reach("output", "output.hidden_states[1]", 4, 12)),
)

LIBRARY = finding(
    site=site(3, "features.relu()"),
    library_site=Site(
        file="/opt/lib/python3.11/site-packages/torch/distributions/normal.py",
        line=90,
        column=9,
        end_line=90,
        end_column=21,
        code="scale.log()",
        function="Normal.log_prob",
    ),
)

LONG_CHAIN = finding(
    chain=(
        cause("argument x[0, 1] is -2"),
        cause("relu made -2 into 0", 3),
        cause("0 times 3 is 0", 4, "pooling.py"),
        cause("0 times 3 is 0", 4, "pooling.py"),
        cause("mean of a row of 0 is 0", 5, "pooling.py"),
        cause("abs of 0 is 0", 6, "pooling.py"),
        cause("sqrt of 0 is 0", 20),
        step(),
    )
)

UNPLACED = finding(site=None, rule="WN000", name="unexplained", message="aten.foo of 1 gives NaN", explanation="")
ON_RANK = finding(site=None, op=None, node="/head/Div_3", rank=7, phase="inference", reaches=(reach("output"),))
COLLECTIVE = finding(phase="collective", reaches=(reach("gradient", None, 3, 5),), step=None)
BUFFER = finding(
    phase="buffer",
    reaches=(reach("buffer", "bn.running_mean", 2, 8), reach("buffer", "bn.running_var", 8, 8)),
    modules=("bn",),
    element=ELEMENT.model_copy(update={"index": None, "output": 1, "operands": ()}),
)

GONE = finding(
    phase="backward",
    forward_operands=(ForwardOperand(name="input", origin="live"), ForwardOperand(name="mean", origin="gone")),
    element=ELEMENT.model_copy(update={"operands": (value("weight", None), value("mean", None, origin="gone"))}),
)

GUARD = finding(
    rule="WN118",
    name="guard-overwrites-values",
    severity="warning",
    fate="damaging",
    birth=None,
    op="aten.index_put_.default",
    step=None,
    occurrences=12,
    element=Element(
        index=(2, 0),
        shape=(8, 4),
        dtype="float32",
        value=1e-4,
        count=15,
        total=32,
        operands=(value("self", -1.13, expression="counts", index=(2, 0)),),
    ),
    damage=Damage(kind="overwritten", concerned=15, total=32, numbers={"eps": 1e-4, "threshold": 1e-4, "worst": -2.5}),
    message="0.0001 is written over 15 of 32 values (46.9%) that are far from 0: counts is -1.13, and -2.5 at worst",
    explanation="What is near 0 is looked for by a comparison that every negative number passes.",
    chain=(),
    reaches=(),
)

REPORTS: dict[str, Report] = {
    "silent damage": report(verdict="damaged", damaging=(GUARD,)),
    "clean": report(verdict="clean"),
    "clean after a skipped step": report(
        verdict="clean", absorbed=(ABSORBED,), absorbed_count=38, coverage={"skipped_steps": 1}
    ),
    "clean, the harmless not kept": report(verdict="clean", absorbed_count=2, coverage={"events": 1}),
    "forward": report(FORWARD),
    "backward": report(BACKWARD),
    "optimizer": report(OPTIMIZER),
    "optimizer in a second run": report(
        OPTIMIZER, run={"replay": Replay(kind="rerun", faithful=True, why="identical")}
    ),
    "accumulation": report(ACCUMULATION),
    "entered": report(ENTERED),
    "literal": report(LITERAL),
    "read only": report(READ, verdict="damaged"),
    "held only": report(HELD),
    "damaging": report(verdict="damaged", damaging=(DAMAGING,)),
    "masked": report(MASKED),
    "library": report(LIBRARY),
    "long chain": report(LONG_CHAIN),
    "unplaced": report(UNPLACED),
    "on a rank": report(ON_RANK),
    "collective": report(COLLECTIVE),
    "buffer": report(BUFFER),
    "gone": report(GONE),
    "several": report(FORWARD, OPTIMIZER, READ, damaging=(DAMAGING,), absorbed=(ABSORBED,), absorbed_count=1),
    "inconclusive": report(verdict="inconclusive", coverage={"notes": ("thread 'loader' was not entered",)}),
    "inconclusive, with a warning": report(READ, verdict="inconclusive"),
    "whynan failed": report(
        verdict="inconclusive", coverage={"typed_notes": (FAILED,)}, run={"exit_status": ExitStatus(script=0, whynan=0)}
    ),
    "whynan failed in the replay of a bad step": report(
        verdict="inconclusive",
        coverage={"typed_notes": (FAILED,)},
        run={"exit_status": ExitStatus(script=None, whynan=1)},
    ),
    "raised": report(
        finding(reaches=(reach("observed", "y", 1, 2), reach("observed"))), run={"exception": "ValueError: loss is NaN"}
    ),
    "allowed": report(
        verdict="clean",
        unused_allows=("WN5", "sqrt-at-zero"),
        coverage={"typed_notes": (ALLOWED,)},
    ),
    "unfaithful": report(
        FORWARD, run={"replay": Replay(kind="rerun", faithful=False, why="the second run returned other values")}
    ),
    "replayed": report(FORWARD, run={"replay": Replay(kind="step")}),
    "divergent": report(verdict="divergent"),
    "without versions": report(FORWARD, run={"versions": {}}),
}
