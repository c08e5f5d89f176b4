"""Estimators of scikit-learn: an allow-listed walk of what their attributes hold.

Numbers, strings, arrays, dicts, lists and tuples are kept as they are; estimators within
estimators, trees, loss functions and other objects of scikit-learn as their class and attributes.
Functions and classes that an estimator was given (a metric, a kernel) are those of the object that
``setup`` made.  Anything else is refused, by the name of its attribute.

A class that a state names is taken only from modules of scikit-learn that have been imported:
restoring never imports anything, and never calls what is not on the list.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import numpy as np

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Plain
from jobrun.values.adapters.named_classes import class_named, name_of
from jobrun.values.adapters.ties import Forms, Objects

__all__ = ["ADAPTERS"]

_CLASS: Final = ".class"
"""The key of the class in the form of an object; attributes have no such names."""

_OF_SETUP: Final = {_CLASS: "setup"}
_OBJECTS: Final = "numpy:object"
_TRANSPOSED: Final = "numpy:transposed"
"""An array whose memory is not in the order of its axes: that order decides the bits of sums."""

_TREE: Final = "sklearn.tree._tree:Tree"
_MASKED: Final = "numpy:masked"
_SLICE: Final = "builtins:slice"
_BUNCH: Final = "sklearn.utils._bunch:Bunch"
"""A dict whose keys are attributes too."""

_LOSSES: Final = ("sklearn._loss.", "sklearn.linear_model._sgd_fast")
"""Modules of loss functions, which are made again from the arguments that they reduce to."""

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), np.generic)
_GENERATOR: Final = "generator"
_GENERATORS: Final = (np.random.RandomState, np.random.Generator)
_GLOBAL: Final = {_CLASS: "numpy:random"}
"""numpy's global generator, as what an estimator without ``random_state`` has been given."""

_NOT_A_STATE: Final = (
    TypeError,
    ValueError,
    KeyError,
    AttributeError,
    IndexError,
    OverflowError,
    MemoryError,
    RecursionError,
)


class EstimatorAdapter:
    """Anything that derives from ``sklearn.base.BaseEstimator``."""

    name = "sklearn.BaseEstimator"
    version = 1

    def state(self, obj: Any) -> Plain:
        """Return the class and the attributes of an estimator, fitted or not.

        Raises ValueRefusedError for an attribute that is not on the list, and for objects that
        hold each other (the nodes of a Birch).
        """
        try:
            return _form_of_object(obj, type(obj).__name__, Forms())
        except RecursionError:
            raise _refused(type(obj).__name__, "made of objects that hold each other") from None

    def restore(self, obj: Any, state: Plain) -> Any:
        """Give ``obj`` the attributes of the state, those of fitting too; return ``obj``."""
        _check_object(state, name_of(type(obj)), type(obj).__name__)
        try:
            _put_back(obj, state, type(obj).__name__, _Made())
        except _NOT_A_STATE as error:
            raise ValueRefusedError(
                f"the state is not that of a {type(obj).__name__}: {error!r}"
            ) from error
        return obj

    def copy(self, obj: Any) -> Any:
        """Return ``copy.deepcopy(obj)``: ``sklearn.clone`` would forget what was fitted."""
        return copy.deepcopy(obj)

    def draws_from(self, obj: Any) -> tuple[str, str] | None:
        """Return ``rng.numpy`` and why, if ``obj`` may draw from numpy's global generator."""
        for name, value in obj.get_params(deep=True).items():
            if value is None and name.rpartition("__")[2] == "random_state":
                return "rng.numpy", f"its {name} is None"
        return None


def _is_of_sklearn(obj: object) -> bool:
    return type(obj).__module__.partition(".")[0] == "sklearn"


# Taking apart.


