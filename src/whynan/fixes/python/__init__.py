"""Edits of the program's own source, at the birth's site."""

# pyright: strict

from whynan.fixes.diffs import patch as patch
from whynan.fixes.python.activations import MovedActivation as MovedActivation
from whynan.fixes.python.activations import moved_activations as moved_activations
from whynan.fixes.python.candidates import candidates as candidates
from whynan.fixes.python.candidates import consistent_candidates as consistent_candidates
from whynan.fixes.python.candidates import numpy_texts as numpy_texts
from whynan.fixes.python.constructors import ArgumentEdit as ArgumentEdit
from whynan.fixes.python.constructors import argument_edits as argument_edits
from whynan.fixes.python.operands import finite_instead as finite_instead
from whynan.fixes.python.operands import finite_texts as finite_texts
from whynan.fixes.python.operands import operand_edit as operand_edit
from whynan.fixes.python.operands import producer_edit as producer_edit
from whynan.fixes.python.operands import producer_of as producer_of
from whynan.fixes.python.operands import written_infinities as written_infinities
from whynan.fixes.python.operands import written_infinity as written_infinity
from whynan.fixes.python.precision import HALVES as HALVES
from whynan.fixes.python.precision import Known as Known
from whynan.fixes.python.precision import call_outside_autocast as call_outside_autocast
from whynan.fixes.python.precision import float32_candidates as float32_candidates
from whynan.fixes.python.precision import in_format as in_format
from whynan.fixes.python.precision import nothing_known as nothing_known
from whynan.fixes.python.precision import outside_autocast as outside_autocast
from whynan.fixes.python.precision import with_casts as with_casts
from whynan.fixes.python.regions import compare_versions as compare_versions
from whynan.fixes.python.training_changes import TrainingChange as TrainingChange
from whynan.fixes.python.training_changes import in_float32 as in_float32
from whynan.fixes.python.training_changes import training_changes as training_changes
