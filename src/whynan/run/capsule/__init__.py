"""Capsules run again."""
