"""Random jobs as plain descriptions: values of every kind and layout, and tasks that stir them.

A description is drawn by hypothesis (``descriptions``) and turned into a job, any number of times,
by ``build``.  What the tasks compute depends on dtypes, kinds, key order and the order of elements
in memory, so that whatever a save and a load get wrong shows in the bits of later epochs.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from hypothesis import strategies as st

from jobrun import CheckpointPolicy, Job, Pipe, Task

Recipe = dict[str, Any]

NUMBERS = ("?", "i1", "u2", ">i4", "u8", "f2", "<f4", "f8", ">f8", "c8", ">c16")
OTHERS = ("M8[s]", "m8[25ms]", ">M8[D]", "U3", ">U2", "S4", "V3", "i2,>f4", "(2,)i2,S1")
LAYOUTS = ("c", "f", "transposed", "sliced", "reversed", "held", "held view", "read-only", "part")
HOW = st.sampled_from(LAYOUTS)

_HELD: list[Any] = []
"""What somebody else still holds: such an array must be copied on the way in."""


# Values.


def make(recipe: Recipe) -> Any:
    """The value that a recipe describes."""
    kind = recipe["kind"]
    if kind == "array":
        return laid_out(_array(recipe["dtype"], recipe["shape"], recipe["seed"]), recipe["layout"])
    if kind == "scalar":
        return _array(recipe["dtype"], (1,), recipe["seed"])[0]
    if kind == "list":
        return [make(item) for item in recipe["items"]]
    if kind == "tuple":
        return tuple(make(item) for item in recipe["items"])
    if kind == "dict":
        return {name: make(item) for name, item in recipe["items"].items()}
    if kind == "twice":
        one = make(recipe["item"])
        return {"first": one, "second": one, "both": [one, one]}
    return recipe["value"]


def _array(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random bytes that are legal for the dtype: NaN payloads and -0.0 among them."""
    kind, size = np.dtype(dtype), int(np.prod(shape))
    rng = np.random.default_rng(seed)
    if kind.kind in "US":
        texts = rng.choice(["", "a", "é€", "zz z"], size)
        return np.array([t.encode()[:3] if kind.kind == "S" else t for t in texts], kind).reshape(
            shape
        )
    if kind.kind == "b":
        return rng.integers(0, 2, size).astype(kind).reshape(shape)
    return np.frombuffer(rng.bytes(kind.itemsize * size), kind, size).reshape(shape)


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """The same or rearranged elements in another layout; always an array, of no axes too."""
    array = np.asarray(array)
    if layout == "f":
        return np.array(array, order="F")
    if layout == "transposed":
        return array.copy().T
    if layout == "sliced":
        wide = np.empty((*array.shape, 2), array.dtype)
        wide[..., 0] = array
        return wide[..., 0]
    if layout == "reversed" and array.ndim:
        return array.copy()[::-1]
    if layout == "part" and array.ndim and len(array) > 2:
        return array.copy()[1:]
    if layout.startswith("held"):
        kept = array.copy()
        _HELD[:] = [*_HELD[-3:], kept]
        return kept if layout == "held" else kept[...]
    copy = np.array(array, order="C")
    copy.flags.writeable = layout != "read-only"
    return copy


_seeds = st.integers(0, 2**32 - 1)
_shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
_arrays = st.fixed_dictionaries(
    {
        "kind": st.just("array"),
        "dtype": st.sampled_from(NUMBERS + OTHERS),
        "shape": _shapes,
        "layout": HOW,
        "seed": _seeds,
    }
)
_scalars = st.fixed_dictionaries(
    {"kind": st.just("scalar"), "dtype": st.sampled_from(NUMBERS + OTHERS), "seed": _seeds}
)
_python = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(st.characters(), max_size=5),
).map(lambda value: {"kind": "python", "value": value})
_names = st.text("abXY09_.-", min_size=1, max_size=4).filter(lambda n: n[0] not in ".-")
_folded = {"unique_by": lambda pair: pair[0].casefold()}


def _nested(items: st.SearchStrategy[Recipe]) -> st.SearchStrategy[Recipe]:
    lists = st.tuples(st.sampled_from(["list", "tuple"]), st.lists(items, max_size=3))
    dicts = st.lists(st.tuples(_names, items), max_size=3, **_folded).map(dict)  # type: ignore[arg-type]
    return st.one_of(
        lists.map(lambda pair: {"kind": pair[0], "items": pair[1]}),
        dicts.map(lambda items: {"kind": "dict", "items": items}),
        items.map(lambda item: {"kind": "twice", "item": item}),
    )


