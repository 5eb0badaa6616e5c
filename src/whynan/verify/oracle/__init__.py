"""Exact values: a recorded program, evaluated in balls that say by themselves how exact they are."""
