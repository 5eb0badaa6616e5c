"""The verdict of a repaired ONNX model."""

from whynan.verify.onnx_program.judge import judge_graph as judge_graph
