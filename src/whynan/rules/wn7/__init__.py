"""Family 7: precision."""
