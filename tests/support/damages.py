"""What can happen to one file of ``checkpoint_2`` of a run that also has ``checkpoint_0``.

Beside the run lies ``another``, of other values.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any

__all__ = ["DAMAGES", "Damage", "cases", "changed_by", "exchange_with_another_epoch"]

Damage = Callable[[Path], None]


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
    checkpoint = _checkpoint_of(path)
    shutil.copyfile(checkpoint.with_name("checkpoint_0") / path.relative_to(checkpoint), path)


def exchange_with_another_blob(path: Path) -> None:
    """The file of that name that another entry has, of the same length if there is one."""
    before = path.read_bytes()
    files = [p for p in _checkpoint_of(path).rglob(path.name) if p.is_file()]
    others = [p for p in files if p.read_bytes() != before]
    shutil.copyfile(min(others, key=lambda p: (p.stat().st_size != len(before), p)), path)


def exchange_with_another_run(path: Path) -> None:
    checkpoint = _checkpoint_of(path)
    another = checkpoint.parent.with_name("another") / checkpoint.name
    shutil.copyfile(another / path.relative_to(checkpoint), path)


def give_another_dtype(path: Path) -> None:
    meta = json.loads(path.read_bytes())
    meta["data_type"] = "int16"
    _write_meta(path, meta, dtype="<i2")


def give_another_shape(path: Path) -> None:
    """As many elements, in one dimension more."""
    meta = json.loads(path.read_bytes())
    meta["shape"].append(1)
    meta["chunk_grid"]["configuration"]["chunk_shape"].append(1)
    _write_meta(path, meta)


def _write_meta(path: Path, meta: dict[str, Any], **ours: str) -> None:
    """Write metadata as they are written, and in what is ours of them the same story."""
    meta["attributes"]["jobrun"].update(ours)
    path.write_text(json.dumps(meta, separators=(",", ":")))


def _checkpoint_of(path: Path) -> Path:
    return next(p for p in path.parents if p.name == "checkpoint_2")


DAMAGES: list[Damage] = [
    delete, empty, halve, lengthen, zero, flip, make_directory, make_link, make_fifo,
    exchange_with_another_epoch, exchange_with_another_blob, exchange_with_another_run,
    give_another_dtype, give_another_shape,
]  # fmt: skip


def cases(files: Iterable[str], groups: Container[str]) -> list[tuple[str, Damage]]:
    """Each file with each damage that fits it; ``groups`` are the metadata of no array."""
    return [(name, damage) for name in files for damage in DAMAGES if _fits(damage, name, groups)]


def _fits(damage: Damage, name: str, groups: Container[str]) -> bool:
    if damage is exchange_with_another_blob:
        return "/" in name
    if damage is exchange_with_another_run:  # groups are the same there
        return name not in groups
    if damage in (give_another_dtype, give_another_shape):
        return name.endswith("zarr.json") and name not in groups
    return True


def changed_by(before: bytes, path: Path) -> bool:
    """Whether a damage has changed a file: some files are the same in all epochs."""
    return not path.is_file() or path.is_symlink() or path.read_bytes() != before
