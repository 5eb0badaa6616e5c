"""Fixes of ONNX models: an intent as an edit of the graph."""

from whynan.fixes.onnx.candidates import GraphCandidate as GraphCandidate
from whynan.fixes.onnx.candidates import candidates as candidates
