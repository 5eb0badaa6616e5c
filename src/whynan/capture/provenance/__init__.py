"""Provenance that all frameworks share."""
