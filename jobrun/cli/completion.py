"""``jobrun completion``: the script that lets a shell complete commands, runs, specs and more."""

from __future__ import annotations

import json

import click

from jobrun.cli.options import common, settings

__all__ = ["command"]


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def command(shell: str) -> None:
    """Print the script that makes a shell complete commands, options, specs, runs and --set paths.

    \b
    bash   in ~/.bashrc:                eval "$(jobrun completion bash)"
    zsh    in ~/.zshrc, after compinit: eval "$(jobrun completion zsh)"
    fish   once: jobrun completion fish > ~/.config/fish/completions/jobrun.fish
    """
    from jobrun.cli.shells import script

    text = script(shell, click.get_current_context().find_root().command)
    if settings().json:
        text = json.dumps({"shell": shell, "script": text}) + "\n"
    click.echo(text, nl=False)
