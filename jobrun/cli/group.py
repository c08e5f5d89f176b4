"""Groups of commands that are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

__all__ = ["Commands", "LazyGroup"]

Commands = Mapping[str, tuple[str, str]]
"""The module below ``jobrun.cli`` and the text in the list of commands, by command name."""


_HABITS = {
    "check": "validate",
    "clean": "checkpoints prune",
    "diff": "compare",
    "export": "load-blobs",
    "help": "--help",
    "lint": "validate",
    "list": "runs",
    "ls": "runs",
    "plot": "metrics --plot",
    "run": "train",
    "start": "train",
    "status": "show",
    "test": "smoke",
}
"""Names in other programs: the corresponding command."""


class LazyGroup(click.Group):
    """A group of the commands in a table; ``--help`` imports none of them."""

    def __init__(self, *args: Any, table: Commands, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of use."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self._table:
            return None
        command = import_module(f"jobrun.cli.{self._table[cmd_name][0]}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Resolve as click does, and suggest the nearest commands for an unknown one."""
        if ctx.resilient_parsing:  # for completion; no error must be shown
            return super().resolve_command(ctx, args)
        if args and args[0] not in self._table and not args[0].startswith("-"):
            from jobrun.core.suggestions import ALL, did_you_mean_or_all

            known = list(self._table)
            meant = _HABITS.get(args[0], "") if ctx.parent is None else ""
            every = did_you_mean_or_all(args[0], known, most=ALL)
            hint = f"did you mean {meant!r}?" if meant else every
            ctx.fail(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Return the commands for a shell, without importing them; or the group's options."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [
            CompletionItem(name, help=text)
            for name, (_, text) in self._table.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])
