"""The page ``commands``: every command with its options, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc

import click

from jobrun.cli.app import app

__all__ = ["markdown"]

_COMMON = {"--quiet", "--verbose", "--json", "--color", "--traceback", "--help"}
_INTRO = """
This page is made from the commands. `jobrun COMMAND --help` shows the same on a terminal.
Each option has a twin in the environment: `--runs-dir` is `JOBRUN_RUNS_DIR`. What is typed on the
command line takes precedence.

RUN stands for the name of a run, its path, the spec that it was started from, `@latest` or
`@best`. Without it, commands that read a run take the one that is running, else the newest.
"""


def markdown() -> str:
    """Return the page, without its title."""
    root = click.Context(app, info_name="jobrun", help_option_names=["-h", "--help"])
    common = [p for p in app.get_params(root) if _is_common(p)]
    parts = [_INTRO.strip(), "## Options of all commands", _options(root, common)]
    for context in _commands(root):
        parts += _command(context)
    return "\n\n".join(parts) + "\n"


def _commands(above: click.Context) -> Iterator[click.Context]:
    """Yield every command below a group, in the order of use."""
    group = above.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None
        context = click.Context(command, parent=above, info_name=name)
        yield context
        if isinstance(command, click.Group):
            yield from _commands(context)


def _command(context: click.Context) -> Iterator[str]:
    """Yield the parts of the section of a command."""
    command = context.command
    yield f"## {context.command_path}"
    words = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {words}\n```"
    yield from _paragraphs(command.help or "")
    own = [p for p in command.get_params(context) if not _is_common(p)]
    if text := _options(context, own):
        yield text


def _is_common(parameter: click.Parameter) -> bool:
    """Return whether every command has a parameter."""
    return not _COMMON.isdisjoint(parameter.opts)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; one that click does not wrap is a block of code."""
    for paragraph in cleandoc(text).split("\n\n"):
        code = paragraph.removeprefix("\b\n")
        yield paragraph if code == paragraph else f"```text\n{code}\n```"


def _options(context: click.Context, parameters: list[click.Parameter]) -> str:
    """Return options as a list: the form of each, its help, its default and its range."""
    options = [parameter for parameter in parameters if isinstance(parameter, click.Option)]
    records = [option.get_help_record(context) for option in options]
    return "\n".join(
        f"- `{form}`: {' '.join(text.split())}" for form, text in filter(None, records)
    )
