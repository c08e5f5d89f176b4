"""What every adapter of values must do.  Inherited by the tests of each, with ``values``."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.reading import read_part
from jobrun.errors import JobrunError, ValueRefusedError
from jobrun.values.adapted import put_together, same_plain, take_apart
from jobrun.values.adapters.base import Note
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Box, Value, leaves
from jobrun.values.storable import is_storable
from jobrun.values.views import view, view_plain

_HOSTILE_META: list[Any] = [None, 0, -1, 1 << 40, 0.5, "", "no such thing", [], {}, [0], {"": 0}]


def stored(obj: Any) -> Value:
    """Return ``obj`` as a workspace keeps it."""
    return adopt([copy.deepcopy(obj)])


def saved(value: Value, folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files of a checkpoint of ``value``, without its own record."""
    part = save(value, folder) / "main"
    files = (p for p in sorted(part.rglob("*")) if p.is_file())
    return {str(p.relative_to(part)): p.read_bytes() for p in files}


def save(value: Value, folder: Path) -> Path:
    """Save ``value`` as blob ``x``, and return the checkpoint."""
    manager = CheckpointManager(folder)
    manager.save(1, {"main": {"x": view(value)}})
    return Path(manager.path(1))


class ValueAdapterContract:
    """Inherited with ``values``, ``same`` where ``==`` is not enough, and ``refused``."""

    def values(self) -> dict[str, Any]:
        """Return values of all kinds that the adapter takes, by name."""
        raise NotImplementedError

    def refused(self) -> dict[str, tuple[Any, str]]:
        """Return values that it refuses, each with what the message must hold."""
        return {}

    def same(self, a: Any, b: Any) -> bool:
        """Return whether two values are the same in all that the library shows."""
        return bool(a == b)

    @pytest.fixture
    def all_values(self) -> Iterator[tuple[str, Any]]:
        found = self.values()
        assert found
        return iter(found.items())

    def test_a_round_trip_keeps_every_bit(self, all_values: Iterator[tuple[str, Any]]) -> None:
        for name, obj in all_values:
            value = stored(obj)
            assert is_storable(value), name
            again = view(value)
            assert type(again) is type(obj), name
            assert self.same(again, obj), name
            plain, made = taken(obj), taken(again)
            assert plain[1] == made[1], name
            assert same_plain(plain[0], made[0]), name

    def test_a_checkpoint_gives_it_back(
        self, all_values: Iterator[tuple[str, Any]], tmp_path: Path
    ) -> None:
        for name, obj in all_values:
            back = read_part(save(stored(obj), tmp_path / name), "main")["x"]
            assert self.same(view(back), obj), name

    def test_the_same_value_has_the_same_bytes(
        self, all_values: Iterator[tuple[str, Any]], tmp_path: Path
    ) -> None:
        for name, obj in all_values:
            one = saved(stored(obj), tmp_path / f"{name}-1")
            two = saved(stored(view(stored(obj))), tmp_path / f"{name}-2")
            assert one == two, name

    def test_each_call_gets_an_object_of_its_own(
        self, all_values: Iterator[tuple[str, Any]]
    ) -> None:
        for name, obj in all_values:
            value = stored(obj)
            assert view(value) is not view(value), name
            arrays = [box.value for _, box in leaves(value) if box.kind == "array"]
            assert not any(a.flags.writeable for a in arrays), name

    def test_what_is_refused_is_opaque_and_says_why(self) -> None:
        for name, (obj, text) in self.refused().items():
            with pytest.raises(ValueRefusedError) as caught:
                take_apart(obj)
            assert text in str(caught.value), name
            value = adopt([obj])
            assert isinstance(value, Box), name
            assert value.kind == "opaque", name

    def test_people_see_its_plain_form(self, all_values: Iterator[tuple[str, Any]]) -> None:
        for name, obj in all_values:
            shown = view_plain(stored(obj))
            assert isinstance(shown, dict | list | np.ndarray | str | int | float), name

    def test_another_version_or_adapter_is_refused(
        self, all_values: Iterator[tuple[str, Any]]
    ) -> None:
        _, obj = next(all_values)
        plain, made = taken(obj)
        with pytest.raises(ValueRefusedError, match="was made by version 99"):
            put_together(replace(made, version=99), plain)
        with pytest.raises(ValueRefusedError, match="not there now"):
            put_together(replace(made, name=f"{made.name}.gone"), plain)

    def test_hostile_meta_and_forms_are_errors_of_jobrun(
        self, all_values: Iterator[tuple[str, Any]]
    ) -> None:
        for _, obj in all_values:
            plain, made = taken(obj)
            for meta in _changed(json.loads(json.dumps(dict(made.meta)))):
                if isinstance(meta, dict):  # which the manifest sees to
                    _errors_are_ours(replace(made, meta=meta), plain)
            for form in _changed(plain):
                _errors_are_ours(made, form)


def taken(obj: Any) -> tuple[Any, Note]:
    """Return the plain form of ``obj`` and its note."""
    found = take_apart(obj)
    assert found is not None
    return found


def _errors_are_ours(made: Note, plain: Any) -> None:
    """Make the object of a form that may be wrong, which is allowed to work or be refused."""
    try:
        put_together(made, plain)
    except JobrunError as error:
        assert str(error)  # noqa: PT017 - it may also be none


def _changed(form: Any) -> Iterator[Any]:
    """Yield forms like ``form`` in which one place is another thing, or missing."""
    yield from _HOSTILE_META
    if isinstance(form, np.ndarray) and form.ndim:
        yield form[:-1]
        yield form.reshape(-1, 1)
        yield form[:0]
    if isinstance(form, dict):
        for key in form:
            yield {k: v for k, v in form.items() if k != key}
            yield from ({**form, key: other} for other in _changed(form[key]))
    elif isinstance(form, list):
        for number, item in enumerate(form):
            yield from ([*form[:number], other, *form[number + 1 :]] for other in _changed(item))
