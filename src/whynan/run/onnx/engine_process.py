"""The process in which an engine runs a model: ``python -m whynan.run.onnx.engine_process PARENT``."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import traceback
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from whynan.analysis import judge_births
from whynan.capture.onnx.execution import RunError
from whynan.capture.onnx.segments import memory_exceeded_note
from whynan.errors import WhynanError
from whynan.records import ExitStatus, Fed, Inference, Note, Run
from whynan.run.onnx.engines import IDLE
from whynan.run.onnx.explaining import agree, explaining, folding_note, is_bad, unexplained
from whynan.run.onnx.job import FEEDS, JOB, KEPT, MEND, OUTCOME, failed_after
from whynan.run.output.files import write_text
from whynan.run.parent import binding
from whynan.run.versions import versions
from whynan.traces.writer import TraceWriter

if TYPE_CHECKING:
    import onnx

    from whynan.capture.onnx.engine import Engine, EngineSettings, Outcome
    from whynan.capture.onnx.graph.sites import Sites
    from whynan.capture.onnx.provenance.silent import SilentDamageObserver
    from whynan.capture.onnx.recorder import Recorder
    from whynan.models.onnx.opening import OnnxModel
    from whynan.traces import Trace


_KEPT: Final = 256 << 20
"""Bytes that a process may have in memory while it waits for another model."""
_WAIT: Final = 60.0
"""Seconds without anything to do after which the process ends."""
_NEEDED: Final = (
    "whynan.capture.onnx.engine",
    "whynan.capture.onnx.graph.sites",
    "whynan.capture.onnx.graph.written",
    "whynan.capture.onnx.provenance.silent",
    "whynan.capture.onnx.recorder",
    "whynan.models.onnx.binding",
)
_Key: TypeAlias = "tuple[str | None, tuple[str, ...]]"


class Runner:
    """Does the jobs of one model, which is opened once."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._engines: dict[_Key, Engine] = {}
        self._sites: dict[_Key, Sites] = {}
        self.over = False
        """Whether the model of the last job has no further one."""

    def do(self, place: Path) -> int:
        """Do the job of a folder; what came of it is left there, and the trace where the job says."""
        told: dict[str, Any] = {}
        status = 0
        try:
            told = self._run(place)
        except RunError as error:
            # what could not be opened can be run in no case
            told = {"failed": error.what, "refused": not self._engines}
            status = 1
        except WhynanError as error:
            told = {"usage": [error.what, error.hint]}
            status = 2
        except Exception:
            told = {"internal": traceback.format_exc()}
            status = 3
        if status or self.over:
            # after a failure nobody knows in what state it is; and the next model is another
            self.close()
            self._sites.clear()
        write_text(str(place / OUTCOME), json.dumps(told))
        return status

    def close(self) -> None:
        """Let go of the engines."""
        self._engines.clear()
        self._open.close()

    def _run(self, place: Path) -> dict[str, Any]:
        from whynan.capture.onnx.recorder import Recorder
        from whynan.models.onnx.binding import read_feeds

        job: dict[str, Any] = json.loads((place / JOB).read_text(encoding="utf-8"))
        self.over = job["last"]
        if MEND in job:
            from whynan.run.fix.onnx import prove_graph_fixes

            return prove_graph_fixes(_model(job).proto, job, place)
        feeds = read_feeds(place / FEEDS, job["feeds"])
        settings = settings_of(job)
        writer = TraceWriter(job["trace"], redact=job["redact"])
        known = _run_record(job)
        writer.begin(_public(writer, known), {"ranges": job["ranges"], "memory": job["memory"]})
        births = self._observer(job, settings, Recorder(writer), ranges=job["ranges"])
        try:
            outcome = self._opened(settings).run(feeds, births)
        except RunError as error:
            births.notes[failed_after(error.nodes)] = None
            births.notes.update(_notes(memory_exceeded_note(settings.memory)))
            writer.end(_public(writer, _ended(known, births.end(), failed=error.what)))
            raise
        births, executed, chosen = self._explanation(job, settings, feeds, births, outcome)
        sites = self._sites[_key(chosen)]
        if job["last"]:
            self.close()
        note = _difference(settings, feeds, outcome)
        unequal = None if outcome.bit_equal else outcome.why
        births.notes.update(
            _notes(*outcome.notes, unequal, *sites.notes(), note, memory_exceeded_note(settings.memory))
        )
        assert known.inference is not None
        told = {
            "bit_equal": outcome.bit_equal,
            "nodes": outcome.nodes,
            "nodes_as_written": outcome.nodes_as_written,
            "segments": outcome.segments,
            "placement": outcome.placement,
        }
        run = known.model_copy(update={"inference": known.inference.model_copy(update=told)})
        found = births.end()
        if births.keeper is not None:
            from whynan.run.onnx.kept_nodes import hand_over

            hand_over(births.keeper, found, executed, place / KEPT, settings.engine)
        writer.end(_public(writer, _ended(run, found)))
        return {}

    def _observer(
        self, job: dict[str, Any], settings: EngineSettings, recorder: Recorder, *, ranges: bool
    ) -> SilentDamageObserver:
        """Who looks at a run; of one graph the nodes are the same in every case."""
        from whynan.capture.onnx.provenance.silent import SilentDamageObserver
        from whynan.capture.onnx.single_node import NodeKeeper

        sites = self._sites.get(_key(settings))
        known = sites is not None
        sites = self._sites[_key(settings)] = sites or _sites(job)
        births = SilentDamageObserver(recorder, sites, ranges=ranges, reads=frozenset[str](job.get("reads", ())))
        if job["capsule"]:
            births.keeper = NodeKeeper()
        if not known:
            births.before = sites.set_main_graph
        return births

    def _explanation(
        self,
        job: dict[str, Any],
        settings: EngineSettings,
        feeds: dict[str, Any],
        births: SilentDamageObserver,
        outcome: Outcome,
    ) -> tuple[SilentDamageObserver, onnx.ModelProto, EngineSettings]:
        """Who tells of what is bad, the graph that ran then, and how: a run that explains is believed if it agrees."""
        plain = explaining(settings, outcome, births.trace())
        if plain is None:
            return births, outcome.executed, settings
        if settings.memory is not None:
            self.close()
        other = self._observer(job, plain, births.recorder, ranges=False)
        try:
            found = self._opened(plain).run(feeds, other, compare=False)
            believed = agree(outcome, found) and is_bad(other.trace())
        except RunError:
            found, believed = outcome, False
            self._sites.pop(_key(plain))
        if believed:
            other.notes[folding_note(outcome)] = None
            return other, found.executed, plain
        if is_bad(births.trace()):
            births.notes[unexplained(outcome)] = None
        return births, outcome.executed, settings

    def _opened(self, settings: EngineSettings) -> Engine:
        from whynan.capture.onnx.engine import open_engine

        key = _key(settings)
        if key not in self._engines:
            self._engines[key] = self._open.enter_context(open_engine(settings))
        return self._engines[key]


