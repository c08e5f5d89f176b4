"""From a file to a resolved spec: read, ``--set``, checked against the language.

What is stored beside a run is the resolved spec: every alias written out, every ``--set`` applied,
the name filled in.  ``${…}`` stay as they are written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from jobrun.conditions.parse import form_problems
from jobrun.core.gc_tuning import paused
from jobrun.core.suggestions import few_hints, listed, nearest
from jobrun.errors import Problem, SpecError, UsageError, new_problems
from jobrun.jobspec.matrix import Matrix, Values, is_seed, read_matrix, same
from jobrun.jobspec.model import SpecModel
from jobrun.jobspec.overrides import apply_set, set_epochs, set_scheduler
from jobrun.jobspec.parsing import MAX_BYTES, parse_all
from jobrun.jobspec.repair import read
from jobrun.jobspec.scalars import ScalarError, scalar
from jobrun.jobspec.source import SpecNode, SpecSource
from jobrun.jobspec.stops import condition_specs

__all__ = ["Dumper", "Spec", "dump_resolved", "load", "with_values"]


@dataclass(frozen=True)
class Spec:
    """A spec that fits the language, as far as it could be understood.

    ``path`` is the file as the user named it, ``folder`` the absolute folder of its code, ``tree``
    the resolved spec as plain values, ``source`` the same with its places.  With a ``matrix`` it
    stands for several runs: ``with_values`` gives the spec of each.  ``problems`` are those found
    so far, which ``jobspec.validate.job_of`` raises together with those of the job; model and
    source are of a repaired copy then, ``whole`` if all its tasks were understood.
    """

    path: str
    folder: str
    text: str
    tree: dict[str, Any]
    model: SpecModel
    source: SpecSource
    matrix: Matrix | None = None
    problems: tuple[Problem, ...] = ()
    whole: bool = True

    @property
    def spec_dir(self) -> str:
        """The absolute folder of the file, where its relative paths begin."""
        return os.path.abspath(os.path.dirname(self.path) or ".")


@few_hints()
def load(
    path: str | os.PathLike[str],
    sets: Iterable[str] = (),
    *,
    epochs: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    data: bytes | None = None,
    scheduler: str | None = None,
) -> Spec:
    """Read a spec and apply ``--set NAME=VALUE``, ``--epochs`` and ``--scheduler``.

    ``folder`` is where its code is, if not beside it; ``data`` what the file holds, if it has been
    read already, so that ``path`` is only what it is called.  Raises UsageError where there is no
    such file or a ``--set`` names nothing, SpecError with all that does not fit the language if
    nothing else can be found in the job.
    """
    sets = tuple(sets)
    source, wrong = parse_all(_read(path) if data is None else data, os.fspath(path))
    for setting in sets:
        apply_set(source, setting)
    if epochs is not None:
        set_epochs(source, epochs)
    if scheduler is not None:
        set_scheduler(source, scheduler)
    is_sweep = "matrix" in source.root.value
    with paused(source.root.count > 10_000):
        reading = read(source)
    source, model = reading.source, reading.model
    wrong += new_problems(wrong, reading.problems)
    tree = {k: v for k, v in source.root.plain().items() if not str(k).startswith("x-")}
    own = tree.get("vars")
    shared, split = _vars(own if isinstance(own, dict) else {}, tree.get("nodes"))
    conditions = form_problems(condition_specs(source), shared, split)
    matrix, more = read_matrix(source, sets) if model is not None else (None, [])
    problems = (*wrong, *new_problems(wrong, [*more, *conditions]))
    if model is None or more or (is_sweep and (matrix is None or conditions)):
        raise SpecError(problems)
    tree = {"name": _default_name(path), **tree}
    if matrix is not None:
        tree["matrix"] = {name: [*values] for name, values in matrix.lists.items()}
    code, shown = os.path.abspath(folder or os.path.dirname(path) or "."), os.fspath(path)
    text, whole = source.text, reading.whole
    return Spec(shown, code, text, tree, model, source, matrix, problems, whole)


def with_values(spec: Spec, values: Values) -> Spec:
    """Return the spec of one combination of a matrix, whose values become vars, or the seed.

    Raises SpecError for conditions that cannot be with these values.
    """
    source = _source_with(spec.source, values)
    own = spec.tree.get("vars", {})
    seed = {name: value for name, value in values.items() if is_seed(name, own)}
    vars = {**own, **{name: value for name, value in values.items() if name not in seed}}
    changed = {**seed, **({"vars": vars} if vars else {})}
    tree = {k: v for k, v in spec.tree.items() if k != "matrix"} | changed
    model = spec.model.model_copy(update={**changed, "matrix": None})
    shared, split = _vars(vars, tree.get("nodes"))
    problems = form_problems(condition_specs(source), shared, split)
    if problems:
        problems = [*spec.problems, *new_problems(spec.problems, problems)]
        raise SpecError(list(dict.fromkeys(problems)))
    return replace(spec, tree=tree, model=model, source=source, matrix=None)


def _source_with(old: SpecSource, values: Values) -> SpecSource:
    """Return the source with other values, each at its place in the matrix."""
    root, lists = old.root, old.root.value["matrix"].value
    own = root.get("vars") or SpecNode({}, root.line, root.column, 1)
    new = _like(root, {k: v for k, v in root.value.items() if k != "matrix"})
    own_vars = _like(own, dict(own.value))
    if own.value:
        new.value["vars"] = own_vars
    for name, value in values.items():
        holder = new if is_seed(name, own.value) else own_vars
        entries = [e for e in lists[name].value if same(e.value, value)]
        at = entries[0] if entries else holder.value[name]
        node = SpecNode(value, at.line, at.column, at.width, at.indent)
        node.place = at.place
        holder.value[name] = node
        holder.keys = {name: node, **holder.keys}
    source = copy(old)
    source.root = new
    return source


def _like(old: SpecNode, value: dict[Any, SpecNode]) -> SpecNode:
    """Return a mapping at the place of another one, with its keys."""
    node = SpecNode(value, old.line, old.column, old.width)
    node.keys, node.place = old.keys, old.place
    node.count, node.height = old.count, old.height
    return node


def _vars(own: dict[str, Any], nodes: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the vars that no node has its own value of, and the others.

    The tree may be no spec at all.
    """
    maps = nodes.values() if isinstance(nodes, dict) else ()
    split = {k for m in maps if isinstance(m, dict) for k in m if isinstance(k, str)}
    return {k: v for k, v in own.items() if isinstance(k, str) and k not in split}, split


