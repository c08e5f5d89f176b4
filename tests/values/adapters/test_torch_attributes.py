"""Attributes of modules and optimizers: nested, shared, in circles, and held by others."""

from __future__ import annotations

import argparse
import enum
import gc
import itertools
import json
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from jobrun.errors import ValueRefusedError  # noqa: E402
from jobrun.values.adapters.pytree import (  # noqa: E402
    live_adapter_of,
    note_made,
    warnings_of,
)
from jobrun.values.plain import put_back, read_state  # noqa: E402

_noted: list[object] = []


def noted(obj: Any) -> Any:
    _noted.append(note_made(live_adapter_of(obj), obj))
    return obj


def moved(old: Any, new: Any) -> Any:
    """Put the state of an object into another one, as a resume does; return that."""
    put_back(live_adapter_of(new), new, {"t": read_state(live_adapter_of(old), old)}, "t")
    return new


def warned(obj: Any) -> list[str]:
    return [*warnings_of(live_adapter_of(obj), obj)]


class Phase(enum.Enum):
    """A member is kept by its name."""

    WARM = 1
    COLD = 2


class Step(NamedTuple):
    """What a replay buffer holds."""

    x: Any
    reward: float


@dataclass(slots=True)
class Slots:
    """Fields without a ``__dict__``."""

    n: int
    x: Any


class Average:
    """An average of the weights, in an object of the user's own class."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.shadow = {k: v.detach().clone() for k, v in module.named_parameters()}
        self.steps = 0

    def update(self) -> None:
        self.steps += 1
        for name, parameter in self.module.named_parameters():
            self.shadow[name].mul_(0.5).add_(parameter.detach(), alpha=0.5)


class Holder(nn.Module):
    """A module with one linear layer, to which tests give attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(2))


def holder(**attributes: Any) -> Any:
    torch.manual_seed(0)
    module = Holder()
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


NEW: dict[str, Callable[[], Any]] = {
    "hidden": lambda: (torch.ones(2), torch.zeros(1)),
    "deque": lambda: deque([(torch.ones(2), 1)], maxlen=3),
    "dict": lambda: {"w": torch.ones(2), 3: np.arange(2.0), (1, "a"): [b"x", 1j]},
    "default": lambda: defaultdict(None, {"a": [1]}),
    "ordered": lambda: OrderedDict(b=1, a=2),
    "counter": lambda: Counter("aab"),
    "set": lambda: {3, 1, 2},
    "strings": lambda: {"c", "a", "b"},
    "frozen": lambda: frozenset({1, 2}),
    "named": lambda: [Step(torch.ones(1), 0.5)],
    "slots": lambda: Slots(3, np.ones(2)),
    "enum": lambda: [Phase.COLD, Phase.COLD],
    "dtype": lambda: [torch.float16, torch.device("cpu"), torch.Size([2, 3])],
    "random": lambda: [random.Random(7), np.random.RandomState(7), np.random.default_rng(7)],
    "fortran": lambda: [np.asfortranarray(np.arange(6.0).reshape(2, 3))],
    "numbers": lambda: [True, 1, 1.0, float("nan"), 1 << 90, None, np.float32(2)],
    "parameter": lambda: [nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True)],
    "bfloat16": lambda: {"m": torch.ones(3, dtype=torch.bfloat16)},
}


def shown(value: Any) -> str:
    """Return all that there is to a value, as text."""
    if isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value!r} {value.grad!r}"
    if isinstance(value, np.ndarray):
        return f"{value!r} {value.dtype} {value.flags.f_contiguous}"
    if isinstance(value, random.Random):
        return repr(value.getstate())
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return repr(value.random(3))
    if isinstance(value, dict):
        return f"{type(value)} {[(k, shown(v)) for k, v in value.items()]}"
    if isinstance(value, list | tuple | deque):
        end = getattr(value, "maxlen", 0)
        return f"{type(value)} {end} {[shown(v) for v in value]}"
    if isinstance(value, set | frozenset):
        return f"{type(value)} {sorted(value)}"
    return f"{value.n} {shown(value.x)}" if isinstance(value, Slots) else repr(value)


