"""What was computed, as algebra: one form for all spellings of an expression."""

from whynan.analysis.algebra.reading import Expressions as Expressions
from whynan.analysis.algebra.terms import Term as Term
