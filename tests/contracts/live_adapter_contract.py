"""What every adapter of live objects must do.  Inherited by the tests of each."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import RecordFields
from jobrun.core.position import Position
from jobrun.errors import JobrunError, ValueRefusedError
from jobrun.values.adapted import same_plain
from jobrun.values.adapters.base import LiveAdapter, Plain
from jobrun.values.adapters.pytree import live_adapter_of
from jobrun.values.boxes import Value
from jobrun.values.plain import put_back, read_state, to_plain
from jobrun.values.storable import is_storable
from jobrun.values.views import view_plain

_OTHERS: list[Any] = [None, -1, 1 << 40, 0.5, "", "no such thing", [], {}, np.zeros(2), np.bool_(1)]


class LiveAdapterContract:
    """Inherited with ``objects`` and ``train``.

    ``objects`` makes new ones, as ``setup`` does; ``train`` changes one in place, or returns the
    one to be used from now on, and depends on nothing but the object.
    """

    kept = True  # whether an object that is restored stays the same object
    copied = True  # whether a copy can be trained

    def objects(self) -> dict[str, Any]:
        """Return new objects of all kinds that the adapter takes, by name."""
        raise NotImplementedError

    def train(self, obj: Any) -> Any:
        """Change an object as a step of training does."""
        raise NotImplementedError

    def adapter(self, obj: Any) -> LiveAdapter:
        """Return the adapter of an object."""
        found = live_adapter_of(obj)
        assert found is not None
        return found

    def trained(self, name: str, steps: int) -> Any:
        obj = self.objects()[name]
        for _ in range(steps):
            obj = self.train(obj)
        return obj

    def read(self, obj: Any) -> Value:
        return read_state(self.adapter(obj), obj)

    def restored(self, obj: Any, state: Value) -> Any:
        made = put_back(self.adapter(obj), obj, {"x": state}, "x")
        assert not self.kept or made is obj
        return made

    def test_every_object_has_a_state_that_can_be_saved(self) -> None:
        for name, obj in self.objects().items():
            assert is_storable(self.read(obj)), name
            assert is_storable(self.read(self.trained(name, 2))), name

    @pytest.mark.parametrize("steps", [0, 1, 3])
    def test_what_is_restored_from_a_checkpoint_continues_bit_for_bit(
        self, steps: int, tmp_path: Path
    ) -> None:
        for name, new in self.objects().items():
            obj = self.trained(name, steps)
            checkpoint = _save(self.read(obj), tmp_path / name)
            made = self.restored(new, read_part(checkpoint, "main")["x"])
            for _ in range(3):
                assert same_plain(view_plain(self.read(made)), view_plain(self.read(obj))), name
                made, obj = self.train(made), self.train(obj)

    def test_an_object_goes_back_to_an_earlier_state(self) -> None:
        """As before a retry: what came later leaves no trace."""
        for name, obj in self.objects().items():
            obj = self.train(obj)
            early = self.read(obj)
            first = copy.deepcopy(view_plain(early))
            obj = self.restored(self.train(obj), early)
            assert same_plain(view_plain(self.read(obj)), first), name
            assert same_plain(
                view_plain(self.read(self.train(obj))), view_plain(self.read(self.trained(name, 2)))
            ), name

    def test_the_same_state_has_the_same_bytes(self, tmp_path: Path) -> None:
        for name in self.objects():
            one, two = (_bytes(self.read(self.trained(name, 2)), tmp_path / n / name) for n in "ab")
            assert one == two, name

    def test_a_state_is_a_copy(self) -> None:
        for name in self.objects():
            obj = self.trained(name, 1)
            early = self.read(obj)
            first = copy.deepcopy(view_plain(early))
            self.train(obj)
            assert same_plain(view_plain(early), first), name

    def test_a_copy_is_trained_alone(self) -> None:
        for name in self.objects():
            obj = self.trained(name, 1)
            before = view_plain(self.read(obj))
            made = self.adapter(obj).copy(obj)
            assert same_plain(view_plain(read_state(self.adapter(made), made)), before), name
            if self.copied:
                self.train(made)
                assert same_plain(view_plain(self.read(obj)), before), name

    def test_without_the_adapter_it_is_a_plain_tree(self) -> None:
        for name in self.objects():
            shown = view_plain(self.read(self.trained(name, 1)))
            assert isinstance(shown, dict | list | np.ndarray), name

    def test_the_state_of_another_adapter_or_a_newer_version_is_refused(self) -> None:
        obj = next(iter(self.objects().values()))
        changes: list[tuple[dict[str, Any], str]] = [
            ({"name": "gone"}, "adapter 'gone'"),
            ({"version": 99}, "version 99"),
        ]
        for change, text in changes:
            value = self.read(obj)
            assert value.note is not None
            value.note = replace(value.note, **change)
            with pytest.raises(ValueRefusedError, match=text):
                self.restored(obj, value)

    def test_a_hostile_state_is_an_error_of_jobrun(self) -> None:
        for name, obj in self.objects().items():
            plain = to_plain(self.read(self.trained(name, 2)), writable=True)
            adapter = self.adapter(obj)
            for wrong in _changed(plain):
                try:
                    adapter.restore(obj, wrong)
                except JobrunError as error:
                    assert str(error)  # noqa: PT017 - it may also be none
            for nothing in (None, 3, "text", []):
                with pytest.raises(ValueRefusedError):
                    adapter.restore(obj, nothing)


def _save(value: Value, folder: Path) -> Path:
    """Save a value as blob ``x``, and return the checkpoint."""
    source = BlobSource({"main": {"x": value}})
    return CheckpointManager(folder).save_snapshot(source, RecordFields(Position(epochs=1))).path


def _bytes(value: Value, folder: Path) -> dict[str, bytes]:
    """The bytes of all files of a part with ``value``."""
    part = _save(value, folder) / "main"
    files = (p for p in sorted(part.rglob("*")) if p.is_file())
    return {str(p.relative_to(part)): p.read_bytes() for p in files}


def _changed(form: Plain) -> Iterator[Plain]:
    """Yield copies of ``form`` in which one place is another thing, or missing."""
    if isinstance(form, dict):
        for key in form:
            yield {k: copy.deepcopy(v) for k, v in form.items() if k != key}
            for other in _changed(form[key]):
                yield {**copy.deepcopy(form), key: other}
    elif isinstance(form, list):
        for number in range(min(len(form), 3)):
            for other in _changed(form[number]):
                yield [*form[:number], other, *copy.deepcopy(form[number + 1 :])]
    elif isinstance(form, np.ndarray) and form.ndim:
        yield form[:-1].copy()
        yield form[: form.shape[0] // 2].copy()
        yield form.astype(complex) if form.dtype.kind in "iuf" else form[:0]
    elif isinstance(form, str) and len(form) > 40:
        yield from (form[: len(form) * n // 8] for n in range(8))
    yield from _OTHERS
