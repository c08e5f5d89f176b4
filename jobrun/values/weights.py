"""Arrays of a file put into the state of an object, in the form and dtype that the state has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.core.late_imports import importing
from jobrun.core.suggestions import did_you_mean
from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Plain, ValueAdapter
from jobrun.values.adapters.registry import value_adapter

__all__ = ["Unused", "nested", "put_weights"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Unused:
    """Keys that fit nowhere: ``extra`` ones of the file, ``missing`` ones of arrays of a state."""

    extra: Sequence[str]
    missing: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.extra or self.missing)

    def __str__(self) -> str:
        texts = []
        if self.extra:
            texts.append(f"the file has {_some(self.extra)}, for which there is no place")
        if self.missing:
            texts.append(f"the file lacks {_some(self.missing)}")
        return "; ".join(texts)


def put_weights(state: Plain, weights: Mapping[str, Array]) -> Unused:
    """Replace leaves of ``state``, which belongs to the caller, by arrays of the same names.

    The name of a leaf is its keys joined by ``/`` or by ``.``; keys that begin with a dot are none
    of an adapter's weights.  Numbers are converted between dtypes of floats, and where no value can
    change its kind.  Raises ValueRefusedError, naming the key, for another shape or kind, and if
    no name fits.
    """
    places: dict[str, tuple[Any, Any]] = {}
    missing: dict[tuple[int, Any], str] = {}
    for names, container, key in _leaves(state, ()):
        for mark in "./":
            places.setdefault(mark.join(names), (container, key))
        if _is_array(container[key]):
            missing[id(container), key] = "/".join(names)
    extra = [name for name in weights if name not in places]
    if len(extra) == len(weights):
        hint = did_you_mean(extra[0], [*places]) if extra else ""
        raise ValueRefusedError(
            f"no key of the file fits: it has {_some(extra)}, and the state {_some([*places])}",
            hint=hint or "write what stands before the names: {'model.*': net}",
        )
    for name, array in weights.items():
        if name in places:
            container, key = places[name]
            container[key] = _converted(container[key], array, name)
            missing.pop((id(container), key), None)
    return Unused(extra, [*missing.values()])


def nested(weights: Mapping[str, Array]) -> dict[str, Any]:
    """Return arrays in nested dicts, one level for each ``/`` of a name.

    Raises ValueRefusedError for a name that is the beginning of another.
    """
    made: dict[str, Any] = {}
    for name, array in weights.items():
        *above, last = name.split("/")
        tree = made
        for level in above:
            tree = tree.setdefault(level, {})
            if not isinstance(tree, dict):
                break
        if not isinstance(tree, dict) or last in tree:
            raise ValueRefusedError(f"{name!r} is the beginning of another key, or follows one")
        tree[last] = array
    return made


def _leaves(state: Plain, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the names, the container and the key of each leaf in dicts and lists."""
    pairs: Any = ()
    if isinstance(state, dict):
        pairs = [(k, v) for k, v in state.items() if above or not str(k).startswith(".")]
    elif isinstance(state, list):
        pairs = enumerate(state)
    for key, value in pairs:
        names = (*above, str(key))
        if isinstance(value, dict | list):
            yield from _leaves(value, names)
        else:
            yield names, state, key


def _is_array(leaf: Any) -> bool:
    return getattr(leaf, "shape", None) is not None


def _converted(leaf: Any, array: Array, name: str) -> Any:
    """Return the array in the form of a leaf; raises ValueRefusedError."""
    adapter = value_adapter(leaf)
    if adapter is not None:
        return _adapted(adapter, leaf, array, name)
    own = np.asarray(leaf)
    if own.dtype.kind not in "biufcV":
        raise ValueRefusedError(f"{name!r} is {leaf!r} in the state, not an array")
    made = _cast(array, own.shape, own.dtype, name)
    return made if isinstance(leaf, np.ndarray) else type(leaf)(made[()])


def _adapted(adapter: ValueAdapter, leaf: Any, array: Array, name: str) -> Any:
    plain, meta = adapter.dump(leaf)
    own = np.asarray(plain)
    foreign = meta.get("dtype")
    if own.dtype.hasobject or own.dtype.kind in "USOmM":
        raise ValueRefusedError(f"{name!r} is of type {type(leaf).__name__}, not an array")
    if foreign is None:
        return adapter.load(_cast(array, own.shape, own.dtype, name), meta)
    dtype = _ml_dtype(str(foreign), name)
    made = _cast(array, own.shape, dtype, name)
    # An adapter keeps such a dtype as the integers of its bits, or as a float of the same value.
    return adapter.load(
        made.astype(own.dtype) if own.dtype.kind == "f" else made.view(own.dtype), meta
    )


def _ml_dtype(name: str, key: str) -> np.dtype[Any]:
    try:
        with importing():
            import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError) as error:
        raise ValueRefusedError(
            f"{key!r} is of dtype {name}, which numpy lacks",
            hint="pip install 'jobrun[ml-dtypes]'",
        ) from error
    return dtype


def _cast(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
    if array.shape != shape:
        raise ValueRefusedError(
            f"{name!r} has shape {array.shape} in the file, and {shape} in the state"
        )
    floats = _is_float(array.dtype) and _is_float(dtype)
    if not floats and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValueRefusedError(
            f"{name!r} has dtype {array.dtype} in the file, and {dtype} in the state"
        )
    return np.array(array, dtype, order="C")


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def _some(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more if names else "none"
