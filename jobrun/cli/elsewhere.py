"""Checkpoints at URLs, for commands that read one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from jobrun.checkpoint.loading import Skipped
    from jobrun.storage.fs import Fs

__all__ = ["checkpoint_at", "report_skipped"]


def checkpoint_at(url: str, epoch: int | None, id: int | None) -> tuple[str, Fs]:
    """Return the URL of the selected checkpoint, and its reader.

    Newer ones that are damaged are reported.
    """
    from jobrun.remote.files import RemoteFs
    from jobrun.remote.find import find_at

    found = find_at(url, epoch=epoch, id=id)
    report_skipped(found.skipped)
    return found.url, RemoteFs()


def report_skipped(skipped: Sequence[Skipped]) -> None:
    """Report the newer checkpoints that are damaged, so that an older one was used."""
    from jobrun.report.formatting import plain

    for one in skipped:
        text = f"checkpoint_{one.id} is skipped: {one.reason}"
        click.echo(f"warning: {plain(text)}", err=True)
