"""Arrays and keys of JAX, trees with nodes of JAX, optax and Flax, and modules of Flax NNX."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from adapter_contract import ValueAdapterContract, stored
from engine import Driver
from live_adapter_contract import LiveAdapterContract

from jobrun.errors import TaskError, ValueRefusedError
from jobrun.model.job import Job, Pipe, Task
from jobrun.values.adapted import take_apart
from jobrun.values.adapters.base import LiveAdapter
from jobrun.values.adapters.jax import JaxArrayAdapter, _direct_put
from jobrun.values.adapters.pytree import PYTREE, is_pytree, live_adapter_of, note_made
from jobrun.values.boxes import Box, one_element
from jobrun.values.buffers import copy_array
from jobrun.values.plain import put_back, read_state
from jobrun.values.views import view

jax = pytest.importorskip("jax", reason="the extra jax is not installed")
jnp = jax.numpy

DTYPES = ["float32", "bfloat16", "float16", "int8", "uint32", "bool", "complex64", "float8_e4m3fn"]


class TestArray(ValueAdapterContract):
    def values(self) -> dict[str, Any]:
        made = {name: jnp.arange(6).reshape(2, 3).astype(name) for name in DTYPES}
        special = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)
        return {
            **made,
            "special": jnp.asarray(special),
            "number": jnp.float32(2.5),
            "weak": jnp.asarray(2.5),
            "weak vector": jnp.broadcast_to(jnp.asarray(1), (3,)),
            "empty": jnp.zeros((0, 3)),
        }

    def refused(self) -> dict[str, tuple[Any, str]]:
        gone = jnp.ones(3)
        gone.delete()
        return {"donated": (gone, "was donated")}

    def same(self, a: Any, b: Any) -> bool:
        return (
            (a.dtype, a.shape, a.weak_type) == (b.dtype, b.shape, b.weak_type)
            and np.asarray(a).tobytes() == np.asarray(b).tobytes()
            and bool((a + 1).dtype == (b + 1).dtype)
        )


class TestKey(ValueAdapterContract):
    def values(self) -> dict[str, Any]:
        return {
            "one": jax.random.key(3),
            "several": jax.random.split(jax.random.key(3), 4),
            "rbg": jax.random.key(3, impl="rbg"),
            "raw": jax.random.PRNGKey(3),
        }

    def same(self, a: Any, b: Any) -> bool:
        first = [x if x.dtype == jnp.uint32 else x.reshape(-1)[0] for x in (a, b)]
        one, other = (np.asarray(jax.random.normal(key, (8,))) for key in first)
        return a.dtype == b.dtype and a.shape == b.shape and one.tobytes() == other.tobytes()


def test_an_array_with_one_element_is_a_number() -> None:
    assert one_element(stored(jnp.float32(2.5))) == 2.5
    assert one_element(stored(jnp.ones((1, 1)))) == 1.0
    assert one_element(stored(jax.random.key(0))) is None


@pytest.mark.parametrize("dtype", [*DTYPES, "int32"])
def test_an_array_is_put_as_jax_itself_does(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, meta = JaxArrayAdapter().dump(jnp.arange(6).reshape(2, 3).astype(dtype))
    put = jax.device_put(plain)
    assert _direct_put() is not None
    monkeypatch.setattr(jax, "device_put", None)
    direct = JaxArrayAdapter().load(plain, meta)
    assert type(direct) is type(put)
    for name in ("dtype", "shape", "weak_type", "committed", "sharding"):
        assert getattr(direct, name) == getattr(put, name)
    assert np.asarray(direct).tobytes() == plain.tobytes()


def test_an_array_is_put_where_and_as_jax_is_set() -> None:
    plain = np.array([np.nan, 1.0], np.float32)
    for context in (
        jax.debug_nans(True),
        jax.disable_jit(),
        jax.default_device(jax.devices()[0]),
        jax.transfer_guard("disallow"),  # of transfers that nobody has asked for
    ):
        with context:
            put, loaded = jax.device_put(plain), JaxArrayAdapter().load(plain, {})
            assert (loaded.committed, loaded.sharding) == (put.committed, put.sharding)
    with (
        jax.transfer_guard("disallow_explicit"),
        pytest.raises(ValueRefusedError, match="JAX cannot hold the array"),
    ):
        JaxArrayAdapter().load(plain, {})
    with pytest.raises(ValueRefusedError, match="JAX makes float32 of an array of float64"):
        JaxArrayAdapter().load(np.ones(2), {})
    with jax.enable_x64(True):
        assert JaxArrayAdapter().load(np.ones(2), {}).dtype == np.float64


def test_another_version_of_jax_puts_arrays_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in which what is not public is elsewhere, or makes something else."""
    plain = np.arange(3.0, dtype=np.float32)
    for other in (None, lambda *arguments: jnp.zeros(3)):
        monkeypatch.setattr("jaxlib._jax.batched_device_put", other)
        _direct_put.cache_clear()
        assert _direct_put() is None
        assert np.array_equal(JaxArrayAdapter().load(plain, {}), plain)
    _direct_put.cache_clear()


