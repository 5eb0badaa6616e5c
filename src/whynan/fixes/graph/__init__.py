"""Edits of an ONNX graph, at the birth's node."""
