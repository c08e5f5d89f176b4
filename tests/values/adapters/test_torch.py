"""PyTorch: tensors, generators, modules, optimizers, schedulers."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from adapter_contract import ValueAdapterContract
from engine import Driver
from live_adapter_contract import LiveAdapterContract
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn
from whole_runs import bytes_of_checkpoints, die_after_save, records, start

from jobrun import CheckpointPolicy, Every
from jobrun.errors import SpecError, TaskError, ValueRefusedError
from jobrun.model.job import Job, Pipe, Task
from jobrun.values.adapted import put_together, same_plain, take_apart
from jobrun.values.adapters.base import Note
from jobrun.values.adapters.pytree import NEW_PYTREE, PYTREE, live_adapter_of, note_made
from jobrun.values.adapters.registry import adapter_named
from jobrun.values.adoption import adopt
from jobrun.values.boxes import leaves, one_element
from jobrun.values.buffers import BUFFERS
from jobrun.values.plain import put_back, read_state, to_plain
from jobrun.values.storable import check_storable
from jobrun.values.views import view, view_plain
from jobrun.values.workspace import Workspace

DTYPES = [
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64",
    "complex128 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu",
    "complex32",
]


def bits(tensor: Any) -> bytes:
    """The elements of a tensor, bit for bit."""
    return bytes(tensor.detach().contiguous().untyped_storage()) if tensor.numel() else b""


def back(tensor: Any) -> Any:
    """A tensor after its way through a workspace."""
    return view(adopt([tensor]))


# Values.


@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (0, 2)])
@pytest.mark.parametrize("dtype", " ".join(DTYPES).split())
def test_tensors_of_all_dtypes_come_back_bit_for_bit(dtype: str, shape: tuple[int, ...]) -> None:
    kind = getattr(torch, dtype)
    count = int(np.prod(shape)) * torch.zeros((), dtype=kind).element_size()
    raw = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 256, count, np.uint8)
    tensor = (
        torch.from_numpy(raw).view(kind).reshape(shape) if count else torch.zeros(shape).to(kind)
    )
    again = back(tensor)
    assert (again.dtype, again.shape) == (tensor.dtype, tensor.shape)
    assert bits(again) == bits(tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12.0)[::3],
        torch.arange(4.0).expand(3, 4),
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last) + 1,
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
    ],
)
def test_tensors_that_are_not_contiguous_keep_their_elements(tensor: Any) -> None:
    again = back(tensor)
    assert again.is_contiguous()
    assert bits(again) == bits(tensor.resolve_conj().resolve_neg())


def test_leaves_that_require_gradients_and_parameters_stay_that() -> None:
    leaf = torch.ones(2, requires_grad=True)
    assert back(leaf).requires_grad
    assert back(leaf).is_leaf
    assert not back(leaf * 2).requires_grad
    parameter = back(nn.Parameter(leaf.detach(), requires_grad=False))
    assert isinstance(parameter, nn.Parameter)
    assert not parameter.requires_grad


@pytest.mark.parametrize(
    ("tensor", "number"),
    [
        (torch.tensor(1.5), 1.5),
        (torch.tensor([2.5]), 2.5),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (torch.tensor(True), True),
        (torch.tensor(3), 3),
        (torch.tensor(1.5, requires_grad=True) * 2, 3.0),
        (torch.zeros(2), None),
        (torch.tensor(1.0).to(torch.float8_e5m2), None),
    ],
)
def test_a_tensor_with_one_element_is_a_number(tensor: Any, number: Any) -> None:
    assert one_element(adopt([tensor])) == number


def test_a_task_is_given_the_stored_memory_without_a_warning() -> None:
    value = adopt([{"x": torch.arange(4.0), "y": torch.ones(2, dtype=torch.bfloat16)}])
    stored = {path: box.value for path, box in leaves(value)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = view(value)
    for name, array in stored.items():
        assert seen[name].data_ptr() == array.__array_interface__["data"][0]
        assert not array.flags.writeable


def test_an_updated_tensor_is_written_in_place() -> None:
    workspace = Workspace()
    workspace.put("t", adopt([torch.zeros(3)]))
    tensor = workspace.borrow("t")
    tensor += 1
    workspace.put("t", adopt([tensor]))
    assert view(workspace.get("t")).tolist() == [1, 1, 1]


def test_tied_tensors_stay_tied_in_a_tree() -> None:
    weight = torch.zeros(3)
    workspace = Workspace()
    workspace.put("t", adopt([{"a": weight, "b": weight, "c": weight.detach(), "d": weight + 0}]))
    tree = workspace.borrow("t")
    tree["a"] += 1
    assert [tree[name].tolist() for name in "abcd"] == [[1, 1, 1]] * 3 + [[0, 0, 0]]


@pytest.mark.parametrize(
    ("make", "text", "hint"),
    [
        (lambda: torch.eye(2).to_sparse(), "layout sparse_coo", "to_dense"),
        (lambda: torch.eye(2).to_sparse_csr(), "layout sparse_csr", "to_dense"),
        (lambda: torch.zeros(2, device="meta"), "device 'meta'", "processor"),
        (lambda: torch.nested.nested_tensor([torch.ones(1)]), "layout nested", "to_dense"),
        (
            lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
            "dtype qint8",
            "dequantize",
        ),
        (lambda: nn.LazyLinear(2).weight, "lazy module", "in 'setup'"),
        (lambda: torch.ones(2).as_subclass(Image), "Image has more to it", "as_subclass"),
    ],
)
def test_tensors_without_a_plain_form_are_refused_by_their_key(
    make: Callable[[], Any], text: str, hint: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = adopt([{"net": [make()]}])
    with pytest.raises(ValueRefusedError) as caught:
        check_storable(value, "x")
    assert "blob 'x/net/0' persists, but cannot be saved" in str(caught.value)
    assert text in str(caught.value)
    assert hint in caught.value.hint


class Image(torch.Tensor):
    """A tensor with more to it."""


class TestTensors(ValueAdapterContract):
    def values(self) -> dict[str, Any]:
        return {
            "floats": torch.arange(6.0).reshape(2, 3),
            "strided": torch.arange(6.0).reshape(2, 3).T,
            "zero_dim": torch.tensor(1.5),
            "bfloat16": torch.ones(3, dtype=torch.bfloat16),
            "number": torch.tensor(0.5, dtype=torch.bfloat16),
            "float8": torch.tensor([1.0]).to(torch.float8_e5m2),
            "leaf": torch.ones(2, requires_grad=True),
            "parameter": nn.Parameter(torch.ones(2)),
            "empty": torch.zeros(0, 3),
        }

    def same(self, a: Any, b: Any) -> bool:
        kinds = (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        return kinds and bits(a) == bits(b)

    def refused(self) -> dict[str, tuple[Any, str]]:
        return {"sparse": (torch.eye(2).to_sparse(), "layout sparse_coo")}


class TestGeneratorValues(ValueAdapterContract):
    def values(self) -> dict[str, Any]:
        return {"cpu": torch.Generator().manual_seed(3)}

    def same(self, a: Any, b: Any) -> bool:
        return bool(torch.equal(a.get_state(), b.get_state()))


@pytest.mark.parametrize(
    "meta",
    [
        {"dtype": "float32"},
        {"dtype": "__class__"},
        {"dtype": []},
        {"device": "cuda:99999999999999999999"},
        {"device": "/dev/sda"},
        {"device": {}},
        {"requires_grad": True},
    ],
)
def test_hostile_meta_data_are_refused_or_ignored(meta: dict[str, Any]) -> None:
    for plain in (np.arange(3), np.arange(3.0), {"bits": np.arange(3)}, None, "x", []):
        try:
            put_together(Note("torch.Tensor", 1, meta), plain)
        except ValueRefusedError as error:
            assert str(error)  # noqa: PT017 - it may also be none


def test_a_generator_continues() -> None:
    generator = torch.Generator().manual_seed(5)
    torch.rand(3, generator=generator)
    again = back(generator)
    assert torch.equal(torch.rand(9, generator=again), torch.rand(9, generator=generator))


def test_what_is_no_state_of_a_generator_is_refused() -> None:
    taken = take_apart(torch.Generator())
    assert taken is not None
    for plain in (taken[0][:10], taken[0].astype(np.int32), np.zeros(0, np.uint8)):
        with pytest.raises(ValueRefusedError):
            put_together(taken[1], plain)


# Live objects.


class Net(nn.Module):
    """Layers of several kinds, a tied weight, and buffers of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.norm = nn.BatchNorm1d(4)
        self.body = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.1), nn.ReLU(), nn.Linear(6, 4))
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("cache", torch.zeros(3), persistent=False)
        self.register_buffer("later", None, persistent=False)
        self.factor = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))

    def forward(self, x: Any) -> Any:
        return self.head(self.body(self.norm(self.embed(x)))) * self.factor.float().mean()


