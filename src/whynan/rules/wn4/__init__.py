"""Family 4: angles and inverse functions."""
