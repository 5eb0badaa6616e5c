"""The report of the post-mortem of checkpoints."""
