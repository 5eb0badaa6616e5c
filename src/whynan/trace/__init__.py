"""The trace: the only thing that crosses from capture to analysis."""

from whynan.trace.facts import Birth as Birth
from whynan.trace.facts import Event as Event
from whynan.trace.facts import Sink as Sink
from whynan.trace.facts import Trace as Trace