recipes = st.recursive(_arrays | _scalars | _python, _nested, max_leaves=6)


# Tasks.


def stirred(value: Any, epoch: int, how: str) -> Any:
    """Another value of the same kind, which depends on the first's bits and their order."""
    if isinstance(value, np.ndarray):
        return laid_out(_stirred_array(value, epoch), how)
    if isinstance(value, np.generic):
        return _stirred_array(np.asarray(value), epoch)[()]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return (value * 7 + epoch) % 2**61
    if isinstance(value, float):
        return value * 1.1 + epoch
    if isinstance(value, str):
        return (value[::-1] + "ü\n")[:7]
    if isinstance(value, dict):
        return {key: stirred(value[key], epoch, how) for key in reversed(value)}
    if isinstance(value, list):
        return [stirred(item, epoch, how) for item in reversed(value)]
    return value


def _stirred_array(array: np.ndarray, epoch: int) -> np.ndarray:
    """Elementwise work and a sum, whose bits depend on the order in memory."""
    if array.dtype.kind in "fc" and array.size:
        return (array * 1.5 + array.ravel("K").sum() / 7 + epoch).astype(array.dtype)
    if array.dtype.kind in "iu":
        return array * np.array(3, array.dtype) + np.array(epoch, array.dtype)
    if array.dtype.kind == "b":
        return ~array
    return np.roll(array.ravel(), 1).reshape(array.shape)


def stir_in_place(value: Any, epoch: int) -> None:
    """Change every array of a value in place; a dict or list gets and loses items too.

    A tuple has none to lose.
    """
    if isinstance(value, np.ndarray):
        with np.errstate(all="ignore"):
            value[...] = _stirred_array(value, epoch)
        return
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, np.ndarray | dict | list | tuple):
            stir_in_place(item, epoch)
    if isinstance(value, tuple):
        return
    if isinstance(value, dict):
        if value and epoch == 2:
            value["moved"] = value.pop(next(iter(value)))
        value["new"] = value.get("new", 0.5) * 2
    else:
        value.append(np.float32(epoch))
        del value[:-4]


def stir(value: Any, epoch: int, how: str) -> Any:
    """A task: ``in: value``, ``out: value``."""
    with np.errstate(all="ignore"):
        return stirred(value, epoch, how)


def mix(a: Any, b: Any, epoch: int, how: str) -> Any:
    """A task: a product whose dtype depends on both dtypes and kinds, where there is one."""
    numbers = (bool, int, float, np.number, np.bool_, np.ndarray)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            product = a * b if isinstance(a, numbers) and isinstance(b, numbers) else None
    except (TypeError, ValueError, OverflowError):
        product = None
    if product is None or (isinstance(product, int) and not isinstance(product, bool)):
        return [a, stir(b, epoch, how)] if not isinstance(a, list) else a[:2]
    return laid_out(product, how) if isinstance(product, np.ndarray) else product


def twice(value: Any, epoch: int, how: str) -> tuple[Any, Any]:
    """A task: one object under two names."""
    new = stir(value, epoch, how)
    return new, new


def same(value: Any) -> Any:
    """A task that returns its input: two names share a value."""
    return value


def draw(rng: np.random.Generator, value: Any, how: str) -> Any:
    """A task with random numbers; their count depends on the value."""
    size = value.size if isinstance(value, np.ndarray) else 3
    return laid_out(rng.standard_normal((size % 5, 2)), how)


def leaf_sum(tree: dict[str, Any], epoch: int) -> float:
    """A task that reads a tree in key order."""
    total = 0.0
    for key in tree:
        total = total / 3 + len(key) + epoch
    return total


def make_rows(count: int) -> np.ndarray:
    """The rows of the pipe."""
    return np.random.default_rng(count).random((count, 2), np.float32)


def batch_step(x: np.ndarray, rng: np.random.Generator, sums: np.ndarray) -> float:
    """A ``do`` step: an update whose bits depend on the order of batches and on ``rng``."""
    sums *= np.float32(0.9)
    sums += x.sum(axis=0) * rng.random()
    return float(sums[0])


def in_place_target(recipe: Recipe) -> bool:
    """Whether ``update`` can change it: an array, or a tree."""
    return recipe["kind"] in ("array", "list", "tuple", "dict", "twice")


# Descriptions.