def test_an_array_that_a_call_is_given_is_not_taken_apart_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[float] = []
    job = Job("j")
    with job.init:
        Task(lambda: {"w": jnp.ones(3), "key": jax.random.key(1)}, out="params", name="make")
    with job.epoch:
        Task(lambda params: seen.append(float(params["w"].sum())), "params", name="sum")
    driver = Driver(job).start()
    monkeypatch.delattr(JaxArrayAdapter, "dump")
    driver.epochs(1)
    assert seen == [3.0]


def aligned(size: int) -> Any:
    """An array that begins at a multiple of 64 bytes."""
    room = np.zeros(size * 4 + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size * 4].view(np.float32)


@pytest.mark.parametrize("obj", [jax.random.key(3), jnp.arange(3.0), (), 1j, b"x", {}, 2.5])
def test_one_leaf_alone_is_a_state_too(obj: Any, tmp_path: Any) -> None:
    value = read_state(PYTREE, obj)
    again = put_back(PYTREE, obj, {"x": value}, "x")
    assert type(again) is type(obj)
    assert repr(again) == repr(obj)
    for wrong in ([1, 2], "no", [None]):
        with pytest.raises(ValueRefusedError):
            PYTREE.restore(obj, wrong)


def test_an_aligned_array_is_read_without_a_copy_and_never_donated() -> None:
    array = aligned(1000)
    array.setflags(write=False)
    _, made = take_apart(jnp.ones(1)) or (None, None)
    assert made is not None
    from jobrun.values.adapted import put_together

    found = put_together(made, array)
    assert found.unsafe_buffer_pointer() == array.ctypes.data
    double = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    assert double(found)[0] == 1
    assert not array.any()


def test_what_is_stored_does_not_change_with_what_a_task_was_given() -> None:
    value = stored({"w": jnp.zeros(1000)})
    made = view(value)["w"]
    jax.jit(lambda x: x + 1, donate_argnums=0)(made).block_until_ready()
    assert not np.asarray(view(value)["w"]).any()


def test_64_bits_where_jax_is_set_to_32_are_refused() -> None:
    value = stored(jnp.ones(3))
    assert isinstance(value, Box)
    value.value = np.ones(3)
    with pytest.raises(ValueRefusedError, match="JAX makes float32 of an array of float64"):
        view(value)


# Trees.


@jax.tree_util.register_pytree_node_class
class Pair:
    """A node of the user's, registered with JAX."""

    def __init__(self, a: Any, b: Any, name: str) -> None:
        self.a, self.b, self.name = a, b, name

    def tree_flatten(self) -> Any:
        return (self.a, self.b), self.name

    @classmethod
    def tree_unflatten(cls, name: str, children: Any) -> Pair:
        return cls(*children, name)


