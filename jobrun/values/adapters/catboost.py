"""Models of CatBoost: their trees in CatBoost's own bytes (cbm), and the metadata beside them.

The bytes of a model hold the time of its training, a random identifier, and the metadata in the
order of a hash map.  So they are read of a copy without metadata, and the metadata are kept as
strings.  JSON, the other format, is several times larger and does not take all kinds of features.

Each ``fit`` begins with the seed in the model's parameters: a model that is continued by
``model.fit(x, y, init_model=model.copy())`` makes the same trees after a restore.  By
``init_model=model`` it would not: the object keeps the progress of its training in memory
(predictions, permutations, random numbers), which cannot be read.  Such a model is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Plain

__all__ = ["ADAPTERS"]

_BEFORE: Final = "initModel:"
"""The prefix of the metadata of the model that was continued."""

_UNREPEATABLE: Final = ("model_guid", "train_finish_time")


class CatBoostAdapter:
    """``CatBoost``, ``CatBoostClassifier``, ``CatBoostRegressor`` and ``CatBoostRanker``.

    The parameters are those of the object that ``setup`` makes.
    """

    name = "catboost.CatBoost"
    version = 1

    def state(self, obj: Any) -> Plain:
        """Return class, trees, metadata and importance of features.

        ``model`` (uint8, [bytes]) is None before the first ``fit``.  What it measured on
        an ``eval_set`` is not kept: CatBoost's own copies and files have none of it either.

        Raises ValueRefusedError for a model that was continued with the progress in its memory.
        """
        kind = type(obj).__name__
        if not obj.is_fitted():
            return {"class": kind, "model": None, "metadata": {}}
        metadata = dict(obj.get_metadata().items())
        if _continued_in_memory(metadata, obj.tree_count_):
            raise ValueRefusedError(
                "the model was continued with init_model=model: CatBoost keeps the progress of "
                "that training in memory only, so a resumed run would make other trees",
                hint="continue a copy, which has none: "
                "model.fit(x, y, init_model=model.copy() if model.is_fitted() else None)",
            )
        bare = obj.copy()
        own = bare.get_metadata()
        for key in metadata:
            del own[key]
        form = bare.__getstate__()
        state = {
            "class": kind,
            "model": np.frombuffer(form["__model"], np.uint8),
            "metadata": {key: metadata[key] for key in sorted(metadata) if _is_kept(key)},
        }
        if form.get("_prediction_values_change") is not None:
            state["importance"] = np.asarray(form["_prediction_values_change"], float)
        return state

    def restore(self, obj: Any, state: Plain) -> Any:
        """Give ``obj`` the trees and what belongs to them; return ``obj``.

        Raises ValueRefusedError if they are not those of a model of the same class.
        """
        form, metadata = _parts(state, type(obj).__name__)
        made = type(obj)()
        try:
            made.__setstate__(form)
            for key, value in metadata.items():
                made.get_metadata()[key] = value
        except Exception as error:  # CatBoostError derives from nothing more special
            raise ValueRefusedError(f"the state is not that of a model: {error}") from error
        made._init_params = obj._init_params
        vars(obj).clear()
        vars(obj).update(vars(made))
        return obj

    def copy(self, obj: Any) -> Any:
        """Return ``obj.copy()``."""
        return obj.copy()


def _is_kept(key: str) -> bool:
    """Return whether metadata are kept: identifiers, times, and earlier models' are not."""
    return not key.startswith(_BEFORE * 2) and key.rpartition(":")[2] not in _UNREPEATABLE


def _continued_in_memory(metadata: Mapping[str, str], trees: int) -> bool:
    """Return whether a model has trees that neither its ``fit`` nor a copied model made."""
    if f"{_BEFORE}params" in metadata or "params" not in metadata:
        return False
    metrics = json.loads(metadata.get("training", "{}")).get("metrics", {})
    made = len(metrics.get("learn_metrics_history", ()))
    return trees > (made or int(json.loads(metadata["params"])["boosting_options"]["iterations"]))


def _parts(state: Plain, kind: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what ``__setstate__`` takes, and the metadata; nothing of a model that is not fitted.

    Raises ValueRefusedError for a state that is none, or of another class.
    """
    own = state.get("class") if isinstance(state, dict) else type(state).__name__
    if not isinstance(state, dict) or not isinstance(own, str) or own != kind:
        raise ValueRefusedError(
            f"the object of 'setup' is a {kind}, and the saved state is that of a {str(own)[:80]}",
            hint="build the same class of model in 'setup', or start over with --fresh",
        )
    model, metadata = state.get("model", ""), state.get("metadata")
    if not isinstance(metadata, dict) or any(
        not isinstance(text, str) for pair in metadata.items() for text in pair
    ):
        raise ValueRefusedError("at 'metadata', expected a dict of strings")
    if model is None:
        return {}, {}
    if not isinstance(model, np.ndarray) or model.dtype != np.uint8 or model.ndim != 1:
        raise ValueRefusedError("at 'model', expected an array of uint8, or None")
    form: dict[str, Any] = {"__model": model.tobytes()}
    if "importance" in state:
        importance = state["importance"]
        if not isinstance(importance, np.ndarray) or importance.dtype != np.float64:
            raise ValueRefusedError("at 'importance', expected an array of float64")
        form["_prediction_values_change"] = importance
    return form, metadata


ADAPTERS: Final = {"catboost.core.CatBoost": CatBoostAdapter()}
