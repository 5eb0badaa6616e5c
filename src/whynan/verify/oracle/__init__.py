"""Exact values: a recorded program, evaluated in balls that say by themselves how exact they are."""

from __future__ import annotations

from whynan.verify.oracle.calls import Unsupported as Unsupported
from whynan.verify.oracle.evaluation import Noise as Noise
from whynan.verify.oracle.evaluation import exact as exact
from whynan.verify.oracle.evaluation import missing as missing
from whynan.verify.oracle.evaluation import noise_floor as noise_floor
from whynan.verify.oracle.evaluation import noisy_outputs as noisy_outputs
from whynan.verify.oracle.results import Balls as Balls
from whynan.verify.oracle.results import Exact as Exact
