"""``--set NAME=VALUE`` and ``--unset NAME``: a scalar replaced or a key dropped, first of all."""

from __future__ import annotations

from collections.abc import Mapping

from jobrun.conditions.kinds import KINDS
from jobrun.core.suggestions import ALL, did_you_mean, did_you_mean_or_all
from jobrun.errors import UsageError, Where
from jobrun.jobspec.keys import keys_of
from jobrun.jobspec.scalars import Scalar, ScalarError, scalar, show, typed
from jobrun.jobspec.source import SpecNode, SpecSource
from jobrun.model.job import GROUPS

__all__ = ["UNSET", "apply_set", "entry_name", "set_epochs", "set_scheduler"]

UNSET = "unset "
"""The prefix of a name, among the settings of a spec, where ``--unset`` is meant."""

_TEXTS = (
    *(
        "name",
        "call",
        "in",
        "update",
        "out",
        "file",
        "node",
        "after",
        "include",
        "metric",
        "address",
    ),
    *("shell", "command", "script", "run", "upload", "to"),
    *("on_error", "on_success"),
    *(k for k, c in KINDS.items() if c.schema == {"type": "string"}),
)
"""Keys of the language whose value is a string, also where it looks like a number."""


def apply_set(source: SpecSource, text: str) -> None:
    """Apply ``NAME=VALUE``: the var of that name if there is one, else the key at a dotted path.

    The value is one YAML scalar, of the type that the key has in the spec; ``null`` drops a key of
    the language, but for a metric, whose direction it is.  Entries of a list are named by their
    number from 0 or, for tasks, by their name.  ``unset NAME`` drops what has that name.  Raises
    UsageError.
    """
    if text.startswith(UNSET):
        _unset(source.root, text.removeprefix(UNSET).strip())
        return
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        hint = f"--unset {name} drops it" if name else "--set lr=0.05"
        raise UsageError(f"--set {text}: expected NAME=VALUE", hint=hint)
    parts = _parts(source.root, name)
    parent, key, free = _descend(source.root, parts, f"--set {text}")
    if not free and parts[0] != "metrics" and value.strip() in _NULL:
        _drop(parent, key)
        return
    _refuse_truth(str(key), value.strip(), text, name)
    new = SpecNode(_coerced(value, parent.get(key), str(key), free, text), 0, 0, 1)
    new.place = Where(f"--set {text}")
    _put(parent, key, new)


_NULL = ("null", "~", "Null", "NULL")
_PLACES = ("upload", "to")


def _parts(root: SpecNode, name: str) -> list[str]:
    """Return the path of a var, which may be named alone, or of a key."""
    parts, own = name.split("."), _vars(root)
    if name in own or (parts[0] in own and isinstance(own[parts[0]].value, dict | list)):
        return ["vars", *parts]
    return parts


def _refuse_truth(key: str, value: str, text: str, name: str) -> None:
    """Refuse ``upload=false``, which means no upload and not a directory of that name."""
    if key in _PLACES and value.lower() in ("true", "false"):
        hint = f"--unset {name} drops it; a directory of this name is {name}=./{value}"
        raise UsageError(f"--set {text}: {key!r} is a place", hint=hint)


def _unset(root: SpecNode, name: str) -> None:
    """Drop a var, a key, or a task: ``--unset NAME``."""
    option = f"--unset {name}"
    if not name or "=" in name:
        raise UsageError(f"{option}: expected the name of a key", hint="--unset upload")
    parent, key, _ = _descend(root, _parts(root, name), option)
    if parent.get(key) is None:
        there = [str(k) for k in parent.value] if isinstance(parent.value, dict) else []
        hint = did_you_mean_or_all(str(key), there)
        raise UsageError(f"{option}: the spec has no {name!r}", hint=hint)
    _drop(parent, key)


def _drop(parent: SpecNode, key: str | int) -> None:
    """Take an entry away, if it is there."""
    if isinstance(parent.value, list):
        del parent.value[int(key)]
    else:
        parent.value.pop(key, None)
        parent.keys.pop(str(key), None)


def set_epochs(source: SpecSource, epochs: int) -> None:
    """Replace the ``epochs`` condition, or add one: ``--epochs N``."""
    new = SpecNode(epochs, 0, 0, 1)
    new.place = Where(f"--epochs {epochs}")
    stop = source.root.get("stop")
    if stop is not None and isinstance(stop.value, list):
        stop = _owned(source.root, "stop")
        numbers = [i for i, entry in enumerate(stop.value) if entry.get("epochs") is not None]
        for i in numbers:
            _put(_owned(stop, i), "epochs", new)
        if not numbers:
            stop.value.append(_mapping(new.place))
            _put(stop.value[-1], "epochs", new)
        return
    if stop is None or not isinstance(stop.value, dict):
        _put(source.root, "stop", _mapping(new.place))
    _put(_owned(source.root, "stop"), "epochs", new)


def set_scheduler(source: SpecSource, address: str) -> None:
    """Run on a cluster, whatever ``session`` says: ``--scheduler ADDRESS``."""
    old = source.root.get("session")
    place = Where(f"--scheduler {address}")
    if old is None or not isinstance(old.value, dict):
        _put(source.root, "session", _mapping(place))
    session = _owned(source.root, "session")
    session.value.pop("workers", None)
    for key, value in (("kind", "dask"), ("address", address)):
        new = SpecNode(value, 0, 0, 1)
        new.place = place
        _put(session, key, new)


def _mapping(place: Where) -> SpecNode:
    node = SpecNode({}, 0, 0, 1)
    node.place = place
    return node


def _put(parent: SpecNode, key: str | int, node: SpecNode) -> None:
    parent.value[key] = node
    if isinstance(key, str):
        parent.keys.setdefault(key, node)


