"""``jobrun checkpoints``: inspection and removal of checkpoints."""

from __future__ import annotations

import click

from jobrun.cli.group import Commands, LazyGroup
from jobrun.cli.options import common

__all__ = ["command"]

_COMMANDS: Commands = {
    "list": ("checkpoints.list", "List the checkpoints of a run."),
    "inspect": ("checkpoints.inspect", "Show the content of one checkpoint, blob by blob."),
    "verify": ("checkpoints.verify", "Verify every byte, and list what is damaged."),
    "diff": ("checkpoints.diff", "Show which blobs differ between two checkpoints."),
    "prune": ("checkpoints.prune", "Remove all checkpoints but those to keep."),
    "path": ("checkpoints.path", "Print the path of one checkpoint, for scripts."),
}


@click.group(
    "checkpoints",
    cls=LazyGroup,
    table=_COMMANDS,
    short_help="Inspect, verify, compare and prune checkpoints.",
)
@common
def command() -> None:
    """Inspect the checkpoints of a run; only prune changes anything.

    A checkpoint has an id, counted up at each save, and lies at the end of an epoch or inside one.
    RUN is a name, a path or a spec; the default is a running one, else the newest.
    """
