"""The continuation of a frame."""
