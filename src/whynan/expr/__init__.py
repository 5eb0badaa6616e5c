"""What was computed, as algebra: one form for all spellings of an expression."""

from whynan.expr.from_trace import Expressions as Expressions
from whynan.expr.normal import NormalForm as NormalForm
