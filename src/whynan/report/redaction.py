"""A report for other eyes: where and of what kind, without source text, values, names and paths.

What stays: rules, fates, kinds of births, PyTorch's operators, steps, counts, shapes, types of numbers, lines and
columns, versions. What is named by the program has a number instead, the same everywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from whynan.records import (
    Attribution,
    Divergence,
    Finding,
    Fix,
    FixVerdict,
    Growth,
    IntroducedError,
    Member,
    OutputError,
    PropagatedError,
    Report,
    Transfer,
)
from whynan.report.wording import bad_word
from whynan.traces.redaction import (
    FACTS,
    Pseudonyms,
    Redaction,
    Table,
    alias,
    by_holder,
    by_value,
    dropped,
    kept,
    node,
    operator,
    record,
    unknown,
)

_CODE: Final = re.compile(r"WN(?:[\dX]\d{0,2})?", re.ASCII)
"""Of whynan's own rules: those of others may be named for what is private."""
_FILE: Final = re.compile(r"file \d+", re.ASCII)
_RULE_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", re.ASCII)

_BORN: Final = {
    "overflow": "a result was out of the range of its type and became {}",
    "pole": "an exact singularity gave {}",
    "invalid": "an operation without a defined result gave {}",
    "entered": "{} came in from outside the run",
    "literal": "{}, written by the program on purpose, arrived where it does harm",
}
_DAMAGED: Final = {
    "overwritten": "a guard wrote a constant over numbers that were healthy",
    "vanished": "a constant was rounded away where it was needed",
    "stalled": "a parameter was moved by no step",
    "steep": "a gradient was far out of proportion",
    "zeroed": "numbers that are not 0 became 0",
    "saturated": "numbers out of the range of a type became its largest",
}
_FIXED: Final = {
    "source": "a change of the source, left out",
    "graph": "a change of the graph, left out",
    "setting": "a setting, left out",
}


def _code(code: str) -> str:
    return code if _CODE.fullmatch(code) else "WN000"


def _codes(codes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code for code in codes if _CODE.fullmatch(code))


def _rule_name(finding: Finding) -> str:
    return finding.name if _CODE.fullmatch(finding.rule) and _RULE_NAME.fullmatch(finding.name) else "unexplained"


def public_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Allowances by code only: what a configuration or a comment allows need not be the name of any rule."""
    return tuple(dict.fromkeys(pattern if _CODE.fullmatch(pattern) else "a rule's name" for pattern in patterns))


def _message(finding: Finding) -> str:
    if finding.divergence is not None:
        return "an operation gave other numbers than its partner does for the same operands"
    if finding.birth is None:
        return "" if finding.damage is None else _DAMAGED[finding.damage.kind]
    value = finding.element.value
    return _BORN[finding.birth].format(bad_word(None if value is None or math.isfinite(value) else value))


def _title(fix: Fix) -> str:
    return _FIXED[fix.kind]


def _reason(reason: str | None) -> str | None:
    return None if reason is None else "a reason, left out"


_FINDING: Final[Table] = {
    "rule": by_value(_code), "name": by_holder(_rule_name), "severity": kept, "fate": kept, "birth": kept,
    "phase": kept, "op": operator,
    "grad_fn": node, "forward_op": operator, "step": kept, "micro": kept, "rank": kept, "ranks": kept,
    "transfers": record, "site": record,
    "library_site": record, "node": alias("node"), "value": alias("tensor"), "made_of": dropped, "occurrences": kept,
    "modules": alias("module"), "also": record, "element": record,
    "damage": record, "divergence": record,
    "data": record, "origin": dropped, "forward_operands": record, "message": by_holder(_message),
    "explanation": dropped,
    "matched": by_value(_codes), "chain": record, "reaches": record, "scale_fall": record,
    "attributions": record, "fixes": record,
    "allowed": by_value(_reason),
    "around": dropped,
}  # fmt: skip

REPORT: Final[Mapping[type, Table]] = {
    **FACTS,
    Finding: _FINDING,
    Transfer: {
        "operation": operator, "sequence": kept, "sender": kept, "receivers": kept, "sender_site": record,
        "receiver_site": record,
    },
    Member: {"site": record, "phase": kept, "op": operator, "rule": by_value(_code), "count": kept},
    Fix: {"title": by_holder(_title), "kind": kept, "patch": unknown, "verdict": record, "further": dropped},
    FixVerdict: {
        "status": kept, "forward_finite": kept, "backward_finite": kept, "healthy_elements": kept,
        "healthy_worse": kept, "max_ulp": kept, "max_rel": kept, "undecided": kept, "why": dropped, "reason": kept,
        "stand_ins": dropped,
    },
    Divergence: {
        "introduced": record, "propagated": record, "tolerance": unknown, "why": dropped, "count": kept,
        "total": kept, "other_node": alias("node"), "other_op": operator, "other_value": alias("tensor"),
        "other_site": record,
        "nodes": alias("node"), "growth": record, "attributions": record,
    },
    IntroducedError: {
        "max_abs": unknown, "max_rel": unknown, "max_ulp": unknown, "index": kept, "a": unknown, "b": unknown,
        "exact": unknown,
    },
    PropagatedError: {"max_abs": unknown, "max_rel": unknown},
    Growth: {"value": alias("tensor"), "op": operator, "max_rel": unknown},
    Attribution: {"source": kept, "evidence": dropped, "holds": kept},
    OutputError: {"name": alias("tensor"), "max_abs": unknown, "max_rel": unknown, "nan_mismatch": kept},
    Report: {
        "schema_": dropped, "verdict": kept, "run": record, "findings": record, "damaging": record,
        "absorbed": record, "absorbed_count": kept, "unused_allows": by_value(public_patterns),
        "coverage": record, "ranges": record, "outputs": record,
    },
}  # fmt: skip
"""What becomes of each field of a report."""


def is_redacted(report: Report) -> bool:
    """Whether a report is one for other eyes: it has findings at files, and every file has a number for a name."""
    sites = [f.site for f in (*report.findings, *report.damaging, *report.absorbed) if f.site is not None]
    return bool(sites) and not report.run.sources and all(_FILE.fullmatch(site.file) for site in sites)


def redacted(report: Report, names: Pseudonyms | None = None) -> Report:
    """The report that lets nothing private through.

    `names`: the pseudonyms that were given before, in the trace of the same run, and are to be kept.
    """
    return Redaction(REPORT, Pseudonyms() if names is None else names).redact(report)
