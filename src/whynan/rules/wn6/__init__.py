"""Family 6: reductions and statistics."""