def net() -> Net:
    torch.manual_seed(1)
    return Net()


def train(module: Any, optimizer: Any = None, steps: int = 3) -> None:
    """Train a module for some steps, the same ones each time, and leave gradients."""
    generator = torch.Generator().manual_seed(2)
    optimizer = optimizer or torch.optim.SGD(module.parameters(), lr=0.1)
    state = torch.get_rng_state()
    torch.manual_seed(3)
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randint(0, 7, (5,), generator=generator)
        loss = nn.functional.cross_entropy(module(x), x)
        loss.backward()
        optimizer.step()
    torch.set_rng_state(state)


def train_part(module: Net) -> None:
    """Train with a frozen layer, buffers that change, and a part in evaluation mode."""
    module.body[0].requires_grad_(False)
    module.norm.eval()
    module.cache += 1.5
    module.later = torch.full((2,), 3.0) if module.later is None else module.later + 1
    train(module)


def averaged() -> Any:
    return AveragedModel(net(), multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)


def optimizer(make: Callable[..., Any]) -> Any:
    model = net()
    return make([{"params": model.body.parameters(), "lr": 0.1}, {"params": model.norm.weight}])


def scheduler(make: Callable[[Any], Any]) -> Any:
    return make(torch.optim.SGD(net().parameters(), lr=0.1, momentum=0.9))


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": partial(torch.optim.AdamW, amsgrad=True),
    "capturable": partial(torch.optim.NAdam, lr=0.1),
    "radam": torch.optim.RAdam,
    "rmsprop": partial(torch.optim.RMSprop, momentum=0.5, centered=True),
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "adafactor": torch.optim.Adafactor,
    "rprop": torch.optim.Rprop,
}
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: lr_scheduler.StepLR(o, 2),
    "multi_step": lambda o: lr_scheduler.MultiStepLR(o, [1, 2, 2, 5]),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch),
    "multiplicative": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.5),
    "constant": lr_scheduler.ConstantLR,
    "linear": lr_scheduler.LinearLR,
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "polynomial": lr_scheduler.PolynomialLR,
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 100),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "swa": lambda o: SWALR(o, 0.05),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o), lr_scheduler.MultiStepLR(o, [2])]
    ),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.MultiStepLR(o, [1, 3])], [2]
    ),
}


