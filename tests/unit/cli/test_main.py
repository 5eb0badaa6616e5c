"""The command `whynan`: one line for what went wrong, the exit status, and streams that are closed, full or left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from whynan.cli import main as module
from whynan.cli.main import COMMANDS, for_stream, main, one_line, whynan
from whynan.errors import MissingExtraError, UsageError

ROOT = Path(__file__).parents[3]


def test_every_command_is_found_by_its_name_and_has_examples() -> None:
    runner = CliRunner()
    for name in COMMANDS:
        result = runner.invoke(whynan, [name, "--help"], prog_name="whynan")
        assert result.exit_code == 0, result.output
        assert "Examples:" in result.output
    assert whynan.get_command(click.Context(whynan), "main") is None


def test_the_help_names_them_in_order(snapshot: SnapshotAssertion) -> None:
    result = CliRunner().invoke(whynan, ["--help"], prog_name="whynan", terminal_width=100)
    assert result.exit_code == 0
    assert result.output == snapshot


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    import whynan as package

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"whynan {package.__version__}\n"


@pytest.mark.parametrize("arguments", [["nothing"], ["--nothing"], ["ru\x1b[2Jn"]])
def test_what_there_is_not_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == snapshot


def ending(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """The status of a command that ends with an error."""

    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(module.whynan, "main", fail)
    return main([])


def test_an_error_is_one_line_and_gives_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(UsageError("a\nb", "c\x1b[2J"), monkeypatch) == 2
    assert capsys.readouterr().err == "whynan: a\\nb: c\\x1b[2J\n"
    assert ending(MissingExtraError("torch"), monkeypatch) == 2
    assert ending(click.Abort(), monkeypatch) == 130


def test_an_error_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        ending(ZeroDivisionError(), monkeypatch)
    with pytest.raises(PermissionError):
        ending(PermissionError(13, "Permission denied"), monkeypatch)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_stream_that_was_closed_before_is_none(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, stream, None)
    assert ending(UsageError("what", "hint"), monkeypatch) == 2
    monkeypatch.setattr(module.whynan, "main", lambda **_: 3)
    assert main([]) == 3


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "redirection", "status", "said"),
    [
        ("--version", ">/dev/full", 2, "whynan: the output could not be written (No space left on device)"),
        ("--version", ">&-", 0, ""),
        ("--nothing", "2>&-", 2, ""),
        ("--nothing", "2>/dev/full", 2, ""),
    ],
)
def test_an_output_that_takes_nothing_gives_no_traceback(
    arguments: str, redirection: str, status: int, said: str
) -> None:
    command = f'"$0" -m whynan {arguments} {redirection}'
    result = subprocess.run(
        ["bash", "-c", command, sys.executable], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert result.returncode == status
    assert result.stderr.startswith(said)
    assert result.stderr.count("\n") == (1 if said else 0)


@pytest.mark.process
def test_a_reader_that_has_gone_gives_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "whynan", "--version"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, cwd=ROOT)
    os.close(writer)
    assert result.stderr == b""
    # where click has not met the pipe itself
    with open(os.devnull, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert ending(BrokenPipeError(), monkeypatch) == 0


def test_a_line_is_one_line_in_what_the_stream_can_write() -> None:
    class Ascii:
        encoding = "ascii"

    class Unknown:
        encoding = None

    assert one_line("a\nb\x1b[2J") == "a b\\x1b[2J"
    assert len(one_line("x" * 10_000)) < 2_000
    assert for_stream("2² · é", Ascii()) == "2^2 - \\xe9"  # type: ignore[arg-type]
    assert for_stream("é", Unknown()) == "é"  # type: ignore[arg-type]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_WHYNAN_COMPLETE" in capsys.readouterr().out


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err == snapshot


@pytest.mark.process
@pytest.mark.smoke("completion")
def test_completion_completes_commands_and_options() -> None:
    def completed(words: str, number: int) -> list[str]:
        result = subprocess.run(
            [sys.executable, "-c", "import sys; from whynan.cli.main import main; sys.exit(main())"],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "_WHYNAN_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)},
        )
        return [line.partition(",")[2] for line in result.stdout.split()]

    assert completed("whynan r", 1) == ["run", "report", "replay", "rules"]
    assert "--on-nonfinite" in completed("whynan run --on", 2)
    assert completed("whynan run --on-nonfinite ", 3) == ["stop", "skip", "continue", "raise"]
    assert completed("whynan o", 1) == ["onnx"]
    assert completed("whynan onnx --ca", 2) == ["--cases", "--capsule"]
    assert completed("whynan onnx --level ", 3) == ["disabled", "basic", "extended", "all"]
    assert completed("whynan rules wn60", 2) == ["WN601", "WN602", "WN603"]
    assert completed("whynan rules log-of-z", 2) == ["log-of-zero"]
    # files are the shell's own matter
    assert completed("whynan onnx n", 2) == ["n"]
    assert completed("whynan onnx net.onnx --csv n", 4) == ["n"]
    assert completed("whynan replay n", 2) == ["n"]
    assert "--run-script" in completed("whynan replay --run", 2)
    assert "CPU" in completed("whynan onnx net.onnx --provider ", 4)
