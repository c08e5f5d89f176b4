"""Tensors and generators, which are values.

A tensor is stored as an array that has its elements, contiguous; numpy's dtypes stand for
themselves, and bfloat16, the float8 dtypes and complex32 for integers with the same bits.  A task
is given a tensor over the memory of the stored array, without a copy.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from jobrun.core.late_imports import imported
from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Meta, Plain
from jobrun.values.buffers import BUFFERS

__all__ = [
    "TensorAdapter",
    "TorchGeneratorAdapter",
    "dtype_name",
    "is_tensor",
    "loaded_torch",
    "on_device",
    "private_copy",
    "torch",
]

Array = npt.NDArray[Any]

_NUMPY_DTYPES: Final = frozenset(
    {
        *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    }
)
_BITS: Final = {
    "bfloat16": "int16",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
    "complex32": "int32",
}
"""dtypes that numpy has not, and the integers that hold their bits."""

_DEVICES: Final = frozenset({"cuda", "mps", "xpu", "hpu", "npu"})
"""Devices that copy into memory of the processor at once."""


@cache
def torch() -> Any:
    """Return the library, which is imported when a value of it is there, and not before."""
    return imported("torch")


class TensorAdapter:
    """``torch.Tensor`` and ``torch.nn.Parameter``; a tensor with one element counts as a number.

    The meta data hold what an array has not: a dtype that numpy has not, a device other than the
    processor, ``requires_grad`` of a leaf, and whether it is a parameter.  The graph of a tensor
    that was computed is not kept.
    """

    name = "torch.Tensor"
    version = 1
    numeric = True

    def dump(self, value: Any) -> tuple[Plain, Meta]:
        """Return an array of the same shape, which may be a view of the tensor's memory.

        Raises ValueRefusedError for sparse and quantized tensors, and for tensors without memory.
        """
        dtype = dtype_name(value.dtype)
        meta = _meta(value, dtype)
        plain = value.detach().resolve_conj().resolve_neg()
        if dtype in _NUMPY_DTYPES:
            return _on_host(plain), meta
        bits = _on_host(plain.contiguous().view(getattr(torch(), _BITS[dtype])))
        if bits.size != 1:
            return bits, meta
        # As a number: what holds one element must not be taken for its bits.
        return (_float32(bits) if dtype == "bfloat16" else {"bits": bits}), meta

    def load(self, plain: Plain, meta: Meta) -> Any:
        """Return a tensor over the memory of the array; on its device, if it is there."""
        if not meta:  # as of a column of a batch
            return _tensor(plain)
        dtype = meta.get("dtype")
        tensor = _tensor(plain) if dtype is None else _of_bits(plain, dtype)
        tensor = on_device(tensor, meta.get("device"))
        requires_grad = meta.get("requires_grad") is True
        if requires_grad and not (tensor.is_floating_point() or tensor.is_complex()):
            raise ValueRefusedError("a tensor of integers cannot require gradients")
        if meta.get("parameter"):
            return torch().nn.Parameter(tensor, requires_grad=requires_grad)
        return tensor.requires_grad_() if requires_grad else tensor

    def mark(self, value: Any) -> Any:
        """Return the memory of a tensor and the number of changes in place so far."""
        return value.data_ptr(), value._version

    def like(self, template: Any, value: Any, fill: bool) -> Any:
        """Return ``template`` with the elements of ``value``, or ``value`` on its device.

        The latter for a template that was computed with gradients or has elements in common.
        """
        alike = _kind(template) == _kind(value) and 0 not in template.stride()
        if fill and alike and template.is_leaf and not template.is_inference():
            template.detach().copy_(value.detach())
            return template.requires_grad_(value.requires_grad)
        if value.device == template.device:
            return value
        placed, requires_grad = value.detach().to(template.device), value.requires_grad
        if type(value) is torch().nn.Parameter:
            return torch().nn.Parameter(placed, requires_grad=requires_grad)
        return placed.requires_grad_(requires_grad)

    def gradient(self, value: Any) -> Any:
        """Return the gradient of a leaf, to which ``backward`` adds; None if it has none."""
        return value.grad if value.is_leaf and value.requires_grad else None

    def put_gradient(self, value: Any, gradient: Any) -> None:
        """Give a leaf a copy of a gradient, or none."""
        if value.is_leaf:
            value.grad = None if gradient is None else private_copy(gradient, value)


def _kind(tensor: Any) -> tuple[Any, ...]:
    return type(tensor), tensor.dtype, tensor.shape


def _meta(value: Any, dtype: str) -> dict[str, Any]:
    """Return the meta data of a tensor; raises ValueRefusedError if it cannot be saved."""
    if refused := _refusal(value, dtype):
        raise ValueRefusedError(refused[0], hint=refused[1])
    meta: dict[str, Any] = {} if dtype in _NUMPY_DTYPES else {"dtype": dtype}
    if value.device.type != "cpu":
        meta["device"] = str(value.device)
    if value.requires_grad and value.is_leaf:
        meta["requires_grad"] = True
    if type(value) is torch().nn.Parameter:
        meta["parameter"] = True
    return meta


def _refusal(value: Any, dtype: str) -> tuple[str, str] | None:
    """Return why a tensor cannot be saved, and what to do; None if it can."""
    lib, kind = torch(), type(value)
    if lib.nn.parameter.is_lazy(value):
        return (
            "a parameter of a lazy module has no shape yet",
            "call the module on one batch in 'setup'",
        )
    if kind not in (lib.Tensor, lib.nn.Parameter):
        return (
            f"a {kind.__module__}.{kind.__qualname__} has more to it than its elements",
            "keep t.as_subclass(torch.Tensor), or register an adapter for the class: "
            "jobrun.register(Type, adapter)",
        )
    if value.layout is not lib.strided or value.is_nested:
        layout = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        return (
            f"a tensor of layout {layout} cannot be saved",
            "keep t.to_dense(), or its indices, values and size as a dict of tensors",
        )
    if value.device.type == "meta":
        return "a tensor on the device 'meta' has no elements", "build it on the processor"
    if value.is_quantized:
        return f"a tensor of dtype {dtype} cannot be saved", "keep t.dequantize() and its scale"
    if dtype not in _NUMPY_DTYPES and dtype not in _BITS:
        return f"a tensor of dtype {dtype} cannot be saved", "keep t.view(torch.uint8)"
    return None


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of torch, without the name of the library."""
    return str(dtype).removeprefix("torch.")


