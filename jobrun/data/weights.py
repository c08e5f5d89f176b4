"""Arrays of a file of weights, by name: ``.safetensors``, ``.npz``, ``.pt`` and ``.pth``.

Nothing is unpickled: a file of torch is read with ``weights_only=True``.  The names of nested dicts
and lists in it are joined by ``/``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.core.late_imports import importing
from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.errors import DataError
from jobrun.storage.regular_file import refuse_not_file

__all__ = ["ENDINGS", "read_weights", "why_unreadable"]

Array = npt.NDArray[Any]


def read_weights(path: Path, is_wanted: Callable[[str], bool]) -> dict[str, Array]:
    """Return the arrays whose names are wanted, in the order of the file.

    bfloat16 and other dtypes that numpy lacks are those of ml_dtypes.  Raises DataError, naming
    the file and the key, for a file that cannot be read, and for values that are no arrays.
    """
    if refused := why_unreadable(path.suffix):
        raise DataError(refused[0], where=str(path), hint=refused[1])
    try:
        refuse_not_file(path)
        return dict(_READERS[path.suffix](path, is_wanted))
    except OSError as error:
        raise DataError(f"it cannot be read: {error.strerror or error}", where=str(path)) from error


def why_unreadable(ending: str) -> tuple[str, str] | None:
    """Return why files with an ending cannot be read here, and what to do; None if they can."""
    if ending not in _READERS:
        text = f"unknown ending {ending!r} of a file of weights"
        return text, did_you_mean_or_all(ending, ENDINGS)
    package = _PACKAGES.get(ending)
    if package is None or find_spec(package) is not None:
        return None
    how = "torch" if package == "torch" else f"'jobrun[{package}]'"
    return f"a {ending} file is read by {package}, which is not installed", f"pip install {how}"


Read = Iterator[tuple[str, Array]]


def _npz(path: Path, is_wanted: Callable[[str], bool]) -> Read:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            if not isinstance(found, np.lib.npyio.NpzFile):
                raise DataError("it is not an .npz file", where=str(path))
            for name in filter(is_wanted, found.files):
                yield name, found[name]
    except (OSError, DataError):
        raise
    except Exception as error:  # of many kinds, by the compression too
        raise DataError(f"it is not a file of arrays: {error}", where=str(path)) from error


def _safetensors(path: Path, is_wanted: Callable[[str], bool]) -> Read:
    with importing():
        from safetensors import SafetensorError, safe_open
    try:
        with path.open("rb"), safe_open(path, "np") as file:
            for name in filter(is_wanted, file.keys()):
                try:
                    yield name, file.get_tensor(name)
                except (AttributeError, TypeError) as error:
                    dtype = file.get_slice(name).get_dtype()
                    text = f"{name!r} has the dtype {dtype}, which is not read"
                    raise DataError(text, where=str(path)) from error
    except SafetensorError as error:
        raise DataError(f"safetensors refuses it: {error}", where=str(path)) from error


def _torch(path: Path, is_wanted: Callable[[str], bool]) -> Read:
    with importing():
        import torch
    try:
        with path.open("rb") as file:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # of many types, all of which mean this
        raise DataError(
            f"torch refuses it with weights_only=True: {_first_line(error)}",
            where=str(path),
            hint="save what it needs alone: torch.save(model.state_dict(), file)",
        ) from error
    for name, value in _flat(content, ""):
        if is_wanted(name):
            if not isinstance(value, torch.Tensor):
                text = f"{name!r} is of type {type(value).__name__}, not a tensor"
                raise DataError(text, where=str(path))
            yield name, _array(torch, value.detach(), name, path)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping | list | tuple):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in pairs:
            yield from _flat(item, f"{name}/{key}" if name else str(key))
    else:
        yield name, value


def _array(torch: Any, tensor: Any, name: str, path: Path) -> Array:
    dtype = str(tensor.dtype).removeprefix("torch.")
    try:
        if hasattr(np, dtype):
            return np.asarray(tensor.resolve_conj().resolve_neg().numpy())
        bits = getattr(torch, f"int{8 * tensor.dtype.itemsize}")
        with importing():
            import ml_dtypes
        return np.asarray(tensor.contiguous().view(bits).numpy()).view(getattr(ml_dtypes, dtype))
    except ImportError as error:
        raise DataError(
            f"{name!r} has dtype {dtype}, which numpy lacks",
            where=str(path),
            hint="pip install 'jobrun[ml-dtypes]'",
        ) from error
    except (TypeError, RuntimeError, AttributeError) as error:
        text = f"{name!r} has dtype {dtype} and layout {tensor.layout}, which is not read"
        raise DataError(text, where=str(path)) from error


_READERS: Mapping[str, Callable[[Path, Callable[[str], bool]], Read]] = {
    ".safetensors": _safetensors,
    ".npz": _npz,
    ".pt": _torch,
    ".pth": _torch,
}
_PACKAGES: Mapping[str, str] = {".safetensors": "safetensors", ".pt": "torch", ".pth": "torch"}
ENDINGS = tuple(_READERS)
"""The endings of files of weights."""
