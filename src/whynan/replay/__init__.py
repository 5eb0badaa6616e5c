"""Saved state: what a step needs to run again, and everything put back after it."""