class Layer(NamedTuple):
    w: Any
    b: Any


@dataclass
class State:
    layers: Any
    key: Any
    step: Any = 0
    activation: Any = jax.nn.relu
    dtype: Any = field(default_factory=lambda: np.dtype("f4"))


class Tree(LiveAdapterContract):
    """Trees are replaced by each step."""

    kept = False

    def adapter(self, obj: Any) -> LiveAdapter:
        assert is_pytree(obj)
        return PYTREE


class TestTree(Tree):
    def objects(self) -> dict[str, Any]:
        layer = Layer(jnp.ones((3, 2)), jnp.zeros(2, jnp.bfloat16))
        return {
            "dataclass": State([layer, layer], jax.random.key(0)),
            "registered": Pair(jnp.ones(2), {"x": (jnp.zeros(3), None)}, "name"),
            "plain": {"w": jnp.ones(3), 0: np.zeros(2), "n": 1.5},
        }

    def train(self, obj: Any) -> Any:
        if isinstance(obj, State):
            key, one = jax.random.split(obj.key)
            noise = jax.random.normal(one, (3, 2))
            layers = [Layer(x.w + noise, x.b + jnp.bfloat16(0.1)) for x in obj.layers]
            return State(layers, key, obj.step + 1)
        if isinstance(obj, Pair):
            return jax.tree_util.tree_map(lambda x: x * 1.1 + 0.1, obj)
        return {"w": obj["w"] * 1.1, 0: obj[0] + 1, "n": obj["n"] / 3}


class TestOptax(Tree):
    def objects(self) -> dict[str, Any]:
        optax = pytest.importorskip("optax", reason="the extra optax is not installed")
        schedule = optax.cosine_decay_schedule(0.1, 100)
        self.optimizers = {
            "adam": optax.adamw(schedule),
            "chain": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9)),
            "hyper": optax.inject_hyperparams(optax.adam)(learning_rate=schedule),
            "masked": optax.masked(optax.adam(0.1), {"w": True, "b": False}),
            "several": optax.MultiSteps(optax.adam(0.1), 2),
        }
        params = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}
        return {
            name: {"params": params, "opt": opt.init(params), "name": name}
            for name, opt in self.optimizers.items()
        }

    def train(self, obj: Any) -> Any:
        import optax

        def loss(params: Any) -> Any:
            return ((params["w"].sum(0) - params["b"] - 3) ** 2).sum()

        updates, opt = self.optimizers[obj["name"]].update(
            jax.grad(loss)(obj["params"]), obj["opt"], obj["params"]
        )
        return {**obj, "params": optax.apply_updates(obj["params"], updates), "opt": opt}


class TestLinen(Tree):
    def objects(self) -> dict[str, Any]:
        linen = pytest.importorskip("flax.linen", reason="the extra flax is not installed")
        import optax
        from flax.core import freeze
        from flax.training.train_state import TrainState

        net = linen.Dense(2)
        params = net.init(jax.random.key(0), jnp.ones((1, 3)))
        tx = optax.adam(0.1)
        return {
            "train state": TrainState.create(apply_fn=net.apply, params=params, tx=tx),
            "frozen": TrainState.create(apply_fn=net.apply, params=freeze(params), tx=tx),
        }

    def train(self, obj: Any) -> Any:
        grads = jax.grad(lambda p: (obj.apply_fn(p, jnp.ones((4, 3))) ** 2).sum())(obj.params)
        return obj.apply_gradients(grads=grads)


