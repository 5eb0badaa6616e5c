"""Family 1: division and normalisation."""
