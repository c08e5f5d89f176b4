"""Places of live state that share memory since training: one after a resume too, or a warning.

Each scenario shares memory in epoch 1 and changes one of the two places in every later one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import train, train_and_die

from jobrun import Job, Task
from jobrun.core.events import Warned

Share = Callable[..., None]


def job_of(make: Callable[[], Any], share: Share, change: Share, names: list[str]) -> Job:
    def step(*given: Any) -> None:
        *objects, epoch = given
        (share if epoch == 1 else change)(*objects)

    job = Job("j", state=names)
    with job.setup:
        Task(make, out=names if len(names) > 1 else names[0], name="make")
    with job.epoch:
        Task(step, [*names, "epoch"], name="step")
    job.stop(epochs=3)
    return job


def leaves_of(obj: Any) -> list[Any]:
    if isinstance(obj, dict):
        return [leaf for item in obj.values() for leaf in leaves_of(item)]
    return [np.array(obj)]


def outcome(tmp_path: Path, *how: Any) -> tuple[bool, list[str]]:
    """Whether a resumed run ends as one that was left alone, and what was said of sharing."""
    names = how[3]
    alone = train(job_of(*how), tmp_path / "alone")
    died = train_and_die(job_of(*how), tmp_path / "died", 1)
    resumed = train(job_of(*how), tmp_path / "died")
    ends = [leaves_of({n: run.session.blob(n) for n in names}) for run in (alone, resumed)]
    same = all(np.array_equal(a, b) for a, b in zip(*ends, strict=True))
    return same, [w.message for w in died.said(Warned) if "memory" in w.message]


def two() -> dict[str, Any]:
    return {"a": np.arange(20.0), "b": np.zeros(10)}


def add(s: dict[str, Any]) -> None:
    s["a"] += 1


def put(name: str, of: Callable[[Any], Any]) -> Share:
    def share(s: dict[str, Any]) -> None:
        s[name] = of(s["a"])

    return share


def both(s: dict[str, Any]) -> None:
    base = np.arange(30.0)
    s["a"], s["b"] = base[:20], base[15:25]


def of_setup() -> dict[str, Any]:
    a = np.arange(20.0)
    return {"a": a, "b": a[:10]}


def nothing(*objects: Any) -> None:
    pass


def alike() -> dict[str, Any]:
    return {"a": np.arange(10.0), "b": np.zeros(10)}


KEPT = {
    "one object": (alike, put("b", lambda a: a), add, ["s"]),
    "a view of all": (alike, put("b", lambda a: a[:]), add, ["s"]),
    "a view of setup": (of_setup, nothing, add, ["s"]),
    "two objects of setup": (
        lambda: (lambda a: ({"a": a}, {"w": a[:5]}))(np.arange(9.0)),
        nothing,
        lambda s, t: add(s),
        ["s", "t"],
    ),
    "views that nobody can write to": (
        two,
        lambda s: s.update(b=read_only(s["a"])[:10], a=read_only(s["a"])),
        nothing,
        ["s"],
    ),
}
LOST = {
    "a view": (two, put("b", lambda a: a[:10]), add, ["s"], "'s/b'", "'s/a'"),
    "two views": (two, both, add, ["s"], "'s/a'", "'s/b'"),
    "views of setup, replaced": (of_setup, both, add, ["s"], "'s/a'", "'s/b'"),
    "an array of another object": (
        lambda: (alike(), {"w": np.zeros(10)}),
        lambda s, t: t.update(w=s["a"]),
        lambda s, t: add(s),
        ["s", "t"],
        "'t/w'",
        "'s/a'",
    ),
}


def read_only(array: Any) -> Any:
    found = array.view()
    found.flags.writeable = False
    return found


@pytest.mark.parametrize("how", KEPT.values(), ids=KEPT)
def test_memory_that_is_shared_again_after_a_resume_is_not_mentioned(
    tmp_path: Path, how: Any
) -> None:
    assert outcome(tmp_path, *how) == (True, [])


@pytest.mark.parametrize("how", LOST.values(), ids=LOST)
def test_memory_that_a_resume_makes_apart_is_a_warning_that_names_both_places(
    tmp_path: Path, how: Any
) -> None:
    *how, part, other = how
    same, said = outcome(tmp_path, *how)
    assert not same
    (text,) = said
    assert text.startswith(f"{part} under 'state' shares memory with {other}, and 'setup' has not")
    assert "x.copy()" in text