class Contract(LiveAdapterContract):
    """With what is refused by name, before anything is changed."""

    def mismatches(self) -> Mapping[str, tuple[Callable[[], Any], Callable[[], Any], str]]:
        """Return objects that were saved, objects of another ``setup``, and the message."""
        return {}

    def test_other_objects_are_refused_by_name(self) -> None:
        for name, (was, now, text) in self.mismatches().items():
            new = now()
            before = to_plain(self.read(new), writable=True)
            with pytest.raises(ValueRefusedError) as caught:
                self.restored(new, self.read(was()))
            assert text in str(caught.value), name
            assert caught.value.hint, name
            assert same_bits(to_plain(self.read(new)), before), name


def same_bits(a: Any, b: Any) -> bool:
    """Return whether two states are the same; their arrays are tensors."""
    return same_plain(
        view_plain(adopt([a], copy=BUFFERS.copy)), view_plain(adopt([b], copy=BUFFERS.copy))
    )


class TestModules(Contract):
    def objects(self) -> dict[str, Any]:
        return {"net": net(), "averaged": averaged(), "no_elements": nn.Dropout()}

    def train(self, obj: Any) -> Any:
        if isinstance(obj, Net):
            train_part(obj)
        elif isinstance(obj, nn.Dropout):
            obj.train(not obj.training)
        else:
            train(obj.module)
            obj.update_parameters(net())
        return obj

    def mismatches(self) -> Mapping[str, tuple[Callable[[], Any], Callable[[], Any], str]]:
        def untied() -> Any:
            made = net()
            made.head.weight = nn.Parameter(made.embed.weight.detach().clone())
            return made

        return {
            "shape": (
                lambda: nn.Linear(2, 3),
                lambda: nn.Linear(2, 4),
                "'weight' is float32[4, 2] in the object of 'setup', and float32[3, 2]",
            ),
            "dtype": (
                lambda: nn.Linear(2, 3),
                lambda: nn.Linear(2, 3).double(),
                "'weight' is float64[3, 2] in the object of 'setup'",
            ),
            "missing": (
                lambda: nn.Linear(2, 3, bias=False),
                lambda: nn.Linear(2, 3),
                "the object of 'setup' has 'bias', and the saved state does not",
            ),
            "more": (
                lambda: nn.Linear(2, 3),
                lambda: nn.Linear(2, 3, bias=False),
                "the saved state has 'bias', and the object of 'setup' does not",
            ),
            "untied": (net, untied, "'head.weight' and 'embed.weight' are one tensor in the saved"),
            "tied": (untied, net, "'head.weight' and 'embed.weight' are one tensor in the object"),
        }


class TestOptimizers(Contract):
    def objects(self) -> dict[str, Any]:
        return {name: optimizer(make) for name, make in OPTIMIZERS.items()}

    def train(self, obj: Any) -> Any:
        """Make a step with gradients that do not depend on the parameters."""
        for group in obj.param_groups:
            for number, parameter in enumerate(group["params"]):
                parameter.grad = torch.full_like(parameter, 0.1 * (number + 1))
        obj.step()
        return obj

    def mismatches(self) -> Mapping[str, tuple[Callable[[], Any], Callable[[], Any], str]]:
        def sgd(*sizes: Any) -> Any:
            return lambda: torch.optim.SGD(
                [{"params": [torch.zeros(n) for n in group]} for group in sizes]
            )

        return {
            "groups": (sgd([1], [2]), sgd([1, 2]), "has 2 parameter groups, and the optimizer"),
            "length": (sgd([1, 2]), sgd([1]), "parameter group 0 has 2 parameters in the saved"),
            "order": (sgd([1, 2]), sgd([2, 1]), "parameter 0 of group 0 has the shape [1]"),
        }


