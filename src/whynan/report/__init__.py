"""Renderings of a report; none knows a rule."""
