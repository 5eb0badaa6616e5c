"""Fixes of ONNX models: an intent as an edit of the graph."""

from whynan.fixes.graph.candidates import GraphCandidate as GraphCandidate
from whynan.fixes.graph.candidates import candidates as candidates
