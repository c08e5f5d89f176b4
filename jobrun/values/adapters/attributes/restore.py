"""The way back of ``graph``: text and leaves become what attributes hold.

Nothing is imported, and nothing is called: an object of a class that may be made (``makeable``) is
made without ``__init__``, and given its fields.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.attributes.graph import PAIRS, SEQUENCES, fields_in
from jobrun.values.adapters.attributes.makeable import Makeable
from jobrun.values.adapters.named_classes import class_named, member_named, name_of, set_field
from jobrun.values.adapters.pytree import live_adapter_of
from jobrun.values.adapters.registry import value_adapter
from jobrun.values.adapters.torch_tensors import (
    is_tensor,
    on_device,
    private_copy,
    torch,
)

__all__ = ["Restoring"]

_MISSING: Final = "build in 'setup' the same object as when the run was started"


class Restoring:
    """One restore of attributes.

    ``registered`` are the parts that the owner itself saves, by name; ``made`` what ``setup`` has
    made, by place; ``leaves`` what stands beside the text, by place; ``makeable`` the classes of
    which objects are made.
    """

    def __init__(
        self,
        registered: Mapping[str, Any],
        made: Mapping[str, Any],
        leaves: Mapping[str, Any],
        makeable: Makeable,
    ) -> None:
        self._registered = registered
        self._made = made
        self._leaves = leaves
        self._makeable = makeable
        self._here: dict[str, Any] = {}
        self._own: dict[str, Any] = {}

    def value(self, form: Any, place: str) -> Any:
        """Return the value of a text.

        Raises ValueRefusedError, naming the place, or what a text that is none leads to.
        """
        if not isinstance(form, dict):
            return form
        kind: str = next(iter(form), "")
        content: Any = form.get(kind)
        own = form.get("own", "")
        if kind in _IMMUTABLE:
            return _IMMUTABLE[kind](content)
        if kind in ("tuple", "frozenset"):
            return SEQUENCES[kind](self._items(content, place))
        if kind == "ref":
            return self._of(self._registered, content, place)
        if kind == "again":
            return self._again(content, own, place)
        if kind == "setup":
            return self._of(self._made, own, place)
        target = self._made.get(own) if own and own not in self._own else None
        made = self._new(kind, form, target, place)
        if made is None:
            raise LookupError(f"{kind!r} is not a form")
        return made

    def _of(self, known: Mapping[str, Any], name: str, place: str) -> Any:
        if name not in known:
            raise ValueRefusedError(
                f"{place} was {name!r} of the object, and that of 'setup' has no such part",
                hint=_MISSING,
            )
        return known[name]

    def _again(self, first: str, own: str, place: str) -> Any:
        if own:
            return self._own[own] if own in self._own else self._of(self._made, own, place)
        return self._of(self._here, first, place)

    def _new(self, kind: str, form: Mapping[str, Any], target: Any, place: str) -> Any:
        """Return the object of a form that is met for the first time: ``target``, or a new one."""
        content = form[kind]
        if kind == "leaf":
            return self._keep(form, place, self._leaf(form, target, place))
        if kind == "live":
            obj = self._of(self._made, form.get("own", ""), place)
            adapter = live_adapter_of(obj)
            if adapter is None:
                raise ValueRefusedError(f"{place} has another type now", hint=_MISSING)
            return self._keep(
                form, place, adapter.restore(obj, self._of(self._leaves, place, place))
            )
        if kind in PAIRS:
            return self._pairs(kind, form, target, place)
        if kind in SEQUENCES:
            fills = isinstance(target, SEQUENCES[kind])
            obj = deque(maxlen=form.get("maxlen")) if kind == "deque" else SEQUENCES[kind]()
            if fills and (kind != "deque" or target.maxlen == obj.maxlen):
                obj = target
            self._keep(form, place, obj)
            items = self._items(content, place)
            obj.clear()
            (obj.update if kind == "set" else obj.extend)(items)
            return obj
        if kind == "named":
            named = self._class(form["class"], place, self._makeable.why_not_named)
            return self._keep(form, place, tuple.__new__(named, self._items(content, place)))
        return self._object(form, target, place) if kind == "object" else None

    def _keep(self, form: Mapping[str, Any], place: str, obj: Any) -> Any:
        self._here[place] = obj
        if form.get("own"):
            self._own[form["own"]] = obj
        return obj

    def _items(self, forms: list[Any], place: str) -> list[Any]:
        return [self.value(form, f"{place}[{number}]") for number, form in enumerate(forms)]

    def _pairs(self, kind: str, form: Mapping[str, Any], target: Any, place: str) -> Any:
        obj: Any = target if isinstance(target, PAIRS[kind]) else PAIRS[kind]()
        self._keep(form, place, obj)
        items = {}
        for number, (key, item) in enumerate(form[kind]):
            own = self.value(key, f"{place}[{number}].key")
            items[own] = self.value(item, f"{place}[{own!r:.80}]")
        if isinstance(obj, defaultdict):
            obj.default_factory = self.value(form["factory"], f"{place}.factory")
        obj.clear()
        obj.update(items)
        return obj

    def _object(self, form: Mapping[str, Any], target: Any, place: str) -> Any:
        name = form["class"]
        if name_of(type(target)) == name and fields_in(target) is not None:
            obj = target
        else:
            obj = object.__new__(self._class(name, place, self._makeable.why_not))
        self._keep(form, place, obj)
        fields = {n: self.value(item, f"{place}.{n}") for n, item in form["object"]}
        getattr(obj, "__dict__", {}).clear()
        for name, value in fields.items():
            set_field(obj, name, value)
        return obj

    def _class(self, name: str, place: str, why_not: Callable[[type], str | None]) -> Any:
        found = class_named(name)
        why = "which is not a class of the job now" if found is None else why_not(found)
        if why is not None:
            raise ValueRefusedError(
                f"{place} was an object of {name.replace(':', '.')}, {why}",
                hint="import its module where the job's functions are defined, and make an object "
                "of it in 'setup'",
            )
        return found

    def _leaf(self, form: Mapping[str, Any], target: Any, place: str) -> Any:
        saved = self._of(self._leaves, place, place)
        if is_tensor(saved):
            return self._tensor(saved, form, target, place)
        if isinstance(saved, np.ndarray):
            alike = type(target) is np.ndarray and target.dtype == saved.dtype
            if alike and target.shape == saved.shape and target.flags.writeable:
                np.copyto(target, saved)
                return target
            return np.array(saved, order="F" if form.get("order") == "F" else "C")
        return _generator_like(target, saved)

    def _tensor(self, saved: Any, form: Mapping[str, Any], target: Any, place: str) -> Any:
        value = saved.detach()
        if _can_fill(target, saved):
            target.detach().copy_(value)
            made = target
        else:
            made = on_device(value, form.get("device"))
            made = private_copy(made, target if _is_alike(target, saved) else made)
            if type(saved) is torch().nn.Parameter:
                made = torch().nn.Parameter(made, requires_grad=saved.requires_grad)
        made.requires_grad_(saved.requires_grad)
        gradient = self._leaves.get(f"{place}.grad")
        made.grad = None if gradient is None else private_copy(gradient.detach(), made)
        return made


def _is_alike(target: Any, saved: Any) -> bool:
    kind = (type(saved), saved.dtype, saved.shape)
    return is_tensor(target) and (type(target), target.dtype, target.shape) == kind


def _can_fill(target: Any, saved: Any) -> bool:
    """Return whether a tensor can take the elements of a saved one in place."""
    if not _is_alike(target, saved) or not target.is_leaf or target.is_inference():
        return False
    return 0 not in target.stride() or target.numel() <= 1


def _generator_like(target: Any, saved: Any) -> Any:
    """Return ``target`` in the state of a saved random generator if it is one of its type."""
    if type(target) is not type(saved):
        return saved
    if hasattr(saved, "get_state") and hasattr(saved, "manual_seed"):  # of torch
        target.set_state(saved.get_state())
        return target
    if hasattr(saved, "setstate"):
        target.setstate(saved.getstate())
        return target
    like = getattr(value_adapter(target), "like", None)
    return saved if like is None else like(target, saved, True)


def _dtype(name: str) -> Any:
    found = vars(torch()).get(name)
    if not isinstance(found, torch().dtype):
        raise ValueRefusedError(f"there is no dtype {name!r} of torch")
    return found


def _global(name: str) -> Any:
    found = member_named(name)
    if found is None:
        raise ValueRefusedError(f"{name.replace(':', '.')} is not a member of an enumeration now")
    return found


_IMMUTABLE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "complex": lambda parts: complex(*parts),
    "bytes": bytes.fromhex,
    "size": lambda items: torch().Size(items),
    "device": lambda name: torch().device(name),
    "dtype": _dtype,
    "global": _global,
}
