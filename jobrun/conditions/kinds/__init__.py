"""The stop conditions that there are, each with its key in the spec.

A new one is a module like those imported here (a class with its syntax, observation and verdict), a
row below, a test, and a row in the table of ``docs/spec.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jobrun.conditions.base import Condition
from jobrun.conditions.kinds.blob_true import BlobTrue
from jobrun.conditions.kinds.data_finished import DataFinished
from jobrun.conditions.kinds.epochs import Epochs
from jobrun.conditions.kinds.not_finite import NotFinite
from jobrun.conditions.kinds.patience import Patience
from jobrun.conditions.kinds.walltime import Walltime
from jobrun.conditions.kinds.when import When

__all__ = ["KINDS"]

_ALL: Final[tuple[type[Condition], ...]] = (
    Epochs,
    When,
    BlobTrue,
    DataFinished,
    Patience,
    Walltime,
    NotFinite,
)
KINDS: Final[Mapping[str, type[Condition]]] = {condition.kind: condition for condition in _ALL}
"""Every condition by its key in the spec."""
