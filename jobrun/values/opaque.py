"""Opaque values: which of them can change, and which are the same object.

An opaque value is anything but an array, number, string, dict or list: a database handle, a
compiled model.  It is never saved, and reading it counts as updating it, since nobody can see
whether a call changed it.  A value that cannot change is not held to that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    EllipsisType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    NotImplementedType,
)
from typing import Any, Final
from uuid import UUID

import numpy as np

from jobrun.values.boxes import Value, leaves

__all__ = ["can_change", "changeable_objects"]

_CONSTANT: Final = (
    bytes,
    complex,
    range,
    slice,
    date,
    time,
    timedelta,
    timezone,
    Decimal,
    Fraction,
    UUID,
    PurePath,
    Enum,
    EllipsisType,
    NotImplementedType,
    re.Pattern,
    np.dtype,
    type,
    ModuleType,
)
"""Types of which no object changes; modules and classes are shared by the whole program anyway."""

_METHODS: Final = (MethodType, BuiltinFunctionType, MethodWrapperType)


def changeable_objects(value: Value, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the object of every opaque leaf of ``value`` that can change.

    A bound method stands for the object that it is a method of.
    """
    for leaf, box in leaves(value, path):
        if box.kind == "opaque" and can_change(box.value):
            yield leaf, _changed_by(box.value)


def can_change(obj: Any) -> bool:
    """Return whether a call that is given ``obj`` may leave something in it for a later call.

    Only what is known not to change is False: values of the standard library without parts that
    change, and functions without a closure or attributes.
    """
    owner = _changed_by(obj)
    if owner is not obj:
        return can_change(owner)
    if isinstance(obj, tuple | frozenset):
        return any(can_change(item) for item in obj)
    if isinstance(obj, FunctionType):
        return bool(obj.__closure__ or obj.__dict__)
    return not (obj is None or isinstance(obj, (*_CONSTANT, str, int, float, *_METHODS)))


def _changed_by(obj: Any) -> Any:
    """Return the object that a bound method acts on, else ``obj`` itself."""
    owner = getattr(obj, "__self__", None) if isinstance(obj, _METHODS) else None
    return obj if owner is None else owner
