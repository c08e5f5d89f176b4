"""Options of tasks, as plain values: retries, and blobs of other runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jobrun.core.template import Template

__all__ = ["Load", "Number", "Retries"]

Number = int | float | str
"""A number, or the name of a var or blob that holds one."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The number of retries of a task that fails, and the seconds between them.

    The first pause is ``delay``, each further one ``backoff`` times the one before.
    """

    times: int
    delay: float = 0.0
    backoff: float = 1.0

    def pause(self, number: int) -> float:
        """Return the seconds to wait before retry ``number``, counted from 1."""
        if not self.delay:  # and no power that may overflow a float
            return 0.0
        return self.delay * self.backoff ** (number - 1)

    def fault(self) -> str | None:
        """Return an error message, or None."""
        if isinstance(self.times, bool) or not isinstance(self.times, int) or self.times < 1:
            return f"'times' is {self.times!r}, not a whole number from 1"
        if not 0 <= self.delay < math.inf:
            return f"'delay' is {self.delay!r}, not a number of seconds"
        if not 1 <= self.backoff < math.inf:
            return f"'backoff' is {self.backoff!r}, not a factor from 1"
        return None


@dataclass(frozen=True, slots=True)
class Load:
    """Blobs of another run or checkpoint, or of a file, as a task's function; ``out`` names them.

    ``run`` is a run's directory, of which the newest checkpoint is read or that of ``epoch`` or
    ``id``, or a checkpoint's.  A relative path begins at the spec's folder; it may be a URL.

    ``file`` is a file of weights (``.safetensors``, ``.npz``, ``.pt``, ``.pth``).  In the names
    under ``out``, ``*`` stands for the names in a dict, or in an object under ``state``, whose
    weights are replaced; ``strict``: all of them, and by all that the file has.
    """

    run: str | Template | None = None
    epoch: int | None = None
    id: int | None = None
    file: str | Template | None = None
    strict: bool = True

    def fault(self) -> str | None:
        """Return an error message, or None."""
        if (self.run is None) == (self.file is None):
            return "expected either 'run' or 'file'"
        if self.file is not None and (self.epoch, self.id) != (None, None):
            return "'epoch' and 'id' are for a run, not for a file"
        return None
