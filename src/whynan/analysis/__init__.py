"""Trace to facts: plain functions."""

from whynan.analysis.findings import Findings as Findings
from whynan.analysis.findings import judge_births as judge_births
from whynan.analysis.folding import cause_groups as cause_groups
from whynan.analysis.folding import fold_causes as fold_causes
from whynan.analysis.folding import fold_findings as fold_findings
