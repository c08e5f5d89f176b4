"""Waits of the client while nodes are placed: a signal ends them, and long ones are reported."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from jobrun.core.events import Warned
from jobrun.session.base import Control

__all__ = ["WaitEndedError", "wait_until"]

_SOON = 0.002
_LOOK = 0.05
"""Seconds between two looks: short at first, since most waits are."""

_SAY = 5.0
"""Seconds after which a wait is reported."""


class WaitEndedError(Exception):
    """The run was interrupted during a wait."""


def wait_until(
    done: Callable[[], bool], seconds: float, what: Callable[[], str], control: Control
) -> bool:
    """Wait until ``done()``; return whether that was within ``seconds``.

    After five seconds ``what()``, a noun phrase, is reported.  Raises WaitEndedError if the run is
    interrupted meanwhile.
    """
    start = time.monotonic()
    said = False
    while not done():
        waited = time.monotonic() - start
        if waited >= seconds:
            return False
        if control.interrupted():
            raise WaitEndedError
        if waited >= _SAY and not said:
            said = True
            limit = "" if math.isinf(seconds) else f", for at most {seconds:g} s"
            control.report(Warned(f"waiting for {what()}{limit}"))
        time.sleep(_SOON if waited < 1 else _LOOK)
    return True
