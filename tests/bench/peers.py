"""Other libraries that keep arrays on disk, as their documentation says to use them.

Each is made durable in the cheapest way there is: Orbax and PyTorch's DCP sync their large files
themselves, so that only the rest is left to be synced; the others sync nothing.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.durable import Blobs, Store, fsync_tree, sync_file_system

__all__ = ["PEERS", "dcp_writer", "orbax_checkpointer", "tensors"]


# numpy.


def _save_npz(directory: Path, blobs: Blobs) -> None:
    np.savez(directory / "all.npz", **blobs)
    fsync_tree(directory)


def _load_npz(directory: Path, blobs: Blobs) -> Blobs:
    with np.load(directory / "all.npz") as loaded:
        return {name: loaded[name] for name in blobs}


def _load_npz_one(directory: Path, name: str, blobs: Blobs) -> Any:
    with np.load(directory / "all.npz") as loaded:
        return loaded[name]


# zarr, with the file system synced at once.


def _save_zarr(directory: Path, blobs: Blobs) -> None:
    import zarr

    group = zarr.create_group(str(directory / "all.zarr"))
    for name, array in blobs.items():
        chunks = array.shape if array.nbytes <= _ZARR_CHUNK else "auto"
        group.create_array(name, data=array, chunks=chunks, compressors=None)
    sync_file_system(directory)


_ZARR_CHUNK = 64 << 20
"""One chunk is fastest to write; of the largest arrays it is zarr that chooses their size."""


def _load_zarr(directory: Path, blobs: Blobs) -> Blobs:
    import zarr

    group = zarr.open_group(str(directory / "all.zarr"), mode="r")
    return {name: np.asarray(group[name][...]) for name in blobs}


def _load_zarr_one(directory: Path, name: str, blobs: Blobs) -> Any:
    import zarr

    return zarr.open_array(str(directory / "all.zarr" / name), mode="r")[...]


def _load_zarr_rows(directory: Path, name: str, blobs: Blobs, rows: slice) -> Any:
    import zarr

    return zarr.open_array(str(directory / "all.zarr" / name), mode="r")[rows]


# safetensors.


def _save_safetensors(directory: Path, blobs: Blobs) -> None:
    from safetensors.numpy import save_file

    save_file(dict(blobs), directory / "all.safetensors")
    fsync_tree(directory)


def _load_safetensors(directory: Path, blobs: Blobs) -> Blobs:
    from safetensors.numpy import load_file

    loaded: Blobs = load_file(directory / "all.safetensors")
    return {name: loaded[name] for name in blobs}


def _load_safetensors_one(directory: Path, name: str, blobs: Blobs) -> Any:
    from safetensors import safe_open

    with safe_open(directory / "all.safetensors", framework="np") as file:
        return file.get_tensor(name)


def _load_safetensors_rows(directory: Path, name: str, blobs: Blobs, rows: slice) -> Any:
    from safetensors import safe_open

    with safe_open(directory / "all.safetensors", framework="np") as file:
        return file.get_slice(name)[rows]


# h5py: one contiguous dataset per array.


def _save_h5py(directory: Path, blobs: Blobs) -> None:
    import h5py

    with h5py.File(directory / "all.h5", "w") as file:
        for name, array in blobs.items():
            file.create_dataset(name, data=array)
    fsync_tree(directory)


def _load_h5py(directory: Path, blobs: Blobs) -> Blobs:
    import h5py

    with h5py.File(directory / "all.h5", "r") as file:
        return {name: np.asarray(file[name][()]) for name in blobs}


def _load_h5py_one(directory: Path, name: str, blobs: Blobs) -> Any:
    import h5py

    with h5py.File(directory / "all.h5", "r") as file:
        return file[name][()]


def _load_h5py_rows(directory: Path, name: str, blobs: Blobs, rows: slice) -> Any:
    import h5py

    with h5py.File(directory / "all.h5", "r") as file:
        return file[name][rows]


# PyTorch.


def tensors(blobs: Blobs) -> dict[str, Any]:
    """The arrays as tensors over the same memory."""
    import torch

    return {name: torch.from_numpy(array) for name, array in blobs.items()}


def _save_torch(directory: Path, state: Mapping[str, Any]) -> None:
    import torch

    torch.save(state, directory / "all.pt")
    fsync_tree(directory)


def _load_torch(directory: Path, blobs: Blobs) -> Mapping[str, Any]:
    import torch

    loaded: Mapping[str, Any] = torch.load(directory / "all.pt", weights_only=True)
    return loaded


def _load_torch_one(directory: Path, name: str, blobs: Blobs) -> Any:
    import torch

    mapped = torch.load(directory / "all.pt", weights_only=True, mmap=True)
    return mapped[name].clone()


def _load_torch_rows(directory: Path, name: str, blobs: Blobs, rows: slice) -> Any:
    import torch

    mapped = torch.load(directory / "all.pt", weights_only=True, mmap=True)
    return mapped[name][rows].clone()


# PyTorch DCP, one process, with as many threads as it is faster with on two cores.


def dcp_writer(directory: Path) -> Any:
    """What DCP writes with, which syncs the bytes."""
    import torch.distributed.checkpoint as dcp

    # At each use it says that this is a single process.
    warnings.filterwarnings("ignore", module="torch.distributed")
    return dcp.FileSystemWriter(directory / "all", thread_count=2)


def _save_dcp(directory: Path, state: dict[str, Any]) -> None:
    import torch.distributed.checkpoint as dcp

    dcp.save(state, storage_writer=dcp_writer(directory), no_dist=True)
    fsync_tree(directory)


def _load_dcp(directory: Path, blobs: Blobs) -> Mapping[str, Any]:
    import torch
    import torch.distributed.checkpoint as dcp

    state = {name: torch.empty_like(like) for name, like in tensors(blobs).items()}
    dcp.load(state, checkpoint_id=directory / "all", no_dist=True)
    return state


def _load_dcp_one(directory: Path, name: str, blobs: Blobs) -> Any:
    return _load_dcp(directory, {name: blobs[name]})[name]


# Orbax: by default with OCDBT and zstd, and without either, which is faster for large arrays.


@cache
def orbax_checkpointer(plain: bool) -> Any:
    """A checkpointer that saves in the background, made once, as in a loop."""
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns at every save
    if not plain:
        return ocp.StandardCheckpointer()
    return ocp.AsyncCheckpointer(
        ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_compression=False)
    )


def _orbax(name: str, *, plain: bool) -> Store:
    def save(directory: Path, blobs: Blobs) -> None:
        checkpointer = orbax_checkpointer(plain)
        checkpointer.save(directory.absolute() / "all", dict(blobs))
        checkpointer.wait_until_finished()
        (sync_file_system if plain else fsync_tree)(directory)

    def load(directory: Path, blobs: Blobs) -> Blobs:
        loaded: Blobs = orbax_checkpointer(plain).restore(directory.absolute() / "all")
        return {name: loaded[name] for name in blobs}

    def load_one(directory: Path, name: str, blobs: Blobs) -> Any:
        import orbax.checkpoint as ocp

        some = ocp.args.PyTreeRestore(item={name: blobs[name]}, partial_restore=True)
        reader = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=not plain))
        return reader.restore(directory.absolute() / "all", args=some)[name]

    return Store(name, save, load, ("orbax.checkpoint",), slow=True, load_one=load_one)


PEERS = (
    Store("np.savez", _save_npz, _load_npz, load_one=_load_npz_one),
    Store(
        "zarr",
        _save_zarr,
        _load_zarr,
        ("zarr",),
        slow=True,
        load_one=_load_zarr_one,
        load_rows=_load_zarr_rows,
    ),
    Store(
        "safetensors",
        _save_safetensors,
        _load_safetensors,
        ("safetensors",),
        load_one=_load_safetensors_one,
        load_rows=_load_safetensors_rows,
    ),
    Store(
        "h5py",
        _save_h5py,
        _load_h5py,
        ("h5py",),
        load_one=_load_h5py_one,
        load_rows=_load_h5py_rows,
    ),
    Store(
        "torch.save",
        _save_torch,
        _load_torch,
        ("torch",),
        prepare=tensors,
        load_one=_load_torch_one,
        load_rows=_load_torch_rows,
    ),
    Store(
        "DCP", _save_dcp, _load_dcp, ("torch",), slow=True, prepare=tensors, load_one=_load_dcp_one
    ),
    _orbax("Orbax", plain=False),
    _orbax("Orbax, plain", plain=True),
)
