"""Export of blobs to ``.pt`` files, which hold what ``load_state_dict`` takes.

The nesting of dicts and lists is kept, with the real keys: an optimizer's state has integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.reading import read_trees
from jobrun.checkpoint.record import Record
from jobrun.core.late_imports import importing
from jobrun.core.patterns import full_name
from jobrun.errors import UsageError
from jobrun.storage.atomic_file import whole_file
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.tools.export import not_stripped
from jobrun.tools.inspect import Leaf, is_foreign, pick
from jobrun.values.adapted import for_people, put_together
from jobrun.values.adapters.base import Note
from jobrun.values.boxes import Box, Value

__all__ = ["read_values", "write_torch"]

Array = npt.NDArray[Any]
_OF_TORCH = "torch."


def read_values(
    checkpoint: str | Path, record: Record, names: Sequence[str] = (), fs: Fs = DEFAULT
) -> tuple[list[Leaf], list[Leaf], dict[str, Value]]:
    """Return the leaves that ``names`` match, and the blobs that hold them, without other leaves.

    Those that an adapter keeps beside a ``state_dict`` come second, and are not in the blobs, which
    have full names.  Raises NotFoundError for names that match nothing, UsageError for slices.
    """
    every = pick(checkpoint, names, fs, record)[1]
    if sliced := next((leaf.name for leaf in every if leaf.index is not None), None):
        raise UsageError(f"a .pt file holds no slices: {sliced}", hint="write .npz or .safetensors")
    picked = [leaf for leaf in every if not leaf.keys.is_extra]
    found: dict[str, Value] = {}
    for node in dict.fromkeys(leaf.node for leaf in picked):
        paths = [leaf.path for leaf in picked if leaf.node == node]
        blobs = read_trees(checkpoint, node, paths, record, fs)
        found |= {full_name(node, path, len(record.nodes) > 1): v for path, v in blobs.items()}
    return picked, [leaf for leaf in every if leaf.keys.is_extra], found


def write_torch(values: Mapping[str, Value], target: Path, strip: str = "") -> None:
    """Write blobs as tensors to a file for ``torch.load(file, weights_only=True)``.

    ``strip`` is what the names in the file do without: ``net/`` leaves the content of the blob
    ``net``.  Arrays are tensors; those of an optimizer that were none are lists of numbers.
    Raises UsageError if torch is missing, or cannot hold a value, which it names.
    """
    try:
        with importing():
            import torch
    except ImportError as error:
        raise UsageError(
            "a .pt file needs torch", where=str(target), hint="pip install torch"
        ) from error
    form = _Form(torch, target)
    content = {name: form.of(value, name, False) for name, value in values.items()}
    stripped = _stripped(content, strip, target)
    with whole_file(target) as path, path.open("wb") as file:
        torch.save(stripped, file)


class _Form:
    """Turns stored values into what a ``.pt`` file holds."""

    def __init__(self, torch: Any, target: Path) -> None:
        self._torch = torch
        self._target = target

    def of(self, value: Value, name: str, of_torch: bool) -> Any:
        """Return a value; ``of_torch``: it is part of the state of an object of torch."""
        note = value.note
        if note is not None and note.name == "torch.Tensor":
            return put_together(note, _plain(value)).detach().cpu().clone()
        if isinstance(value, Box):
            return self._leaf(value, note, name, of_torch)
        of_torch = of_torch or (note is not None and note.name.startswith(_OF_TORCH))
        pairs = list(zip(value.names, value.items.values(), strict=True))
        items = {k: self.of(v, f"{name}/{k}", of_torch) for k, v in pairs}
        made = items if value.kind == "dict" else list(items.values())
        return made if note is None else for_people(note, made)

    def _leaf(self, box: Box, note: Note | None, name: str, of_torch: bool) -> Any:
        if box.kind not in ("array", "scalar"):
            return box.value if note is None else for_people(note, box.value)
        array = np.asarray(box.value)
        if of_torch:
            return array.tolist()
        try:
            return self._tensor(array)
        except TypeError as error:
            raise UsageError(
                f"torch has no form for {name!r}, which is of {array.dtype}",
                where=str(self._target),
                hint="name the blobs to export, or write .npz",
            ) from error

    def _tensor(self, array: Array) -> Any:
        """Return a tensor with memory of its own; raises TypeError if torch has no such dtype."""
        if is_foreign(array):
            dtype = getattr(self._torch, array.dtype.name, None)
            if dtype is None:
                raise TypeError(array.dtype.name)
            return self._tensor(array.view(f"i{array.dtype.itemsize}")).view(dtype)
        order = array.dtype.newbyteorder("=")
        return self._torch.from_numpy(np.array(array, order, order="C"))


def _plain(value: Value) -> Any:
    if isinstance(value, Box):
        return value.value
    return {k: _plain(v) for k, v in zip(value.names, value.items.values(), strict=True)}


def _stripped(content: dict[Any, Any], strip: str, target: Path, above: str = "") -> dict[Any, Any]:
    """Return ``content``, which stands under ``above``, without the beginning ``strip``."""
    level, slash, rest = strip.partition("/")
    if not strip:
        return content
    if slash and [*content] == [level] and isinstance(content[level], dict):
        return _stripped(content[level], rest, target, f"{above}{level}/")
    fitting = [k for k in content if isinstance(k, str) and k.startswith(strip) and k != strip]
    if len(fitting) < len(content) or slash:
        raise not_stripped(above + strip, [f"{above}{key}" for key in content], target)
    return {key[len(strip) :]: value for key, value in content.items()}
