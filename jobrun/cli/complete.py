"""Completions at the TAB key: specs, runs, checkpoints, tasks, blobs, ``--set`` paths.

A completer is called by click with the context of the words before, the parameter, and the word
to complete.  Commands name theirs by ``jobrun.cli.options.completes``, which imports
this module when it is needed and suppresses all errors.  Neither numpy nor user code is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from jobrun.checkpoint.catalog import Catalog
    from jobrun.checkpoint.record import Record
    from jobrun.jobspec.source import SpecNode
    from jobrun.runs.rundir import RunDir

__all__ = [
    "complete_blob",
    "complete_checkpoint",
    "complete_column",
    "complete_epoch",
    "complete_id",
    "complete_metric",
    "complete_page",
    "complete_run",
    "complete_run_or_spec",
    "complete_section",
    "complete_set",
    "complete_spec",
    "complete_task",
]

Items = list[CompletionItem[str]]

_SPECS = (".yaml", ".yml")
_MOST = 500
_FEW = 20
"""The runs that are read to complete the name of a column."""
_AT = {"@latest": "the newest run", "@best": "the best run"}


def complete_spec(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return spec files, and the folders that lead to them."""
    return _paths(incomplete, lambda entry: entry.name.endswith(_SPECS))


def complete_run(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return runs and sweeps by name, or by their paths; ``@latest`` and ``@best``."""
    if incomplete.startswith((os.sep, ".", "~")):
        return _paths(incomplete, lambda entry: False)
    from jobrun.runs.find import list_runs, list_sweeps

    runs_dir = _runs_dir(ctx)
    names = [sweep.name for sweep in list_sweeps(runs_dir)]
    names += [run.name for run in list_runs(runs_dir)]
    found = [CompletionItem(n) for n in names if n.startswith(incomplete)]
    if os.sep in incomplete:
        return found or _paths(incomplete, lambda entry: False)
    if incomplete.startswith("@") or (not incomplete and len(found) > 1):
        found += [CompletionItem(n, help=t) for n, t in _AT.items() if n.startswith(incomplete)]
    return found


def complete_run_or_spec(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return the completions of ``complete_run``, and spec files."""
    specs = complete_spec(ctx, parameter, incomplete)
    by_path = {item.value for item in specs}
    runs = complete_run(ctx, parameter, incomplete)
    return [*(item for item in runs if item.value not in by_path), *specs]


def complete_checkpoint(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return runs, and the paths of checkpoints; after a run, the ids of its checkpoints."""
    words = ctx.params.get(parameter.name or "") or ()
    given = [words] if isinstance(words, str) else [*words]
    if given and os.sep not in incomplete:
        return [i for i in complete_id(ctx, parameter, incomplete) if i.value not in given[1:]]
    return complete_run(ctx, parameter, incomplete)


def complete_id(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return the ids of the run's checkpoints, newest first."""
    ids = [str(id) for id in reversed(_run(ctx).catalog.ids())]
    return _starting(incomplete, ids)


def complete_epoch(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return the epochs that have a checkpoint at their end, newest first."""
    return _starting(incomplete, _epochs(_run(ctx).checkpoints))


def _epochs(catalog: Catalog) -> Iterator[str]:
    """Yield the epochs of checkpoints, each once; only those that are asked for are read."""
    from jobrun.errors import JobrunError

    seen: set[int] = set()
    for id in catalog.newest_first():
        with suppress(JobrunError):
            record = catalog.record(id)
            if record.at_boundary and record.epoch not in seen:
                seen.add(record.epoch)
                yield str(record.epoch)


def complete_metric(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return the metrics of the run's newest checkpoint."""
    from jobrun.core.ranking import last_scalars

    record = _run(ctx).head()
    return _starting(incomplete, last_scalars(record) if record is not None else ())


def complete_column(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return columns of ``runs``, after those that are already there."""
    from jobrun.cli.run_columns import column_names
    from jobrun.runs.find import list_runs
    from jobrun.runs.overview import overview

    given, comma, _ = incomplete.rpartition(",")
    names = column_names([overview(run) for run in list_runs(_runs_dir(ctx))[-_FEW:]])
    left = [name for name in names if name not in given.split(",")]
    return _starting(incomplete, [f"{given}{comma}{name}" for name in left])


def complete_page(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return the pages of the documentation, with their titles."""
    from jobrun.cli.pages import pages

    return [CompletionItem(n, help=t) for n, t in pages().items() if n.startswith(incomplete)]


def complete_section(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return the headings of the page named before."""
    from jobrun.cli.pages import page
    from jobrun.docs import sections

    headings = [section.heading for section in sections(page(ctx.params["name"]))[1:]]
    return [CompletionItem(h) for h in headings if h.lower().startswith(incomplete.lower())]


def complete_blob(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return the blobs and trees of the checkpoint named before."""
    from jobrun.runs.find import find_checkpoint

    given = {k: ctx.params.get(k) for k in ("epoch", "id")}
    path = find_checkpoint(_runs_dir(ctx), _first_word(ctx), **given)
    taken = set(ctx.params.get("names") or ())
    return _starting(incomplete, (n for n in _blobs(path) if n not in taken))


def complete_task(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return the tasks of the run named before, and the steps of its pipes."""
    from jobrun.jobspec.parsing import MAX_BYTES, parse
    from jobrun.storage.regular_file import read_run_file

    path = _run(ctx).resolved_path
    root = parse(read_run_file(path, MAX_BYTES), str(path)).root
    return _starting(incomplete, dict.fromkeys(_tasks(root)))


def complete_set(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Return ``NAME=`` for vars and keys of the spec named before; then the current value.

    Keys below keys are offered after a dot.
    """
    root = _spec(ctx)
    name, equals, _ = incomplete.partition("=")
    if equals:
        return _starting(incomplete, (f"{name}={value}" for value in _values(root, name)))
    above, dot, _ = name.rpartition(".")
    path = above.split(".") if dot else []
    items = _keys(root, _full(root, path))
    if not path:
        items = [*_keys(root, ["vars"]), *items]
    return [
        CompletionItem(f"{above}{dot}{item.value}", help=item.help)
        for item in items
        if f"{above}{dot}{item.value}".startswith(incomplete)
    ]


# The words before the cursor.


def _runs_dir(ctx: click.Context) -> str:
    return ctx.params.get("runs_dir") or os.environ.get("JOBRUN_RUNS_DIR") or "runs"


def _first_word(ctx: click.Context) -> str | None:
    """Return the spec or run on the line: a parameter, or a word not yet assigned to one."""
    for name in ("spec", "specs", "run", "runs", "which"):
        given = ctx.params.get(name)
        given = given[0] if isinstance(given, tuple | list) and given else given
        if isinstance(given, str):
            return given
    return next((word for word in ctx.args if not word.startswith("-")), None)


def _run(ctx: click.Context) -> RunDir:
    from jobrun.runs.find import find_run

    return find_run(_runs_dir(ctx), _first_word(ctx))


def _spec(ctx: click.Context) -> SpecNode:
    """Return the tree of the spec on the line, or of the spec of the run there."""
    from jobrun.core.paths import resolved
    from jobrun.jobspec.parsing import MAX_BYTES, parse
    from jobrun.jobspec.source import SpecNode
    from jobrun.storage.regular_file import read_run_file

    word = _first_word(ctx)
    if word is not None and word.endswith(_SPECS):
        path = resolved(word)  # the user's spec may be a link
    elif ctx.command.name == "resume":
        path = _run(ctx).resolved_path
    else:
        return SpecNode({}, 0, 0, 1)
    return parse(read_run_file(path, MAX_BYTES), str(path)).root


# Names.


def _starting(incomplete: str, names: Iterable[str]) -> Items:
    found = (CompletionItem(name) for name in names if name.startswith(incomplete))
    return [item for item, _ in zip(found, range(_MOST), strict=False)]


def _paths(incomplete: str, wanted: Any) -> Items:
    """Return folders, and matching files, with this prefix; hidden ones only if asked for."""
    folder, _, name = incomplete.rpartition(os.sep)
    lead = incomplete[: len(incomplete) - len(name)]
    place = os.path.expanduser(lead) if folder or lead else "."
    found: Items = []
    if not os.path.isdir(place):
        return found
    with os.scandir(place) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if not entry.name.startswith(name) or (entry.name[0] == "." and not name):
                continue
            if entry.is_dir():
                found.append(CompletionItem(f"{lead}{entry.name}{os.sep}", type="path"))
            elif wanted(entry):
                found.append(CompletionItem(f"{lead}{entry.name}", type="path"))
    return found


def _blobs(checkpoint: Path) -> Iterator[str]:
    """Yield the names of a checkpoint's blobs and trees, after the node if there are several."""
    from jobrun.checkpoint.integrity import read_manifest, read_record
    from jobrun.storage.fs import DEFAULT

    record: Record = read_record(DEFAULT, str(checkpoint))
    for node in record.nodes:
        lead = f"{node}:" if len(record.nodes) > 1 else ""
        for entry in read_manifest(DEFAULT, str(checkpoint), record, node).entries:
            if entry.path:
                yield lead + entry.path


def _tasks(root: SpecNode) -> Iterator[str]:
    """Yield the names of tasks and steps: as given, else their functions', numbered."""
    from jobrun.jobspec.overrides import entry_name
    from jobrun.model.job import GROUPS

    for group in GROUPS:
        seen: dict[str, int] = {}
        for task in _list(root.get(group)):
            name = entry_name(task)
            seen[name] = seen.get(name, 0) + 1
            yield name if seen[name] == 1 else f"{name}_{seen[name]}"
            for steps in ("map", "do"):
                yield from map(entry_name, _list(task.get(steps)))


def _list(node: SpecNode | None) -> list[SpecNode]:
    return node.value if node is not None and isinstance(node.value, list) else []


# Paths of ``--set``.


def _keys(root: SpecNode, path: Sequence[str]) -> Items:
    """Return the keys at a path: those present with their values, and those of the language."""
    from jobrun.jobspec.keys import keys_of
    from jobrun.jobspec.overrides import entry_name

    node, where = _at(root, path)
    if node is not None and isinstance(node.value, list):
        names = [entry_name(entry) for entry in node.value]
        return [
            _key(name if name and names.count(name) == 1 else str(number), entry)
            for number, (name, entry) in enumerate(zip(names, node.value, strict=True))
        ]
    own = node.value if node is not None and isinstance(node.value, dict) else {}
    found = [_key(str(key), below) for key, below in own.items() if not str(key).startswith("x-")]
    if node is not None and not isinstance(node.value, dict):
        return []
    missing = [key for key in keys_of(where) if key not in own]
    return [*found, *(item for key in missing for item in _keys_of_language(where, key))]


def _full(root: SpecNode, path: list[str]) -> list[str]:
    """Return the path from the root: a var may be named without ``vars``."""
    own = root.get("vars")
    names = own.value if own is not None and isinstance(own.value, dict) else {}
    return ["vars", *path] if path and path[0] in names else path


def _at(root: SpecNode, path: Sequence[str]) -> tuple[SpecNode | None, tuple[str | int, ...]]:
    """Return the node at a path, or None, and the path with the numbers of entries."""
    from jobrun.jobspec.overrides import entry_name

    node: SpecNode | None = root
    where: list[str | int] = []
    for part in path:
        if node is not None and isinstance(node.value, list):
            names = [entry_name(entry) for entry in node.value]
            number = int(part) if part.isdigit() else names.index(part)
            node = node.get(number)
            where.append(number)
        else:
            node = node.get(part) if node is not None else None
            where.append(part)
    return node, tuple(where)


def _key(name: str, node: SpecNode) -> CompletionItem[str]:
    """Return a present key: ``name=`` with its value as help, or ``name.`` if it has keys."""
    if isinstance(node.value, dict | list):
        return CompletionItem(f"{name}.")
    from jobrun.jobspec.scalars import show

    return CompletionItem(f"{name}=", help=show(node.value))


def _keys_of_language(where: tuple[str | int, ...], key: str) -> Iterator[CompletionItem[str]]:
    """Yield an absent key: ``key=``, and ``key.`` if it can be a mapping."""
    from jobrun.jobspec.keys import has_short_form, model_at

    above, below = model_at(where), model_at((*where, key))
    if below is None or (above is not None and has_short_form(above, key)):
        yield CompletionItem(f"{key}=")
    if below is not None:
        yield CompletionItem(f"{key}.")


def _values(root: SpecNode, name: str) -> Iterator[str]:
    """Yield values for a key: its current one, and the other one of true and false."""
    node, _ = _at(root, _full(root, name.split(".")))
    value = node.value if node is not None else None
    if isinstance(value, bool):
        yield from ("true", "false")
    elif isinstance(value, str | int | float):
        yield str(value)
