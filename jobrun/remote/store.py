"""Stores of files: a local directory, or what fsspec opens by its URL."""

from __future__ import annotations

import errno
import os
import re
import secrets
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from jobrun.core.late_imports import importing
from jobrun.core.paths import directories_in
from jobrun.errors import NotFoundError, StoreError, UsageError
from jobrun.remote.answers import Answers
from jobrun.remote.failures import CorruptError, failed, refuse_bucket, refuses_range
from jobrun.remote.limit import Limit, within
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
    try:
        with importing():  # it imports what opens the scheme
            fsspec.get_filesystem_class(scheme)

        def connect() -> Any:
            return fsspec.url_to_fs(place, use_listings_cache=False)[0]

        return within(Limit(_LIMIT), connect, _server(place))
    except ImportError as error:
        raise UsageError(f"{scheme}:// cannot be opened: {error}", hint=hint) from None
    except ValueError as error:
        raise UsageError(f"{place} cannot be opened: {error}") from None
    except Exception as error:  # some connect at once, such as those of ftp://
        raise failed("open", place, error) from error


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
            raise failed(error.op, str(path), error.strerror or "") from error

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        path = str(self._root / name)
        try:
            return self._fs.read(path, most)
        except FsError as error:
            if error.errno == errno.EFBIG:
                raise _too_long(path, most) from error
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                raise NotFoundError("there is no such file", where=path) from error
            raise failed(error.op, path, error.strerror or "") from error

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
        self._shown = _server(self.place)
        self._fs = fs
        self._root = str(fs._strip_protocol(self.place))
        # An object store has no directories, and making one may make a bucket.
        scheme = place.partition("://")[0].lower()
        self._flat = scheme in {*_EXTRAS, "memory"}
        self._streams = scheme in ("http", "https")
        self._limit = Limit(_LIMIT)
        if _EXTRAS.get(scheme) == "s3":
            answers = Answers.of(fs, self.place)
            self._limit = Limit(_LIMIT, answers.silence, answers.last)

    def _ask(self, method: str, *args: Any, size: int = 0, **options: Any) -> Any:
        """Call a method of the file system, which sends ``size`` bytes.

        Raises TimeoutError if it does not end: many file systems wait for an answer forever.
        """
        limit = replace(self._limit, sending=size / _SLOWEST)
        return within(limit, lambda: getattr(self._fs, method)(*args, **options), self._shown)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def write(self, name: str, data: bytes | memoryview) -> None:
        path = self._path(name)
        try:
            if not self._flat:
                self._ask("makedirs", path.rpartition("/")[0], exist_ok=True)
            self._ask("pipe_file", path, bytes(data), size=len(data))
        except Exception as error:  # a store may raise anything
            raise failed("write", join(self.place, name), error) from error

    def read(self, name: str, most: int = MAX_BYTES) -> bytes:
        try:
            return self._read_once(name, most)
        except CorruptError:  # on the way: the store itself would not deliver it
            return self._read_once(name, most)

    def _read_once(self, name: str, most: int) -> bytes:
        where = join(self.place, name)
        try:
            data = self._read(self._path(name), most)
        except FileNotFoundError as error:
            refuse_bucket("read", where, error)
            raise NotFoundError("there is no such file", where=where) from error
        except Exception as error:
            raise failed("read", where, error) from error
        if len(data) > most:
            raise _too_long(where, most)
        return data

    def _read(self, path: str, most: int) -> bytes:
        """Return the bytes of a file, at most one more than ``most``."""
        if self._streams:
            return within(self._limit, lambda: self._stream(path, most + 1), self._shown)
        try:
            data: bytes = self._ask("cat_file", path, start=0, end=most + 1)
        except Exception as error:
            if not refuses_range(error):
                raise
            data = b""  # a range from 0 on is refused of an empty file only
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
            refuse_bucket("list", join(self.place, folder), error)
            return {}
        except Exception as error:
            raise failed("list", join(self.place, folder), error) from error
        cut = len(base.rstrip("/")) + 1
        if unknown := next((path for path, size in found.items() if size is None), None):
            raise failed("list", join(self.place, folder), f"the length of {unknown} is unknown")
        return {path[cut:]: int(size) for path, size in found.items() if len(path) > cut}

    def folders(self) -> list[str]:
        try:
            found = self._ask("ls", self._root, detail=True)
        except FileNotFoundError as error:
            refuse_bucket("list", self.place, error)
            return []
        except Exception as error:
            raise failed("list", self.place, error) from error
        names = (
            i["name"].rstrip("/").rpartition("/")[2] for i in found if i["type"] == "directory"
        )
        return sorted(names)


def _server(url: str) -> str:
    """Return a URL without its path."""
    return "/".join(url.split("/")[:3])


def _too_long(where: str, most: int) -> TooLongError:
    return TooLongError(f"it is longer than {size_text(most)}, the limit", where=where)


def _refuse_listing(error: OSError) -> None:
    """Raise StoreError unless the directory is just missing."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise failed("list", str(error.filename), error.strerror or "") from error
