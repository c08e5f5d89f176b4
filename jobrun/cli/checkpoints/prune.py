"""``jobrun checkpoints prune``: removal of the checkpoints that are not kept."""

from __future__ import annotations

import json

import click

from jobrun.cli.options import common, completes, option, runs_dir, settings
from jobrun.core.paths import typed

__all__ = ["command"]

_COUNT = click.IntRange(min=1)


@click.command("prune", short_help="Remove all checkpoints but those to keep.")
@click.argument("run", shell_complete=completes("run"))
@option("--keep-last", type=_COUNT, metavar="N", help="Keep the newest N.")
@option("--keep-every", type=_COUNT, metavar="N", help="Keep those of every N-th epoch.")
@option(
    "--keep-best",
    metavar="METRIC",
    help="Keep the best one: loss, or loss:min.",
    shell_complete=completes("metric"),
)
@option("-n", "--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
@runs_dir
@common
def command(
    run: str,
    keep_last: int | None,
    keep_every: int | None,
    keep_best: str | None,
    dry_run: bool,
    runs_dir: str,
) -> None:
    """Remove the checkpoints of RUN that none of the --keep options keeps.

    The newest one always stays.  A running run is not changed (exit code 8), nor is what is not
    a checkpoint of the run, or was left by an earlier attempt in attempts/.
    """
    from jobrun.engine.best_metric import best_by
    from jobrun.model.policy import Best, Keep
    from jobrun.runs.find import find_run
    from jobrun.tools.prune import prune

    if keep_last is None and keep_every is None and keep_best is None:
        raise click.UsageError(
            "nothing says what to keep: add --keep-last, --keep-every or --keep-best"
        )
    found = find_run(runs_dir, run)
    best = None
    if keep_best is not None:
        metric, direction = best_by(found, keep_best)
        best = Best(metric, smaller=direction == "min")
    pruned = prune(found, Keep(keep_last, keep_every, best), dry_run=dry_run)
    if settings().json:
        kept, removed = list(pruned.kept), list(pruned.removed)
        shown = {"kept": kept, "removed": removed, "bytes": pruned.bytes, "dry_run": dry_run}
        click.echo(json.dumps({"run": typed(found.path), **shown}))
        return
    from jobrun.checkpoint.catalog import span
    from jobrun.core.text import size
    from jobrun.report.formatting import plain, plural

    done = "would be removed" if dry_run else "removed"
    count = plural(len(pruned.removed), "checkpoint")
    line = f"{count} {done} ({span(pruned.removed)}), {size(pruned.bytes)} freed"
    line = line if pruned.removed else f"nothing {done}"
    click.echo(f"{plain(found.shown())}: {line}; kept {span(pruned.kept)}")
