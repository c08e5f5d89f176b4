"""Export of blobs to files of other programs: ``.npz``, ``.npy``, ``.safetensors``, ``.pt``.

A value that a file cannot hold is refused before any write; None and integers of more than 64
bits, which no array file holds, are left out and reported.  The target's ending selects the form; a
target without one, or with a slash at its end, is a directory of ``.npy`` files.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.core.late_imports import importing
from jobrun.errors import UsageError
from jobrun.storage.atomic_file import whole_file
from jobrun.tools.inspect import Leaf, is_foreign, large_integer
from jobrun.values.boxes import Box

__all__ = ["export", "is_folder", "names_in_file", "not_stripped"]

Array = npt.NDArray[Any]
_ENDINGS = (".npz", ".npy", ".safetensors", ".pt")
_TENSORS = frozenset(
    ["bool", "complex64", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
    + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
    + [f"float{bits}" for bits in (16, 32, 64)]
)
"""The names of the dtypes that safetensors supports."""


def export(
    boxes: Mapping[str, Box], target: str | os.PathLike[str], about: Mapping[str, str] | None = None
) -> list[str]:
    """Write values to ``target``, by name; return the names that were left out.

    ``about`` is kept if the form has a place for it (the metadata of safetensors).  Raises
    UsageError if the target cannot be written or cannot hold a value.
    """
    values = {
        name: box
        for name, box in boxes.items()
        if box.kind != "none" and large_integer(box) is None
    }
    path = Path(target)
    if is_folder(target):
        _write_folder(path, values)
    elif path.suffix == ".npz":
        _write_npz(path, values)
    elif path.suffix == ".npy":
        _write_npy(path, values)
    elif path.suffix == ".safetensors":
        _write_safetensors(path, values, about or {})
    else:
        hint = f"name a file {', '.join(_ENDINGS)}, or a directory: {os.fspath(target)}/"
        raise UsageError(f"unknown file ending {path.suffix!r}", where=str(path), hint=hint)
    return [name for name in boxes if name not in values]


def is_folder(target: str | os.PathLike[str]) -> bool:
    """Return whether a target is a directory of ``.npy`` files."""
    path = Path(target)
    return os.fspath(target).endswith("/") or os.path.isdir(path) or not path.suffix


def names_in_file(
    picked: Sequence[Leaf], target: str | os.PathLike[str], strip: str = ""
) -> dict[str, str]:
    """Return the name of each leaf in an exported file, without the beginning ``strip``.

    It consists of the keys of the user's dicts, but for a directory, whose files are named like
    those of the checkpoint.  Raises UsageError if a name has not that beginning, or occurs twice.
    """
    folder = is_folder(target)
    real = {leaf.name: leaf.name if folder else leaf.real_name for leaf in picked}
    if strip and any(_is_unfit(name, strip) for name in real.values()):
        raise not_stripped(strip, real.values(), Path(target))
    found: dict[str, str] = {}
    for name, other in real.items():
        first = found.setdefault(other[len(strip) :], name)
        if first != name:
            raise UsageError(
                f"{first!r} and {name!r} would both be {other[len(strip) :]!r} in the file",
                where=os.fspath(target),
                hint="export them one by one, or to a directory",
            )
    return {name: other for other, name in found.items()}


def _is_unfit(name: str, strip: str) -> bool:
    """Return whether nothing that is a name is left of ``name`` without the beginning ``strip``."""
    rest = name.removeprefix(strip)
    return not name.startswith(strip) or not rest or rest.startswith("/")


def not_stripped(strip: str, names: Iterable[str], target: Path) -> UsageError:
    """Return the error of names of which one has no more than, or not, the beginning ``strip``."""
    names = [*names]
    unfit = [name for name in names if _is_unfit(name, strip)]
    hint = "name the blobs to export, such as jobrun load-blobs RUN 'net/*' -o net.pt --strip net/"
    if 0 < len(unfit) < len(names):
        hint = f"those with it alone are exported by their name: '{strip}*'"
    return UsageError(
        f"--strip {strip}: expected names that begin with it and have more to them, got "
        f"{(unfit or [strip])[0]!r}",
        where=str(target),
        hint=hint,
    )


def _write_folder(folder: Path, values: Mapping[str, Box]) -> None:
    for name, box in values.items():
        path = folder / f"{name}.npy"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"it cannot be made: {error.strerror}"
            raise UsageError(reason, where=str(path.parent)) from error
        _save(path, _portable(box))


def _write_npy(target: Path, values: Mapping[str, Box]) -> None:
    if len(values) != 1:
        hint = f"name the blob, or write {target.with_suffix('.npz')}"
        text = f"a .npy file holds one blob, and these are {len(values)}"
        raise UsageError(text, where=str(target), hint=hint)
    _save(target, _portable(*values.values()))


def _save(target: Path, array: Array) -> None:
    with whole_file(target) as path, path.open("wb") as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _write_npz(target: Path, values: Mapping[str, Box]) -> None:
    """Write as ``np.savez`` does, which cannot take an array named ``file``."""
    with whole_file(target) as path, zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, box in values.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _portable(box), allow_pickle=False)


def _portable(box: Box) -> Array:
    """Return an array that every numpy reads: foreign dtypes as unsigned integers of their bits."""
    array = np.asarray(box.value)
    if is_foreign(array):
        return array.view(f"u{array.dtype.itemsize}")
    return array


def _write_safetensors(target: Path, values: Mapping[str, Box], about: Mapping[str, str]) -> None:
    arrays = {name: _tensor(name, box, target) for name, box in values.items()}
    try:
        with importing():
            from safetensors import SafetensorError
            from safetensors.numpy import save_file
    except ImportError as error:
        hint = "pip install 'jobrun[safetensors]'"
        text = "a .safetensors file needs the library safetensors"
        raise UsageError(text, where=str(target), hint=hint) from error
    try:
        with whole_file(target) as path:
            _save_tensors(save_file, arrays, path, about)
    except SafetensorError as error:  # an older one, which supports fewer dtypes
        raise UsageError(f"safetensors refuses: {error}", where=str(target)) from error


def _save_tensors(
    save_file: Callable[..., None],
    arrays: Mapping[str, Array],
    path: Path,
    about: Mapping[str, str],
) -> None:
    """Write a file with the mode of any new file; safetensors alone lets only its owner read it.

    The mode is that of an empty file that is made in its place before.
    """
    is_new = not os.path.exists(path)
    path.touch()
    mode = path.stat().st_mode
    save_file(arrays, path, metadata=dict(about))
    if is_new:
        path.chmod(mode & 0o777)


def _tensor(name: str, box: Box, target: Path) -> Array:
    """Return the array of a value, in the byte order of the form; 0-d for a number."""
    array = _numbers(box)
    if array.dtype.name not in _TENSORS:
        what = box.kind if box.kind not in ("array", "scalar") else str(array.dtype)
        raise UsageError(
            f"safetensors has no form for {name!r}, which is of {what}",
            where=str(target),
            hint="name the blobs to export, or write .npz",
        )
    order = array.dtype if is_foreign(array) else array.dtype.newbyteorder("<")
    return array.astype(order, order="C", copy=False)


def _numbers(box: Box) -> Array:
    """Return the array of a value; that of a tensor whose dtype numpy lacks, in this dtype.

    Without the library ml_dtypes it stays as integers of the same bits.
    """
    array = np.asarray(box.value)
    note = box.note
    name = str(note.meta.get("dtype")) if note is not None and note.name == "torch.Tensor" else ""
    if name not in _TENSORS:
        return array
    try:
        with importing():
            import ml_dtypes
    except ImportError:
        return array
    dtype = np.dtype(getattr(ml_dtypes, name))
    if array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    return array.astype(dtype)  # one element, which is kept as a float32 of the same value
