"""Boosters of LightGBM: their model in LightGBM's own text.

LightGBM continues a model by adding trees to its scores on the training data, which is what a
restore does.  Without random numbers the trees are those of an uninterrupted training, bit for bit.
With them (``bagging_fraction``, ``feature_fraction``, DART, …) they would not be, since the state
of the generators cannot be read: such a booster is refused if it is trained in place.  One that
each call makes again by ``lightgbm.train(…, init_model=booster)`` begins with the seed in its
parameters, and is exact.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Plain

__all__ = ["ADAPTERS"]

_PARAMETER: Final = re.compile(r"^\[(\w+): (.*)\]$", re.MULTILINE)
_SHARES: Final = ("feature_fraction", "feature_fraction_bynode")
_BAGGING: Final = ("bagging_fraction", "pos_bagging_fraction", "neg_bagging_fraction")
_RANDOM: Final = {
    "boosting": ("dart", "rf"),
    "data_sample_strategy": ("goss",),
    "extra_trees": ("1",),
    "use_quantized_grad": ("1",),
    "objective": ("rank_xendcg",),
}
_MARKS: Final = ("end of trees", "parameters:", "end of parameters")
_NODES: Final = ("split_feature", "decision_type", "left_child", "right_child")


class LightGBMAdapter:
    """``lightgbm.Booster``, trained in place (it holds its data) or replaced."""

    name = "lightgbm.Booster"
    version = 1

    def state(self, obj: Any) -> Plain:
        """Return ``model``, the text of all trees, and ``best``, the best iteration.

        Raises ValueRefusedError for a booster that holds its data and draws random numbers, or
        whose data were freed.
        """
        text = obj.model_to_string(num_iteration=-1)
        _check_trees(text)
        if _trains(obj):
            if drawn := _drawn(text):
                raise ValueRefusedError(
                    f"the booster is trained in place with {drawn}: LightGBM's random numbers "
                    "cannot be saved, so a resumed run would make other trees",
                    hint="let 'setup' and the task return new boosters: lightgbm.train({**params, "
                    "'seed': seed}, dataset, 1, init_model=booster), with a seed drawn from 'rng'",
                )
            _raw_data(obj)
        return {"model": text, "best": obj.best_iteration}

    def restore(self, obj: Any, state: Plain) -> Any:
        """Put the trees into ``obj``, which keeps its data sets and parameters.

        Raises ValueRefusedError if they are none, or of another number of features.
        """
        text, best = _parts(state)
        _check_trees(text)
        try:
            made = type(obj)(model_str=text)
        except Exception as error:
            raise ValueRefusedError(f"the state is not that of a booster: {error}") from error
        if made.num_feature() != obj.num_feature():
            raise ValueRefusedError(
                f"the booster of 'setup' has {obj.num_feature()} features, the saved one has "
                f"{made.num_feature()}",
                hint="build in 'setup' a booster over the same columns",
            )
        if _trains(obj):
            _continue(obj, made if made.num_trees() else None)
        else:
            obj.model_from_string(text)
        obj.best_iteration = best
        return obj

    def copy(self, obj: Any) -> Any:
        """Return a booster with the same trees, which has no data."""
        made = copy.copy(obj)
        made.best_iteration = obj.best_iteration
        return made


def _trains(obj: Any) -> bool:
    """Return whether a booster holds data that it is trained with."""
    return getattr(obj, "train_set", None) is not None


def _raw_data(obj: Any) -> None:
    """Raise ValueRefusedError unless the raw data are there, which a restore needs."""
    for data in (obj.train_set, *obj.valid_sets):
        whole = data if data.used_indices is None else data.reference
        if whole is None or whole.data is None:
            raise ValueRefusedError(
                "the booster's data set has freed its raw data, without which it cannot be "
                "continued after a resume",
                hint="make it with lightgbm.Dataset(…, free_raw_data=False)",
            )


def _continue(obj: Any, made: Any) -> None:
    """Make a booster over its data sets that begins with the trees of ``made``, as train does."""
    _raw_data(obj)
    valid = [*zip(obj.valid_sets, obj.name_valid_sets, strict=True)]
    predictor = None
    if made is not None:
        # Imported by the library itself; the way of lightgbm.train(…, init_model=…).
        predictor = _module(obj)._InnerPredictor.from_booster(made, {})
        predictor.jobrun_booster = made  # whose memory the predictor uses
    data = obj.train_set
    if made is None and data._predictor is not None:
        data.init_score = None  # zeros would switch boost_from_average off
        data._predictor = None
        data.set_init_score(None)
    obj.train_set = None
    obj.__init__(obj.params, data._set_predictor(predictor))
    for other, name in valid:
        obj.add_valid(other._set_predictor(predictor), name)


def _module(obj: Any) -> Any:
    kind = next(base for base in type(obj).__mro__ if base.__module__ == "lightgbm.basic")
    return sys.modules[kind.__module__]


def _parts(state: Plain) -> tuple[str, int]:
    """Return the model and the best iteration of a state."""
    text = state.get("model") if isinstance(state, dict) else None
    best = state.get("best") if isinstance(state, dict) else None
    if not isinstance(text, str) or not text.startswith("tree\n"):
        raise ValueRefusedError("at 'model', expected the text of a booster")
    if type(best) is not int:
        raise ValueRefusedError(f"at 'best', expected an int, got {type(best).__name__}")
    return text, best


def _check_trees(text: str) -> None:
    """Raise ValueRefusedError for trees of which LightGBM would read outside of its memory.

    It does not check what it is given: a text that is cut off ends the process.
    """
    header, *trees = _trees(text)
    try:
        features = int(header["max_feature_idx"]) + 1
        sizes = header["tree_sizes"].split() if trees else []
        whole = all(text.count(f"\n{mark}\n") == 1 for mark in _MARKS) and len(sizes) == len(trees)
        start = text.find("Tree=0") if trees else text.find("end of trees")
        if not whole or sum(map(int, sizes)) != text.find("end of trees") - start:
            raise ValueError("its size is not the size that it names")
        for tree in trees:
            _check_tree(tree, features)
    except (KeyError, ValueError) as error:
        raise ValueRefusedError(
            f"at 'model', the text does not hold whole trees: {error}"
        ) from error


def _trees(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of the header, and those of each tree."""
    for part in text.partition("\nend of trees\n")[0].split("\n\nTree="):
        yield dict(line.split("=", 1) for line in part.splitlines() if "=" in line)


