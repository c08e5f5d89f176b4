"""Optimizers, and what belongs to them: schedulers and gradient scalers; all live objects."""

from __future__ import annotations

import copy
import json
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

import numpy as np

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.attributes import Parts, WithAttributes, taken
from jobrun.values.adapters.base import Plain
from jobrun.values.adapters.torch.modules import OTHER_OBJECT, as_dict, listed, refusing
from jobrun.values.adapters.torch_tensors import is_tensor, private_copy, torch

__all__ = ["GradScalerAdapter", "OptimizerAdapter", "SchedulerAdapter"]


class OptimizerAdapter(WithAttributes):
    """``torch.optim.Optimizer``: its ``state_dict``, and the shapes of its parameters.

    ``.shapes`` holds these as JSON, a list for each group; ``.attributes``, ``.parts`` and
    ``.plain`` the attributes that have changed (see ``adapters/attributes``).
    """

    name = "torch.optim.Optimizer"
    version = 1
    places = True

    def __init__(self) -> None:
        super().__init__(_parts)

    def state(self, obj: Any) -> Plain:
        """Return the state; tensors share the memory of the optimizer's."""
        state = obj.state_dict()
        groups = [
            {**group, "params": np.array(group["params"], np.int64)}  # one blob, not one for each
            for group in state["param_groups"]
        ]
        own = {"param_groups": groups, ".shapes": json.dumps(_shapes(obj))}
        return {**state, **own, **self._attributes.state(obj)}

    def restore(self, obj: Any, state: Plain) -> Any:
        """Put the state into the optimizer; return it.

        Each tensor keeps its dtype, also where ``load_state_dict`` would convert it to that of its
        parameter.  Raises ValueRefusedError, naming group and parameter, before it is changed.
        """
        with refusing("optimizer"):
            self._restore(obj, as_dict(state))
        return obj

    def _restore(self, obj: Any, state: dict[str, Any]) -> None:
        _check_groups(listed(state.pop(".shapes", None)), _shapes(obj))
        attributes = taken(state)
        groups = [{**g, "params": [*map(int, g["params"])]} for g in state["param_groups"]]
        _load(obj, {**state, "param_groups": groups})
        numbers = [number for group in groups for number in group["params"]]
        parameters = [p for group in obj.param_groups for p in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            for key, saved in state["state"].get(number, {}).items():
                loaded = obj.state[parameter].get(key)
                if is_tensor(saved) and is_tensor(loaded):
                    obj.state[parameter][key] = _placed(saved, parameter, loaded)
        self._attributes.restore(obj, attributes)

    def copy(self, obj: Any) -> Any:
        """Return ``copy.deepcopy(obj)``, with copies of the parameters."""
        return copy.deepcopy(obj)


def _parts(optimizer: Any) -> Parts:
    groups, state = optimizer.param_groups, optimizer.state
    own = {"param_groups": groups, "state": state}
    for number, group in enumerate(groups):
        own[f"param_groups[{number}]"] = group
        own |= {f"param_groups[{number}][{n}]": p for n, p in enumerate(group["params"])}
    return Parts({"": optimizer}, own, lambda optimizer: _known().__contains__)


@cache
def _known() -> frozenset[str]:
    """Return the names of attributes that every optimizer has, and that schedulers replace."""
    bare = torch().optim.SGD([torch().zeros(1)], lr=0.1)
    return frozenset((*vars(bare), "step", "_opt_called", "_step_count"))


def _load(optimizer: Any, state: dict[str, Any]) -> None:
    """Call ``load_state_dict``, and keep lists and dicts, which others may hold."""
    groups, own = optimizer.param_groups, optimizer.state
    optimizer.load_state_dict(state)
    for group, loaded in zip(groups, optimizer.param_groups, strict=True):
        group.clear()
        group.update(loaded)
    loaded = dict(optimizer.state)
    own.clear()
    own.update(loaded)
    optimizer.param_groups, optimizer.state = groups, own


def _placed(saved: Any, parameter: Any, loaded: Any) -> Any:
    """Return a copy of a saved tensor on the device where ``load_state_dict`` has put it."""
    like = parameter if saved.shape == parameter.shape else saved
    return private_copy(saved, like).to(loaded.device)


def _shapes(optimizer: Any) -> list[list[list[int]]]:
    return [[list(p.shape) for p in group["params"]] for group in optimizer.param_groups]


def _check_groups(before: Any, now: list[list[list[int]]]) -> None:
    """Raise ValueRefusedError if parameter groups differ in number, length or shapes."""
    if len(before) != len(now):
        raise ValueRefusedError(
            f"the saved state has {len(before)} parameter groups, and the optimizer of 'setup' has "
            f"{len(now)}",
            hint="make all groups in 'setup'; what is not trained yet can wait with requires_grad "
            "False",
        )
    for number, (old, new) in enumerate(zip(before, now, strict=True)):
        if len(old) != len(new):
            raise ValueRefusedError(
                f"parameter group {number} has {len(old)} parameters in the saved state, and "
                f"{len(new)} in the optimizer of 'setup'",
                hint=OTHER_OBJECT,
            )
        for place, (was, is_now) in enumerate(zip(old, new, strict=True)):
            if was != is_now:
                raise ValueRefusedError(
                    f"parameter {place} of group {number} has the shape {was} in the saved state, "
                    f"and {is_now} in the optimizer of 'setup'",
                    hint=OTHER_OBJECT,
                )


_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType, MethodType, type)


