"""The reporters that a job asks for, by name or by their function: plain values.

A reporter is called with every event of a run; ``jobrun.report.registry`` finds and opens them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobrun.errors import Where

__all__ = ["Reporter"]


@dataclass(frozen=True, slots=True)
class Reporter:
    """``name`` of a reporter, or ``call``, the ``module:function`` that makes it.

    ``value`` is its first argument, if one was given alone, ``options`` are others by name.
    """

    name: str
    value: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    where: Where | None = None

    @property
    def is_call(self) -> bool:
        """Whether ``name`` is ``module:function``."""
        return ":" in self.name
