"""The trace: the only thing that crosses from capture to analysis."""

from whynan.traces.facts import Birth as Birth
from whynan.traces.facts import Event as Event
from whynan.traces.facts import Silent as Silent
from whynan.traces.facts import Sink as Sink
from whynan.traces.facts import Trace as Trace
