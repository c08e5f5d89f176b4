"""Models, optimizers and metrics of Keras, with any backend: their variables, and what is beside.

The state of a model is that of all its variables, in their order (their names are counted again in
each process), with those of its optimizer and its metrics.  The optimizer is built when ``setup``
has made the model, so that there is a place for what is restored.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any, Final

from jobrun.core.late_imports import imported
from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.attributes import Parts, WithAttributes, taken
from jobrun.values.adapters.base import Plain
from jobrun.values.adapters.registry import value_adapter

__all__ = ["ADAPTERS"]

_SAME: Final = "build in 'setup' the same object as when the run was started"


class VariablesAdapter(WithAttributes):
    """Optimizers and metrics: their variables, and attributes that have changed."""

    version = 1

    def __init__(self, name: str) -> None:
        super().__init__(self._parts)
        self.name = name

    def state(self, obj: Any) -> Plain:
        """Return ``variables``, a list, and the attributes that have changed."""
        variables = [_value(variable) for variable in obj.variables]
        return {"variables": variables, **self._attributes.state(obj)}

    def restore(self, obj: Any, state: Plain) -> Any:
        """Assign the variables; raises ValueRefusedError for others than those of ``obj``."""
        parts, attributes = _apart(state, {"variables"})
        _check(obj.variables, parts["variables"], "variable")
        _assign(obj.variables, parts["variables"])
        self._attributes.restore(obj, attributes)
        return obj

    def copy(self, obj: Any) -> Any:
        """Return an object of the same configuration with the same values."""
        made = type(obj).from_config(obj.get_config())
        if hasattr(obj, "_trainable_variables") and obj.built:
            made.build(obj._trainable_variables)
        _assign(made.variables, [variable.value for variable in obj.variables])
        return made

    def _parts(self, obj: Any) -> Parts:
        own = {f"variables[{n}]": v for n, v in enumerate(obj.variables)}
        return Parts({"": obj}, own | _inner(obj), lambda holder: partial(_skips, holder))


class ModelAdapter(VariablesAdapter):
    """Models, compiled or not."""

    def made(self, obj: Any, like: Any = None) -> object:
        """Build the optimizer; raises ValueRefusedError for a model that is not built."""
        if not obj.built:
            raise ValueRefusedError(
                "the model has no variables yet: it is built on its first batch",
                hint="begin it with keras.Input(shape), or call it on one batch in 'setup'",
            )
        optimizer = _optimizer(obj)
        if optimizer is not None and not optimizer.built:
            optimizer.build(obj.trainable_variables)
        return super().made(obj, like)

    def warnings(self, obj: Any) -> Iterator[str]:
        """See ``LiveAdapter``."""
        yield from super().warnings(obj)
        metrics: Any = getattr(obj, "_compile_metrics", None)
        if getattr(metrics, "_user_metrics", None) and not metrics.built:
            yield (
                "its metrics are not built, and what they have gathered is not restored inside an "
                "epoch: call model.test_on_batch(x, y) and model.reset_metrics() in 'setup'"
            )

    def state(self, obj: Any) -> Plain:
        """Return the variables of model, optimizer and metrics, and what can be trained."""
        optimizer = _optimizer(obj)
        return {
            **super().state(obj),
            "optimizer": [_value(v) for v in (optimizer.variables if optimizer else ())],
            "metrics": [_value(v) for v in obj.metrics_variables],
            "trainable": json.dumps([one.trainable for one in _switched(obj)]),
        }

    def restore(self, obj: Any, state: Plain) -> Any:
        """Assign the variables; raises ValueRefusedError for others than those of ``obj``."""
        parts, attributes = _apart(state, {"variables", "optimizer", "metrics", "trainable"})
        optimizer = _optimizer(obj)
        own = optimizer.variables if optimizer else []
        _check(obj.variables, parts["variables"], "variable")
        _check(own, parts["optimizer"], "variable of the optimizer")
        gathered = parts["metrics"] if isinstance(parts["metrics"], list) else []
        both = [*zip(obj.metrics_variables, gathered, strict=False)]
        metrics, saved = [variable for variable, _ in both], [value for _, value in both]
        _check(metrics, saved, "variable of a metric")
        flags, switched = _flags(parts["trainable"]), _switched(obj)
        if len(flags) != len(switched):
            raise ValueRefusedError("the model has other layers than the saved one", hint=_SAME)
        for one, flag in zip(switched, flags, strict=True):
            if one.trainable != flag:
                one.trainable = flag
        _assign(obj.variables, parts["variables"])
        _assign(own, parts["optimizer"])
        if len(obj.metrics_variables) > len(gathered):
            obj.reset_metrics()  # some were built by a call that is undone
        _assign(metrics, saved)
        self._attributes.restore(obj, attributes)
        return obj

    def copy(self, obj: Any) -> Any:
        """Return a model of the same configuration, compiled in the same way, with its values."""
        made = copy.deepcopy(obj)
        optimizer = _optimizer(made)
        if optimizer is not None and not optimizer.built:
            optimizer.build(made.trainable_variables)
        return self.restore(made, self.state(obj))

    def _parts(self, obj: Any) -> Parts:
        layers = {str(n) if n else "": layer for n, layer in enumerate(obj._flatten_layers())}
        optimizer = _optimizer(obj)
        holders = layers | ({"optimizer": optimizer} if optimizer else {})
        variables = [*obj.variables, *obj.metrics_variables]
        own = {f"variables[{n}]": v for n, v in enumerate(variables)}
        values = {f"{name}.value": variable.value for name, variable in own.items()}
        metrics = {f"metrics[{n}]": metric for n, metric in enumerate(obj.metrics)}
        own |= values | metrics | _inner(optimizer)
        return Parts(holders, {**holders, **own}, lambda holder: partial(_skips, holder))


def _optimizer(model: Any) -> Any:
    return getattr(model, "optimizer", None)


def _inner(optimizer: Any) -> dict[str, Any]:
    """Return the optimizer within one that scales the loss: its variables are among the others."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return {} if inner is None else {"inner_optimizer": inner}


