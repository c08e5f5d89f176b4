"""Modules: live objects that are changed in place."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.attributes import Parts, WithAttributes, taken
from jobrun.values.adapters.base import Plain
from jobrun.values.adapters.torch_tensors import dtype_name, is_tensor, private_copy, torch
from jobrun.values.shared_memory import address_of

__all__ = ["OTHER_OBJECT", "ModuleAdapter", "as_dict", "listed", "refusing"]

OTHER_OBJECT: Final = (
    "build in 'setup' the same object as when the run was started, or start over with --fresh"
)


class ModuleAdapter(WithAttributes):
    """``torch.nn.Module``: its ``state_dict``, and what that leaves out.

    Keys with a dot in front, which no parameter can have, hold the rest, each only if there is
    something to hold: ``.grad``, the gradients that are not None; ``.frozen`` and ``.eval``, the
    names of the parameters without ``requires_grad`` and of the modules that are not training, as
    JSON; ``.buffers``, the buffers that are not persistent; ``.attributes``, ``.parts``
    and ``.plain``, the attributes that have changed (see ``adapters/attributes``).
    """

    name = "torch.nn.Module"
    version = 1
    places = True

    def __init__(self) -> None:
        super().__init__(_parts)
        self._made: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()
        self._others: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()
        self._addresses: WeakKeyDictionary[Any, dict[str, int | None]] = WeakKeyDictionary()

    def made(self, obj: Any, like: Any = None) -> object:
        """See ``LiveAdapter``."""
        before = self._made.get(like) if like is not None else None
        modules, tensors = dict(obj.named_modules()), obj.state_dict()
        self._made[obj] = _structure(modules, tensors) if before is None else before
        buffers = {name: getattr(module, key, None) for name, module, key in _transient(modules)}
        self._addresses[obj] = {n: address_of(t) for n, t in {**tensors, **buffers}.items()}
        return super().made(obj, like)

    def fills(self, obj: Any, keys: Sequence[Any], address: int) -> bool:
        """See ``LiveAdapter``."""
        if (fills := self._attributes.fills(obj, keys)) is not None:
            return fills
        if keys[0] == ".grad":
            return False
        made = self._addresses.get(obj, {}).get(keys[1] if keys[0] == ".buffers" else keys[0])
        return made is None or made == address  # None: of what has its shape since a first batch

    def warnings(self, obj: Any) -> Iterator[str]:
        """See ``LiveAdapter``."""
        yield from super().warnings(obj)
        yield from self._others.pop(obj, ())

    def state(self, obj: Any) -> Plain:
        """Return the state; tensors share the memory of the module's."""
        parameters = dict(obj.named_parameters())
        parts = _parts(obj, parameters)
        modules = parts.holders
        rest: dict[str, Any] = {
            ".grad": {n: _dense(p.grad, n) for n, p in parameters.items() if p.grad is not None},
            ".frozen": _names(n for n, p in parameters.items() if not p.requires_grad),
            ".eval": _names(n for n, m in modules.items() if not m.training),
            ".buffers": {n: getattr(m, k) for n, m, k in _transient(modules) if _is_set(m, k)},
            **self._attributes.state(obj, parts),
        }
        tensors = obj.state_dict()
        if (made := self._made.get(obj)) is not None:
            self._others[obj] = [*_differences(made, _structure(modules, tensors))]
        tied = {name: tensors[first] for name, first in _ties(tensors).items()}
        return {**tensors, **tied, **{key: value for key, value in rest.items() if value}}

    def restore(self, obj: Any, state: Plain) -> Any:
        """Copy the state into the module's own tensors, wherever they are; return the module.

        Raises ValueRefusedError, naming the parameter or module, before anything is changed.
        """
        with refusing("module"):
            self._restore(obj, as_dict(state))
        return obj

    def _restore(self, obj: Any, state: dict[str, Any]) -> None:
        gradients, buffers = state.pop(".grad", {}), state.pop(".buffers", {})
        frozen, still = listed(state.pop(".frozen", "[]")), listed(state.pop(".eval", "[]"))
        parameters, modules = dict(obj.named_parameters()), dict(obj.named_modules())
        transient = {name: (module, key) for name, module, key in _transient(modules)}
        attributes = taken(state)
        own = obj.state_dict()
        _check_tensors(own, state)
        _check_known("gradient of parameter", gradients, parameters)
        _check_known("parameter", frozen, parameters)
        _check_known("module", still, modules)
        _check_known("buffer", buffers, transient)
        for name, gradient in gradients.items():
            _check_shape(f"the gradient of {name!r}", parameters[name], gradient, dtype=False)
        _load(obj, state, own)
        for name, parameter in parameters.items():
            parameter.requires_grad_(name not in frozen)
            parameter.grad = private_copy(gradients[name], parameter) if name in gradients else None
        for name, module in modules.items():
            module.training = name not in still
        for name, buffer in buffers.items():
            _set_buffer(*transient[name], buffer)
        self._attributes.restore(obj, attributes)

    def copy(self, obj: Any) -> Any:
        """Return ``copy.deepcopy(obj)``, with copies of the gradients, which that leaves out."""
        made = copy.deepcopy(obj)
        for own, parameter in zip(obj.parameters(), made.parameters(), strict=True):
            parameter.grad = None if own.grad is None else private_copy(own.grad, own.grad)
        return made


