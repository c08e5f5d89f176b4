"""What can happen to one file of ``checkpoint_2`` of a run that also has ``checkpoint_0``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["DAMAGES", "changed_by", "exchange_with_another_epoch"]


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0\0\0\0")


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def exchange_with_another_epoch(path: Path) -> None:
    checkpoint = next(p for p in path.parents if p.name == "checkpoint_2")
    shutil.copyfile(checkpoint.with_name("checkpoint_0") / path.relative_to(checkpoint), path)


DAMAGES = [
    delete, empty, halve, lengthen, zero, flip, make_directory, make_link, make_fifo,
    exchange_with_another_epoch,
]  # fmt: skip


def changed_by(before: bytes, path: Path) -> bool:
    """Whether a damage has changed a file: some files are the same in all epochs."""
    return not path.is_file() or path.is_symlink() or path.read_bytes() != before
