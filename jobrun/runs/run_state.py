"""The content of run.json: its fields, and the forms that each must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from jobrun.checkpoint.record import MAX_ID
from jobrun.core.json_forms import (
    Form,
    any_value,
    flag,
    list_of,
    mapping_of,
    misfit,
    named,
    one_of,
    optional,
    pair_of,
    record_of,
    seconds,
    text,
    whole,
)

__all__ = ["FORMAT", "STATES", "Rewind", "RunState", "utc_now"]

FORMAT = 1
STATES = ("running", "interrupted", "error", "finished", "failed")
_GROUPS = ("setup", "init", "epoch", "download", "exit")
"""The groups of a job, as its facts name them."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """A rewind under way: ids between ``after`` and ``below`` go to ``attempts/<attempt>/``."""

    after: int
    below: int
    attempt: int

    def leaves(self, id: int) -> bool:
        """Return whether a checkpoint is no longer part of this history."""
        return self.after < id < self.below


@dataclass(frozen=True, slots=True)
class RunState:
    """The content of run.json.

    ``facts`` is the job as plain values and ``digest`` their digest (see ``spec.diff``), ``code``
    maps files of the user's code to their sha256.  ``folder`` is the directory of the code,
    ``folder_relative`` the same seen from the run directory, ``spec`` the spec's path in it.
    ``state`` is one of ``STATES``; ``epoch`` epochs are completed in ``elapsed`` seconds, in
    ``attempts`` starts.  No checkpoint was ever made with an id of ``next_id`` or above.
    ``exits`` are the attempts among them that ran only ``download`` and ``exit`` again: attempt,
    epoch and checkpoint (its id), started; and where they came to an end, ended, outcome, reason.
    ``node_maps`` are the nodes that have other names than in checkpoints of ids ``below`` one.
    ``rebuilt``: run.json was lost, and this is what the checkpoints say.
    """

    name: str
    job: str
    digest: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    folder_relative: str | None = None
    spec: str | None = None
    built_in_python: bool = False
    state: str = "running"
    reason: str = ""
    epoch: int = 0
    elapsed: float = 0.0
    attempts: int = 1
    next_id: int = 0
    created: str = ""
    updated: str = ""
    rewind: Rewind | None = None
    exits: Sequence[Mapping[str, Any]] = ()
    node_maps: Sequence[Mapping[str, Any]] = ()
    rebuilt: bool = False

    @property
    def over(self) -> bool:
        """Whether the run has ended by a condition, so that nothing is left to do."""
        return self.state in ("finished", "failed")

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        values = asdict(self)
        del values["rebuilt"]
        return {"format": FORMAT, **values}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunState:
        """Invert ``to_json``; raises ValueError, TypeError or KeyError for other data."""
        values = {k: v for k, v in data.items() if k != "format"}
        rewind = values.pop("rewind")
        values |= {key: tuple(values.get(key, ())) for key in ("exits", "node_maps")}
        if wrong := misfit(data, _REQUIRED, _OPTIONAL):
            raise ValueError(f"{wrong!r} cannot be {data.get(wrong)!r:.80}")
        return cls(**values, rewind=Rewind(**rewind) if rewind else None)


_PATH = named(r"[^\0]*")
_GROUP = list_of(record_of({"name": text}))
_FACTS = record_of(
    {},
    {
        "name": text,
        "seed": optional(lambda value: type(value) is int),
        "vars": mapping_of(any_value),
        "nodes": lambda value: mapping_of(any_value)(value) or list_of(text)(value),
        "metrics": mapping_of(one_of("min", "max", None)),
        "stop": mapping_of(any_value),
        "fail": mapping_of(any_value),
        **dict.fromkeys(_GROUPS, _GROUP),
    },
)
"""The facts of a job that are checked here; ``analysis.identity`` compares all as they are."""

_REQUIRED: Mapping[str, Form] = {
    "name": text,
    "job": text,
    "state": one_of(*STATES),
    "rewind": optional(
        record_of(
            {"after": whole, "below": whole, "attempt": lambda n: whole(n) and 1 <= n <= MAX_ID}
        )
    ),
}
_OPTIONAL: Mapping[str, Form] = {
    "digest": text,
    "facts": _FACTS,
    "code": mapping_of(text, _PATH),
    "folder": optional(_PATH),
    "folder_relative": optional(_PATH),
    "spec": optional(named(r"[^/\0][^\0]*")),
    "built_in_python": flag,
    "reason": text,
    "epoch": whole,
    "elapsed": seconds,
    "attempts": whole,
    "next_id": lambda value: whole(value) and value <= MAX_ID + 1,
    "created": text,
    "updated": text,
    "exits": list_of(mapping_of(any_value)),
    "node_maps": list_of(record_of({"below": whole, "pairs": list_of(pair_of(text, text))})),
}


def utc_now() -> str:
    """Return the time now, UTC, ISO 8601 with microseconds: such strings sort by time."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
