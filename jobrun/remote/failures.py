"""Errors of stores: what failed, why, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobrun.errors import StoreError

__all__ = ["CorruptError", "code_of", "failed", "refuse_bucket", "refuses_range"]

_CORRUPT = "FlexibleChecksumError"
"""The error of botocore for bytes without the checksum that the store sent with them."""

_EXPIRED = "the credentials have expired: renew them and run the command again"
_WRONG = "check the credentials: for S3 AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN"
_BUSY = "run the command again later, or raise AWS_MAX_ATTEMPTS"
_HINTS = {
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "UnauthorizedSSOTokenError": _EXPIRED,
    "TokenRetrievalError": _EXPIRED,
    "InvalidAccessKeyId": _WRONG,
    "InvalidToken": _WRONG,
    "SignatureDoesNotMatch": _WRONG,
    "NoCredentialsError": _WRONG,
    "PartialCredentialsError": _WRONG,
    "AccessDenied": "check that these credentials may do this",
    "RequestTimeTooSkewed": "set the clock of this machine",
    "SlowDown": _BUSY,
    "ServiceUnavailable": _BUSY,
    "503": _BUSY,
}
"""By the code in an answer of S3, or the class of an exception of its libraries."""


class CorruptError(StoreError):
    """The bytes that arrived differ from the store's, by the store's own checksum."""


_NO_RANGE = re.compile(r"InvalidRange|not satisfiable|(?:^|[\s(:=])416(?:$|[\s):,.])")
"""The text of such an answer; a name of a file may hold the number too."""


def failed(op: str, path: str, reason: str | BaseException) -> StoreError:
    """Return the error of an operation on a file; ``reason`` may be what a store raised."""
    if isinstance(reason, str):
        return StoreError(f"{op} failed: {reason}", where=path)
    if type(reason).__name__ == _CORRUPT:
        return CorruptError(f"{op} failed: {_why(reason)}", where=path)
    hints = (_HINTS.get(code_of(e)) or _HINTS.get(type(e).__name__) for e in _causes(reason))
    return StoreError(
        f"{op} failed: {_why(reason)}", where=path, hint=next(filter(None, hints), "")
    )


def _why(error: BaseException) -> str:
    """Return the type and message of what a store raised, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__}: {text}"


def code_of(error: BaseException) -> str:
    """Return the code in the answer of S3 that an exception carries, or an empty string."""
    answer = getattr(error, "response", None)
    details = answer.get("Error") if isinstance(answer, dict) else None
    return str(details.get("Code", "")) if isinstance(details, dict) else ""


def refuse_bucket(op: str, path: str, error: BaseException) -> None:
    """Raise StoreError if the whole bucket is missing, and not just the file."""
    if any(code_of(e) == "NoSuchBucket" for e in _causes(error)):
        raise failed(op, path, "there is no such bucket") from error


def refuses_range(error: BaseException) -> bool:
    """Return whether a store could not satisfy the requested range of bytes (416)."""
    if isinstance(error, FileNotFoundError):
        return False
    return any(
        code_of(e) in ("InvalidRange", "416")
        or getattr(e, "status", None) == 416  # of HTTP
        or _NO_RANGE.search(str(e))
        for e in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those it was raised from."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__
