"""The global random generators of Python, numpy and torch, one state of each for every node.

Code that draws from a global generator (``random.random()``, a dropout layer) shares it with the
whole process.  So each user has a *slot* of its own, seeded from the job's seed: a node, a ``map``
step on one batch, the source of a pipe.  The states of a slot are put into the generators before
its code runs, and taken out when another slot follows; a lock lets one run at a time.

A node alone in its process, without ``map`` steps, pays for a lock and nothing else.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Final, Protocol

import numpy as np

from jobrun.core.rng import make_rng
from jobrun.values.adapters.base import Plain
from jobrun.values.adapters.numpy import check_place

__all__ = ["Generators", "Slot", "SlotAdapter", "give_up"]


class _Generator(Protocol):
    """A global generator: its native state, and the plain form of one."""

    def seeded(self, seed: int) -> Any:
        """Return the state that a seed gives."""

    def get(self, before: Any) -> Any:
        """Return the state of now; ``before`` is the one that was set last."""

    def set(self, state: Any) -> None:
        """Set the state."""

    def plain(self, state: Any) -> Plain:
        """Return a state as a plain value."""

    def native(self, plain: Plain) -> Any:
        """Return the state of a plain value."""


class _Python:
    """The module ``random``: 625 integers, and a pending number of ``gauss``."""

    def seeded(self, seed: int) -> Any:
        return random.Random(seed).getstate()

    def get(self, before: Any) -> Any:
        return random.getstate()

    def set(self, state: Any) -> None:
        random.setstate(state)

    def plain(self, state: Any) -> Plain:
        version, internal, gauss = state
        return {"version": version, "internal": np.array(internal, np.uint32), "gauss": gauss}

    def native(self, plain: Plain) -> Any:
        return plain["version"], tuple(plain["internal"].tolist()), plain["gauss"]


class _Numpy:
    """The module ``numpy.random``: the legacy generator behind ``numpy.random.rand`` and others."""

    def seeded(self, seed: int) -> Any:
        return np.random.RandomState(seed).get_state(legacy=False)

    def get(self, before: Any) -> Any:
        return np.random.get_state(legacy=False)

    def set(self, state: Any) -> None:
        np.random.set_state(state)

    def plain(self, state: Any) -> Plain:
        return state

    def native(self, plain: Plain) -> Any:
        check_place(plain)
        return plain


class _Torch:
    """The default generators of torch: of the processor, and of CUDA devices once they are used."""

    def __init__(self) -> None:
        self._torch: Any = import_module("torch")

    def seeded(self, seed: int) -> Any:
        cpu = self._torch.Generator().manual_seed(seed).get_state()
        return {"seed": seed, "cpu": cpu, "cuda": []}

    def get(self, before: Any) -> Any:
        cuda = self._torch.cuda
        devices = cuda.get_rng_state_all() if cuda.is_initialized() else []
        return {**before, "cpu": self._torch.get_rng_state(), "cuda": devices}

    def set(self, state: Any) -> None:
        if state["cuda"]:
            self._torch.cuda.set_rng_state_all(state["cuda"])
        else:  # also for devices that are used later
            self._torch.cuda.manual_seed_all(state["seed"])
        self._torch.set_rng_state(state["cpu"])

    def plain(self, state: Any) -> Plain:
        devices = [device.numpy() for device in state["cuda"]]
        return {"seed": state["seed"], "cpu": state["cpu"].numpy(), "cuda": devices}

    def native(self, plain: Plain) -> Any:
        devices = [self._torch.from_numpy(device) for device in plain["cuda"]]
        return {**plain, "cpu": self._torch.from_numpy(plain["cpu"]), "cuda": devices}


_KINDS: Final[Mapping[str, type[_Generator]]] = {
    "rng.python": _Python,
    "rng.numpy": _Numpy,
    "rng.torch": _Torch,
}


class Slot:
    """The states of the generators for one user, by name; those in use are in the generators.

    One that is not ``kept`` is for one use: its states after that are not needed.
    """

    def __init__(
        self, generators: Mapping[str, _Generator], states: dict[str, Any], kept: bool
    ) -> None:
        self.generators = generators
        self.states = states
        self.kept = kept

    def put_in(self) -> None:
        """Put the states into the generators."""
        for name, generator in self.generators.items():
            generator.set(self.states[name])

    def take_out(self) -> None:
        """Take the states out of the generators."""
        self.states = {n: g.get(self.states[n]) for n, g in self.generators.items()}


class _Process:
    """The slot whose states are in the generators of this process now, if one has been put in."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.current: Slot | None = None
        self.inside: Slot | None = None
        """The slot of the code that runs with the lock."""

    def switch(self, slot: Slot | None) -> None:
        """Put in another slot; to be called with the lock."""
        if self.current is not slot:
            if self.current is not None and self.current.kept:
                self.current.take_out()
            self.current = slot
            if slot is not None:
                slot.put_in()


_process = _Process()


def give_up() -> None:
    """Let others have the generators, though a call that has exceeded its timeout holds them."""
    global _process
    _process = _Process()


class _Using:
    """The context of ``Generators.using``; ``_around`` is the slot of the code around it.

    A class, which is entered and left in a third of the time of a generator.
    """

    __slots__ = ("_around", "_process", "_slot")

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def __enter__(self) -> None:
        process = self._process = _process
        process.lock.acquire()
        self._around, process.inside = process.inside, self._slot
        try:
            process.switch(self._slot)
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *error: object) -> None:
        try:
            if self._around is not None:
                self._process.switch(self._around)
        finally:
            self._leave()

    def _leave(self) -> None:
        self._process.inside = self._around
        self._process.lock.release()


class Generators:
    """The generators ``names`` of a session, seeded by ``seed``: a slot for each of ``nodes``."""

    def __init__(self, names: Sequence[str], seed: int, nodes: Iterable[str] = ()) -> None:
        self._generators: dict[str, _Generator] = {name: _KINDS[name]() for name in names}
        self._seed = seed
        self._nodes = {node: self.slot("node", node) for node in nodes}

    def slot(self, *place: str | int | None, kept: bool = True) -> Slot:
        """Return a new slot that is seeded by a place."""
        states = {
            name: generator.seeded(int(make_rng(self._seed, name, *place).integers(1 << 32)))
            for name, generator in self._generators.items()
        }
        return Slot(self._generators, states, kept)

    def using(self, slot: Slot) -> AbstractContextManager[None]:
        """Return a context whose code draws from a slot, alone in this process."""
        return _Using(slot)

    def of_node(self, node: str) -> Slot:
        """Return the slot of a node."""
        return self._nodes[node]


class SlotAdapter:
    """Reads and restores the state of one generator in a slot; a ``LiveAdapter``."""

    version = 1

    def __init__(self, name: str) -> None:
        self.name = name

    def state(self, obj: Slot) -> Plain:
        """Return the state of the generator."""
        with _process.lock:
            if _process.current is obj:
                obj.take_out()
            return obj.generators[self.name].plain(obj.states[self.name])

    def restore(self, obj: Slot, state: Plain) -> Slot:
        """Set the state of the generator; return the slot."""
        with _process.lock:
            if _process.current is obj:
                _process.switch(None)
            obj.states[self.name] = obj.generators[self.name].native(state)
        return obj

    def copy(self, obj: Slot) -> Slot:
        """Return the slot itself: a generator is never lent from the best checkpoint."""
        return obj
