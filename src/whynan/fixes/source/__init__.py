"""Edits of the program's own source, at the birth's site."""
