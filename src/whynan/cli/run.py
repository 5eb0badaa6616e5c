"""``whynan run``: any program, unchanged, looked at until its first bad number."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from whynan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from whynan.run.script import Program


class _Run(click.Command):
    """A command whose own options end, as Python's do, where the program is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options up to the program; all else is the program's."""
        end = self._end(ctx, args)
        try:
            return super().parse_args(ctx, args if end is None else [*args[:end], "--", *args[end:]])
        except click.UsageError as error:
            # whose help to look at
            error.ctx = error.ctx or ctx
            raise

    def _end(self, ctx: click.Context, args: list[str]) -> int | None:
        """Where the program's own arguments begin after a -m or -c; None without one."""
        valued = {
            name for p in self.get_params(ctx) if isinstance(p, click.Option) and not p.is_flag for name in p.opts
        }
        place = 0
        while place < len(args):
            word = args[place]
            if word in ("-m", "-c"):
                # without what belongs to it, it is left for click to refuse
                return place + 2 if place + 1 < len(args) else None
            if word.startswith(("-m", "-c")):
                return place + 1
            if word == "--" or word == "-" or not word.startswith("-"):
                return None
            place += 2 if word in valued else 1
        return None


def _gone(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    """Refuse an option that older versions had."""
    del context
    if given:
        what = f"{parameter.opts[0]} is gone: no program is run a second time unless --rerun asks for it"
        raise UsageError(what, "leave it out")


@click.command(cls=_Run, context_settings={"allow_interspersed_args": False})
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does. Its arguments follow.")
@click.option("-c", "code", metavar="CODE", help="Run code, as python -c does. Its arguments follow.")
@click.option(
    "--on-nonfinite",
    type=click.Choice(["stop", "skip", "continue", "raise"]),
    help="What to do at the first bad number that does harm. stop (the default): stop the program before the optimizer "
    "changes a weight. continue: go on, and report at the end. raise: raise NonFiniteError at the program's own line. "
    "skip: go on without that step, if steps are watched.",
)
@click.option("--pdb", is_flag=True, default=None, help="Open the debugger where the program is stopped.")
@click.option("--start-step", type=int, metavar="N", help="Start looking at the N-th optimizer step.")
@click.option("--steps", type=int, metavar="N", help="Look at N steps, then no more.")
@click.option("--only", metavar="MODULE", help="In the forward pass, look only inside modules of this path or class.")
@click.option(
    "--mode",
    type=click.Choice(["watch", "trace"]),
    help="watch (the default): look at every operation up to the first step, then only at each step, and run a bad "
    "step again. trace: look at every operation to the end.",
)
@click.option(
    "--sync",
    type=click.Choice(["step", "deferred"]),
    help="When to read the numbers of a watched step. step (the default): before it is made, which waits once for an "
    "accelerator. deferred: at the next step.",
)
@click.option("--no-second-run", is_flag=True, hidden=True, expose_value=False, callback=_gone)
@click.option(
    "--no-proof",
    "prove",
    is_flag=True,
    flag_value=False,
    default=None,
    help="Prove no fix.",
)
@click.option(
    "--proof-seconds",
    metavar="N",
    help="Processor time to prove fixes in, while the first finding is shown already. Default: 20.",
)
@click.option(
    "--attribute",
    is_flag=True,
    default=None,
    help="Run a bad step again under other conditions (in float64, with another batch, without the compiler, ...), and "
    "say what makes it bad.",
)
@click.option(
    "--together/--no-together",
    default=None,
    help="Of several ranks under torchrun (the default): all stop at the first bad step, and one report says which was "
    "first. --no-together: each goes on by itself, and has a report of its own.",
)
@click.option(
    "--rerun",
    is_flag=True,
    default=None,
    help="Run the program again once it has ended, with all that it does to files and to the network. This explains a "
    "bad step that cannot be run again within the program, and proves fixes if there is no step.",
)
@click.option("--json", metavar="FILE", help="Write the report to a file; - is the standard output.")
@click.option("--trace", metavar="DIR", help="Record every operation in a new folder; it survives a kill.")
@click.option("--capsule", metavar="DIR", help="Pack the failing operation into a new folder for whynan replay.")
@click.option("--baseline", metavar="FILE", help="An earlier report. What it found is known, and no error.")
@click.option("--all", "all_", is_flag=True, default=None, help="Also report bad numbers that did no harm.")
@click.option("--strict", is_flag=True, default=None, help="Let warnings count for the exit status.")
@click.option("--quiet", is_flag=True, default=None, help="Print no report.")
@click.option("--redact", is_flag=True, default=None, help="Leave out source text, values, names and paths.")
@click.option("--memory", metavar="BYTES", help="Memory for operands, which explanations need. Default: 256MiB.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENTS]...")
def run(module: str | None, code: str | None, program: tuple[str, ...], **chosen: Any) -> Callable[[], int]:
    """Run a Python program unchanged, and explain its first bad number.

    whynan looks at every operation up to the end of the first optimizer step. Then it looks only at each step, which
    costs almost nothing, and runs a bad one again to see its operations. --mode trace looks at everything to the end.

    The program sees what it would see under python: its arguments, paths, streams, signals and exit status. The report
    goes to the standard error stream. Options of whynan stand before the script, those of the script after it.

    \b
    Examples:
      whynan run train.py --epochs 3
      whynan run --json report.json -m package.train
      whynan run --on-nonfinite continue --strict train.py
      whynan run --mode trace --strict evaluate.py
      whynan run --rerun --json report.json bug.py
      whynan run --start-step 300 --steps 20 train.py

    Exit status: the program's own if that is not 0; else 1 if an error was found, or a warning with --strict; else 0.
    It is 2 if nothing was run.
    """
    from whynan.config import Options
    from whynan.run.options import check
    from whynan.run.output.own_paths import with_own_paths

    target = _target(module, code, program)
    options = with_own_paths(Options.load(**chosen))
    target.check()
    check(options)
    # loaded once nothing is refused
    from whynan.run import runner

    return partial(runner.launch, target, options)


def _target(module: str | None, code: str | None, program: tuple[str, ...]) -> Program:
    from whynan.run.script import Program

    if module is not None and code is not None:
        raise UsageError("-m and -c cannot be had together", "give one of them")
    if module is not None:
        return Program("module", module, program)
    if code is not None:
        return Program("code", code, program)
    if not program:
        raise UsageError("there is nothing to run", "give a script: whynan run train.py (or -m module, or -c code)")
    return Program("script", program[0], program[1:])
