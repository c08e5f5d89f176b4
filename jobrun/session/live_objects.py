"""The live objects of a session: what ``state`` names, in the workspaces of its nodes.

In a workspace a live object is a box of kind ``live`` that holds the user's object itself; tasks
are given it, and change it in place or replace it.  Its state is read for a save, and before a call
that may be repeated; it is put back after ``setup`` on a resume, and after a call that failed.

While a call uses a live object, nobody knows what state it is in; so the names of those that are in
use, or whose call failed, are kept in ``broken``, and no snapshot is taken while there are any.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt

from jobrun.analysis.live_state import LiveState
from jobrun.core.blob_paths import Key
from jobrun.errors import JobrunError, TaskError, ValueRefusedError, Where
from jobrun.model.job import Job
from jobrun.session.generators import Generators, SlotAdapter
from jobrun.session.lost_sharing import LostSharing, Restored
from jobrun.usercode.traces import user_trace
from jobrun.values.adapters.base import LiveAdapter
from jobrun.values.adapters.pytree import (
    NEW_PYTREE,
    PYTREE,
    PytreeAdapter,
    is_pytree,
    live_adapter_of,
    note_made,
    part_at,
    references,
    warnings_of,
)
from jobrun.values.borrowing import reclaim
from jobrun.values.boxes import Box, Value, checksum, leaves
from jobrun.values.opaque import changeable_objects
from jobrun.values.plain import put_back, read_state, to_plain
from jobrun.values.shared_memory import Held, SharedPart, address_of
from jobrun.values.storable import check_storable
from jobrun.values.weights import Unused, put_weights
from jobrun.values.workspace import Workspace

__all__ = ["LiveObjects", "tree_adapter"]

_REPLACED = "replaced"
"""The key in the note of a tree for the places at which tasks have put other objects; True: all."""

States = dict[Key, dict[str, Value]]
"""States that were read: each in a dictionary of its own, so that its holders can be counted."""


class LiveObjects:
    """Reads and restores the live objects in ``nodes``.

    ``adapters`` are those that the job names, by the name of the blob; else that of the object's
    type is used.  ``live`` says which blobs are live objects.  ``generators`` are the global random
    generators that it names, whose states are read and restored like those of objects.
    """

    def __init__(
        self,
        job: Job,
        live: LiveState,
        adapters: Mapping[str, LiveAdapter],
        nodes: Mapping[str, Workspace],
        generators: Generators | None = None,
    ) -> None:
        self.live = live
        self._generators = generators
        self.broken: dict[object, Sequence[Key]] = {}
        """The objects that a call uses now, or that one which failed has used, by the call."""
        self._job = job
        self._adapters = adapters
        self._nodes = nodes
        self._structures: dict[Key, dict[str, str]] = {}
        self._made: dict[Key, dict[str, Any]] = {}
        """Weak references to what ``setup`` has made in trees, by place."""
        self._addresses: dict[Key, dict[str, int | None]] = {}
        """The addresses of these, by place."""
        self._lost_sharing = LostSharing()
        self._noted: dict[Key, object] = {}
        """Notes of the adapters on the objects; each is gone once nobody keeps it."""
        self._warn: Callable[[str], None] = lambda text: None
        self._warned: set[str] = set()
        self._seen: dict[Key, list[Any]] = {}
        self._replaced: set[Key] = set()
        """Objects that tasks have replaced: others of ``setup`` may hold those of before."""

    def __contains__(self, key: Key) -> bool:
        """Return whether a blob is a live object."""
        return key in self.live

    def check_made(self, warn: Callable[[str], None]) -> None:
        """Look at what ``setup`` made; ``warn`` is given warnings, then and whenever one is read.

        Raises TaskError for an object without an adapter.
        """
        self._warn = warn
        for key in self.live.keys:
            if key[0] in self._nodes:
                adapter, obj = self._found(key)
                draws = getattr(adapter, "draws_from", lambda obj: None)(obj)
                if draws and draws[0] not in self._job.generators:
                    warn(
                        f"{key[1]!r} may draw from a global random generator that is not saved, "
                        f"since {draws[1]}: each run, and a resumed one, gets other numbers; name "
                        f"the generator under 'state' too ({draws[0]}), or give the object a seed"
                    )
                with self._placed(key, adapter, "read"):
                    self._noted[key] = note_made(adapter, obj)
                    if adapter is PYTREE:
                        self._structures[key] = PYTREE.structure(obj)
                        self._made[key] = dict(references(obj))
                        self._addresses[key] = {
                            place: address_of(one()) for place, one in references(obj) if one
                        }
                self._pass_on(key, adapter, obj)

    def _pass_on(self, key: Key, adapter: LiveAdapter, obj: Any) -> None:
        """Warn, once, of what the adapter of an object has found that a resumed run will lack."""
        for text in warnings_of(adapter, obj):
            whole = f"{key[1]!r} under 'state': {text}"
            if whole not in self._warned:
                self._warned.add(whole)
                self._warn(whole)

    # States.

    def read(self, key: Key, held: list[Held] | None = None) -> Value:
        """Return the state of an object, copied; raises TaskError, naming blob and adapter.

        Arrays that were copied are added to ``held``.
        """
        adapter, obj = self._found(key)
        with self._placed(key, adapter, "read"):
            if adapter is PYTREE and key in self._structures:
                PYTREE.check(obj, self._structures[key])
            remade = self._remade_places(key, obj) if adapter is PYTREE else []
            value = read_state(adapter, obj, {_REPLACED: remade} if remade else None, held)
            check_storable(value, key[1])
        self._pass_on(key, adapter, obj)
        return value

    def states(self, node: str) -> dict[str, Value]:
        """Return the states of the objects of a node, by path, for a save."""
        return {key[1]: state for key, state in self._read_together(self._keys_of(node)).items()}

    def _read_together(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """Return the states of objects; memory that they share and will not again is a warning."""
        held: dict[Key, list[Held]] = {key: [] for key in keys}
        states = {key: self.read(key, found) for key, found in held.items()}
        both = {key: (state, held[key]) for key, state in states.items()}
        for text in self._lost_sharing.warnings(both, self._restored):
            self._warn(text)
        return states

    def _restored(self, part: SharedPart) -> Restored:
        """Return how a resume restores a part of an object."""
        adapter, obj = self._found(part.key)
        keys: Sequence[Any] = part.keys
        address = address_of(part.memory)
        if adapter is PYTREE:
            place, obj, keys = part_at(obj, keys)
            live = None if obj is None else live_adapter_of(obj)
            if live is None:
                still = self._is_still(part.key, lambda: obj, self._made.get(part.key, {}), place)
                fills = still and self._addresses[part.key].get(place) == address
                return Restored(fills, ties=not keys)
            adapter = live
        asked = getattr(adapter, "fills", None)
        return Restored(asked is None or asked(obj, keys, address), ties=False)

    def take_over(self, node: str, blobs: dict[str, Value]) -> None:
        """Restore the states that the part of a checkpoint holds into the objects of a node.

        An object of which it holds none stays as ``setup`` made it.
        """
        for key in self._keys_of(node):
            if key[1] in blobs:
                tree = tree_adapter(blobs[key[1]])
                if tree.remakes(""):
                    self._replaced.add(key)
                self.restore(key, blobs, key[1], tree=tree)

    def _remade_places(self, key: Key, obj: Any) -> list[str] | bool:
        """Return the places of a tree at which tasks have put other objects than ``setup``.

        A resume replaces these, and fills the others, which may be held elsewhere.  True stands
        for all.  None where an object that is linked with the tree was replaced too: an optimizer
        is restored into the one of ``setup``, which has the tree of ``setup``.
        """
        now, made = dict(references(obj)), self._made.get(key, {})
        remade = [place for place, one in now.items() if not self._is_still(key, one, made, place)]
        others = (other for other in self.live.linked([key]) if other in self._replaced)
        if not remade or not all(self._found(other)[0] is PYTREE for other in others):
            return []
        return True if len(remade) == len(now) else remade

    def _is_still(self, key: Key, one: Any, made: Mapping[str, Any], place: str) -> bool:
        """Return whether ``one`` at a place is the object that ``setup`` has made there."""
        if one is None:  # a container
            return key not in self._replaced
        return place in made and made[place] is not None and made[place]() is one()

    def replaced(self, key: Key, new: Any) -> bool:
        """Note that a task returns ``new`` in the place of an object.

        Return whether nothing is left to be noted of further ones of its type.
        """
        old = self._box(key).value
        adapter = self._adapters.get(key[1]) or live_adapter_of(new)
        if old is not new and adapter is not None:
            self._noted[key] = note_made(adapter, new, old)
        if old is not new:
            self._replaced.add(key)
        return adapter is None and key in self._replaced

    def restore(
        self, key: Key, states: dict[str, Value], name: str, *, tree: PytreeAdapter = PYTREE
    ) -> None:
        """Put the state ``states[name]`` into an object, or in its place; raises TaskError.

        The memory of the state is handed over: it cannot be used again.  ``tree`` is the adapter
        of a tree, which replaces the parts of it that tasks have replaced before.
        """
        adapter, obj = self._found(key)
        if adapter is PYTREE:
            adapter = tree
        with self._placed(key, adapter, "restored"):
            restored = put_back(adapter, obj, states, name)
        if key in self.live:
            self._box(key).value = restored
        for call, keys in [*self.broken.items()]:
            if key in keys:
                self.broken[call] = [other for other in keys if other != key]
                if not self.broken[call]:
                    del self.broken[call]

    def put_weights(
        self, key: Key, weights: Mapping[str, npt.NDArray[Any]], strict: bool
    ) -> tuple[Any, Unused]:
        """Replace weights of an object by arrays of the same names; return it, and what is unused.

        Raises TaskError, naming the key, for one that does not fit, and if ``strict`` for any that
        is unused, before the object is changed.
        """
        adapter, obj = self._found(key)
        with self._placed(key, adapter, "replaced"):
            state = to_plain(read_state(adapter, obj), writable=True)
            unused = put_weights(state, weights)
            if strict and unused:
                hint = "'strict: false' under 'load' takes what fits"
                raise ValueRefusedError(str(unused), hint=hint)
            return adapter.restore(obj, state), unused

    def read_all(self, keys: Iterable[Key]) -> States:
        """Return the states of several objects."""
        return {key: {"": state} for key, state in self._read_together(keys).items()}

    def restore_all(self, states: States) -> None:
        """Put states into the objects that they were read from."""
        for key, state in states.items():
            self.restore(key, state, "")

    def release(self, states: States) -> None:
        """Let go of states that are not needed: their memory serves later copies."""
        for state in states.values():
            reclaim(state, "")
        states.clear()

    # The objects of the best checkpoint.

    def copies(self, keys: Sequence[Key], states: Mapping[Key, Value]) -> dict[Key, Any]:
        """Return copies of objects, made together, with ``states`` restored into them.

        Several are copied in one deep copy, so that references among them are to the copies.
        Raises TaskError if they cannot be copied, naming the adapter.
        """
        found = [self._found(key) for key in keys]
        objects = [obj for _, obj in found]
        try:
            copied = [found[0][0].copy(objects[0])] if len(found) == 1 else copy.deepcopy(objects)
        except Exception as error:
            names = " and ".join(repr(f"best:{path}") for _, path in keys)
            adapters = " and ".join(dict.fromkeys(repr(a.name) for a, _ in found))
            raise TaskError(
                f"{names} cannot be copied: {type(error).__name__}: {error}",
                where=self._where(keys[0]),
                hint=f"the copy(obj) of adapter {adapters} makes the copy of a single object; "
                "several of one task are copied by copy.deepcopy, so that they stay linked",
                trace=user_trace(error),
            ) from error
        made, noted = {}, []  # what is noted lives until the copies are restored
        for key, (adapter, original), obj in zip(keys, found, copied, strict=True):
            noted.append(note_made(adapter, obj, original))
            with self._placed(key, adapter, "restored"):
                made[key] = adapter.restore(obj, to_plain(states[key], writable=True))
        return made

    # Constants, under ``--check``.

    def is_changed(self, key: Key) -> bool:
        """Return whether the state of a constant is not what it was at the last look.

        Of an object without an adapter nothing can be seen.
        """
        value = self._nodes[key[0]].get(key[1])
        now = [
            _content(read_state(adapter, obj))
            for _, obj in changeable_objects(value)
            if (adapter := live_adapter_of(obj)) is not None
        ]
        return self._seen.setdefault(key, now) != now

    # Adapters.

    def _found(self, key: Key) -> tuple[LiveAdapter, Any]:
        """Return the adapter of an object, and it; raises ValueRefusedError if it has none."""
        if self._generators is not None and key in self.live.generators:
            return SlotAdapter(key[1]), self._generators.of_node(key[0])
        path, obj = key[1], self._box(key).value
        adapter = self._adapters.get(path) or live_adapter_of(obj)
        if adapter is None and is_pytree(obj):
            adapter = PYTREE
        if adapter is None:
            kind = f"{type(obj).__module__}.{type(obj).__qualname__}"
            raise ValueRefusedError(
                f"{path!r} is under 'state', but no adapter reads the state of a {kind}",
                where=self._where(key),
                hint=f"give the class state_dict() and load_state_dict(state), or name an adapter: "
                f"state: {{{path}: module:Adapter}}, a class with name, version, state(obj), "
                "restore(obj, state) and copy(obj)",
            )
        return adapter, obj

    def _keys_of(self, node: str) -> list[Key]:
        return [key for key in self.live.saved if key[0] == node]

    def _box(self, key: Key) -> Box:
        box = self._nodes[key[0]].get(key[1])
        assert isinstance(box, Box)  # a call stores nothing else under such a name
        return box

    @contextmanager
    def _placed(self, key: Key, adapter: LiveAdapter, verb: str) -> Iterator[None]:
        """Add the blob and the adapter to an error that is raised inside."""
        on = f" of node {key[0]!r}" if self._job.multi_node else ""
        text = f"the state of {key[1]!r}{on} cannot be {verb} (adapter {adapter.name!r})"
        try:
            yield
        except JobrunError as error:
            raise TaskError(
                f"{text}: {error.message}", where=self._where(key), hint=error.hint
            ) from error
        except Exception as error:
            raise TaskError(
                f"{text}: {type(error).__name__}: {error}",
                where=self._where(key),
                trace=user_trace(error),
            ) from error

    def _where(self, key: Key) -> Where | None:
        return self._job.marks.get(f"state:{key[1]}")


def tree_adapter(state: Value) -> PytreeAdapter:
    """Return the adapter that restores a tree: it replaces what tasks have replaced."""
    places = state.note.meta.get(_REPLACED) if state.note is not None else None
    if places is True:
        return NEW_PYTREE
    return PytreeAdapter(frozenset(places)) if isinstance(places, list) and places else PYTREE


def _content(state: Value) -> tuple[int, list[tuple[str, str]]]:
    """Return what equal states share: a checksum of the arrays, and all other leaves."""
    others = [(path, repr(b.value)) for path, b in leaves(state) if b.kind != "array"]
    return checksum(state), others
