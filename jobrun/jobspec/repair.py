"""A guess at what an invalid spec means, so that later stages report their problems in one round.

A misspelt key becomes the key it is near to; what cannot be understood is taken out, and so is its
task or section.  Nothing of a repaired spec is ever run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from jobrun.core.suggestions import nearest
from jobrun.errors import Problem, new_problems
from jobrun.jobspec.keys import fields, model_at
from jobrun.jobspec.model import SpecModel
from jobrun.jobspec.problems import other_word, problems_of
from jobrun.jobspec.source import SpecNode, SpecSource
from jobrun.model.job import GROUPS

__all__ = ["Reading", "read"]

Path = tuple[int | str, ...]

_LARGEST = 20_000
"""The number of values above which a spec is not repaired, which would take seconds."""
_ROUNDS = 4
"""The most times a repaired spec is checked again: some checks wait until others pass."""
_DETAILS = ("every", "name", "retries", "thread", "timeout", "with")
"""Keys of a task without which it reads and writes the same blobs."""
_DETAILED = ("checkpoint", "name", "report", "seed", "session", "upload", "version")
"""Keys of a spec without which its tasks mean the same."""


@dataclass(frozen=True)
class Reading:
    """A spec as it was read: ``problems`` are the places that do not fit the language.

    ``model`` is that of ``source``, where possible; with problems, of a repaired copy.  ``whole``:
    every task was understood, so that the data flow can be checked.
    """

    model: SpecModel | None
    source: SpecSource
    problems: list[Problem]
    whole: bool = True


def read(source: SpecSource) -> Reading:
    """Return what a spec means, as far as it can be understood."""
    try:
        return Reading(SpecModel.model_validate(_plain(source)), source, [])
    except ValidationError as error:
        items = error.errors(include_url=False)
    problems = problems_of(items, source)
    if source.root.count > _LARGEST or any(item["loc"][:1] == ("nodes",) for item in items):
        return Reading(None, source, problems)
    repair = _Repair(source)
    for _ in range(_ROUNDS):
        repair.mend(items)
        try:
            model = SpecModel.model_validate(_plain(repair.source))
        except ValidationError as error:
            items = error.errors(include_url=False)
            problems += new_problems(problems, repair.problems(items))
        else:
            return Reading(model, repair.source, problems, repair.whole)
    return Reading(None, source, problems)


def _plain(source: SpecSource) -> dict[str, Any]:
    return {k: v for k, v in source.root.plain().items() if not str(k).startswith("x-")}


class _Repair:
    """A copy of a spec that is mended until it fits the language."""

    def __init__(self, source: SpecSource) -> None:
        self.source = copy(source)
        self.source.root = deepcopy(source.root)
        self.whole = True
        self._renamed: set[Path] = set()

    def problems(self, items: Sequence[ErrorDetails]) -> list[Problem]:
        """Return the problems of the copy, without those of keys that were guessed wrongly."""
        own = [item for item in items if not self._is_renamed(self._path(item["loc"]))]
        return problems_of(own, self.source)

    def mend(self, items: Sequence[ErrorDetails]) -> None:
        """Change what the errors are about; what is removed is removed last, from behind."""
        removed: set[Path] = set()
        for item in items:
            for loc in _places(item):
                gone = self._mend(item["type"], self._path(loc))
                if gone is not None:
                    removed.add(gone)
        for path in sorted(removed, key=_from_behind, reverse=True):
            self._remove(path)

    def _path(self, loc: Path) -> Path:
        """Return the path in the source of what pydantic found, as deep as the source goes.

        One mapping where a list may be is taken for the only entry of it.
        """
        found: list[int | str] = []
        node = self.source.root
        for part in loc:
            below = node.get(part)
            if below is not None:
                node = below
                found.append(part)
            elif not isinstance(part, int):
                break
        return tuple(found)

    def _is_renamed(self, loc: Path) -> bool:
        return any(loc[: len(path)] == path for path in self._renamed)

    def _mend(self, kind: str, loc: Path) -> Path | None:
        """Mend one error; return what has to be removed, if it cannot be mended."""
        if self._is_renamed(loc):
            self.whole = False
            return next(path for path in self._renamed if loc[: len(path)] == path)
        if kind == "extra_forbidden":
            if self._rename(loc):
                return None
            self.whole = self.whole and loc[0] not in GROUPS
            return loc
        if loc[-1:] == ("call",) and self._put_call(loc):
            return None
        if len(loc) == 1 and loc[0] in GROUPS and self._make_list(loc[0]):
            return None
        return self._owner(loc)

    def _rename(self, loc: Path) -> bool:
        """Give an unknown key the name that it is near to; return whether there is one."""
        model, node = model_at(loc[:-1]), self.source.root.get(*loc[:-1])
        if model is None or node is None:
            return False
        left, _, right = str(loc[-1]).partition(":")
        if right and left in fields(model):  # "call:job:start", without a space
            new, value = left, SpecNode(right, *_place(node.value[loc[-1]]))
        else:
            name, keys = str(loc[-1]), list(fields(model))
            new = other_word(name, keys) or next(iter(nearest(name, keys)), "")
            value = node.value[loc[-1]]
        if not new or new in node.value:
            return False
        node.value = {
            (new if k == loc[-1] else k): (value if k == loc[-1] else v)
            for k, v in node.value.items()
        }
        node.keys[new] = node.keys.pop(loc[-1])
        self._renamed.add((*loc[:-1], new))
        return True

    def _put_call(self, loc: Path) -> bool:
        """Put a function in the place of a reference that is none; its name stays."""
        node = self.source.root.get(*loc)
        if node is None or not isinstance(node.value, str):
            return False
        name = re.sub(r"\W", "_", re.split(r"[.:/]", node.value)[-1])
        node.value = f"unknown:{name if name[:1].isalpha() else 'unknown'}"
        return True

    def _make_list(self, group: str | int) -> bool:
        """Make a list of a group that is one task, or a mapping of names to tasks."""
        node = self.source.root.value[group]
        if not isinstance(node.value, dict) or not node.value:
            return False
        if all(isinstance(task.value, dict) for task in node.value.values()):
            node.value = list(node.value.values())
        else:
            task = SpecNode(node.value, *_place(node))
            task.keys = node.keys
            node.value = [task]
        node.keys = {}
        return True

    def _owner(self, loc: Path) -> Path | None:
        """Return the least part around an error without which the rest can be understood."""
        if not loc:
            self.whole = False
            return None
        if loc[0] not in GROUPS:
            self.whole = self.whole and loc[0] in _DETAILED
            return loc[:1]
        detail = next((n for n, key in enumerate(loc) if key in _DETAILS and n > 1), None)
        if detail is not None:
            return loc[: detail + 1]
        self.whole = False
        return loc[:2]

    def _remove(self, path: Path) -> None:
        parent = self.source.root.get(*path[:-1])
        if parent is None:
            return
        if isinstance(parent.value, dict):
            parent.value.pop(path[-1], None)
            parent.keys.pop(path[-1], None)
        elif isinstance(parent.value, list) and isinstance(path[-1], int):
            del parent.value[path[-1] : path[-1] + 1]


def _place(node: SpecNode) -> tuple[int, int, int]:
    return node.line, node.column, node.width


def _places(item: ErrorDetails) -> Iterator[Path]:
    """Yield the paths that an error of pydantic is about."""
    if item["type"] == "jobrun":
        yield from ((*item["loc"], *fault.path) for fault in item["ctx"]["faults"])
    elif item["type"] == "missing":
        yield item["loc"][:-1]
    else:
        yield item["loc"]


def _from_behind(path: Path) -> tuple[Any, ...]:
    """Return a key that sorts entries of one list by their number."""
    return tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in path)