def _tensor(array: Array) -> Any:
    """Return a tensor over the memory of an array, which may be read-only."""
    if not array.flags.writeable:
        array = np.asarray(_Writable(array))
    return torch().from_numpy(array)


class _Writable:
    """The memory of a read-only array as numpy is told that it may be written to.

    Else torch warns of each tensor over such memory: it has no read-only tensors.  A write into
    one that a task was only given to read is found by the tensor's own count of changes.
    """

    def __init__(self, array: Array) -> None:
        self.array = array
        own = array.__array_interface__
        self.__array_interface__ = {**own, "data": (own["data"][0], False)}


def _of_bits(plain: Plain, dtype: Any) -> Any:
    if dtype not in _BITS:
        raise ValueRefusedError(f"there is no dtype {dtype!r} of torch that is saved as integers")
    if isinstance(plain, dict):
        plain = plain["bits"]
    if plain.dtype == np.float32:
        plain = _bfloat16(plain)
    if plain.dtype != _BITS[dtype]:
        raise ValueRefusedError(
            f"{dtype} is saved as {_BITS[dtype]}, and the value has dtype {plain.dtype}"
        )
    return _tensor(plain).view(getattr(torch(), dtype))


def _float32(bits: Array) -> Array:
    """Return the float32 of a bfloat16: the same bits, and 16 zeros."""
    wide = bits.reshape(1).view(np.uint16).astype(np.uint32) << 16
    return wide.view(np.float32).reshape(bits.shape)


def _bfloat16(number: Array) -> Array:
    bits = np.asarray(number).reshape(1).view(np.uint32) >> 16
    return bits.astype(np.uint16).view(np.int16).reshape(number.shape)


def _on_host(tensor: Any) -> Array:
    """Return the elements of a tensor as an array: a view on a processor, else one copy."""
    if tensor.device.type not in _DEVICES:
        host: Array = tensor.cpu().numpy()
        return host
    room = BUFFERS.room(tuple(tensor.shape), np.dtype(dtype_name(tensor.dtype)))
    torch().from_numpy(room).copy_(tensor)
    return room


def on_device(tensor: Any, device: Any) -> Any:
    """Return the tensor on a device, or as it is if that is not there."""
    if device is None:
        return tensor
    try:
        wanted = torch().device(str(device))
    except RuntimeError as error:
        raise ValueRefusedError(f"there is no device {device!r} of torch") from error
    if wanted.type not in _DEVICES:
        return tensor
    backend = getattr(torch(), wanted.type, None)
    count = backend.device_count() if backend is not None and backend.is_available() else 0
    return tensor.to(wanted) if (wanted.index or 0) < count else tensor


def loaded_torch() -> Any:
    """Return the library if it has been imported, else None."""
    return sys.modules.get("torch")


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor, and has its shape already."""
    lib = loaded_torch()
    return lib is not None and isinstance(value, lib.Tensor) and not lib.nn.parameter.is_lazy(value)


def private_copy(saved: Any, like: Any) -> Any:
    """Return a copy of a tensor in memory of torch's own, on the device of ``like``.

    In its layout too if the shapes agree, since that may decide the order of sums.
    """
    lib = torch()
    template = like if like.shape == saved.shape else saved
    made = lib.empty_like(template, dtype=saved.dtype, device=like.device, requires_grad=False)
    return made.copy_(saved)


class TorchGeneratorAdapter:
    """``torch.Generator``: a value, or a live object that others hold references to."""

    name = "torch.Generator"
    version = 1

    def dump(self, value: Any) -> tuple[Plain, Meta]:
        """Return the state, an array of uint8, and the device."""
        device = str(value.device)
        return value.get_state().numpy(), {} if device == "cpu" else {"device": device}

    def load(self, plain: Plain, meta: Meta) -> Any:
        """Return a generator in that state; raises ValueRefusedError if its device is not there."""
        device = meta.get("device", "cpu")
        try:
            made = torch().Generator(device)
            made.set_state(_tensor(np.array(plain)))
        except RuntimeError as error:
            raise ValueRefusedError(
                f"the state of a generator on {device!r} cannot be restored: {error}"
            ) from error
        return made

    def state(self, obj: Any) -> Plain:
        """Return the state, an array of uint8."""
        return obj.get_state().numpy()

    def restore(self, obj: Any, state: Plain) -> Any:
        """Set the state; return the generator."""
        try:
            obj.set_state(_tensor(np.asarray(state)))
        except (RuntimeError, TypeError) as error:
            raise ValueRefusedError(f"it is not the state of a generator: {error}") from error
        return obj

    def copy(self, obj: Any) -> Any:
        """Return a generator in the same state."""
        return obj.clone_state()
