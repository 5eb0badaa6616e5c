"""Edits tried inside the running program."""