class TestSchedulers(Contract):
    def objects(self) -> dict[str, Any]:
        return {name: scheduler(make) for name, make in SCHEDULERS.items()}

    def train(self, obj: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plateau = isinstance(obj, lr_scheduler.ReduceLROnPlateau)
            obj.step(1.0 + obj.last_epoch) if plateau else obj.step()
        return obj

    def restored(self, obj: Any, state: Any) -> Any:
        """With the rates in its optimizer, which the state of that holds."""
        made = super().restored(obj, state)
        for group, rate in zip(made.optimizer.param_groups, made.get_last_lr(), strict=True):
            group["lr"] = rate
        return made

    def mismatches(self) -> Mapping[str, tuple[Callable[[], Any], Callable[[], Any], str]]:
        return {
            "type": (
                lambda: scheduler(SCHEDULERS["step"]),
                lambda: scheduler(SCHEDULERS["cosine"]),
                "has an attribute 'T_max', and the saved state does not",
            )
        }


class TestGradScalers(Contract):
    def objects(self) -> dict[str, Any]:
        return {"cpu": torch.amp.GradScaler("cpu", growth_interval=2)}

    def train(self, obj: Any) -> Any:
        """Three steps, two of them with an infinite gradient."""
        parameter = nn.Parameter(torch.ones(1))
        sgd = torch.optim.SGD([parameter], lr=0.1)
        for factor in (1.0, float("inf"), float("inf")):
            sgd.zero_grad()
            obj.scale((parameter * factor).sum()).backward()
            obj.step(sgd)
            obj.update()
        return obj

    def mismatches(self) -> Mapping[str, tuple[Callable[[], Any], Callable[[], Any], str]]:
        def scaler(enabled: bool) -> Any:
            return lambda: torch.amp.GradScaler("cpu", enabled=enabled)

        return {"disabled": (scaler(True), scaler(False), "the scaler of 'setup' is disabled")}


class TestGenerators(Contract):
    def objects(self) -> dict[str, Any]:
        return {"cpu": torch.Generator().manual_seed(4)}

    def train(self, obj: Any) -> Any:
        torch.rand(5, generator=obj)
        return obj


def plain_state(obj: Any) -> Any:
    """Return the state of an object as people see it."""
    state = read_state(adapter_of(obj), obj)
    state.note = None
    return view_plain(state)


def adapter_of(obj: Any) -> Any:
    """Return the adapter of an object, which checkpoints know by its name."""
    adapter = live_adapter_of(obj)
    assert adapter is not None
    assert adapter_named(adapter.name) is adapter or adapter.name == "state_dict"
    return adapter


def test_a_closure_optimizer_comes_back_too() -> None:
    def made() -> tuple[Net, Any]:
        model = net()
        return model, torch.optim.LBFGS(model.body.parameters(), max_iter=3, history_size=2)

    def step(model: Net, lbfgs: Any) -> None:
        def closure() -> Any:
            lbfgs.zero_grad()
            loss = model.body[0].weight.pow(2).sum() + model.body[3].weight.sin().sum()
            loss.backward()
            return loss

        lbfgs.step(closure)

    (old, old_lbfgs), (new, new_lbfgs) = made(), made()
    step(old, old_lbfgs)
    restored(new, old)
    restored(new_lbfgs, old_lbfgs)
    step(old, old_lbfgs)
    step(new, new_lbfgs)
    assert bits(new.body[0].weight) == bits(old.body[0].weight)
    assert repr(plain_state(new_lbfgs)) == repr(plain_state(old_lbfgs))


def restored(obj: Any, old: Any) -> Any:
    """``obj`` with the state of ``old``."""
    adapter = adapter_of(old)
    return put_back(adapter, obj, {"x": read_state(adapter, old)}, "x")


def test_moments_keep_their_dtype_and_the_layout_of_their_parameter() -> None:
    def made() -> Any:
        image = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
        return torch.optim.Adam(
            [nn.Parameter(torch.ones(3, dtype=torch.bfloat16)), nn.Parameter(image)]
        )

    old = made()
    for parameter in old.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    old.step()
    first, second = old.param_groups[0]["params"]
    old.state[first]["exp_avg"] = torch.full((3,), 0.1)  # as mixed-precision optimizers keep it
    new = restored(made(), old)
    first, second = new.param_groups[0]["params"]
    assert new.state[first]["exp_avg"].dtype == torch.float32
    assert new.state[second]["exp_avg"].is_contiguous(memory_format=torch.channels_last)


def test_a_sparse_gradient_is_refused_by_its_parameter() -> None:
    module = nn.Embedding(4, 2, sparse=True)
    module(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueRefusedError, match="gradient of 'weight' is sparse") as caught:
        read_state(adapter_of(module), module)
    assert "zero_grad" in caught.value.hint


def test_a_module_that_nothing_happened_to_has_the_keys_of_its_state_dict() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.Dropout())
    assert [*plain_state(module)] == [*module.state_dict()]
    module[1].eval()
    assert plain_state(module)[".eval"] == '["1"]'


