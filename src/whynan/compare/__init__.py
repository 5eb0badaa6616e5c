"""Two runs of what ought to be one model: which values are the same quantity, and where the runs part."""