def _read(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a spec; raises UsageError with what else is there."""
    if Path(path).suffix == ".py" and os.path.isfile(path):
        hint = _near(Path(path)) or "a job that is built in Python runs as any script"
        raise UsageError(f"{os.fspath(path)} is Python, and a spec is YAML", hint=hint)
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no spec {os.fspath(path)}", hint=_near(Path(path))) from None
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{os.fspath(path)} cannot be read: {what}") from None


def _near(path: Path) -> str:
    """Return the specs that a missing file may have meant, whatever their endings."""
    if str(path) == "-":
        return "write the spec to a file; 'validate' alone reads it from stdin"
    stems = {p.stem: p.name for p in sorted(path.parent.glob("*.y*ml"))}
    near = [stems[stem] for stem in nearest(path.stem, list(stems))]
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return listed(list(stems.values()), "here are")


def _default_name(path: str | os.PathLike[str]) -> str:
    """Return the file's name as the name of a job."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(path).stem).strip("-.")
    return name or "job"


class Dumper(yaml.SafeDumper):
    """Writes YAML 1.2: texts are quoted where the reader would take them for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: everything is written out."""
        return True


_LINE_ENDS = "\x85\u2028\u2029"


def _represent_text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    try:
        plain = scalar(text) == text
    except ScalarError:
        plain = False
    folded = any(c in text for c in _LINE_ENDS)  # which a reader of YAML takes for spaces
    style = None if plain and text != "<<" and not folded else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _represent_text)


def dump_resolved(spec: Spec) -> str:
    """Return the resolved spec as YAML, which loads as the same job."""
    return yaml.dump(
        spec.tree,
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )
