"""Trace to facts: plain functions."""

from whynan.analysis.findings import Findings as Findings
from whynan.analysis.findings import findings_of as findings_of
