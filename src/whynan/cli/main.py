"""The command ``whynan``: finds the subcommand, prints what went wrong in one line, gives the exit status."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final, TextIO, cast

import click

from whynan.errors import WhynanError
from whynan.report.escape import encodable, plain, shortened

# -- What the commands print themselves: single lines, harmless, in what the stream can write --------------------------


def one_line(text: str) -> str:
    """Text on one line, in which whatever cannot be seen is spelled out."""
    return shortened(plain(" ".join(text.split("\n"))))


def for_stream(text: str, stream: TextIO) -> str:
    """Text as a stream's encoding can write it."""
    return encodable(text, stream.encoding or "utf-8")


def report_stream(*documents: str | None) -> TextIO | None:
    """Where a report is printed: the error stream where a document goes to the output; else None, the output itself."""
    from whynan.run.output.files import stream

    return sys.stderr if any(path is not None and stream(path) == 1 for path in documents) else None


# -- The command `whynan`: finds the subcommand, prints what went wrong in one line, gives the exit status -------------


COMMANDS: Final = ("run", "onnx", "diff", "checkpoint", "report", "fix", "replay", "rules", "completion")
"""Each is a function of the same name in a file of the same name; in the order of the help text."""

_INTERRUPTED: Final = 130
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Commands(click.Group):
    """The subcommands, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, the one that most people want first."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; None where there is none."""
        del ctx
        return getattr(import_module(f"whynan.cli.{cmd_name}"), cmd_name) if cmd_name in COMMANDS else None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="whynan", message="whynan %(version)s")
def whynan() -> None:
    """Why is it NaN? Shows where the first NaN or Inf was born, why, and what it reached.

    \b
    Examples:
      whynan run train.py --epochs 3      run a program, explain its first bad number
      whynan onnx net.onnx --random 0     run a model, explain its first bad number
      whynan diff net.pt2 net.onnx -i x.npz   find where two runs of one model part
      whynan checkpoint last.ckpt         say which tensors of a checkpoint are bad
      whynan report report.json           show a saved report again
      whynan fix report.json --apply      make the best verified fix
      whynan replay failing               run the operation of a capsule again
      whynan rules WN201                  explain one hazard, and what to do
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives its exit status: 2 for bad usage or unreadable input, with one line that says why."""
    made = command(arguments)
    return made if isinstance(made, int) else made()


def command(arguments: Sequence[str] | None = None) -> int | Callable[[], int]:
    """Run a command all but a program of the user's, which is left for the caller: nothing of ours stands around it."""
    try:
        status = whynan.main(args=arguments, prog_name="whynan", standalone_mode=False)
        _flush(sys.stdout)
    except WhynanError as error:
        return _failed(str(error), error.exit_status)
    except click.ClickException as error:
        return _failed(_usage(error), 2)
    except click.Abort:
        return _failed("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        _give_up_output()
        return 0
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _give_up_output()
        return _failed(f"the output could not be written ({error.strerror}): make room, or write elsewhere", 2)
    return cast("Callable[[], int]", status) if callable(status) else status if isinstance(status, int) else 0


def _give_up_output() -> None:
    """Nobody reads any more, or nothing fits: the interpreter must not meet that again as it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context is not None else "whynan"
    what = one_line(error.format_message()).rstrip(".")
    return f"{what}{' See' if what.endswith('?') else ': see'} {command} --help"


def _failed(text: str, status: int) -> int:
    out: TextIO | None = sys.stderr
    if out is not None:
        with suppress(OSError):
            print(for_stream(f"whynan: {text}", out), file=out)
    return status


def _flush(out: TextIO | None) -> None:
    """Write what waits to be written; a stream that was closed before whynan began is none."""
    if out is not None:
        out.flush()