def _form(value: Any, where: str, seen: Forms) -> Plain:
    """Return the plain form of the value at ``where``; ``seen`` are the forms so far."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return _form_of_array(value, where, seen)  # it is known again by its memory
    if isinstance(value, _PLAIN):
        return value
    if type(value) is tuple:
        return tuple(_form(item, f"{where}[{n}]", seen) for n, item in enumerate(value))
    if isinstance(value, FunctionType | BuiltinFunctionType | type | np.ufunc):
        return dict(_OF_SETUP)
    if value is np.random.mtrand._rand:
        return dict(_GLOBAL)
    return seen.of(value, lambda: _new_form(value, where, seen))


def _new_form(value: Any, where: str, seen: Forms) -> Plain:
    """Return the plain form of an object that is met for the first time."""
    if isinstance(value, np.ndarray):
        return _form_of_array(value, where, seen)
    if type(value) in _GENERATORS:
        return {_CLASS: _GENERATOR, "number": len(seen), "state": value}
    if type(value) is dict:
        if _CLASS in value:
            raise _refused(where, f"a dict with the key {_CLASS!r}")
        return {key: _form(item, f"{where}[{key!r}]", seen) for key, item in value.items()}
    if isinstance(value, slice):
        return {_CLASS: _SLICE, "items": [value.start, value.stop, value.step]}
    if name_of(type(value)) == _BUNCH:
        return {_CLASS: _BUNCH, "items": _form(dict(value), where, seen)}
    if type(value) is list:
        return [_form(item, f"{where}[{n}]", seen) for n, item in enumerate(value)]
    if type(value).__module__.startswith("scipy.sparse"):
        return value  # taken apart by the adapter of its library
    if _is_of_sklearn(value) or _is_estimator(value):
        return _form_of_object(value, where, seen)
    raise _refused(where, f"a {name_of(type(value)).replace(':', '.')}")


def _form_of_array(array: Any, where: str, seen: Forms) -> Plain:
    if isinstance(array, np.ma.MaskedArray):
        parts = {"data": array.data, "mask": np.ma.getmaskarray(array), "fill": array.fill_value}
        return {_CLASS: _MASKED, **{k: _form(v, where, seen) for k, v in parts.items()}}
    if not array.dtype.hasobject or array.dtype.kind == "T":
        axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        if array.flags.c_contiguous or axes == [*range(array.ndim)]:
            return array
        return {_CLASS: _TRANSPOSED, "axes": axes, "array": array.transpose(axes)}
    items = [
        _form(item, f"{where}[{n}]", seen) for n, item in enumerate(array.reshape(-1).tolist())
    ]
    return {_CLASS: _OBJECTS, "shape": list(array.shape), "items": items}


def _form_of_object(obj: Any, where: str, seen: Forms) -> Plain:
    """Return the class of an object and its attributes, or what it reduces to."""
    reference = name_of(type(obj))
    if reference == _TREE:
        _, arguments, state = obj.__reduce__()
        return {_CLASS: reference, "arguments": list(arguments), "state": state}
    if _has_own_attributes(obj):
        attributes = vars(obj)
        if _CLASS in attributes:
            raise _refused(where, f"an object with an attribute {_CLASS!r}")
        return {
            _CLASS: reference,
            **{k: _form(v, f"{where}.{k}", seen) for k, v in attributes.items()},
        }
    if reference.startswith(_LOSSES):
        made, arguments = obj.__reduce__()[:2]
        if made is type(obj):
            return {_CLASS: reference, "arguments": [_form(a, where, seen) for a in arguments]}
    raise _refused(where, f"a {reference.replace(':', '.')}")


def _has_own_attributes(obj: Any) -> bool:
    return hasattr(obj, "__dict__") and not name_of(type(obj)).startswith(_LOSSES[1])


def _is_estimator(obj: object) -> bool:
    return any(name_of(kind) == "sklearn.base:BaseEstimator" for kind in type(obj).__mro__)


def _refused(where: str, what: str) -> ValueRefusedError:
    return ValueRefusedError(
        f"{where} is {what}, which the adapter of scikit-learn does not keep",
        hint="save what it holds in an adapter of your own: state: {model: mycode:ModelState}",
    )


# Putting together.


class _Made(Objects):
    """The objects made of the state so far; generators by number too, as old states name them."""

    def __init__(self) -> None:
        super().__init__()
        self.generators: dict[int, Any] = {}


def _put_back(obj: Any, form: Mapping[str, Any], where: str, made: _Made) -> None:
    """Replace the attributes of ``obj`` by those of a form, objects that it has in place."""
    before = dict(vars(obj))
    after = {
        key: _value(item, before.get(key), f"{where}.{key}", made)
        for key, item in form.items()
        if key != _CLASS
    }
    vars(obj).clear()
    vars(obj).update(after)


def _value(form: Any, before: Any, where: str, made: _Made) -> Any:
    """Return the value of a form; ``before`` is what setup's object has in this place."""
    if isinstance(form, dict | list):
        return made.of(form, lambda: _new_value(form, before, where, made))
    return _sequence(form, before, where, made) if isinstance(form, tuple) else form


def _new_value(form: Any, before: Any, where: str, made: _Made) -> Any:
    """Return the value of a form that is met for the first time."""
    if isinstance(form, list):
        return _sequence(form, before, where, made)
    if _CLASS in form:
        return _object(form, before, where, made)
    own = before if isinstance(before, dict) else {}
    return {k: _value(v, own.get(k), f"{where}[{k!r}]", made) for k, v in form.items()}


def _sequence(form: Any, before: Any, where: str, made: _Made) -> Any:
    fits = isinstance(before, list | tuple) and len(before) == len(form)
    beside = before if fits else [None] * len(form)
    pairs = enumerate(zip(form, beside, strict=True))
    return type(form)(_value(v, b, f"{where}[{n}]", made) for n, (v, b) in pairs)


