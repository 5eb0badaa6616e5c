"""Trace to facts: plain functions."""

from whynan.analysis.findings import Findings as Findings
from whynan.analysis.findings import judge_births as judge_births
