"""A range made by hand."""

from __future__ import annotations

from whynan.records import Range, Site

RANGE = Range(
    event=3,
    op="aten.log.default",
    phase="forward",
    output=0,
    dtype="float32",
    shape=(4,),
    n=4,
    n_nan=1,
    n_posinf=0,
    n_neginf=0,
    n_zero=0,
    n_subnormal=0,
    finite_min=float("-1.5"),
    finite_max=2.0,
    site=Site(file="net.py", line=1),
)
