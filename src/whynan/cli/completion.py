"""``whynan completion``: the script that teaches a shell to complete whynan's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class


def files(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Files are the shell's own matter."""
    del context, parameter
    return [CompletionItem(begun, type="file")]


def folders(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Folders are the shell's own matter."""
    del context, parameter
    return [CompletionItem(begun, type="dir")]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      eval "$(whynan completion bash)"                          in ~/.bashrc
      eval "$(whynan completion zsh)"                           in ~/.zshrc
      whynan completion fish > ~/.config/fish/completions/whynan.fish
    """
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert kind is not None
    click.echo(kind(root, {}, "whynan", "_WHYNAN_COMPLETE").source())
