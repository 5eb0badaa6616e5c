"""Checkpoints from strangers' files, and their post-mortem."""
