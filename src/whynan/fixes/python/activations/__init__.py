"""An activation that is computed elsewhere, moved to where its logarithm is taken."""

from whynan.fixes.python.activations.moves import MovedActivation as MovedActivation
from whynan.fixes.python.activations.moves import moved_activations as moved_activations