def _structure(modules: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, str]:
    """Return what each part of a module is, by its name: its class, or its dtype and shape."""
    kinds = {
        name or "it": getattr(type(part), "cls_to_become", None) or type(part)  # of a lazy module
        for name, part in modules.items()
    }
    parts = {name: kind.__qualname__ for name, kind in kinds.items()}
    return parts | {n: _described(t) if is_tensor(t) else _NO_SHAPE for n, t in tensors.items()}


_NO_SHAPE: Final = "without a shape"


def _differences(made: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield what a resume will not find in the module of ``setup``."""
    for name in (*now, *(name for name in made if name not in now)):
        was, is_now = made.get(name, "nothing"), now.get(name, "nothing")
        if was not in (is_now, _NO_SHAPE):
            yield (
                f"{name!r} is {is_now} now, and was {was} when 'setup' had made it, so a resume "
                "would begin with another module, or be refused: let 'setup' make the final one"
            )


def _parts(module: Any, parameters: Mapping[str, Any] | None = None) -> Parts:
    """Return the parts of a module; ``parameters`` are its own, if they are known."""
    modules = dict(module.named_modules())
    parameters = dict(module.named_parameters()) if parameters is None else parameters
    known = vars(torch().nn.Module())
    registered = {**modules, **parameters, **dict(module.named_buffers())}
    return Parts(modules, registered, lambda module: known.__contains__)


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn what the library raises for a state that it cannot use into a ValueRefusedError."""
    try:
        yield
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueRefusedError(
            f"the saved state does not fit the {what} of 'setup': {type(error).__name__}: {error}",
            hint=OTHER_OBJECT,
        ) from error


def as_dict(state: Plain) -> dict[str, Any]:
    """Return a copy of a saved state; raises ValueRefusedError if it is not a dict."""
    if not isinstance(state, dict):
        raise ValueRefusedError(f"expected a dict as saved state, got a {type(state).__name__}")
    return dict(state)


def _names(names: Iterable[str]) -> str:
    """Return names as one string of JSON, since a blob each would be many files; empty for none."""
    found = list(names)
    return json.dumps(found) if found else ""


def listed(text: Any) -> list[Any]:
    """Return the list that a string of a saved state holds as JSON; raises ValueRefusedError."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueRefusedError(f"the saved state has a list that cannot be read: {error}") from (
            error
        )
    if not isinstance(found, list):
        raise ValueRefusedError(f"the saved state has {found!r} where a list is expected")
    return found


def _transient(modules: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Return the buffers that ``state_dict`` leaves out: full name, module, and name within it."""
    for prefix, owner in modules.items():
        for key in sorted(owner._non_persistent_buffers_set):
            yield f"{prefix}.{key}" if prefix else key, owner, key


def _is_set(module: Any, key: str) -> bool:
    return getattr(module, key, None) is not None


def _set_buffer(module: Any, key: str, buffer: Any) -> None:
    old = module._buffers[key]
    if old is not None and old.shape == buffer.shape and old.dtype == buffer.dtype:
        old.copy_(buffer)
    else:
        module._buffers[key] = private_copy(buffer, buffer if old is None else old)


def _dense(gradient: Any, name: str) -> Any:
    if gradient.layout is not torch().strided:
        raise ValueRefusedError(
            f"the gradient of {name!r} is sparse, and cannot be saved",
            hint="call optimizer.zero_grad() at the end of each step, so that none is left",
        )
    return gradient


def _load(module: Any, state: dict[str, Any], own: Any) -> None:
    """Call ``load_state_dict`` with the versions of the parts, which the module itself has."""
    if hasattr(own, "_metadata"):
        ordered = type(own)(state)
        ordered._metadata = own._metadata
        state = ordered
    module.load_state_dict(state)


def _check_tensors(own: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Raise ValueRefusedError if names, dtypes, shapes or ties are not those of the state."""
    for name in (*own, *state):
        if name not in state or name not in own:
            there, absent = ("saved state", "object of 'setup'")[:: -1 if name in own else 1]
            raise ValueRefusedError(
                f"the {there} has {name!r}, and the {absent} does not", hint=OTHER_OBJECT
            )
    for name, now in own.items():
        if is_tensor(now):
            _check_shape(repr(name), now, state[name])
    now_tied = _ties(own)
    for name, other in _ties(state).items():
        if now_tied.get(name, other) != other:
            there = "saved state" if other != name else "object of 'setup'"
            one = other if other != name else now_tied[name]
            raise ValueRefusedError(
                f"{name!r} and {one!r} are one tensor in the {there} only",
                hint="tie in 'setup' the weights that were tied when the run was started",
            )


def _ties(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Return, for each tensor with elements, the name of the first that is one with it in memory.

    Devices without addresses (XLA's) have 0 for all: there nothing is known to be tied.
    """
    known = {name: t for name, t in tensors.items() if is_tensor(t) and t.numel() and t.data_ptr()}
    if len({tensor.data_ptr() for tensor in known.values()}) == len(known):
        return {name: name for name in known}  # the usual case, which needs no shapes
    first: dict[Any, str] = {}
    found = {}
    for name, value in known.items():
        place = (str(value.device), value.data_ptr(), value.shape, value.stride())
        found[name] = first.setdefault(place, name)
    return found


def _check_known(what: str, names: Iterable[str], known: Mapping[str, Any]) -> None:
    for name in names:
        if name not in known:
            raise ValueRefusedError(
                f"the saved state has a {what} {name!r}, and the object of 'setup' does not",
                hint=OTHER_OBJECT,
            )


def _check_shape(what: str, now: Any, saved: Any, *, dtype: bool = True) -> None:
    if not is_tensor(saved):
        raise ValueRefusedError(
            f"{what} is a tensor, and in the saved state a {type(saved).__name__}",
            hint=OTHER_OBJECT,
        )
    if now.shape != saved.shape or (dtype and now.dtype != saved.dtype):
        raise ValueRefusedError(
            f"{what} is {_described(now)} in the object of 'setup', and {_described(saved)} in the "
            "saved state",
            hint=OTHER_OBJECT,
        )


def _described(tensor: Any) -> str:
    return _text_of(tensor.dtype, tensor.shape)


@lru_cache(maxsize=1024)
def _text_of(dtype: Any, shape: Any) -> str:
    """Return the text of a dtype and shape, of which a module has few for its many tensors."""
    return f"{dtype_name(dtype)}{list(shape)}"
