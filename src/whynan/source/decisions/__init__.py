"""What a program decides on a number that is NaN or Inf: to end, to leave its loop, to skip a step."""

from whynan.source.decisions.reads import decision as decision
from whynan.source.decisions.statements import Decision as Decision