def _owned(parent: SpecNode, key: str | int) -> SpecNode:
    """Return the child as a copy that no alias shares."""
    old = parent.value[key]
    new = SpecNode(old.value.copy(), old.line, old.column, old.width)
    new.keys = dict(old.keys)
    new.place = old.place
    parent.value[key] = new
    return new


def _descend(root: SpecNode, parts: list[str], text: str) -> tuple[SpecNode, str | int, bool]:
    """Return the collection and key that a path leads to; whether its type is left free.

    Collections on the way that the spec does not have are made, as far as the language has them.
    """
    node = root
    path: list[str | int] = []
    while True:
        key, parts = _next(root, node, parts, path, text)
        if not parts:
            return node, key, bool(path) and (path[0] in ("vars", "nodes") or "with" in path)
        if node.get(key) is None:
            _check_key(root, node, key, path, text)
            _put(node, key, _mapping(Where(text)))
        path.append(key)
        below = node.get(key)
        if below is None or not isinstance(below.value, dict | list):
            shown = show(below.value if below else None)
            at = ".".join(map(str, path))
            raise UsageError(f"{text}: {at} is {shown}, which holds no {parts[0]!r}")
        node = _owned(node, key)


def _next(
    root: SpecNode, node: SpecNode, parts: list[str], path: list[str | int], text: str
) -> tuple[str | int, list[str]]:
    """Return the next key and the parts after it.

    Names with dots count as one key where there is one.
    """
    if isinstance(node.value, list):
        return _entry(node, parts[0], path, text), parts[1:]
    for length in range(len(parts), 0, -1):
        key = ".".join(parts[:length])
        if key in node.value:
            return key, parts[length:]
    if len(parts) == 1:
        _check_key(root, node, parts[0], path, text)
    return parts[0], parts[1:]


def _check_key(
    root: SpecNode, node: SpecNode, key: str | int, path: list[str | int], text: str
) -> None:
    """Refuse a key that the language does not have here, and a var or node that it has not."""
    keys = _names_of_spec(root, node, path)
    if keys is None:
        keys = keys_of(tuple(path))
        if not keys:
            return
    if key in keys or str(key).startswith("x-"):
        return
    known = [*_vars(node), *keys] if not path else keys
    at = f" under {'.'.join(map(str, path))!r}" if path else ""
    deeper = [
        f"{top}.{key}" for top in ("stop", "checkpoint") if not path and key in keys_of((top,))
    ]
    deeper += [] if path else [f"{g}.{key}" for g in GROUPS if key in _entry_names(node.get(g))]
    every = did_you_mean_or_all(str(key), known, most=ALL)
    hint = f"did you mean {deeper[0]!r}?" if deeper else every
    raise UsageError(f"{text}: there is no {str(key)!r}{at}", hint=hint)


def _names_of_spec(root: SpecNode, node: SpecNode, path: list[str | int]) -> list[str] | None:
    """Return the names that the spec itself gives at a path.

    They are its vars, its nodes, and the vars of a node.
    """
    if path in (["vars"], ["nodes"]):
        return [str(key) for key in node.value]
    if path[:1] == ["nodes"] and len(path) == 2:
        return [*map(str, node.value), *_vars(root)]
    return None


def _vars(root: SpecNode) -> Mapping[str, SpecNode]:
    own = root.get("vars")
    vars = own.value if own is not None and isinstance(own.value, dict) else {}
    return {name: value for name, value in vars.items() if isinstance(name, str)}


def _entry(node: SpecNode, part: str, path: list[str | int], text: str) -> int:
    """Return the number of an entry of a list, given by it or by the task's name."""
    if part.isdigit() and int(part) < len(node.value):
        return int(part)
    names = [entry_name(entry) for entry in node.value]
    if names.count(part) == 1:
        return names.index(part)
    at = ".".join(map(str, path))
    known = [n for n in dict.fromkeys(names) if n]
    hint = did_you_mean(part, known) or f"there are 0 to {len(names) - 1}"
    if names.count(part) > 1:
        hint = f"several have this name; write a number from 0 to {len(names) - 1}"
    raise UsageError(f"{text}: {at} has no entry {part!r}", hint=hint)


def _entry_names(group: SpecNode | None) -> list[str]:
    """Return the names of the tasks of a group."""
    entries = group.value if group is not None and isinstance(group.value, list) else []
    return [entry_name(entry) for entry in entries]


def entry_name(entry: SpecNode) -> str:
    """Return what a task is called: its name, else its function's."""
    name, call = entry.get("name"), entry.get("call")
    if name is not None and isinstance(name.value, str):
        return name.value
    called = call.value if call is not None and isinstance(call.value, str) else ""
    return called.rpartition(":")[2].rpartition(".")[2]


def _coerced(value: str, old: SpecNode | None, key: str, free: bool, text: str) -> Scalar:
    """Return the scalar, of the type that the key has in the spec."""
    was = old.value if old is not None else None
    if free and isinstance(was, list | dict):
        hint = "name one entry, with a dot"
        raise UsageError(f"--set {text}: {key!r} is {show(was)}", hint=hint)
    if isinstance(was, str) if free else key in _TEXTS:
        return value
    try:
        new = scalar(value.strip())
    except ScalarError as error:
        raise UsageError(f"--set {text}: {error.message}", hint=error.hint) from None
    if isinstance(new, str) and new[:1] in ("[", "{"):
        raise UsageError(f"--set {text}: the value is one number or text", hint="edit the spec")
    if not free:
        return new
    try:
        return typed(new, was)
    except ScalarError as error:
        message = f"--set {text}: this is {error.message} in the spec, not {show(new)}"
        raise UsageError(message, hint=error.hint) from None