class TestNnx(LiveAdapterContract):
    def objects(self) -> dict[str, Any]:
        nnx = pytest.importorskip("flax.nnx", reason="the extra flax is not installed")

        class Net(nnx.Module):
            def __init__(self, rngs: Any) -> None:
                self.a = nnx.Linear(3, 3, rngs=rngs)
                self.tied = self.a
                self.norm = nnx.BatchNorm(3, rngs=rngs)
                self.drop = nnx.Dropout(0.5, rngs=rngs)

            def __call__(self, x: Any) -> Any:
                return self.drop(self.norm(self.tied(self.a(x))))

        return {"net": Net(nnx.Rngs(0))}

    def train(self, obj: Any) -> Any:
        from flax import nnx

        grads = nnx.grad(lambda net: (net(jnp.ones((4, 3))) ** 2).sum())(obj)
        nnx.update(
            obj, jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, nnx.state(obj, nnx.Param), grads)
        )
        if not obj.drop.deterministic:
            obj.eval()
        else:
            obj.train()
        return obj


def test_attributes_of_nnx_and_its_optimizer_are_restored_in_place() -> None:
    """Numbers of the user's own, those of Flax, and an optimizer that a closure holds."""
    nnx = pytest.importorskip("flax.nnx", reason="the extra flax is not installed")
    optax = pytest.importorskip("optax", reason="the extra optax is not installed")

    class Net(nnx.Module):
        def __init__(self) -> None:
            self.a, self.drop = nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.Dropout(0.5)
            self.steps, self.phase, self.same = 0, {"name": "warm"}, 7

    def make() -> tuple[Any, Any, list[object]]:
        net = Net()
        optimizer = nnx.Optimizer(net, optax.adam(0.1), wrt=nnx.Param)
        kept = [note_made(live_adapter_of(obj), obj) for obj in (net, optimizer)]
        return net, optimizer, kept

    (net, optimizer, _), (new, other, _) = old, fresh = make(), make()
    net.steps, net.phase["name"], net.drop.rate = 3, "cold", 0.25
    grads = nnx.grad(lambda net: net.a(jnp.ones((1, 2))).sum())(net)
    optimizer.update(net, grads)
    for one, two in zip(old[:2], fresh[:2], strict=True):
        adapter = live_adapter_of(two)
        assert put_back(adapter, two, {"t": read_state(adapter, one)}, "t") is two
    assert (new.steps, new.phase, new.drop.rate, new.same) == (3, {"name": "cold"}, 0.25, 7)
    assert int(other.step[...]) == 1
    leaves = [jax.tree_util.tree_leaves(nnx.state(o)) for o in (optimizer, other)]
    assert all(map(np.array_equal, *leaves))


def test_another_structure_is_refused_by_its_place() -> None:
    template = {"p": Pair(jnp.ones(2), jnp.ones(3), "x")}
    for other, place in (
        (
            Pair(jnp.ones(2), jnp.ones(4), "x"),
            r"\['p'\]\.1, expected float32\[3\], got float32\[4\]",
        ),
        (Pair(jnp.ones(2), jax.random.key(0), "x"), r"expected float32\[3\], got key<fry>"),
    ):
        with pytest.raises(ValueRefusedError, match=place):
            PYTREE.restore(template, PYTREE.state({"p": other}))


def test_arrays_come_back_to_the_devices_of_the_template() -> None:
    code = (
        "import jax, jax.numpy as jnp, numpy as np\n"
        "from jobrun.values.adapters.pytree import PYTREE\n"
        "from jobrun.values.adoption import adopt\n"
        "from jobrun.values.plain import put_back, read_state\n"
        "from jobrun.values.views import view\n"
        "mesh = jax.make_mesh((4,), ('x',))\n"
        "spread = jax.NamedSharding(mesh, jax.sharding.PartitionSpec('x'))\n"
        "old = {'w': jax.device_put(jnp.arange(8.0), spread)}\n"
        "new = {'w': jax.device_put(jnp.zeros(8), spread)}\n"
        "made = put_back(PYTREE, new, {'x': read_state(PYTREE, old)}, 'x')\n"
        "assert made['w'].sharding == spread, made['w'].sharding\n"
        "assert np.asarray(made['w']).tolist() == list(range(8))\n"
        "whole = {'w': jnp.zeros(8)}\n"
        "copies = jax.NamedSharding(mesh, jax.sharding.PartitionSpec())\n"
        "PYTREE.check({'w': jax.device_put(jnp.ones(8), copies)}, PYTREE.structure(whole))\n"
        "try:\n"
        "    PYTREE.check(old, PYTREE.structure(whole))\n"
        "except Exception as error:\n"
        "    text = \"at ['w'], expected float32[8], got float32[8] in shards of [2]\"\n"
        "    assert text in str(error)\n"
        "else:\n"
        "    raise SystemExit('a tree that setup did not spread is saved')\n"
        "blob = adopt([jax.device_put(jnp.arange(8.0), spread)])\n"
        "assert np.asarray(view(blob)).tolist() == list(range(8))\n"
    )
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_copied_arrays_of_the_workspace_stay_their_own() -> None:
    array = copy_array(np.ones(1000, np.float32))
    value = stored({"w": jnp.asarray(array)})
    array[:] = 0
    assert np.asarray(view(value)["w"]).all()


