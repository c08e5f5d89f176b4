"""Boosters of XGBoost: their model in XGBoost's own bytes (UBJSON), and their configuration.

A booster that continues after a restore makes the trees that it would have made without, measured
for the tree methods hist, approx and exact.  That cannot hold where XGBoost draws random numbers
(``subsample``, ``colsample_*``, ``rate_drop``, ``one_drop``, ``feature_selector``): the state of
its generators cannot be read.  A booster that is trained in place with these is refused; one that
each call makes again by ``xgboost.train(…, xgb_model=booster)`` begins with the seed in its
parameters, and is exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Plain

__all__ = ["ADAPTERS"]

_SHARES: Final = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")

_DROPS: Final = ("rate_drop", "one_drop")


class XGBoostAdapter:
    """``xgboost.Booster``, trained in place or replaced."""

    name = "xgboost.Booster"
    version = 1

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def state(self, obj: Any) -> Plain:
        """Return ``model`` (uint8, [bytes]) and ``config`` (JSON).

        Raises ValueRefusedError for a booster without data, and for one that was trained in place
        with random numbers since its state was last read.
        """
        try:
            model, config = obj.save_raw("ubj"), obj.save_config()
        except ValueError as error:
            raise ValueRefusedError(
                f"the booster cannot be saved yet: {_first_line(error)}",
                hint="make it with its data: xgboost.Booster(params, [dtrain])",
            ) from error
        rounds = obj.num_boosted_rounds()
        if rounds > self._seen.setdefault(obj, rounds) and (drawn := _drawn(config)):
            raise ValueRefusedError(
                f"the booster was trained in place with {drawn}: XGBoost's random numbers cannot "
                "be saved, so a resumed run would make other trees",
                hint="let the task return a new booster: xgboost.train({**params, 'seed': seed}, "
                "dtrain, 1, xgb_model=booster), with a seed drawn from 'rng'",
            )
        return {"model": np.frombuffer(model, np.uint8), "config": config}

    def restore(self, obj: Any, state: Plain) -> Any:
        """Load model and configuration into ``obj``, which keeps its data.

        Raises ValueRefusedError if they are none, or of another number of features.
        """
        model, config = _parts(state)
        features = _features(obj)
        try:
            made = type(obj)(model_file=model)
            if features and made.num_features() != features:
                raise ValueRefusedError(
                    f"the booster of 'setup' has {features} features, the saved one has "
                    f"{made.num_features()}",
                    hint="build in 'setup' a booster over the same columns",
                )
            made.load_config(config)
            obj.load_model(model)
            obj.load_config(config)
        except (ValueError, TypeError) as error:
            raise ValueRefusedError(
                f"the state is not that of a booster: {_first_line(error)}"
            ) from error
        self._seen.pop(obj, None)
        return obj

    def copy(self, obj: Any) -> Any:
        """Return ``obj.copy()``, which has no data."""
        return obj.copy()


def _parts(state: Plain) -> tuple[bytearray, str]:
    """Return the model and the configuration of a state."""
    model = state.get("model") if isinstance(state, dict) else None
    config = state.get("config") if isinstance(state, dict) else None
    if not isinstance(model, np.ndarray) or model.dtype != np.uint8 or model.ndim != 1:
        raise ValueRefusedError("at 'model', expected an array of uint8")
    try:
        json.loads(config if isinstance(config, str) else "")
    except ValueError as error:
        raise ValueRefusedError(f"at 'config', expected JSON: {error}") from error
    return bytearray(model.tobytes()), str(config)


def _features(obj: Any) -> int:
    """Return the number of features of a booster; 0 of one whose data are gone."""
    try:
        return int(obj.num_features())
    except ValueError:
        return 0


def _first_line(error: Exception) -> str:
    """Return the text of an error without XGBoost's stack trace."""
    return str(error).partition("\nStack trace")[0].strip()


def _drawn(config: str) -> str:
    """Return the parameters of a configuration that draw random numbers, in words, or ``""``."""
    found = dict(_parameters(json.loads(config)))
    drawn = [f"{name} {found[name]}" for name in _SHARES if float(found.get(name, 1)) < 1]
    if found.get("seed_per_iteration") != "1":
        drops = (f"{name} {found[name]}" for name in _DROPS if float(found.get(name, 0)) > 0)
        drawn += [f"{drop} (without seed_per_iteration)" for drop in drops]
    selector = found.get("feature_selector")
    drawn += [f"feature_selector {selector}"] if selector in ("shuffle", "random") else []
    return ", ".join(drawn)


def _parameters(form: Any) -> Iterator[tuple[str, str]]:
    if isinstance(form, dict):
        for name, value in form.items():
            if isinstance(value, str):
                yield name, value
            else:
                yield from _parameters(value)
    elif isinstance(form, list):
        for item in form:
            yield from _parameters(item)


ADAPTERS: Final = {"xgboost.core.Booster": XGBoostAdapter()}