def _without_functions(state: Any) -> Any:
    """Return a state without functions, which ``setup`` makes, and with dicts for Counters."""
    if isinstance(state, dict):
        kept = {k: v for k, v in state.items() if not isinstance(v, _FUNCTIONS)}
        return {key: _without_functions(value) for key, value in kept.items()}
    if type(state) in (list, tuple):
        return type(state)(map(_without_functions, state))
    return state


class SchedulerAdapter:
    """``torch.optim.lr_scheduler.LRScheduler``: its ``state_dict``, without functions."""

    name = "torch.optim.LRScheduler"
    version = 1

    def state(self, obj: Any) -> Plain:
        """Return the state: numbers, strings, and lists and dicts of these."""
        return _without_functions(obj.state_dict())

    def restore(self, obj: Any, state: Plain) -> Any:
        """Put the state into the scheduler; return it.

        Raises ValueRefusedError if the object of ``setup`` has attributes that it lacks.
        """
        with refusing("scheduler"):
            self._restore(obj, as_dict(state))
        return obj

    def _restore(self, obj: Any, state: dict[str, Any]) -> None:
        for key in self.state(obj):
            if key not in state:
                raise ValueRefusedError(
                    f"the scheduler of 'setup' has an attribute {key!r}, and the saved state does "
                    "not",
                    hint=OTHER_OBJECT,
                )
        kinds = [
            (one, {k: type(v) for k, v in vars(one).items() if isinstance(v, dict)})
            for one in (obj, *getattr(obj, "_schedulers", ()))
        ]
        obj.load_state_dict(state)
        for one, of_kind in kinds:  # MultiStepLR counts with a Counter
            for key, kind in of_kind.items():
                if kind is not dict and type(vars(one)[key]) is dict:
                    setattr(one, key, kind(vars(one)[key]))

    def copy(self, obj: Any) -> Any:
        """Return ``copy.deepcopy(obj)``, with a copy of the optimizer."""
        return copy.deepcopy(obj)


class GradScalerAdapter:
    """``torch.amp.GradScaler``: its ``state_dict``, which is empty if it is disabled."""

    name = "torch.amp.GradScaler"
    version = 1

    def state(self, obj: Any) -> Plain:
        """Return the scale and the counts of steps."""
        return obj.state_dict()

    def restore(self, obj: Any, state: Plain) -> Any:
        """Put the state into the scaler; return it."""
        state = as_dict(state)
        if bool(state) != bool(obj.state_dict()):
            raise ValueRefusedError(
                f"the scaler of 'setup' is {'disabled' if state else 'enabled'}, and the saved one "
                "was not",
                hint=OTHER_OBJECT,
            )
        if state:
            with refusing("scaler"):
                obj.load_state_dict(state)
        return obj

    def copy(self, obj: Any) -> Any:
        """Return ``copy.deepcopy(obj)``."""
        return copy.deepcopy(obj)
