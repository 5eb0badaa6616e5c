"""Runs a program and records its trace: ``record.py FOLDER redact|plain PROGRAM [ARGUMENTS]``."""

from __future__ import annotations

import runpy
import sys
from contextlib import suppress

from whynan.capture.torch import Capture
from whynan.records import ExitStatus, Run
from whynan.traces.writing import TraceWriter

folder, redact, program = sys.argv[1:4]
sys.argv = sys.argv[3:]
writer = TraceWriter(folder, redact=redact == "redact")
run = Run(command=program, exit_status=ExitStatus(script=None, whynan=0), exception="ValueError: geheim_exception")
writer.begin(run, {"json": "/geheim_home/report.json"})
with suppress(ValueError), Capture(ranges=True, recording=writer):
    runpy.run_path(program, run_name="__main__")
writer.end(run, ("a note of geheim_home",))
