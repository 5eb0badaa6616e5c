"""Edits of the program's own source, at the birth's site."""

# pyright: strict

from whynan.fixes.diffs import patch as patch
from whynan.fixes.python.candidates import candidates as candidates
from whynan.fixes.python.candidates import possible as possible
from whynan.fixes.python.regions import compared as compared
