"""The command line: one file a command, and `main`, the only place that prints an error."""