@pytest.mark.parametrize("kind", NEW)
def test_what_a_step_gives_an_attribute_comes_back(kind: str) -> None:
    old, new = noted(holder(it=None)), noted(holder(it=None))
    old.it = NEW[kind]()
    assert shown(moved(old, new).it) == shown(NEW[kind]())
    assert not warned(old)


@pytest.mark.parametrize("kind", NEW)
def test_what_a_failed_call_gave_an_attribute_is_undone(kind: str) -> None:
    module = noted(holder(it=NEW[kind]()))
    state = read_state(live_adapter_of(module), module)
    module.it, module.other = 3, NEW[kind]()
    put_back(live_adapter_of(module), module, {"t": state}, "t")
    assert shown(module.it) == shown(NEW[kind]())
    assert not hasattr(module, "other")


def test_what_has_not_changed_is_no_state() -> None:
    module = noted(holder(**{name: make() for name, make in NEW.items()}))
    assert set(live_adapter_of(module).state(module)) == {"l.weight", "l.bias", "seen"}


@pytest.mark.parametrize("change", [1, 1.0, True])
def test_a_number_of_another_type_is_a_change(change: Any) -> None:
    old, new = noted(holder(it=[1])), noted(holder(it=[1]))
    old.it[0] = change
    assert type(moved(old, new).it[0]) is type(change)


def test_an_object_that_holds_its_module_is_kept_with_its_fields() -> None:
    def make() -> Any:
        module = holder()
        module.average = Average(module)
        return noted(module)

    old, new = make(), make()
    with torch.no_grad():
        old.l.weight += 1
    old.average.update()
    average, shadow = new.average, new.average.shadow["l.weight"]
    moved(old, new)
    assert new.average is average
    assert average.module is new
    assert average.steps == 1
    assert average.shadow["l.weight"] is shadow
    assert torch.equal(shadow, old.average.shadow["l.weight"])


def test_objects_in_a_circle_come_back_as_one() -> None:
    old, new = noted(holder(it=None)), noted(holder(it=None))
    old.it = Slots(1, [])
    old.it.x.append(old.it)
    moved(old, new)
    assert new.it is not old.it
    assert new.it.x[0] is new.it


def aliased() -> Any:
    module = holder(buf=torch.zeros(4, 2), array=np.zeros(3))
    module.other, module.array2, module.nested = module.buf, module.array, {"a": [module.buf]}
    module.row = module.buf[1]
    module.alias, module.weights = module.seen, [module.l.weight]
    return noted(module)


def test_attributes_that_are_one_object_stay_one() -> None:
    """Also those that are views of others, or a buffer or a parameter of the module."""
    old, new = aliased(), aliased()
    for step in range(2):
        old.row += 1
        old.array += 1
        old.alias += step
        moved(old, new)
        assert new.buf is new.other is new.nested["a"][0]
        assert new.array is new.array2
        assert new.array.tolist() == old.array.tolist()
        assert new.alias is new.seen
        assert new.weights[0] is new.l.weight
        new.row += 1
        assert new.buf[1].tolist() == new.row.tolist() == [step + 2] * 2


def test_objects_that_change_places_are_those_that_others_hold() -> None:
    """Two buffers that a step swaps; one that it replaces is held by nobody."""
    old = noted(holder(front=torch.zeros(2), back=torch.ones(2), last=torch.zeros(2)))
    new = noted(holder(front=torch.zeros(2), back=torch.ones(2), last=torch.zeros(2)))
    front, back, last = new.front, new.back, new.last
    old.front, old.back = old.back, old.front
    old.front += 5
    old.last = old.last + 1
    moved(old, new)
    assert new.front is back
    assert new.back is front
    assert (back.tolist(), front.tolist()) == ([6, 6], [0, 0])
    assert new.last is not last
    assert last.tolist() == [0, 0]
    assert new.last.tolist() == [1, 1]


