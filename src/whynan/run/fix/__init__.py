"""Fixes applied, and fixes that the user brings."""
