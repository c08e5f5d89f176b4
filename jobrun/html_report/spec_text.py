"""The stored spec of a run as text, each value with its origin."""

from __future__ import annotations

import os
from collections.abc import Iterator

from jobrun.errors import JobrunError, SpecError
from jobrun.jobspec.parsing import MAX_BYTES
from jobrun.jobspec.render import DEFAULT, render, resolved
from jobrun.jobspec.resolve import Spec, load
from jobrun.jobspec.source import SpecNode
from jobrun.runs.rundir import RunDir
from jobrun.storage.regular_file import read_run_file

__all__ = ["spec_of", "with_origins"]

Path = tuple[str, ...]


def spec_of(run: RunDir) -> Spec | None:
    """Return the spec as it was run, or None for a job built in Python.

    Its code need not be there.  Raises SpecError if this jobrun does not read the stored spec.
    """
    return _load(run, run.resolved_path)


def with_origins(run: RunDir) -> str:
    """Return the spec as it was run, with its defaults, and behind each value where it is from.

    That is a line of the spec as it was written, ``set`` (by an option or a variable), or
    ``default``.  An error of reading is the text in its place.
    """
    try:
        spec = spec_of(run)
        if spec is None:
            return "# The job was built in Python."
        root = resolved(spec)
        return render(root, _Origins(root, _written(run)))
    except JobrunError as error:
        return f"# The stored spec cannot be read: {error.message}"


class _Origins:
    """Says of a node of the spec that was run where its value comes from."""

    def __init__(self, root: SpecNode, written: dict[Path, SpecNode]) -> None:
        self._written = written
        self._paths = {id(node): path for path, node in _scalars(root)}

    def __call__(self, node: SpecNode) -> str:
        found = self._written.get(self._paths.get(id(node), ()))
        if found is not None and found.value == node.value:
            return f"spec.yaml:{found.line + 1}"
        return "default" if node.place == DEFAULT else "set"


def _written(run: RunDir) -> dict[Path, SpecNode]:
    """Return the scalars of the spec as it was written; none where it is lost or unreadable."""
    try:
        spec = _load(run, run.spec_path)
    except JobrunError:
        return {}
    return dict(_scalars(spec.source.root)) if spec is not None else {}


def _load(run: RunDir, path: os.PathLike[str]) -> Spec | None:
    if not os.path.lexists(path):
        return None
    spec = load(path, folder=run.path, data=read_run_file(path, MAX_BYTES))
    if spec.problems:
        raise SpecError(spec.problems)
    return spec


def _scalars(node: SpecNode, path: Path = ()) -> Iterator[tuple[Path, SpecNode]]:
    """Yield every scalar (and empty collection) with its path."""
    if isinstance(node.value, dict) and node.value:
        below = [(str(key), item) for key, item in node.value.items()]
    elif isinstance(node.value, list) and node.value:
        below = [(str(number), item) for number, item in enumerate(node.value)]
    else:
        yield path, node
        return
    for key, item in below:
        yield from _scalars(item, (*path, key))