def test_two_attributes_made_in_training_that_are_one_stay_one() -> None:
    old = noted(holder(a=torch.zeros(2), b=torch.zeros(2)))
    new = noted(holder(a=torch.zeros(2), b=torch.zeros(2)))
    old.a = old.b = torch.ones(2)
    moved(old, new)
    assert new.a is new.b
    assert new.a.tolist() == [1, 1]


def test_a_change_past_the_count_of_changes_is_seen() -> None:
    old, new = noted(holder(it=torch.zeros(2))), noted(holder(it=torch.zeros(2)))
    old.it.data.add_(1)
    old.it.numpy()[0] = 7
    assert moved(old, new).it.tolist() == [7, 1]


def test_a_leaf_among_the_attributes_keeps_its_gradient() -> None:
    """Its optimizer is another object: it holds the tensor of ``setup``."""
    old = noted(holder(z=torch.zeros(2, requires_grad=True)))
    new = noted(holder(z=torch.zeros(2, requires_grad=True)))
    own = new.z
    (old.z.sum() * 3).backward()
    moved(old, new)
    assert new.z is own
    assert own.grad.tolist() == [3, 3]
    assert own.requires_grad
    moved(noted(holder(z=torch.zeros(2, requires_grad=True))), new)
    assert own.grad is None, "as it was when the module was made"


def test_attributes_of_modules_of_torch_itself_count_too() -> None:
    old, new = (noted(nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5))) for _ in range(2))
    old[0].momentum, old[1].p = 0.01, 0.25
    moved(old, new)
    assert (new[0].momentum, new[1].p) == (0.01, 0.25)


def test_an_attribute_that_was_deleted_is_not_there() -> None:
    old, new = noted(holder(it=1)), noted(holder(it=1))
    del old.it
    assert not hasattr(moved(old, new), "it")


def test_modules_and_optimizers_that_are_attributes_are_kept_with_their_state() -> None:
    def make() -> Any:
        module = holder(teacher=[Holder()])
        module.opt = torch.optim.Adam(module.l.parameters(), 0.1)
        return noted(module)

    old, new = make(), make()
    old.l(torch.ones(1, 2)).sum().backward()
    old.opt.step()
    with torch.no_grad():
        old.teacher[0].l.weight.fill_(3)
    old.teacher[0].count = 4
    opt, teacher = new.opt, new.teacher[0]
    moved(old, new)
    assert new.opt is opt
    assert new.teacher[0] is teacher
    assert teacher.count == 4
    assert torch.equal(teacher.l.weight, old.teacher[0].l.weight)
    for module in (old, new):
        module.opt.step()
    assert torch.equal(new.l.weight, old.l.weight)