def test_a_lazy_module_is_restored_once_it_has_a_shape() -> None:
    old = nn.LazyLinear(2)
    old(torch.ones(1, 3))
    new = restored(nn.LazyLinear(2), old)
    assert bits(new.weight) == bits(old.weight)


def test_a_stateful_data_loader_continues_in_the_middle() -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def made() -> Any:
        torch.manual_seed(6)
        data = torch.arange(20)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torchdata.StatefulDataLoader(data, batch_size=3, shuffle=True)

    loader = made()
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    adapter = adapter_of(loader)
    new = made()
    torch.rand(100)
    state = read_state(adapter, loader)
    check_storable(state, "loader")
    put_back(adapter, new, {"x": state}, "x")
    assert [batch.tolist() for batch in new] == [batch.tolist() for batch in batches]


# In jobs.


def written(fn: Callable[..., Any], made: Callable[[], Any] = lambda: torch.zeros(3)) -> None:
    """Run ``fn(x)`` on a tensor that it is given under ``in``."""
    job = Job("j")
    with job.setup:
        Task(made, out="x", name="make")
    with job.epoch:
        Task(fn, "x", name="look")
    Driver(job).start().epochs(1)


def add(x: Any) -> None:
    x.add_(1)


def scale(x: Any) -> None:
    x.detach().mul_(2)


def clear(x: Any) -> None:
    x[:1].zero_()


def rectify(x: Any) -> None:
    torch.relu_(x)


@pytest.mark.parametrize("fn", [add, scale, clear, rectify])
def test_a_write_into_a_tensor_under_in_is_an_error(fn: Callable[..., Any]) -> None:
    with pytest.raises(TaskError, match="changed an input in place: in the Tensor 'x'"):
        written(fn)


def test_reading_a_tensor_and_asking_for_gradients_is_no_change() -> None:
    def differentiate(x: Any) -> None:
        x.requires_grad_().sum().backward()

    written(differentiate)


def test_as_torch_gives_writable_tensors_over_the_memory_of_the_batch() -> None:
    seen: list[Any] = []

    def look(x: Any, y: Any, name: Any, z: Any) -> None:
        assert isinstance(x, torch.Tensor)
        assert isinstance(z, torch.Tensor)
        assert isinstance(name, np.ndarray)
        x += 1
        seen.append((x.dtype, y.dtype, x.tolist(), z.tolist()))

    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(4.0), out="a", name="a")
        Task(lambda: torch.arange(4), out="b", name="b")
        Task(lambda: np.array(list("wxyz")), out="c", name="c")
    with job.epoch:
        maps = [Task(lambda x: x * 2, "x", out="z", name="double")]
        Pipe(
            {"x": "a", "y": "b", "name": "c"},
            batch=2,
            as_="torch",
            map=maps,
            do=[
                Task(look, ["x", "y", "name", "z"]),
                Task(lambda x: x.sum(), "x", out="s", name="sum"),
            ],
        )
    with job.exit:
        Task(lambda s: None, "s", name="report")
    driver = Driver(job).start().epochs(1)
    assert seen == [
        (torch.float64, torch.int64, [1, 2], [0, 2]),
        (torch.float64, torch.int64, [3, 4], [4, 6]),
    ]
    assert driver.blob("s") == 5, "the mean over rows of 3 and 7"
    assert driver.blob("a").tolist() == [0, 1, 2, 3]


def test_a_library_that_columns_cannot_be_of_is_refused() -> None:
    with pytest.raises(SpecError, match="cannot be arrays of 'touch'") as caught:
        Pipe({"x": "a"}, as_="touch", do=[Task(print, "x")])
    assert "did you mean 'torch'" in str(caught.value)


def test_parameters_in_a_tree_stay_those_that_the_optimizer_holds() -> None:
    """Restored into new tensors, they would not be trained any more."""

    def make() -> tuple[Any, Any]:
        w = torch.nn.Parameter(torch.zeros(3))
        tree = {"w": w, "tied": w, "b": torch.zeros(2, requires_grad=True), "n": torch.ones(1)}
        return tree, torch.optim.SGD([w, tree["b"]], lr=0.5)

    old, _ = make()
    with torch.no_grad():
        old["w"] += 3
        old["b"] -= 1
    made, opt = make()
    before = dict(made)
    made = put_back(PYTREE, made, {"t": read_state(PYTREE, old)}, "t")
    assert all(made[key] is before[key] for key in before)
    assert (made["w"].tolist(), made["b"].tolist()) == ([3, 3, 3], [-1, -1])
    (made["w"].sum() + made["b"].sum()).backward()
    opt.step()
    assert (made["tied"].tolist(), made["b"].tolist()) == ([2.5] * 3, [-1.5] * 2)


