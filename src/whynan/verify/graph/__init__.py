"""The verdict of a repaired ONNX model."""

from whynan.verify.graph.judging import judge_graph as judge_graph
