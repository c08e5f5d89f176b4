"""The result of a call, as values for the blobs or columns under ``out``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from jobrun.core.blob_paths import Key
from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.errors import TaskError, with_article
from jobrun.model.task import Outputs
from jobrun.usercode.returning import FORGOTTEN
from jobrun.values.adoption import adopt, adopt_items, simple
from jobrun.values.boxes import Box, Tree, Value

__all__ = ["CallOutputs", "Write"]

Write = tuple[Key, Value]


class CallOutputs:
    """Splits results by ``form``, the task's ``out``, and adopts their parts.

    ``keys`` are the blobs of each name under ``out``: one, or one on each of several nodes.
    ``updated`` is, for each, the path of a blob that some task updates in place, else empty;
    ``live`` are the numbers of those that are live objects.
    """

    def __init__(
        self,
        form: Outputs,
        keys: Sequence[tuple[Key, ...]],
        updated: Sequence[str],
        live: Collection[int],
        keep_maps: bool,
    ) -> None:
        self._form = form
        self._keys = keys
        self._updated = updated
        self._live = [i in live for i in range(len(keys))]
        self._keep_maps = keep_maps
        each = [one for one, *more in keys if not more]
        self._single = each if len(each) == len(keys) else None
        """The blob of each name, if it is one for all of them."""

    def returned(self, result: list[Any]) -> dict[tuple[Key, ...], Any]:
        """Return what was returned for each blob under ``out``."""
        if not self._keys:
            return {}
        if self._form.form == "one":
            parts = [result[0]]
        else:
            keys = self._keys_of(result[0], self._form.form)
            parts = [result[0][key] for key in keys]
        found = dict(zip(self._keys, parts, strict=True))
        for place, part in zip(self._keys, parts, strict=True):
            if len(place) > 1 and isinstance(part, list | tuple):
                found.update({(key,): item for key, item in zip(place, part, strict=False)})
        return found

    def writes(self, result: list[Any], given: Sequence[Value]) -> list[Write]:
        """Return the result as writes; raises TaskError for one that ``out`` does not allow.

        ``result`` is a list, so that the holders of the value in it can be counted; ``given`` are
        the values of the inputs.
        """
        if not self._keys:
            return _nothing(result)
        form = self._form.form
        values: list[Value]
        if form != "one":
            values = self._values_of(result, self._keys_of(result[0], form), given)
        elif self._live[0]:
            values = [Box(result[0], "live")]
        else:
            own = simple(result[0])  # the loss of a batch
            values = [own or adopt(result, given, self._keep_maps, self._updated[0])]
        if self._single is not None:
            return [*zip(self._single, values, strict=True)]
        writes: list[Write] = []
        for keys_of_one, value in zip(self._keys, values, strict=True):
            if len(keys_of_one) == 1:
                writes.append((keys_of_one[0], value))
            else:
                writes += _scattered(keys_of_one, value)
        return writes

    def _values_of(
        self, result: list[Any], keys: Sequence[Any], given: Sequence[Value]
    ) -> list[Value]:
        """Return the items ``keys`` of a result as values."""
        items = result[0]
        found: list[Any] = [
            Box(items[key], "live") if is_live else simple(items[key])
            for key, is_live in zip(keys, self._live, strict=True)
        ]
        del items  # what holds an array decides whether it is copied
        if not all(found):
            left = [i for i, value in enumerate(found) if value is None]
            updated = [self._updated[i] for i in left]
            adopted = adopt_items(result, [keys[i] for i in left], given, self._keep_maps, updated)
            for i, value in zip(left, adopted, strict=True):
                found[i] = value
        result.clear()
        return found

    def _keys_of(self, result: Any, form: str) -> Sequence[Any]:
        """Return the keys of a returned tuple or dict; raises TaskError if they differ."""
        outputs = self._form
        if form == "many":
            if not isinstance(result, tuple | list) or len(result) != len(outputs.names):
                got = _returned_kind(result)
                if isinstance(result, tuple | list):
                    got += f" of {len(result)}"
                count = len(outputs.names)
                named = f"names {count} blobs" if count != 1 else "is a list of one name"
                hint = f"return a tuple of {count}"
                if result is None:
                    hint = f"{FORGOTTEN}; {hint}"
                if isinstance(result, dict) and set(outputs.names) <= set(result):
                    hint = f"write 'out: {{{', '.join(outputs.names)}}}' to take its keys"
                if count == 1:
                    hint += f", or write 'out: {outputs.names[0]}' for the value itself"
                raise TaskError(f"'out' {named}, but it returned {got}", hint=hint)
            return range(len(result))
        if not isinstance(result, dict):
            hint = FORGOTTEN if result is None else ""
            if isinstance(result, tuple) and len(result) == len(outputs.names):
                hint = f"write 'out: [{', '.join(outputs.names)}]' for a tuple"
            what = f"'out' expects a dict, but it returned {_returned_kind(result)}"
            raise TaskError(what, hint=hint)
        for key in outputs.keys:
            if key not in result:
                known = [str(k) for k in result]
                hint = did_you_mean_or_all(key, known)
                raise TaskError(f"the returned dict has no key {key!r}", hint=hint)
        return outputs.keys


def _nothing(result: list[Any]) -> list[Write]:
    if result[0] is not None:
        raise TaskError(
            f"it returned {with_article(type(result[0]).__name__)}, but the task has no 'out'",
            hint="name the blob under 'out', or return nothing: 'update' needs no return",
        )
    return []


def _scattered(keys: tuple[Key, ...], value: Value) -> list[Write]:
    """Return the writes of a list's values, one to each node."""
    if not isinstance(value, Tree) or value.kind != "list" or len(value.items) != len(keys):
        raise TaskError(
            f"'out' names a blob on {len(keys)} nodes: return a list of {len(keys)} values"
        )
    return list(zip(keys, value.items.values(), strict=True))


def _returned_kind(result: Any) -> str:
    """Return the kind of a result in words."""
    return "None" if result is None else with_article(type(result).__name__)
