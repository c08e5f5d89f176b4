"""Arrays and random keys of JAX, and the nodes of trees that are registered with it.

An array is replaced, never changed, so trees of arrays (parameters, states of optax) need no
adapter of their own: ``pytree`` reads them.  On a CPU an array that a task is given shares memory
with the stored one if that begins at a multiple of 64 bytes, as JAX demands; else it is a copy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from jobrun.core.late_imports import imported
from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Meta, Plain

__all__ = ["ADAPTERS", "is_jax_function", "node_children", "node_like", "shard_shape"]


class JaxArrayAdapter:
    """``jax.Array`` of any dtype, with its weak type, which decides the dtype of results.

    ``numeric``: one with a single element is a number, for metrics and stop conditions.
    """

    name = "jax.Array"
    version = 1
    immutable = True
    numeric = True

    def dump(self, value: Any) -> tuple[Plain, Meta]:
        """Return a numpy array, on a CPU a view of the memory; ``weak`` in the meta data."""
        if value.is_deleted():
            raise ValueRefusedError(
                "the array's memory was donated to a computation (donate_argnums)",
                hint="return the new array under the same name, or do not donate it",
            )
        if not value.is_fully_addressable:
            raise ValueRefusedError(
                "the array is spread over several processes",
                hint="gather it first: jax.experimental.multihost_utils.process_allgather",
            )
        return np.asarray(value), {"weak": True} if value.weak_type else {}

    def load(self, plain: Plain, meta: Meta) -> Any:
        """Return the array on JAX's default device.

        Raises ValueRefusedError for 64 bits where JAX is set to 32.
        """
        made = _put(plain)
        if not meta:  # as of a column of a batch
            return made
        if meta.get("weak") is True:
            lax = imported("jax._src.lax.lax")  # no public function makes a weak array of data
            made = lax._convert_element_type(made, weak_type=True)
        return made

    def like(self, template: Any, value: Any, fill: bool) -> Any:
        """Return ``value`` on the devices of ``template``."""
        return _placed_like(template, value)


class KeyAdapter:
    """Typed random keys, as ``jax.random.key`` makes them; raw ones are arrays of uint32."""

    name = "jax.random.key"
    version = 1
    immutable = True

    def dump(self, value: Any) -> tuple[Plain, Meta]:
        """Return the numbers of the keys, and the name of their generator."""
        random = imported("jax").random
        data, _ = ADAPTERS[_ARRAY].dump(random.key_data(value))
        return data, {"impl": str(random.key_impl(value))}

    def load(self, plain: Plain, meta: Meta) -> Any:
        """Return the keys."""
        return imported("jax").random.wrap_key_data(_put(plain), impl=str(meta["impl"]))

    def like(self, template: Any, value: Any, fill: bool) -> Any:
        """Return ``value`` on the devices of ``template``."""
        return _placed_like(template, value)


def _put(plain: Plain) -> Any:
    """Return ``plain`` as an array of JAX with the same bits."""
    if not isinstance(plain, np.ndarray | np.generic):
        raise ValueRefusedError(f"expected an array, got {type(plain).__name__}")
    try:
        made = _put_directly(plain)
        if made is None:
            made = imported("jax").device_put(plain)
    except ImportError as error:
        raise ValueRefusedError("JAX is not installed here", hint="pip install jax") from error
    except RuntimeError as error:
        raise ValueRefusedError(f"JAX cannot hold the array: {error}") from error
    if made.dtype != plain.dtype:
        raise ValueRefusedError(
            f"JAX makes {made.dtype} of an array of {plain.dtype}",
            hint="switch 64 bits on as where it was made: jax.config.update('jax_enable_x64', "
            "True), in the module of the job's functions",
        )
    return made


def _put_directly(plain: Any) -> Any:
    """Return what ``jax.device_put`` does, without its Python; None where that is not possible.

    Between two steps of a job ``device_put`` takes 35 µs an array, and this 5: the columns of
    batches come in thousands.  A guard of transfers would take it for one that is not explicit.
    """
    jax = imported("jax")
    config = jax.config
    if config.jax_transfer_guard_host_to_device in _GUARDED:
        return None
    direct = _direct_put()
    if direct is None or type(plain) is not np.ndarray or config.jax_default_device is not None:
        return None
    form = _form(plain.shape, plain.dtype, config.jax_enable_x64)
    return None if form is None else direct(form, plain)


@cache
def _direct_put() -> Callable[[Any, Any], Any] | None:
    """Return the function of jaxlib that ``device_put`` ends in, if it is there and does the same.

    It is not public: this version of JAX is tried once with an array.
    """
    sample = np.arange(3, dtype=np.float32)
    known = imported("jax").device_put(sample)
    try:
        put = imported("jaxlib._jax").batched_device_put
        sharding, devices = known.sharding, [*known.devices()]
        form = _form(sample.shape, sample.dtype, imported("jax").config.jax_enable_x64)
        made = put(form, sharding, [sample], devices, False)
        same = [getattr(made, name) == getattr(known, name) for name in _SAME]
        same += [type(made) is type(known), np.array_equal(made, sample)]
    except Exception:  # of any kind: whatever another version has in its place
        return None
    return (lambda form, plain: put(form, sharding, [plain], devices, False)) if all(same) else None


@lru_cache(256)
def _form(shape: tuple[int, ...], dtype: Any, wide: bool) -> Any:
    """Return the type of an array for JAX; None if it makes another dtype of it.

    ``wide``: whether JAX has 64-bit types, which tells apart what is cached.
    """
    if imported("jax").dtypes.canonicalize_dtype(dtype) != dtype:
        return None
    return imported("jax").core.ShapedArray(shape, dtype)


def node_children(obj: Any) -> dict[Any, Any] | None:
    """Return the children of a node that is registered with JAX, by key; None for a leaf."""
    util = getattr(sys.modules.get("jax"), "tree_util", None)
    if util is None:
        return None
    found, _ = util.tree_flatten_with_path(obj, is_leaf=lambda part: part is not obj)
    if len(found) == 1 and found[0][1] is obj:
        return None
    return {_key(path[0]): child for path, child in found}


def node_like(template: Any, items: dict[Any, Any]) -> Any:
    """Return a node of the type of ``template`` with other children."""
    util = imported("jax.tree_util")
    structure = util.tree_structure(template, is_leaf=lambda part: part is not template)
    return util.tree_unflatten(structure, [*items.values()])


def _placed_like(template: Any, value: Any) -> Any:
    """Return an array of JAX on the devices of ``template``, if these were chosen."""
    if not getattr(template, "committed", False) or type(value) is not type(template):
        return value
    return imported("jax").device_put(value, template.sharding)


def shard_shape(array: Any) -> tuple[int, ...] | None:
    """Return the shape of the parts of an array of JAX that is split over devices, else None.

    Where an array is split decides the order of sums; one that is whole on each device does not.
    """
    sharding = getattr(array, "sharding", None)
    if sharding is None or sharding.is_fully_replicated:
        return None
    return tuple(sharding.shard_shape(array.shape))


def is_jax_function(obj: Any) -> bool:
    """Return whether ``obj`` is a function that JAX transformed (``jit``, ``custom_jvp``)."""
    return callable(obj) and type(obj).__module__.partition(".")[0] in ("jax", "jaxlib")


def _key(entry: Any) -> Any:
    """Return the key of a child in one of JAX's forms of a path."""
    for name in ("key", "name", "idx"):
        if hasattr(entry, name):
            return getattr(entry, name)
    return str(entry)


_GUARDED: Final = frozenset({"disallow", "disallow_explicit", "log", "log_explicit"})
_SAME: Final = ("dtype", "shape", "weak_type", "committed", "sharding")

_ARRAY: Final = "jaxlib._jax.ArrayImpl"
ADAPTERS: Final[dict[str, JaxArrayAdapter | KeyAdapter]] = {
    _ARRAY: JaxArrayAdapter(),
    "jax._src.random.prng.PRNGKeyArray": KeyAdapter(),
}
# Other versions of JAX define the two elsewhere.
ADAPTERS["jaxlib.xla_extension.ArrayImpl"] = ADAPTERS[_ARRAY]
ADAPTERS["jax._src.prng.PRNGKeyArray"] = ADAPTERS["jax._src.random.prng.PRNGKeyArray"]
