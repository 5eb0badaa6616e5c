"""A run: allowances, and the way from a trace to a report."""
