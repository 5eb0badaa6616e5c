"""The vocabulary: the words of the report as frozen types, and nothing that thinks."""

from whynan.records.report import BirthKind as BirthKind
from whynan.records.report import ChainLink as ChainLink
from whynan.records.report import Coverage as Coverage
from whynan.records.report import Data as Data
from whynan.records.report import Element as Element
from whynan.records.report import ExitStatus as ExitStatus
from whynan.records.report import Fate as Fate
from whynan.records.report import Finding as Finding
from whynan.records.report import Fix as Fix
from whynan.records.report import FixVerdict as FixVerdict
from whynan.records.report import ForwardOperand as ForwardOperand
from whynan.records.report import Operand as Operand
from whynan.records.report import Origin as Origin
from whynan.records.report import Phase as Phase
from whynan.records.report import Range as Range
from whynan.records.report import Reach as Reach
from whynan.records.report import Replay as Replay
from whynan.records.report import Report as Report
from whynan.records.report import Role as Role
from whynan.records.report import Run as Run
from whynan.records.report import SinkKind as SinkKind
from whynan.records.report import Site as Site
from whynan.records.report import Source as Source
from whynan.records.report import Step as Step
from whynan.records.report import Verdict as Verdict