class Lookahead(torch.optim.SGD):
    """An optimizer with a state of its own, which ``state_dict`` does not know."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, 0.1)
        self.count = 0
        self.slow = [p.detach().clone() for p in self.param_groups[0]["params"]]
        self.base = torch.optim.SGD(self.param_groups, 0.1)
        self.base.param_groups = self.param_groups

    def step(self, closure: Any = None) -> Any:
        self.base.step()
        self.count += 1
        for slow, parameter in zip(self.slow, self.param_groups[0]["params"], strict=True):
            slow += (parameter.detach() - slow) / 2


def test_attributes_of_an_optimizer_are_part_of_its_state() -> None:
    def make() -> tuple[Any, Any]:
        module = holder()
        return module, noted(Lookahead(module.parameters()))

    (old_module, old), (new_module, new) = make(), make()
    groups, group = new.param_groups, new.param_groups[0]
    old_module.l(torch.ones(1, 2)).sum().backward()
    old.param_groups[0]["lr"] = 0.3
    old.step()
    moved(old, new)
    assert new.param_groups is groups is new.base.param_groups
    assert groups[0] is group
    assert (new.count, group["lr"]) == (1, 0.3)
    assert all(map(torch.equal, new.slow, old.slow))
    assert group["params"][0] is new_module.l.weight


def test_what_cannot_be_kept_is_said_once_it_has_changed() -> None:
    module = noted(holder(lock=threading.Lock(), it={"n": 1}, numbers=itertools.count()))
    (line,) = warned(module)
    assert "its attribute numbers is a itertools.count, in which changes cannot be seen" in line
    read_state(live_adapter_of(module), module)
    assert warned(module) == []
    module.it["writer"] = iter([1])
    state = read_state(live_adapter_of(module), module)
    (line,) = warned(module)
    assert "it['writer'] has changed, and cannot be saved" in line
    put_back(live_adapter_of(module), module, {"t": state}, "t")
    assert "writer" in module.it, "it is left as it is"


def test_plain_objects_of_python_are_kept() -> None:
    def make() -> Any:
        return noted(holder(args=argparse.Namespace(a=1), space=SimpleNamespace(n=[1])))

    old, new = make(), make()
    old.args.a, old.args.b = 2, 3
    old.space.n.append(5)
    moved(old, new)
    assert vars(new.args) == {"a": 2, "b": 3}
    assert new.space.n == [1, 5]


def test_a_class_of_python_itself_is_never_made_of_a_state() -> None:
    old, new = noted(holder(it=None)), noted(holder(it=None))
    old.it = argparse.Namespace(a=1)
    moved(old, new)
    assert new.it is None
    assert len(warned(old)) == 1


def test_a_module_in_the_place_of_another_is_compared_with_that_of_setup() -> None:
    first, second = noted(holder(n=0, buf=torch.zeros(2))), holder(n=3, buf=torch.ones(2))
    _noted.append(note_made(live_adapter_of(second), second, first))
    new = moved(second, noted(holder(n=0, buf=torch.zeros(2))))
    assert new.n == 3
    assert new.buf.tolist() == [1, 1]


def test_a_module_that_a_resume_could_not_restore_is_said_when_it_is_saved() -> None:
    module = noted(holder())
    read_state(live_adapter_of(module), module)
    assert warned(module) == []
    module.extra, module.l = nn.Parameter(torch.ones(3)), nn.Bilinear(2, 2, 2).double()
    read_state(live_adapter_of(module), module)
    lines = warned(module)
    for text in (
        "'l' is Bilinear now, and was Linear when 'setup' had made it",
        "'extra' is float32[3] now, and was nothing",
        "'l.weight' is float64[2, 2, 2] now, and was float32[2, 2]",
    ):
        assert any(text in line for line in lines), lines


def test_a_lazy_module_that_gets_its_shape_is_no_other_module() -> None:
    module = noted(nn.Sequential(nn.LazyLinear(2)))
    module(torch.ones(1, 3))
    read_state(live_adapter_of(module), module)
    assert warned(module) == []


@pytest.mark.parametrize(
    ("was", "now"),
    [(0.0, -0.0), (1, True), (1, 1.0), (None, 0), (7, None), ("a", "b"), ((1, 2), (1, 2.0))],
)
def test_a_number_is_seen_to_be_another(was: Any, now: Any) -> None:
    def made() -> Any:
        module = nn.Linear(1, 1)
        module.count, module.other = was, was
        return noted(module)

    old, new = made(), made()
    assert ".plain" not in read_state(live_adapter_of(old), old).items
    old.count, old.fresh = now, was
    moved(old, new)
    assert repr((new.count, new.other, new.fresh)) == repr((now, was, was))
    old.count = was
    del old.fresh
    moved(old, new)
    assert repr(new.count) == repr(was)
    assert not hasattr(new, "fresh")


def test_what_a_tuple_holds_is_seen_to_change() -> None:
    def made() -> Any:
        module = nn.Linear(1, 1)
        module.pair = (1, [2], (3, {"n": 4}))
        return noted(module)

    old, new = made(), made()
    old.pair[1].append(5)
    old.pair[2][1]["n"] = 6
    assert moved(old, new).pair == (1, [2, 5], (3, {"n": 6}))


# What a forged checkpoint may not do.

acted: list[Any] = []


class Deleting:
    """An object that acts when it is no longer used."""

    def __init__(self) -> None:
        self.path = "own"

    def __del__(self) -> None:
        acted.append(vars(self).get("path"))


class Setting:
    """An object whose property acts when it is set."""

    @property
    def path(self) -> Any:
        return self.__dict__.get("path", "none")

    @path.setter
    def path(self, value: Any) -> None:
        acted.append(value)


def forged(form: Any, **attributes: Any) -> Any:
    """Restore a module whose attribute ``it``, or all, a text gives that somebody else wrote."""
    module = noted(holder(it=None, **attributes))
    adapter: Any = live_adapter_of(module)
    text = form if isinstance(form, str) else json.dumps({"it": form})
    return adapter.restore(module, {**adapter.state(module), ".plain": text})


def made(name: str, *fields: Any) -> dict[str, Any]:
    return {"object": [*fields], "class": name}


FORGED: dict[str, Any] = {
    "a function of torch": {"dtype": "load"},
    "a module of torch": {"dtype": "hub"},
    "a shared library": {"global": "ctypes:cdll./tmp/library"},
    "a shared library as a class": made("ctypes:cdll./tmp/library"),
    "a class of Python": made("subprocess:Popen"),
    "a class of Python in a module": made("torch.hub:tempfile._TemporaryFileCloser", ["name", "x"]),
    "a class of Python by another name": made("torch.hub:Path"),
    "a class of jobrun": made("jobrun.storage.lock:Lock"),
    "a class of a library": made("torch.utils.data.dataset:Dataset", ["x", 1]),
    "a class of another library": made("yaml.events:ScalarEvent", ["x", 1]),
    "a class with __del__": made(f"{__name__}:Deleting", ["path", "forged"]),
    "a class of C": made("numpy:ndarray"),
    "a tuple that is none": {"named": [1], "class": f"{__name__}:Average"},
    "a tuple of Python": {"named": [1, 2], "class": "urllib.parse:DefragResult"},
    "a hook of the module": '{"_forward_hooks": {"dict": [[0, 1]]}}',
    "the parts of the module": '{"l._parameters": {"dict": []}}',
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_attribute_is_refused(what: str) -> None:
    acted.clear()
    with pytest.raises(ValueRefusedError):
        forged(FORGED[what])
    gc.collect()
    assert acted == []


def test_objects_of_setup_that_are_not_their_fields_are_not_filled() -> None:
    """Else a module that an attribute refers to is emptied."""
    for name, value in (("builtins:module", itertools), ("builtins:function", shown)):
        before = dict(vars(value))
        with pytest.raises(ValueRefusedError):
            forged({**made(name, ["chain", 1]), "own": "tool"}, tool=value)
        assert dict(vars(value)) == before


def test_fields_are_filled_without_properties_and_without_another_class() -> None:
    acted.clear()
    name = f"{__name__}:Setting"
    kind = {"setup": None, "own": "kind"}
    module = forged(made(name, ["path", "forged"], ["__class__", kind]), kind=Deleting)
    assert type(module.it) is Setting
    assert module.it.path == "forged"
    assert acted == []


def test_what_is_not_made_on_a_resume_is_said_when_it_is_saved() -> None:
    module = noted(holder(it=None, other=None))
    deleting = Deleting()
    module.it, module.other = [deleting], [yaml.ScalarEvent("a", None, (True, False), "b")]
    read_state(live_adapter_of(module), module)
    first, second = warned(module)
    assert "Deleting, a class with a method __del__" in first
    assert "ScalarEvent, a class of a library of which 'setup' has made no object" in second


def test_an_object_of_a_library_of_which_setup_has_made_one_is_made_again() -> None:
    old, new = (
        noted(holder(it=[yaml.ScalarEvent("a", None, (True, False), "b")])) for _ in range(2)
    )
    another: Any = yaml.ScalarEvent("a", None, (True, False), "b")
    another.value = 3
    old.it.append(another)
    moved(old, new)
    assert type(new.it[1]) is yaml.ScalarEvent
    assert new.it[1].value == 3
    assert warned(old) == []
