"""The programs of tests/programs: how each is started, how it ends, and what whynan can see of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Seen = Literal["traced", "idle", "elsewhere", "nothing"]
"""A report with operations; with none of this process; with none, where it started others that may have run some; no
report, because the process is killed or replaced."""


@dataclass(frozen=True)
class Program:
    """A program as a person starts it.

    Args:
        line: what stands after ``python``, or after ``whynan run``, as typed in a shell.
        status: its exit status; negative for the signal that it dies of.
        seen: what whynan can say of it.
        flags: Python's own options.
        environment: variables beside the usual.
        stdin: what it is given to read.
        sample: whether it is run each time, and not only with the full checks.
        links: symbolic links made before it starts, name to target.
        archives: archives made before it starts, name to folder.
    """

    line: str
    status: int = 0
    seen: Seen = "traced"
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bytes = b""
    sample: bool = False
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    archives: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def command(self) -> list[str]:
        """Its command line."""
        return shlex.split(self.line)

    @property
    def name(self) -> str:
        """What tells it from the others."""
        variables = [f"{k}={v}" for k, v in self.environment.items()]
        return " ".join([*variables, *self.flags, self.line, *(["<..."] if self.stdin else [])])


def _alone(line: str, status: int = 0, *, seen: Seen = "idle", sample: bool = True, **more: object) -> Program:
    """A program without torch: quick, so that nearly all are run each time."""
    return Program(line, status, seen, sample=sample, **more)  # pyright: ignore


READ = b"one\ntwo\nthree and more\nfour\n"
LATIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

WITHOUT_TORCH = [
    # what it is told and what it knows of itself
    _alone("identity.py one --two '' -m -c --json=x"),
    _alone("identity.py", flags=("-O", "-u", "-W", "ignore"), sample=False),
    _alone("identity.py --", environment={"PYTHONPATH": "elsewhere:", "PYTHONWARNINGS": "ignore::UserWarning"}),
    _alone("identity.py", flags=("-P", "-OO", "-X", "no_debug_ranges")),
    _alone("identity.py", environment={"PYTHONPATH": "customised"}),
    _alone("linked.py a", links={"linked.py": "identity.py"}),
    _alone("./shapes/../identity.py", sample=False),
    _alone("-m identity a -b"),
    _alone("-c 'import sys; print(sys.argv, sys.path[0], sys.orig_argv, __name__, __spec__); sys.exit(3)' -c x", 3),
    _alone("-c 'def broken('", 1),
    _alone("- from standard input", 7, stdin=b"import sys\nprint(sys.argv, sys.path[0])\nsys.exit(7)\n"),
    _alone("interpreter.py"),
    _alone("interpreter.py", environment=LATIN, sample=False),
    _alone("interpreter.py", flags=("-X", "dev"), sample=False),
    _alone("interpreter.py", flags=("-X", "utf8", "-X", "faulthandler", "-b", "-B", "-s", "-q"), sample=False),
    _alone("own_source.py"),
    _alone("written_there.py", links={"written_there.py": "own_source.py"}, sample=False),
    _alone("stack.py"),
    _alone("traced_itself.py"),
    # its arguments and configuration
    _alone("arguments.py train --epochs 2 x -- --json"),
    _alone("arguments.py --json --quiet", 2),
    _alone("arguments.py --help"),
    _alone("command.py --steps 3", stdin=b"somebody\n"),
    _alone("command.py", 2, stdin=b"nobody\n"),
    _alone("command.py --name seven", 7, sample=False),
    _alone("""config.py '{"width": 3, "optimizer": {"schedule": "flat"}}'"""),
    # packages, archives, folders
    _alone("-m shapes x"),
    _alone("-m shapes.inner.side y"),
    _alone("folder_app a"),
    _alone("app.pyz a", archives={"app.pyz": "folder_app"}),
    _alone("ran_another.py", 1),
    _alone("executed.py", 1),
    # other processes
    _alone("processes.py spawn", sample=False),
    _alone("processes.py fork"),
    _alone("processes.py forkserver", sample=False),
    _alone("forked.py"),
    _alone("itself.py first", 11, seen="nothing"),
    # signals, threads, hooks
    _alone("hooks.py", 1),
    _alone("signalled.py"),
    _alone("group_signal.py"),
    _alone("suspended.py"),
    _alone("farewell.py"),
    _alone("faults.py"),
    # what it reads and writes
    _alone("standard_in.py", 1, stdin=READ),
    _alone("standard_in.py", 1, sample=False),
    _alone("logged.py"),
    _alone("warned.py", 1),
    _alone("warned.py", 1, flags=("-W", "error"), sample=False),
    _alone("tempfiles.py"),
    *[
        _alone(f"written.py {way}", status)
        for way, status in {
            "as_bytes": 0,
            "closed": 0,
            "wrapped": 0,
            "gone": 0,
            "both_gone": 1,
            "descriptor_closed": 120,
            "to_stderr": 0,
            "detached": 120,
            "surrogate": 1,
            "reconfigured": 0,
            "full": 120,
            "unflushed": 0,
        }.items()
    ],
    _alone("written.py unflushed", environment=LATIN, sample=False),
    _alone("written.py surrogate", environment={"PYTHONIOENCODING": "ascii:backslashreplace"}, sample=False),
]

ENDS: dict[str, int] = {
    "end": 0,
    "three": 3,
    "message": 1,
    "nothing": 0,
    "minus": 255,
    "tuple": 1,
    "quit": 6,
    "exception": 1,
    "strange": 1,
    "recursion": 1,
    "notes": 1,
    "group": 1,
    "keyboard": -2,
    "interrupted": -2,
    "os_exit": 5,
    "terminated": -15,
    "killed": -9,
    "aborted": -6,
    "thread": 0,
    "atexit": 0,
    "finally": 4,
    "outlived": 0,
    "unraisable": 0,
}
"""Ways to end, as exits.py knows them."""

_UNSEEN = ("terminated", "killed", "aborted")
_SAMPLE = "end three message exception strange keyboard os_exit terminated atexit outlived".split()

EXITS = [
    Program(
        f"exits.py {way}{torch}",
        status,
        "nothing" if way in _UNSEEN else "traced" if torch else "idle",
        sample=way in _SAMPLE and not torch,
    )
    for torch in ("", " torch")
    for way, status in ENDS.items()
]

WITH_TORCH_LOADED = [
    Program("identity.py torch", sample=True),
    Program("interpreter.py torch", seen="idle"),
    Program("processes.py spawn torch", seen="elsewhere"),
    Program("processes.py fork torch", seen="elsewhere"),
    Program("processes.py forkserver torch", seen="elsewhere"),
    Program("hooks.py torch", 1),
    Program("signalled.py torch"),
    Program("logged.py torch"),
    Program("warned.py torch", 1),
    Program("stack.py torch"),
    Program("forked.py torch"),
    Program("itself.py first torch", 11, "nothing"),
    Program("written.py wrapped torch"),
    Program("written.py both_gone torch", 1),
    Program("written.py closed torch"),
    Program("written.py full torch", 120),
    Program("faults.py torch"),
    Program("farewell.py torch", sample=True),
    Program("traced_itself.py torch"),
    Program("tempfiles.py torch"),
]

# about ten seconds each, by Python and by whynan: one in eight is run each time
TRAINING = [
    Program("-m shapes.fit", sample=True),
    Program("'naïve folder/trained – été.py' é", 1),
    Program("shadowed/train.py"),
    Program("gan.py"),
    Program("reinforce.py"),
    Program("second_order.py"),
    Program("mixed_precision.py"),
    Program("skipped_step.py"),
    Program("functional.py"),
    Program("checkpointed.py"),
    Program("loaded.py"),
    Program("threaded.py", sample=True),
    Program("asynchronous.py"),
    Program("sequences.py"),
    Program("averaged.py"),
    Program("read_losses.py"),
    Program("own_functions.py", 1, sample=True),
    Program("kinds.py"),
    Program("drawn.py", sample=True),
    Program("progress.py"),
    Program("pickled.py"),
    Program("patched.py"),
    Program("in_forward.py"),
    Program("introspected.py"),
    Program("timed.py"),
    Program("imported_late.py"),
    Program("daemonised.py"),
    Program("tested.py"),
    Program("watched_by_itself.py"),
    Program("under_a_limit.py"),
    Program("modes.py"),
    Program("profiled.py"),
    Program("scripted.py"),
    Program("compiled.py counting"),
    Program("compiled.py aot_eager"),
    Program("compiled.py inductor"),
    Program("distributed.py 1"),
    Program("distributed.py 2"),
    Program("-m torch.distributed.run --nproc-per-node 2 distributed.py", seen="elsewhere"),
    Program("hogwild.py"),
    Program("lightning_run.py"),
    Program("trainer_run.py"),
]

PROGRAMS = [*WITHOUT_TORCH, *EXITS, *WITH_TORCH_LOADED, *TRAINING]

BAD = [Program("log_of_zero.py", sample=True), Program("bad_optimizer.py"), Program("bad_and_failing.py", 5)]
"""Programs with a bad number that escapes: whynan ends with 1 where Python ends with 0."""

NAMED = {p.name: p for p in [*PROGRAMS, *BAD]}
