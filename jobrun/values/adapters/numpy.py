"""Random generators and strings of numpy; its arrays and scalars are plain."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Meta, Plain
from jobrun.values.adapters.string_list import pack_strings, unpack_strings

__all__ = ["ADAPTERS", "STRINGS", "check_place"]

_BIT_GENERATORS: Final = ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")
_POOL: Final = 64
"""The largest pool of entropy that is kept, 4 by default: to mix one takes its size squared."""
_CHILDREN: Final = 1_000_000
"""The most children that are spawned to count them."""


def _bit_generator(name: object, seed: Any = 0) -> Any:
    if name not in _BIT_GENERATORS:
        raise ValueRefusedError(
            f"a generator of numpy over {name!r} cannot be saved",
            hint=f"use one of {', '.join(_BIT_GENERATORS)}",
        )
    return getattr(np.random, str(name))(seed)


def check_place(state: Any) -> None:
    """Raise ValueRefusedError if the state of a generator has a place outside of its numbers.

    That of MT19937 is one of 624 numbers, that of Philox one of 4.  numpy would read there: it ends
    the process, or draws from memory that is something else's.
    """
    try:
        places = {624: int(state["state"].get("pos", 0)), 4: int(state.get("buffer_pos", 0))}
    except (TypeError, LookupError, ValueError, AttributeError) as error:
        raise ValueRefusedError(f"it is not a state of a generator of numpy: {error!r}") from error
    for last, place in places.items():
        if not 0 <= place <= last:
            raise ValueRefusedError(f"a generator of numpy has no place {place} of {last}")


def _seeds(generator: np.random.Generator) -> dict[str, Any] | None:
    """Return, as JSON, what ``spawn`` makes children of; None if it cannot."""
    seeds: Any = getattr(generator.bit_generator, "seed_seq", None)
    if type(seeds) is not np.random.SeedSequence or seeds.pool_size > _POOL:
        return None
    entropy = seeds.entropy
    if entropy is not None and not isinstance(entropy, int):
        entropy = [int(number) for number in entropy]
    key, count = [int(number) for number in seeds.spawn_key], int(seeds.n_children_spawned)
    return {"entropy": entropy, "key": key, "pool": int(seeds.pool_size), "spawned": count}


def _seeded(seeds: Any) -> np.random.SeedSequence:
    if seeds["pool"] > _POOL:
        raise ValueRefusedError(f"a generator of numpy has no pool of {seeds['pool']} numbers")
    return np.random.SeedSequence(
        seeds["entropy"],
        spawn_key=tuple(seeds["key"]),
        pool_size=seeds["pool"],
        n_children_spawned=seeds["spawned"],
    )


class GeneratorAdapter:
    """``numpy.random.Generator``: the state of its bit generator, with integers of 128 bits.

    The meta data hold what it was seeded with, and how many children ``spawn`` has made of it.
    """

    name = "numpy.random.Generator"
    version = 1

    def dump(self, value: np.random.Generator) -> tuple[Plain, Meta]:
        """Return the state and the name of the bit generator."""
        state = dict(value.bit_generator.state)
        name = state.pop("bit_generator")
        _bit_generator(name)
        seeds = _seeds(value)
        return state, {"bit_generator": name, **({} if seeds is None else {"seeds": seeds})}

    def load(self, plain: Plain, meta: Meta) -> np.random.Generator:
        """Return a generator in that state."""
        seeds = _seeded(meta["seeds"]) if "seeds" in meta else 0
        bits = _bit_generator(meta["bit_generator"], seeds)
        check_place(plain)
        bits.state = {"bit_generator": meta["bit_generator"], **plain}
        return np.random.Generator(bits)

    def like(
        self, template: np.random.Generator, value: np.random.Generator, fill: bool
    ) -> np.random.Generator:
        """Return ``template`` in the state of ``value`` if both draw in the same way.

        Also the children that ``spawn`` makes next are the same then.
        """
        if not fill or type(template.bit_generator) is not type(value.bit_generator):
            return value
        own, other = _seeds(template), _seeds(value)
        if own is not None and other is not None:
            missing = other["spawned"] - own["spawned"]
            if not 0 <= missing <= _CHILDREN or {**own, "spawned": other["spawned"]} != other:
                return value
            if missing:
                seeds: Any = template.bit_generator.seed_seq
                seeds.spawn(missing)  # the only way to count them
        template.bit_generator.state = value.bit_generator.state
        return template


class RandomStateAdapter:
    """``numpy.random.RandomState``, over MT19937."""

    name = "numpy.random.RandomState"
    version = 1

    def dump(self, value: np.random.RandomState) -> tuple[Plain, Meta]:
        """Return the 624 integers, the place, and the pending Gaussian."""
        state: Any = value.get_state(legacy=False)
        if state["bit_generator"] != "MT19937":
            _bit_generator(f"RandomState of {state['bit_generator']}")
        return {k: v for k, v in state.items() if k != "bit_generator"}, {}

    def load(self, plain: Plain, meta: Meta) -> np.random.RandomState:
        """Return a generator in that state."""
        check_place(plain)
        made = np.random.RandomState()
        made.set_state({"bit_generator": "MT19937", **plain})
        return made

    def like(
        self, template: np.random.RandomState, value: np.random.RandomState, fill: bool
    ) -> np.random.RandomState:
        """Return ``template`` in the state of ``value``, unless it is over other bits."""
        state: Any = template.get_state(legacy=False)
        if not fill or state["bit_generator"] != "MT19937":
            return value
        template.set_state(value.get_state(legacy=False))
        return template


class StringsAdapter:
    """Arrays of numpy's StringDType: the bytes of all strings in UTF-8, and where each ends.

    ``missing`` marks the elements that are the missing value of the dtype.
    """

    name = "numpy.StringDType"
    version = 1

    def dump(self, value: Any) -> tuple[Plain, Meta]:
        """Return ``data`` (uint8, [bytes]), ``ends`` (int64, of the shape), and ``missing``."""
        dtype = value.dtype
        missing = getattr(dtype, "na_object", _NO_NA)
        meta: dict[str, Any] = {"coerce": dtype.coerce}
        items = value.reshape(-1).tolist()
        if missing is not _NO_NA:
            meta["missing"] = _describe(missing)
        absent = [missing is not _NO_NA and not isinstance(item, str) for item in items]
        plain = pack_strings(["" if no else s for s, no in zip(items, absent, strict=True)])
        plain["ends"] = plain["ends"].reshape(value.shape)
        if any(absent):
            plain["missing"] = np.array(absent).reshape(value.shape)
        return plain, meta

    def load(self, plain: Plain, meta: Meta) -> Any:
        """Return the array, C-contiguous."""
        strings: Any = np.dtypes
        options = {"coerce": meta["coerce"]}
        missing = None
        if "missing" in meta:
            missing = options["na_object"] = _DESCRIBED[meta["missing"]]
        ends = plain["ends"]
        items: list[Any] = [*unpack_strings({**plain, "ends": ends.reshape(-1)})]
        absent = plain["missing"].reshape(-1).tolist() if "missing" in plain else ()
        for number, no in enumerate(absent):
            if no:
                items[number] = missing
        return np.array(items, strings.StringDType(**options)).reshape(ends.shape)


_NO_NA: Final = object()
_DESCRIBED: Final[dict[str, Any]] = {"None": None, "nan": float("nan")}


def _describe(missing: object) -> str:
    if missing is None:
        return "None"
    if isinstance(missing, float) and missing != missing:
        return "nan"
    raise ValueRefusedError(
        f"an array of strings whose missing value is {missing!r} cannot be saved",
        hint="use StringDType(na_object=None), or one with nan",
    )


STRINGS: Final = StringsAdapter()
ADAPTERS: Final = {
    "numpy.random._generator.Generator": GeneratorAdapter(),
    "numpy.random.mtrand.RandomState": RandomStateAdapter(),
    "numpy.dtypes.StringDType": STRINGS,
}