_KINDS = ("stir", "update", "mix", "twice", "same", "draw", "leaf", "item", "apart", "partly")
_tasks = st.fixed_dictionaries(
    {
        "task": st.sampled_from(list(_KINDS)),
        "from": st.integers(0, 3),
        "to": st.integers(0, 3),
        "how": HOW,
        "every": st.sampled_from([None, None, None, 2]),
    }
)
_pipes = st.fixed_dictionaries(
    {
        "rows": st.integers(1, 9),
        "batch": st.integers(1, 4),
        "shuffle": st.booleans(),
        "drop_last": st.booleans(),
        "batches_per_epoch": st.none() | st.integers(1, 7),
    }
).filter(lambda p: p["rows"] >= p["batch"] or not p["drop_last"])

descriptions = st.fixed_dictionaries(
    {
        "seed": _seeds,
        "values": st.lists(recipes, min_size=4, max_size=4),
        "tasks": st.lists(_tasks, min_size=1, max_size=7),
        "pipe": st.none() | _pipes,
        "include": st.sampled_from([(), ("*",), ("leaf", "random_*")]),
    }
)
"""Random jobs; see ``build``."""


def build(description: dict[str, Any], epochs: int, *, background: bool = True) -> Job:
    """The job of a description: blobs ``b0`` to ``b3``, and what its tasks and its pipe add."""
    policy = CheckpointPolicy(include=description["include"], background=background)
    with Job("random", seed=description["seed"], checkpoint=policy) as job:
        with job.init:
            for number, recipe in enumerate(description["values"]):
                Task(make, with_={"recipe": recipe}, out=f"b{number}", name=f"make_{number}")
            Task(lambda: {"z": 1.0, "a": 2}, out="tree", name="make_tree")
            Task(lambda: [0.5, np.float32(2), np.arange(3)], out="items", name="make_items")
            Task(lambda: (1, np.eye(2)), out=["apart/z", "apart/a"], name="make_apart")
        updatable = {i for i, r in enumerate(description["values"]) if in_place_target(r)}
        for number, task in enumerate(description["tasks"]):
            _add_task(number, task, updatable)
        if description["pipe"] is not None:
            _add_pipe(job, **description["pipe"])
        job.stop(epochs=epochs)
    return job


def _add_task(number: int, task: dict[str, Any], updatable: set[int]) -> None:
    """One task of ``epoch``; ``updatable`` are the blobs that are always arrays or trees."""
    how = {"how": task["how"]}
    a, b, name = f"b{task['from']}", f"b{task['to']}", f"{task['task']}_{number}"
    more: dict[str, Any] = {"name": name, "every": task["every"]}
    kind = task["task"]
    if kind == "update" and task["to"] in updatable:
        Task(stir_in_place, {"epoch": None}, update={"value": b}, **more)
    elif kind in ("update", "stir"):
        Task(stir, [b, "epoch"], how, out=b, **more)
    elif kind == "mix":
        Task(mix, [a, b, "epoch"], how, out=f"tree/mixed_{number}", name=name)
    elif kind == "twice":
        Task(twice, [a, "epoch"], how, out=[f"twice_{number}", f"tree/{name}"], name=name)
    elif kind == "same":
        Task(same, a, out=f"same_{number}", name=name)
        Task(stir, [f"same_{number}", "epoch"], how, out=f"after_{number}", name=f"after_{number}")
    elif kind == "draw":
        Task(draw, ["rng", a], how, out=f"random_{number}", name=name)
    elif kind == "item":
        leaf = f"items/{task['from'] % 3}"
        Task(stir, [leaf, "epoch"], how, out=leaf, **more)
    elif kind == "apart":
        Task(leaf_sum, ["apart", "epoch"], out=f"apart/m{task['from']}", name=name)
    elif kind == "partly":
        Task(stir_in_place, {"epoch": None}, update={"value": "apart/a"}, **more)
    else:
        Task(leaf_sum, ["tree", "epoch"], out="tree/a", **more)


def _add_pipe(job: Job, rows: int, **reader: Any) -> None:
    """A pipe that trains on rows from ``setup``."""
    with job.setup:
        Task(
            lambda: np.random.default_rng(rows).random((rows, 2), np.float32),
            out="rows",
            name="rows",
        )
    with job.init:
        Task(lambda: np.zeros(2, np.float32), out="sums", name="make_sums")
    step = Task(batch_step, ["x", "rng"], update=["sums"], out="loss")
    Pipe({"x": "rows"}, do=[step], name="train", **reader)
    job.metrics["loss"] = "min"


# Comparing.


def equal(a: Any, b: Any) -> bool:
    """Equal in kind, dtype, shape, key order and every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray | np.generic):
        return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
    return bool(repr(a) == repr(b))