def main(parent: int) -> int:
    """Do the jobs whose folders stand on the standard input; their statuses go to what was the standard output."""
    # who has started this process decides when it ends, and takes it with him
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    binding()()
    if os.name == "posix" and os.getppid() != parent:
        return 1
    _load()
    # what lasts as long as the process is never garbage
    gc.freeze()
    # what an engine prints is no answer
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    runner = Runner()
    while line := _line():
        status = runner.do(Path(json.loads(line)))
        print(status, file=answers, flush=True)
        if runner.over and not _rested():
            return IDLE
    runner.close()
    return 0 if line is not None else IDLE


def _rested() -> bool:
    """Give back the memory of a model; whether the process is then small enough to wait for another one."""
    from whynan.capture.onnx.segments import resident, trim_heap

    gc.collect()
    trim_heap()
    return resident() <= _KEPT


def _line() -> str | None:
    """The next line of the standard input, empty at its end; None where none has come for too long."""
    # the one who writes waits for the answer to each line before the next: none is left in a buffer
    if os.name == "posix" and not select.select([sys.stdin], [], [], _WAIT)[0]:
        return None
    return sys.stdin.readline()


def _load() -> None:
    """Load what the first job needs, which may still be on its way."""
    for name in _NEEDED:
        import_module(name)


def _key(settings: EngineSettings) -> _Key:
    """What tells the graphs of one model apart."""
    return settings.level, settings.disabled_optimizers


def _notes(*notes: Note | None) -> dict[Note, None]:
    return dict.fromkeys(note for note in notes if note)


def _public(writer: TraceWriter, run: Run) -> Run:
    """What of a run may stand in its trace."""
    if writer.names is None:
        return run
    from whynan.run.output.run_trace import redact_run

    return redact_run(writer, run)


def _ended(run: Run, trace: Trace, *, failed: str | None = None) -> Run:
    """A run that is over, with the exit status that its trace gives."""
    bad = failed is not None or judge_births(trace).verdict in ("nonfinite", "inconclusive")
    status = ExitStatus(script=0 if failed is None else 1, whynan=int(bad))
    return run.model_copy(update={"exit_status": status, "versions": versions(), "exception": failed})


def settings_of(job: dict[str, Any]) -> EngineSettings:
    """How the engine is to run the model of a job."""
    from whynan.capture.onnx.engine import EngineSettings

    chosen: dict[str, Any] = job["settings"]
    told: dict[str, Any] = {"providers": tuple(chosen["providers"])} if chosen["providers"] else {}
    return EngineSettings(
        **told,
        path=job["model"],
        graph=chosen["graph"],
        engine=chosen["engine"],
        level=chosen["level"],
        session_config=chosen["config"] or {},
        intra_threads=chosen["threads"],
        custom_ops=tuple(chosen["custom_ops"]),
        memory=job["memory"],
        free_dimensions=chosen["free_dimensions"] or {},
        repeated=job.get("repeated", False),
    )


def _run_record(job: dict[str, Any]) -> Run:
    settings: dict[str, Any] = job["settings"]
    reference = settings["engine"] == "reference"
    inference = Inference(
        model=job["model"],
        sha256=job["sha256"],
        opset=job["opset"],
        engine=settings["engine"],
        graph="original" if reference else settings["graph"],
        level=None if reference else settings["level"],
        providers=tuple(settings["providers"]),
        inputs=tuple(Fed.model_validate(fed) for fed in job["fed"]),
    )
    status = ExitStatus(script=None, whynan=0)
    return Run(command=job["command"], exit_status=status, versions=versions(), inference=inference)


def _model(job: dict[str, Any]) -> OnnxModel:
    from whynan.models.onnx.opening import open_model

    return open_model(job["model"], custom_ops=bool(job["settings"]["custom_ops"]))


def _sites(job: dict[str, Any]) -> Sites:
    from whynan.capture.onnx.graph.sites import Sites
    from whynan.capture.onnx.graph.written import read_outline

    return Sites(read_outline(job["model"]), None)


def _difference(settings: EngineSettings, feeds: dict[str, Any], outcome: Outcome) -> Note | None:
    """What is to be said where the graph as written gives other bad numbers than the optimised one."""
    if settings.engine != "onnxruntime" or settings.graph != "optimized" or settings.level == "disabled":
        return None
    from whynan.run.onnx.explaining import difference

    return difference(settings, feeds, outcome.outputs)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
