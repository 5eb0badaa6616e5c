"""What an experiment ends in that gives no answer."""

# pyright: strict

from __future__ import annotations


class Refused(Exception):  # noqa: N818
    """An operation cannot be run again, or refuses operands that are not those of the run."""