def _object(form: Mapping[str, Any], before: Any, where: str, made: _Made) -> Any:
    """Return the object of a form that names a class."""
    reference = form[_CLASS]
    if type(reference) is not str:
        raise ValueRefusedError(f"{where} names a class that is not a string")
    if reference == _GENERATOR:
        return made.generators.setdefault(form["number"], form.get("state"))
    if reference == _OF_SETUP[_CLASS]:
        if before is None:
            raise ValueRefusedError(
                f"{where} is a function or a class of the object that 'setup' made, which has none",
                hint="build the estimator in 'setup' as it was built before",
            )
        return before
    if reference == _GLOBAL[_CLASS]:
        return np.random.mtrand._rand
    if reference == _OBJECTS:
        return _object_array(form, where, made)
    if reference == _TRANSPOSED:
        return _transposed_array(form, where)
    if reference in _MAKERS:
        parts = {k: _value(v, None, f"{where}.{k}", made) for k, v in form.items() if k != _CLASS}
        try:
            return _MAKERS[reference](**parts)
        except _NOT_A_STATE as error:
            raise ValueRefusedError(f"{where} is not the state of a {reference}: {error}") from None
    own = name_of(type(before)) == reference != _TREE and _has_own_attributes(before)
    if own and made.claims(before):
        _put_back(before, form, where, made)
        return before
    kind = _class(reference, where)
    try:
        if reference == _TREE:
            return _tree(kind, form)
        if reference.startswith(_LOSSES) and "arguments" in form:
            return kind(*[_value(a, None, where, made) for a in form["arguments"]])
        obj: Any = object.__new__(kind)
        _put_back(obj, form, where, made)
    except _NOT_A_STATE as error:
        raise ValueRefusedError(f"{where} is not the state of a {reference}: {error}") from error
    return obj


def _object_array(form: Mapping[str, Any], where: str, made: _Made) -> Any:
    items, shape = form.get("items"), form.get("shape")
    sizes = shape if isinstance(shape, list) else [-1]
    fits = isinstance(items, list) and all(type(n) is int and n >= 0 for n in sizes)
    if not fits or int(np.prod(sizes, dtype=object)) != len(items or ()):
        raise ValueRefusedError(f"{where} is not the state of an array of objects")
    array = np.empty(len(items or ()), object)
    for number, item in enumerate(items or ()):
        array[number] = _value(item, None, f"{where}[{number}]", made)
    return array.reshape(sizes)


def _masked_array(data: Any, mask: Any, fill: Any) -> Any:
    return np.ma.MaskedArray(data, mask, fill_value=fill)


def _bunch(items: dict[str, Any]) -> Any:
    kind: Any = _class(_BUNCH, "a Bunch")
    return kind(**items)


_MAKERS: Final[Mapping[str, Any]] = {
    _MASKED: _masked_array,
    _SLICE: lambda items: slice(*items),
    _BUNCH: _bunch,
}


def _transposed_array(form: Mapping[str, Any], where: str) -> Any:
    array, axes = form.get("array"), form.get("axes")
    if not isinstance(array, np.ndarray) or not isinstance(axes, list):
        raise ValueRefusedError(f"{where} is not the state of an array")
    if any(type(axis) is not int for axis in axes) or sorted(axes) != [*range(array.ndim)]:
        raise ValueRefusedError(f"{where} has other axes than its array")
    return array.transpose(np.argsort(axes))


def _class(reference: Any, where: str) -> type:
    """Return a class of a module of scikit-learn that has been imported."""
    own = str(reference).partition(":")[0].partition(".")[0] == "sklearn"
    kind = class_named(reference) if own else None
    if kind is None or name_of(kind) != reference:
        raise ValueRefusedError(
            f"{where} is a {str(reference)[:80]}, which is not a class of scikit-learn that has "
            "been imported",
            hint="import its module where 'setup' makes the estimator",
        )
    return kind


def _tree(kind: Any, form: Mapping[str, Any]) -> Any:
    """Make a tree, whose nodes are proven to refer to nodes and features that there are.

    ``__setstate__`` checks dtypes and shapes only, and prediction nothing at all.
    """
    arguments, state = form["arguments"], form["state"]
    features, classes, outputs = arguments
    if classes.dtype.kind not in "iu" or classes.shape != (outputs,) or (classes < 1).any():
        raise ValueError("the number of its classes is not valid")
    made = kind(int(features), classes.astype(np.intp), int(outputs))
    nodes, count = state["nodes"], int(state["node_count"])
    if nodes.shape != (count,) or state["values"].shape[0] != count:
        raise ValueError("the number of its nodes is another one")
    inner = nodes["left_child"] != -1
    places = np.arange(count)
    for side in ("left_child", "right_child"):
        children = nodes[side]
        if (children[~inner] != -1).any() or (children[inner] <= places[inner]).any():
            raise ValueError("a node refers to one before it")
        if (children >= count).any():
            raise ValueError("a node refers to one that is not there")
    if (nodes["feature"][inner] < 0).any() or (nodes["feature"][inner] >= int(features)).any():
        raise ValueError("a node refers to a feature that is not there")
    made.__setstate__(dict(state))
    return made


def _check_object(form: Any, reference: str, where: str) -> None:
    own = form.get(_CLASS) if isinstance(form, dict) else None
    if type(own) is not str or own != reference:
        said = str(form.get(_CLASS))[:80] if isinstance(form, dict) else type(form).__name__
        raise ValueRefusedError(
            f"{where} is a {reference.replace(':', '.')} now, and its state is that of a {said}",
            hint="build the same type of estimator in 'setup', or start over with --fresh",
        )


ADAPTERS: Final = {"sklearn.base.BaseEstimator": EstimatorAdapter()}
