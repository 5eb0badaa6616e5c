"""Family 2: logarithm and exponential."""
