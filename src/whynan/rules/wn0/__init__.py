"""Family 0: data and memory."""
