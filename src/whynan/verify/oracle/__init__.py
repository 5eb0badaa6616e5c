"""Exact values: a recorded program, evaluated in balls that say by themselves how exact they are."""

from __future__ import annotations

from whynan.verify.oracle.balls import TimeIsOverError as TimeIsOverError
from whynan.verify.oracle.balls import ends_at as ends_at
from whynan.verify.oracle.calls import Unsupported as Unsupported
from whynan.verify.oracle.evaluator import Balls as Balls
from whynan.verify.oracle.evaluator import Exact as Exact
from whynan.verify.oracle.evaluator import Noise as Noise
from whynan.verify.oracle.evaluator import exact as exact
from whynan.verify.oracle.evaluator import noise_floors as noise_floors
from whynan.verify.oracle.evaluator import noisy_outputs as noisy_outputs
