"""Turns what would mend a hazard into an edit of source or of a graph, or declines with the reason."""
