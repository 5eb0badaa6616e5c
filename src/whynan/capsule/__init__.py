"""A failing operation, packed into a folder that reproduces it anywhere, and unpacked."""
