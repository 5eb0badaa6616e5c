"""A package whose modules import each other by relative names."""

print("package", __name__, __package__)
