"""Attributes of modules that ``state_dict`` leaves out: counters, hidden states, generators.

Of a module of the user's own class every attribute counts that is a number, a string, None, a list,
tuple or dict of those, a tensor, an array or a generator, and is no parameter, buffer or module.
Those that have changed since ``setup`` made the module are part of its state.  The others are not:
what is set from other hyperparameters in a resumed run stays as ``setup`` has made it.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.torch.tensors import is_tensor, private_copy, torch

__all__ = ["Attributes"]

_SCALARS: Final = frozenset((bool, int, float, complex, str, bytes, type(None)))
_KEPT_BYTES: Final = 16 << 20
"""The largest tensor or array of which a copy is kept, to go back to it."""


@dataclass(frozen=True, slots=True)
class _First:
    """An attribute as ``setup`` made it: its value, what shows a change, and a copy."""

    value: Any
    mark: Any
    kept: Any

    def is_still(self, value: Any) -> bool:
        """Return whether the attribute is as it was."""
        if is_tensor(self.value) and value is not self.value:
            return False
        return type(value) is type(self.value) and bool(_mark(value) == self.mark)

    def kept_for(self, name: str) -> Any:
        """Return the copy; raises ValueRefusedError, naming the attribute, if none is kept."""
        if self.kept is None and self.value is not None:
            raise ValueRefusedError(
                f"attribute {name!r} has changed, and it was too large to keep a copy of",
                hint="make it a buffer of the module: self.register_buffer(name, tensor)",
            )
        return self.kept


class Attributes:
    """The attributes of modules, and what they were when ``setup`` had made them."""

    def __init__(self) -> None:
        # None for an attribute that did not count, and may count later.
        self._made: WeakKeyDictionary[Any, dict[str, _First | None]] = WeakKeyDictionary()

    def made(self, module: Any, like: Any = None) -> None:
        """Note the attributes of a module that is new, or a copy of ``like``, which is noted."""
        if like is None:
            self._made[module] = {
                name: _first(value) if _counts(value) else None
                for name, value in _attributes(module)
            }
        elif like in self._made:
            self._made[module] = self._made[like]

    def state(self, module: Any) -> dict[str, Any]:
        """Return the attributes that have changed: a tree of arrays, and one text of all others."""
        changed = self._changed(module)
        plain = {n: _encoded(v) for n, v in changed.items() if not _is_special(v)}
        return {
            ".attributes": {n: v for n, v in changed.items() if _is_special(v)},
            ".plain": json.dumps(plain) if plain else "",
        }

    def _changed(self, module: Any) -> dict[str, Any]:
        """Return the attributes that are not as they were made, by full name."""
        made = self._made.get(module)
        if made is None:
            return {}
        return {
            name: value
            for name, value in _attributes(module)
            if _counts(value) and not ((first := made.get(name)) and first.is_still(value))
        }

    def restore(self, module: Any, state: dict[str, Any]) -> None:
        """Set the attributes that a state has; others become again what they were made as.

        What is used of the state is taken out of it.  Raises ValueRefusedError, naming the
        attribute, if the module has no such part, or if nothing is kept of what the attribute was.
        """
        saved = {**_decoded_all(state.pop(".plain", "{}")), **state.pop(".attributes", {})}
        owners, made = dict(module.named_modules()), self._made.get(module, {})
        for name in self._changed(module):
            if name in saved:
                continue
            owner, key = _place(owners, name)
            if (first := made.get(name)) is not None:
                _set(owner, key, first.kept_for(name))
            elif name not in made:
                delattr(owner, key)
        for name, value in saved.items():
            _set(*_place(owners, name), value)


def _attributes(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield the full names and values of the attributes of modules of the user's own classes."""
    known = vars(torch().nn.Module())
    for prefix, owner in module.named_modules():
        if type(owner).__module__.partition(".")[0] == "torch":
            continue
        for key, value in vars(owner).items():
            if key not in known:
                yield f"{prefix}.{key}" if prefix else key, value


def _counts(value: Any) -> bool:
    return _is_plain(value) or _is_special(value)


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))
    if kind is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return kind in _SCALARS


def _is_special(value: Any) -> bool:
    """Return whether it is what a checkpoint holds as an array, or by an adapter."""
    kinds = (np.generic, np.random.Generator, torch().Generator)
    return is_tensor(value) or type(value) is np.ndarray or isinstance(value, kinds)


def _encoded(value: Any) -> Any:
    """Return a plain value as JSON: one text, since each number would be a file of its own."""
    kind = type(value)
    if kind is list or kind is tuple:
        return {kind.__name__: [_encoded(item) for item in value]}
    if kind is dict:
        return {"dict": [[_encoded(k), _encoded(v)] for k, v in value.items()]}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    return {"bytes": value.hex()} if kind is bytes else value


_DECODED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "list": lambda items: [_decoded(item) for item in items],
    "tuple": lambda items: tuple(_decoded(item) for item in items),
    "dict": lambda items: {_decoded(k): _decoded(v) for k, v in items},
    "complex": lambda parts: complex(*parts),
    "bytes": bytes.fromhex,
}


def _decoded(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    return _DECODED[kind](content)


def _decoded_all(text: Any) -> dict[str, Any]:
    """Return the attributes of a text; raises ValueRefusedError."""
    try:
        return {str(name): _decoded(value) for name, value in json.loads(text).items()}
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise ValueRefusedError(
            f"the saved state has attributes that cannot be read: {error}"
        ) from error


def _mark(value: Any) -> Any:
    """Return what is another one after a change in place."""
    if is_tensor(value):
        return None if value.is_inference() else value._version
    if isinstance(value, np.ndarray):
        content = hashlib.blake2b(np.ascontiguousarray(value).tobytes()).digest()
        return str(value.dtype), value.shape, content
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, torch().Generator):
        return value.get_state().numpy().tobytes()
    return repr(value)


def _first(value: Any) -> _First:
    size = getattr(value, "nbytes", 0)
    kept = _copied(value) if size <= _KEPT_BYTES else None
    return _First(value, _mark(value), kept)


def _copied(value: Any) -> Any:
    if is_tensor(value):
        return private_copy(value.detach(), value)
    return value.clone_state() if isinstance(value, torch().Generator) else copy.deepcopy(value)


def _set(owner: Any, key: str, value: Any) -> None:
    """Set an attribute to a copy; a generator, which others may hold, is put into that state."""
    now = getattr(owner, key, None)
    if is_tensor(value):
        setattr(owner, key, private_copy(value.detach(), now if is_tensor(now) else value))
    elif isinstance(now, torch().Generator) and isinstance(value, torch().Generator):
        now.set_state(value.get_state())
    elif isinstance(now, np.random.Generator) and isinstance(value, np.random.Generator):
        now.bit_generator.state = value.bit_generator.state
    else:
        setattr(owner, key, _copied(value))


def _place(owners: Mapping[str, Any], name: str) -> tuple[Any, str]:
    path, _, key = name.rpartition(".")
    if path not in owners:
        raise ValueRefusedError(
            f"the saved state has attribute {name!r}, and the object of 'setup' has no such part",
            hint="build in 'setup' the same object as when the run was started",
        )
    return owners[path], key
