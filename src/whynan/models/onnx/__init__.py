"""ONNX models and their inputs, from strangers' files."""
