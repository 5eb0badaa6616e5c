"""Ranks of one run: what they tell each other, and the one report of them all."""
