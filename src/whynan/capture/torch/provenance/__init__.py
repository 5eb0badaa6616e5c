"""Provenance of bad elements in eager PyTorch: labels, attribution, births, causes, operands, damage."""
