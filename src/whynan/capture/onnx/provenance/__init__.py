"""Provenance in ONNX graphs: labels, attribution, births, causes, operands, damage."""
