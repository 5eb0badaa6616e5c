"""Runs of ONNX models, in processes of their own."""