def test_a_tensor_that_was_computed_is_replaced_in_a_tree() -> None:
    computed = torch.ones(2, requires_grad=True) * 2
    made = put_back(PYTREE, [computed], {"t": read_state(PYTREE, [torch.full((2,), 7.0)])}, "t")
    assert made[0].tolist() == [7, 7]
    assert computed.tolist() == [2, 2]


class Recurrent(nn.Module):
    """A module of a user, with attributes that ``state_dict`` does not know."""

    def __init__(self, rate: float = 0.5, size: int = 2) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.rate = rate
        self.calls = 0
        self.hidden = torch.zeros(size)
        self.last: Any = None
        self.history: list[float] = []
        self.mixed: Any = ()
        self.count = np.int64(0)
        self.table = np.arange(3.0)
        self.noise = np.random.default_rng(1)
        self.drop = torch.Generator().manual_seed(1)
        self.hooks_of_mine: Any = {"n": print}  # a function is that of setup

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.hidden = torch.tanh(self.hidden * self.rate + self.inner(x).sum()).detach()
        self.last = self.hidden.sum()
        self.history.append(float(self.last.detach()))
        self.mixed = (1j, {2: b"3"}, [None, True, float("inf")], "text")
        self.count += 1
        self.table += 1
        kick = float(self.noise.random()) + torch.rand((), generator=self.drop)
        return self.hidden.sum() * kick

    def look(self) -> list[Any]:
        return [
            *(self.rate, self.calls, self.hidden.tolist(), float(self.last), list(self.history)),
            *(self.table.tolist(), repr(self.mixed), repr(self.count)),
            float(self(torch.ones(2))),
        ]


def wrapped(**how: Any) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(Recurrent(**how))


_noted: list[object] = []


def noted(obj: Any) -> Any:
    _noted.append(note_made(live_adapter_of(obj) or PYTREE, obj))
    return obj


def test_attributes_that_a_module_changes_are_part_of_its_state() -> None:
    old, new = noted(wrapped()), noted(wrapped())
    first = new[0].noise
    for _ in range(3):
        old(torch.ones(2))
    put_back(live_adapter_of(new), new, {"t": read_state(live_adapter_of(old), old)}, "t")
    assert new[0].noise is first
    assert new[0].look() == old[0].look()


def test_attributes_that_stay_are_those_of_the_module_that_is_restored() -> None:
    """A resumed run with another rate has that rate."""
    old, new = noted(wrapped(rate=0.5)), noted(wrapped(rate=0.7))
    old(torch.ones(2))
    state = read_state(live_adapter_of(old), old)
    put_back(live_adapter_of(new), new, {"t": state}, "t")
    assert (new[0].rate, new[0].calls) == (0.7, 1)


def test_a_call_that_is_repeated_finds_the_attributes_of_before() -> None:
    """Also those that the state does not hold, since nothing had changed them yet."""
    module, like = noted(wrapped()), wrapped()
    like[0].last = torch.zeros(())  # it is None, and look() wants a number
    state = read_state(live_adapter_of(module), module)
    module(torch.ones(2))
    module[0].hidden += 1
    module[0].new = 3
    module[0].hooks_of_mine = 3
    put_back(live_adapter_of(module), module, {"t": state}, "t")
    module[0].last = torch.zeros(())
    assert module[0].look() == like[0].look()
    assert not hasattr(module[0], "new")
    assert module[0].hooks_of_mine == {"n": print}


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({".plain": "{"}, "attributes that cannot be read"),
        ({".plain": '{"0.n": {"heap": []}}'}, "attributes that cannot be read"),
        (
            {".plain": '{"7.n": 1}'},
            "has attribute '7.n', and the object of 'setup' has no such part",
        ),
    ],
)
def test_attributes_that_cannot_be_restored_are_errors(state: dict[str, str], text: str) -> None:
    module = noted(wrapped())
    whole = {**live_adapter_of(module).state(module), **state}
    with pytest.raises(ValueRefusedError, match=text):
        live_adapter_of(module).restore(module, whole)


def test_a_large_attribute_that_was_not_kept_is_an_error() -> None:
    module = noted(wrapped(size=5 << 20))
    state = read_state(live_adapter_of(module), module)
    module[0].hidden = torch.zeros(1)
    with pytest.raises(ValueRefusedError, match=r"'0\.hidden' has changed, and it was too large"):
        put_back(live_adapter_of(module), module, {"t": state}, "t")


