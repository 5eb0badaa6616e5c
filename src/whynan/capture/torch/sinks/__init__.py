"""Sinks: where bad values leave, and the optimizer steps that consume them."""
