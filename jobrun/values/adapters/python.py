"""Values of Python itself that are neither numbers nor strings, dicts nor lists."""

from __future__ import annotations

import random
from typing import Any, Final

import numpy as np

from jobrun.values.adapters.base import Meta, Plain

__all__ = ["ADAPTERS", "INTEGER", "TUPLE"]


class ComplexAdapter:
    """``complex``, as a numpy scalar."""

    name = "python.complex"
    version = 1

    def dump(self, value: complex) -> tuple[Plain, Meta]:
        """Return a complex128."""
        return np.complex128(value), {}

    def load(self, plain: Plain, meta: Meta) -> complex:
        """Return a ``complex``."""
        return complex(plain)


class BytesAdapter:
    """``bytes`` and ``bytearray``, as an array of uint8."""

    version = 1

    def __init__(self, kind: type[bytes] | type[bytearray]) -> None:
        self._kind = kind
        self.name = f"python.{kind.__name__}"

    def dump(self, value: bytes | bytearray) -> tuple[Plain, Meta]:
        """Return an array of shape [n], a view of the bytes."""
        return np.frombuffer(value, np.uint8), {}

    def load(self, plain: Plain, meta: Meta) -> bytes | bytearray:
        """Return the bytes."""
        return self._kind(plain.tobytes())


class TupleAdapter:
    """``tuple``, as a list."""

    name = "python.tuple"
    version = 1

    def dump(self, value: tuple[Any, ...]) -> tuple[Plain, Meta]:
        """Return a list of the items."""
        return list(value), {}

    def load(self, plain: Plain, meta: Meta) -> tuple[Any, ...]:
        """Return a tuple of the items."""
        return tuple(plain)


class IntegerAdapter:
    """Integers beyond 64 bits, as a string of hexadecimal digits."""

    name = "python.int"
    version = 1

    def dump(self, value: int) -> tuple[Plain, Meta]:
        """Return the digits."""
        return hex(value), {}

    def load(self, plain: Plain, meta: Meta) -> int:
        """Return the integer."""
        return int(plain, 16)


class RandomAdapter:
    """``random.Random``: its 625 integers, and the pending Gaussian."""

    name = "python.random.Random"
    version = 1

    def dump(self, value: random.Random) -> tuple[Plain, Meta]:
        """Return an array of the 625 integers and the pending number."""
        version, internal, gauss = value.getstate()
        return {"internal": np.array(internal, np.uint32), "gauss": gauss}, {"state": version}

    def load(self, plain: Plain, meta: Meta) -> random.Random:
        """Return a generator in that state."""
        made = random.Random()
        made.setstate((meta["state"], tuple(plain["internal"].tolist()), plain["gauss"]))
        return made


INTEGER: Final = IntegerAdapter()
TUPLE: Final = TupleAdapter()
ADAPTERS: Final = {
    "builtins.complex": ComplexAdapter(),
    "builtins.bytes": BytesAdapter(bytes),
    "builtins.bytearray": BytesAdapter(bytearray),
    "builtins.tuple": TUPLE,
    "builtins.int": INTEGER,
    "random.Random": RandomAdapter(),
}