def test_modules_in_a_tree_are_noted_too() -> None:
    old, new = noted({"net": wrapped(), "n": 1}), noted({"net": wrapped(), "n": 1})
    old["net"](torch.ones(2))
    put_back(PYTREE, new, {"t": read_state(PYTREE, old)}, "t")
    assert new["net"][0].look() == old["net"][0].look()


def recurrent() -> Job:
    """A job whose module counts, and looks at its best one in the end."""

    def step(x: Any, net: Any) -> float:
        return float(net(torch.from_numpy(x).float()).detach())

    job = Job("recurrent", state=["net"], metrics={"loss": "min"})
    job.checkpoint = CheckpointPolicy(every=Every(batches=1))
    with job.setup:
        Task(wrapped, out="net", name="build")
        Task(lambda: np.arange(8.0).reshape(4, 2), out="rows", name="rows")
    with job.epoch:
        do = [Task(step, ["x", "net"], out="loss", name="step")]
        Pipe({"x": "rows"}, batch=1, do=do, name="pipe")
    with job.exit:
        Task(lambda best: best[0].calls, ["best:net"], out="calls", name="look")
    job.stop(epochs=3)
    return job


def test_attributes_survive_a_kill_and_the_best_module_has_its_own(tmp_path: Path) -> None:
    run_to_the_end(recurrent(), tmp_path / "alone")
    for id in (0, 2, 7):
        die_after_save(recurrent(), tmp_path / "killed", id)
    ended = start(recurrent(), tmp_path / "killed")
    ended.runner.train(ended.session)
    alone, killed = (bytes_of_checkpoints(tmp_path / run) for run in ("alone", "killed"))
    assert alone == killed
    ends = [r for r in records(tmp_path / "killed") if r.at_boundary and r.epoch]
    best = min((r.metrics["loss"], r.epoch) for r in ends)
    assert ended.session.blob("calls") == 4 * best[1] != 12


def grown() -> dict[str, Any]:
    """A tree of parameters that have gathered gradients, but for one."""
    w = torch.nn.Parameter(torch.ones(3))
    tree = {"w": w, "tied": w, "rest": [torch.full((), 2.0, requires_grad=True), torch.ones(2)]}
    (w.sum() * tree["rest"][0]).backward()
    return tree


@pytest.mark.parametrize("root", ["dict", "list", "one", "numbers"])
@pytest.mark.parametrize("filled", [True, False])
def test_gradients_that_a_tree_has_gathered_are_part_of_its_state(root: str, filled: bool) -> None:
    def shaped(tree: dict[str, Any]) -> Any:
        forms = {"dict": tree, "list": [*tree.values()], "one": tree["w"], "numbers": {7: tree}}
        return forms[root]

    saved = read_state(PYTREE, shaped(grown()))
    fresh = {"w": torch.nn.Parameter(torch.zeros(3))}
    fresh |= {"tied": fresh["w"], "rest": [torch.zeros((), requires_grad=True), torch.zeros(2)]}
    fresh["rest"][0].grad = torch.ones(())  # as before a call that is repeated
    adapter = PYTREE if filled else NEW_PYTREE
    made = put_back(adapter, shaped(fresh), {"t": saved}, "t")
    first = {"dict": lambda: made["w"], "list": lambda: made[0], "one": lambda: made}.get(
        root, lambda: made[7]["w"]
    )()
    assert (first is fresh["w"]) is filled
    assert (first.tolist(), first.grad.tolist()) == ([1, 1, 1], [2, 2, 2])
    if root == "dict":
        assert made["tied"] is first
        assert (made["rest"][0].grad.item(), made["rest"][1].grad) == (3, None)


def accumulating() -> Job:
    """Four batches an epoch, a step of the optimizer after each third one; saved after each."""

    def build() -> tuple[Any, Any]:
        params = {"w": torch.ones(2, requires_grad=True)}
        return params, torch.optim.SGD(params.values(), lr=0.01)

    def step(x: Any, params: Any, opt: Any, n: int) -> int:
        (params["w"] * float(x[0])).square().sum().backward()
        if n % 3 == 2:
            opt.step()
            opt.zero_grad()
        return n + 1

    job = Job("accumulates", state=["params", "opt"])
    job.checkpoint = CheckpointPolicy(every=Every(batches=1))
    with job.setup:
        Task(build, out=["params", "opt"], name="build")
        Task(lambda: np.arange(1.0, 5.0), out="rows", name="rows")
    with job.init:
        Task(lambda: 0, out="n", name="zero")
    with job.epoch:
        do = [Task(step, ["x", "params", "opt", "n"], out="n", name="step")]
        Pipe({"x": "rows"}, batch=1, do=do, name="pipe")
    job.stop(epochs=3)
    return job


def run_to_the_end(job: Job, run_dir: Path) -> None:
    ended = start(job, run_dir)
    ended.runner.train(ended.session)