def test_as_jax_gives_arrays_of_jax() -> None:
    seen: list[Any] = []

    def look(x: Any, name: Any) -> None:
        assert isinstance(x, jax.Array)
        assert isinstance(name, np.ndarray)
        seen.append((x.dtype.name, x.tolist()))

    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(4, dtype=np.float32), out="a", name="a")
        Task(lambda: np.array(list("wxyz")), out="b", name="b")
    with job.epoch:
        Pipe({"x": "a", "name": "b"}, batch=2, as_="jax", do=[Task(look, ["x", "name"])])
    Driver(job).start().epochs(1)
    assert seen == [("float32", [0, 1]), ("float32", [2, 3])]


def test_each_step_gets_an_array_of_its_own() -> None:
    """As where a computation is given the memory of one (``donate_argnums``)."""
    tries: list[int] = []

    def consume(x: Any) -> None:
        x.delete()

    def fail_once(x: Any) -> None:
        x.delete()
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("once")

    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(4, dtype=np.float32), out="a", name="a")
    with job.epoch:
        columns = dict.fromkeys(("x", "y", "z"), "a")
        steps = [
            Task(consume, "x", name="consume"),
            Task(lambda x: float(x.sum()), "x", out="s", name="sum"),
            Task(fail_once, "y", retries=1, name="again"),
            Task(consume, "z", name="last"),
        ]
        Pipe(columns, batch=2, as_="jax", do=steps)
    with job.exit:
        Task(lambda s: None, "s", name="report")
    driver = Driver(job).start().epochs(1)
    assert driver.blob("s") == 3
    assert len(tries) == 3


def test_a_column_that_jax_cannot_hold_is_an_error_of_the_step_that_reads_it() -> None:
    def job_of(column: str) -> Job:
        job = Job("j")
        with job.setup:
            Task(lambda: np.arange(4.0), out="a", name="a")
            Task(lambda: np.arange(4, dtype=np.float32), out="b", name="b")
        with job.epoch:
            step = Task(lambda x: None, {"x": column}, name="look")
            Pipe({"a": "a", "b": "b"}, batch=2, as_="jax", do=[step])
        return job

    Driver(job_of("b")).start().epochs(1)
    with pytest.raises(TaskError, match=r"task '.*look'.*JAX makes float32 of"):
        Driver(job_of("a")).start().epochs(1)


def test_an_array_at_two_places_of_a_tree_is_one_again() -> None:
    w = jnp.arange(3.0)
    made = put_back(
        PYTREE, {"a": w, "b": w}, {"t": read_state(PYTREE, {"a": w + 1, "b": w + 1})}, "t"
    )
    assert made["a"] is not made["b"]
    shared = w * 2
    made = put_back(
        PYTREE, {"a": w, "b": w}, {"t": read_state(PYTREE, {"a": shared, "b": shared})}, "t"
    )
    assert made["a"] is made["b"]
    assert made["a"].tolist() == [0, 2, 4]