def _check_tree(tree: dict[str, str], features: int) -> None:
    """Raise ValueError or KeyError for a tree that is none: its nodes are numbered downwards."""
    leaves, categories = int(tree["num_leaves"]), int(tree["num_cat"])
    if tree["is_linear"] != "0":
        raise ValueError("trees with linear models in their leaves (linear_tree) are not supported")
    if len(tree["leaf_value"].split()) != leaves:
        raise ValueError("a tree has another number of leaves than it names")
    if leaves == 1:
        return
    columns = [[int(n) for n in tree[name].split()] for name in _NODES]
    if any(len(column) != leaves - 1 for column in columns):
        raise ValueError("a tree has another number of nodes than it names")
    thresholds = tree["threshold"].split()
    bounds = [int(n) for n in tree["cat_boundaries"].split()] if categories else [0]
    words = len(tree["cat_threshold"].split()) if categories else 0
    if len(bounds) != categories + 1 or bounds != sorted(bounds) or bounds[-1] != words:
        raise ValueError("a tree has other categories than it names")
    for node, (feature, kind, *children) in enumerate(zip(*columns, strict=True)):
        if not 0 <= feature < features:
            raise ValueError(f"a tree splits by feature {feature} of {features}")
        if any(not (-leaves <= child < 0 or node < child < leaves - 1) for child in children):
            raise ValueError("the nodes of a tree are in no order")
        if kind & 1 and not 0 <= float(thresholds[node]) < categories:
            raise ValueError("a tree splits by a category that it does not have")


def _drawn(text: str) -> str:
    """Return the parameters in a model's text that draw random numbers, in words, or ``""``."""
    found = dict(_PARAMETER.findall(text.rpartition("\nparameters:")[2]))
    shares = (*_SHARES, *(_BAGGING if float(found.get("bagging_freq", 0)) > 0 else ()))
    drawn = [name for name in shares if float(found.get(name, 1)) < 1]
    drawn += [name for name, values in _RANDOM.items() if found.get(name) in values]
    return ", ".join(f"{name} {found[name]}" for name in drawn)


ADAPTERS: Final = {"lightgbm.basic.Booster": LightGBMAdapter()}
