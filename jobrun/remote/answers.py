"""The answers of an S3 store, which its library receives and retries.

Throttling (503 SlowDown) is retried by botocore and s3fs, with pauses that grow, as
``AWS_MAX_ATTEMPTS``, ``AWS_RETRY_MODE`` and fsspec's settings say.  Nothing here changes that: it
is reported, and a store that never answers is distinguished from one that asks for patience.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from jobrun.core.late_imports import imported
from jobrun.core.notices import notice

__all__ = ["Answers"]

_NAME = "jobrun_answers"
_THROTTLED = (429, 503)
_REPORTED = 3
"""Requests to slow down from which on they are reported: single ones are usual."""

_ATTEMPTS = 6
"""Timeouts of one attempt that a store may be silent for: 90 seconds with those of s3fs.

Its own limit is 25 attempts, more than six minutes.
"""


class Answers:
    """The answers to all requests of one S3 file system of fsspec."""

    def __init__(self, place: str, silence: float) -> None:
        self.silence = silence
        self._bucket = "/".join(place.split("/")[:3])
        self._last = float("-inf")
        self._throttled = 0

    @classmethod
    def of(cls, fs: Any, place: str) -> Answers:
        """Return the answers of a file system, which fsspec shares between places."""
        known: Answers | None = getattr(fs, _NAME, None)
        if known is None:
            timeout = fs.config_kwargs.get("read_timeout", fs.read_timeout)
            known = cls(place, _ATTEMPTS * timeout)
            if fs.session is None:  # as s3fs would make it on its first request
                fs.session = imported("aiobotocore.session").AioSession(**fs.kwargs)
            fs.session.register("needs-retry.s3", known.received)
            setattr(fs, _NAME, known)
        return known

    def last(self) -> float:
        """Return the time (``time.monotonic``) of the last answer; -inf if there was none."""
        return self._last

    def received(self, response: Any = None, **_: object) -> None:
        """Note an answer: botocore calls this after each attempt, with None if there was none."""
        if response is None:
            return
        self._last = monotonic()
        if response[0].status_code in _THROTTLED:
            self._throttled += 1
            if self._throttled >= _REPORTED:
                notice(
                    f"{self._bucket} is slow: it asks for fewer requests "
                    f"({response[0].status_code}); they are repeated after pauses"
                )