def _switched(model: Any) -> list[Any]:
    """Return all that has a switch ``trainable``: layers, from the outermost, then variables."""
    return [*model._flatten_layers(), *model.variables]


def _value(variable: Any) -> Any:
    value = variable.value
    if value_adapter(value) is None:
        return imported("keras").ops.convert_to_numpy(value)
    return value.detach() if hasattr(value, "detach") else value


def _apart(state: Plain, keys: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts of a state, and its attributes; raises ValueRefusedError for other keys."""
    parts = dict(state) if isinstance(state, dict) else {}
    attributes = taken(parts)
    if set(parts) != keys:
        raise ValueRefusedError("the state is not that of such an object of Keras", hint=_SAME)
    return parts, attributes


def _flags(text: Any) -> list[bool]:
    try:
        flags = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        flags = None
    if not isinstance(flags, list) or not all(type(flag) is bool for flag in flags):
        raise ValueRefusedError("at 'trainable', expected a list of true and false")
    return flags


def _check(variables: Sequence[Any], values: Any, what: str) -> None:
    """Raise ValueRefusedError if values have not the shapes and dtypes of variables."""
    if not isinstance(values, list) or len(values) != len(variables):
        count = len(values) if isinstance(values, list) else 0
        raise ValueRefusedError(
            f"the object of 'setup' has {len(variables)} of kind {what}, the saved one {count}",
            hint=_SAME,
        )
    for number, (variable, value) in enumerate(zip(variables, values, strict=True)):
        was = tuple(getattr(value, "shape", (-1,)))
        dtype = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
        if was != tuple(variable.shape) or dtype != str(variable.dtype):
            raise ValueRefusedError(
                f"{what} {number} ({variable.path}) is {variable.dtype}{list(variable.shape)} in "
                f"the object of 'setup', and {dtype}{list(was)} in the saved state",
                hint=_SAME,
            )


def _assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


@cache
def _known() -> frozenset[str]:
    """Return the names of attributes that Keras itself gives to models and layers."""
    keras = imported("keras")
    of_models = vars(keras.Model(name="jobrun_known"))
    return frozenset((*of_models, *vars(keras.layers.Layer(name="jobrun_known")), *_COMPILED))


_COMPILED: Final = ("optimizer", "compiled", "built", "loss", "train_function", "test_function")
_PRIVATE: Final = ("_compile", "_loss", "_metrics", "_layers", "_functional", "_tracker", "_lock")


def _skips(holder: Any, key: str) -> bool:
    """Return whether an attribute is one of Keras itself; numbers of its layers are looked at."""
    if key in _known() or key.startswith(_PRIVATE):
        return True
    return key.startswith("_") and type(holder).__module__.partition(".")[0] == "keras"


ADAPTERS: Final = {
    "keras.src.models.model.Model": ModelAdapter("keras.Model"),
    "keras.src.optimizers.base_optimizer.BaseOptimizer": VariablesAdapter("keras.Optimizer"),
    "keras.src.metrics.metric.Metric": VariablesAdapter("keras.Metric"),
}
