"""Stores of files: a local directory, or what fsspec opens by its URL."""

from __future__ import annotations

import errno
import os
import re
import secrets
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from jobrun.core.late_imports import importing
from jobrun.core.paths import directories_in
from jobrun.errors import NotFoundError, StoreError, UsageError
from jobrun.remote.limit import within
from jobrun.storage.bounded_json import MAX_BYTES
from jobrun.storage.fs import DEFAULT, Fs, FsError
from jobrun.storage.regular_file import size_text

__all__ = ["Store", "TooLongError", "join", "open_store", "split"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure"}


def join(place: str, *names: str) -> str:
    """Return a path or URL below a place."""
    return "/".join([place.rstrip("/"), *names])


def split(place: str) -> tuple[str, str]:
    """Return the parent of a path or URL, and its last name."""
    above, _, name = place.rstrip("/").rpartition("/")
    return above, name


def open_store(place: str) -> Store:
    """Return the store at a place, a path or URL.

    Raises UsageError, with the command that installs it, if a package is missing, and StoreError if
    the place cannot be reached.
    """
    scheme = _URL.match(place)
    if scheme is None:
        return _Directory(Path(place))
    if scheme[1].lower() == "file":
        return _Directory(Path(place[len(scheme[0]) :]))
    return _Remote(place, _file_system(scheme[1].lower(), place))


def _file_system(scheme: str, place: str) -> Any:
    extra = _EXTRAS.get(scheme, "remote")
    hint = f"pip install 'jobrun[{extra}]'"
    try:
        with importing():
            import fsspec
    except ImportError:
        raise UsageError(f"{scheme}:// needs fsspec, which is not installed", hint=hint) from None
    patience = _s3_patience() if extra == "s3" else {}
    try:
        with importing():  # it imports what opens the scheme
            fs = fsspec.url_to_fs(place, use_listings_cache=False, **patience)[0]
    except ImportError as error:
        raise UsageError(f"{scheme}:// cannot be opened: {error}", hint=hint) from None
    except ValueError as error:
        raise UsageError(f"{place} cannot be opened: {error}") from None
    except Exception as error:  # some connect at once, such as those of ftp://
        raise _failed("open", place, _why(error)) from error
    if patience:
        fs.retries = _S3_ROUNDS
    return fs


_S3_ROUNDS = 2
_S3_RETRIES = 2
"""How often a request is retried in each round.

An endpoint that accepts connections and never answers (15 seconds each time) fails after 90
seconds.  With their defaults botocore and s3fs wait for more than six minutes.
"""


def _s3_patience() -> dict[str, Any]:
    """Return settings under which a request ends; the user's own for fsspec take precedence."""
    with importing():
        from fsspec.config import conf

    own = {**conf.get("s3a", {}), **conf.get("s3", {})}.get("config_kwargs", {})
    return {"config_kwargs": {"retries": {"max_attempts": _S3_RETRIES}, **own}}


_LIMIT = 600.0
"""Seconds that any request may take, beside the transfer of its bytes."""

_BLOCK = 1 << 20

_SLOWEST = 50_000
"""Bytes per second of the slowest network on which a write may succeed."""


class TooLongError(StoreError):
    """A file of a store is longer than expected."""


class Store(ABC):
    """Files below a place, by names with ``/``.

    Every method raises StoreError, naming operation and file, if it fails; ``read`` raises
    NotFoundError for a missing file.
    """

    place: str

    @abstractmethod
    def write(self, name: str, data: bytes | memoryview) -> None:
        """Write or replace a whole file: a reader sees all of it or nothing."""

    @abstractmethod
    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        """Return all bytes of a file; raises TooLongError early if it has more than ``most``."""

    @abstractmethod
    def sizes(self, folder: str) -> dict[str, int]:
        """Return the length in bytes of every file below a folder, by its name from there."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Return the names of the folders directly at the place."""


class _Directory(Store):
    """A local directory; writes are durable on return."""

    def __init__(self, root: Path, fs: Fs = DEFAULT) -> None:
        self.place = str(root)
        self._root = root
        self._fs = fs

    def write(self, name: str, data: bytes | memoryview) -> None:
        path = self._root / name
        part = path.with_name(f".{path.name}.partial-{secrets.token_hex(8)}")
        try:
            self._fs.make_dirs(str(path.parent))
            self._fs.write(str(part), [data], sync=True)
            self._fs.replace(str(part), str(path))
            self._fs.sync_dir(str(path.parent))
        except FsError as error:
            with suppress(FsError):  # so that attempts do not fill a full disk further
                self._fs.unlink(str(part))
            raise _failed(error.op, str(path), error.strerror or "") from error

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        path = str(self._root / name)
        try:
            return self._fs.read(path, most)
        except FsError as error:
            if error.errno == errno.EFBIG:
                raise _too_long(path, most) from error
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                raise NotFoundError("there is no such file", where=path) from error
            raise _failed(error.op, path, error.strerror or "") from error

    def sizes(self, folder: str) -> dict[str, int]:
        base = self._root / folder
        found = {}
        for above, _, names in os.walk(base, onerror=_refuse_listing):
            for name in names:
                path = Path(above) / name
                if os.path.isfile(path):
                    found[path.relative_to(base).as_posix()] = path.stat().st_size
        return found

    def folders(self) -> list[str]:
        try:
            return directories_in(self._root)
        except OSError as error:
            _refuse_listing(error)
            return []


class _Remote(Store):
    """The files of an fsspec file system below a URL."""

    def __init__(self, place: str, fs: Any) -> None:
        self.place = place.rstrip("/")
        self._fs = fs
        self._root = str(fs._strip_protocol(self.place))
        # An object store has no directories, and making one may make a bucket.
        scheme = place.partition("://")[0].lower()
        self._flat = scheme in {*_EXTRAS, "memory"}
        self._streams = scheme in ("http", "https")

    def _ask(self, method: str, *args: Any, size: int = 0, **options: Any) -> Any:
        """Call a method of the file system; raises TimeoutError if it does not end.

        S3 times out by itself, and earlier; others may wait for an answer forever.
        """
        limit = _LIMIT + size / _SLOWEST
        return within(limit, lambda: getattr(self._fs, method)(*args, **options))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def write(self, name: str, data: bytes | memoryview) -> None:
        path = self._path(name)
        try:
            if not self._flat:
                self._ask("makedirs", path.rpartition("/")[0], exist_ok=True)
            self._ask("pipe_file", path, bytes(data), size=len(data))
        except Exception as error:  # a store may raise anything
            raise _failed("write", join(self.place, name), _why(error)) from error

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        where = join(self.place, name)
        try:
            data = self._read(self._path(name), most)
        except FileNotFoundError as error:
            _refuse_bucket("read", where, error)
            raise NotFoundError("there is no such file", where=where) from error
        except Exception as error:
            raise _failed("read", where, _why(error)) from error
        if len(data) > most:
            raise _too_long(where, most)
        return data

    def _read(self, path: str, most: int) -> bytes:
        """Return the bytes of a file, at most one more than ``most``."""
        if self._streams:
            return within(_LIMIT, lambda: self._stream(path, most + 1))
        size = self._ask("info", path)["size"]
        if size == 0:
            return b""
        data: bytes = self._ask("cat_file", path, start=0, end=min(size or most, most) + 1)
        return data

    def _stream(self, path: str, size: int) -> bytes:
        """Return the first bytes of a file over HTTP, without relying on the server's lengths."""
        parts: list[bytes] = []
        options = {"block_size": 0, "size": 1, "headers": {"Accept-Encoding": "identity"}}
        end = monotonic() + _LIMIT
        with self._fs.open(path, "rb", **options) as file:
            while size and (part := file.read(min(size, _BLOCK))):
                parts.append(part)
                size -= len(part)
                if monotonic() > end:
                    raise TimeoutError(f"not done within {_LIMIT:g} s")
        return b"".join(parts)

    def sizes(self, folder: str) -> dict[str, int]:
        base = self._path(folder)
        try:
            infos = self._ask("find", base, detail=True)
            found = {path: info["size"] for path, info in infos.items()}
            untold = [path for path, size in found.items() if size is None]  # as over HTTP
            if untold:
                found |= zip(untold, self._ask("sizes", untold), strict=True)
        except FileNotFoundError as error:
            _refuse_bucket("list", join(self.place, folder), error)
            return {}
        except Exception as error:
            raise _failed("list", join(self.place, folder), _why(error)) from error
        cut = len(base.rstrip("/")) + 1
        if unknown := next((path for path, size in found.items() if size is None), None):
            raise _failed("list", join(self.place, folder), f"the length of {unknown} is unknown")
        return {path[cut:]: int(size) for path, size in found.items() if len(path) > cut}

    def folders(self) -> list[str]:
        try:
            found = self._ask("ls", self._root, detail=True)
        except FileNotFoundError as error:
            _refuse_bucket("list", self.place, error)
            return []
        except Exception as error:
            raise _failed("list", self.place, _why(error)) from error
        names = (
            i["name"].rstrip("/").rpartition("/")[2] for i in found if i["type"] == "directory"
        )
        return sorted(names)


def _failed(op: str, path: str, why: str) -> StoreError:
    return StoreError(f"{op} failed: {why}", where=path)


def _too_long(where: str, most: int) -> TooLongError:
    return TooLongError(f"it is longer than {size_text(most)}, the limit", where=where)


def _refuse_listing(error: OSError) -> None:
    """Raise StoreError unless the directory is just missing."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise _failed("list", str(error.filename), error.strerror or "") from error


def _refuse_bucket(op: str, path: str, error: BaseException) -> None:
    """Raise StoreError if the whole bucket is missing, and not just the file."""
    cause = error.__cause__
    answer = getattr(cause, "response", None)
    if isinstance(answer, dict) and answer.get("Error", {}).get("Code") == "NoSuchBucket":
        raise _failed(op, path, "there is no such bucket") from error


def _why(error: BaseException) -> str:
    """Return the type and message of what a store raised, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__}: {text}"
