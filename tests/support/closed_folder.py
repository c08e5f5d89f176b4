"""A folder of another user: nothing in it may be looked at, by the superuser neither."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

__all__ = ["close_folder"]

_CALLS = (os, "stat"), (os, "lstat"), (os, "open"), (os, "scandir"), (os, "listdir"), (io, "open")


def close_folder(monkeypatch: pytest.MonkeyPatch, folder: Path, code: int = errno.EACCES) -> None:
    """From now on this process is refused all that lies below ``folder``, and a list of it.

    Its own name and status are those of the folder above, as with mode 0700.
    """
    root = os.path.realpath(folder)

    def refuse(owner: Any, name: str) -> None:
        real = getattr(owner, name)
        lists = name in ("scandir", "listdir")

        def call(path: Any = ".", *how: Any, **hows: Any) -> Any:
            if isinstance(path, str | os.PathLike):
                full = os.path.abspath(os.fspath(path))
                if full.startswith(root + os.sep) or (lists and full == root):
                    raise OSError(code, os.strerror(code), os.fspath(path))
            return real(path, *how, **hows)

        monkeypatch.setattr(owner, name, call)

    for owner, name in _CALLS:
        refuse(owner, name)
