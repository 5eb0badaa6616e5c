"""Family 8: training loop."""
