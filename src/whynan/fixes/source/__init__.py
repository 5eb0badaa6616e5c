"""Edits of the program's own source, at the birth's site."""

# pyright: strict

from whynan.fixes.source.mending import candidates as candidates
from whynan.fixes.source.mending import possible as possible
from whynan.fixes.source.patches import patch as patch
from whynan.fixes.source.regions import compared as compared