def test_gradients_in_trees_survive_a_kill_between_two_batches(tmp_path: Path) -> None:
    run_to_the_end(accumulating(), tmp_path / "alone")
    for id in (2, 3, 7):
        die_after_save(accumulating(), tmp_path / "killed", id)
    run_to_the_end(accumulating(), tmp_path / "killed")
    alone, killed = (bytes_of_checkpoints(tmp_path / run) for run in ("alone", "killed"))
    assert alone == killed


def test_a_tree_without_gradients_is_restored_without_them() -> None:
    tree = grown()
    saved = read_state(PYTREE, {"w": torch.nn.Parameter(torch.zeros(3))})
    made = put_back(PYTREE, {"w": tree["w"]}, {"t": saved}, "t")
    assert (made["w"].tolist(), made["w"].grad) == ([0, 0, 0], None)


def test_a_tree_with_the_key_of_the_gradients_is_refused() -> None:
    with pytest.raises(ValueRefusedError, match="stands for the gradients of its tensors"):
        read_state(PYTREE, {**grown(), ".grad": 1})


def test_a_key_of_that_name_without_gradients_is_an_item_like_any_other() -> None:
    made = {"w": torch.zeros(2), ".grad": {"w": torch.zeros(2)}}
    saved = read_state(PYTREE, {"w": torch.ones(2), ".grad": {"w": torch.full((2,), 3.0)}})
    made = put_back(PYTREE, made, {"t": saved}, "t")
    assert (made["w"].tolist(), made[".grad"]["w"].tolist()) == ([1, 1], [3, 3])
    assert made["w"].grad is None


LAZY = """
import torch, torch._lazy.ts_backend
from torch import nn
from jobrun.values.adapters.pytree import PYTREE, live_adapter_of
from jobrun.values.plain import put_back, read_state
from jobrun.values.adoption import adopt
from jobrun.values.views import view

torch._lazy.ts_backend.init()

def build(seed, device):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 3)).to(device)
    return net, torch.optim.AdamW(net.parameters())

def train(net, opt, device):
    opt.zero_grad()
    net(torch.arange(12.0).reshape(4, 3).to(device)).square().sum().backward()
    opt.step()

def state(*objects):
    return {str(n): read_state(live_adapter_of(obj), obj) for n, obj in enumerate(objects)}

def restored(states, *objects):
    for n, obj in enumerate(objects):
        put_back(live_adapter_of(obj), obj, states, str(n))
    return objects

def same(one, other):
    for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a.cpu(), b.cpu())

old = build(0, "lazy")
train(*old, "lazy")
new = restored(state(*old), *build(1, "lazy"))
for _ in range(3):
    same(old[0], new[0])
    train(*old, "lazy")
    train(*new, "lazy")
moments = next(iter(new[1].state.values()))
assert {p.device.type for p in new[0].parameters()} == {"lazy"}
assert (moments["exp_avg"].device.type, moments["step"].device.type) == ("lazy", "cpu")
elsewhere = restored(state(*old), *build(2, "cpu"))
same(old[0], elsewhere[0])
assert {p.device.type for p in elsewhere[0].parameters()} == {"cpu"}

tree = {"w": torch.ones(3).to("lazy"), "sum": torch.ones(2, requires_grad=True).to("lazy") * 2}
template = {"w": torch.zeros(3), "sum": torch.zeros(2, requires_grad=True).to("lazy") * 2}
made = put_back(PYTREE, template, {"t": read_state(PYTREE, tree)}, "t")
assert made["w"].tolist() == [1, 1, 1] and made["w"].device.type == "cpu"
assert made["sum"].cpu().tolist() == [2, 2] and made["sum"].device.type == "lazy"
assert view(adopt([tree["w"]])).tolist() == [1, 1, 1]
"""


def test_objects_on_another_device_than_the_processor() -> None:
    """Torch's lazy device, which is in every build: its tensors have no addresses."""
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_tied_weights_on_a_device_are_tied(monkeypatch: pytest.MonkeyPatch) -> None:
    """There each place of a tensor is copied to the processor; and once, into a buffer."""
    monkeypatch.setattr("jobrun.values.adapters.torch_tensors._DEVICES", {"cpu"})

    def build(seed: int) -> Any:
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Embedding(300, 200), nn.Linear(200, 300, bias=False))
        net[1].weight = net[0].weight
        return net.to(torch.bfloat16)

    old, new = build(0), build(1)
    copies: list[int] = []
    copy = BUFFERS.copy
    monkeypatch.setattr(BUFFERS, "copy", lambda array: copies.append(array.nbytes) or copy(array))
    state = read_state(live_adapter_of(old), old)
    assert copies == []
    assert len({id(box) for _, box in leaves(state)}) == 1
    put_back(live_adapter_of(new), new, {"n": state}, "n")
    assert torch.equal(new[0].weight, old[0].weight)
    assert new[1].weight is new[0].weight
