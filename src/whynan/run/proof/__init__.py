"""Proof of fixes in the program's own run."""
