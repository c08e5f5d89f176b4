"""A sweep on disk: a directory of runs, one for each combination of a spec's ``matrix``.

::

    runs/<name>/
      sweep.json                      the matrix, and every run that there ever was of it
      spec.yaml  spec.resolved.yaml   what was asked for at the last start
      lock                            held while the sweep is going on
      lr=0.1,hidden=32/ …             runs like any other

A run keeps its directory for good, whatever becomes of the matrix: which one that is stands in
sweep.json, which is replaced as a whole and durably.  Reading takes no lock and writes nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jobrun.core.json_floats import from_json, is_tagged, to_json
from jobrun.core.json_forms import (
    Form,
    list_of,
    mapping_of,
    misfit,
    named,
    optional,
    record_of,
    scalar,
    text,
)
from jobrun.core.paths import shown
from jobrun.errors import DamagedError, NotFoundError
from jobrun.runs.run_state import utc_now
from jobrun.runs.rundir import SWEEP, RunDir
from jobrun.storage.bounded_json import MAX_BYTES, parse_json
from jobrun.storage.fs import DEFAULT, FsError
from jobrun.storage.regular_file import read_run_file

__all__ = [
    "Member",
    "SweepDir",
    "SweepState",
    "folders_in",
    "members_of",
    "runs_at",
    "sweep_of",
    "value_text",
]

FORMAT = 1
LONGEST = 120
"""Characters of a directory's name; names of 255 bytes are what file systems take."""

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Member:
    """A run of a sweep: the values of its vars, and its directory within that of the sweep."""

    values: Values
    directory: str


@dataclass(frozen=True, slots=True)
class SweepState:
    """The content of sweep.json.

    ``digest`` is that of the job without the vars of the ``matrix``, ``folder`` the directory of
    the code, ``folder_relative`` the same seen from the sweep's, ``spec`` the spec's path in it.
    ``members`` holds every run there ever was; those of today's matrix are a part.
    """

    job: str
    matrix: Mapping[str, Sequence[Any]]
    members: tuple[Member, ...]
    digest: str = ""
    folder: str | None = None
    folder_relative: str | None = None
    spec: str | None = None
    created: str = ""
    updated: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "format": FORMAT,
            "job": self.job,
            "digest": self.digest,
            "folder": self.folder,
            "folder_relative": self.folder_relative,
            "spec": self.spec,
            "created": self.created,
            "updated": self.updated,
            "matrix": {n: to_json(values) for n, values in self.matrix.items()},
            "runs": [{"directory": m.directory, "values": to_json(m.values)} for m in self.members],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SweepState:
        """Invert ``to_json``; raises KeyError, TypeError or ValueError for other data."""
        if wrong := misfit(data, _REQUIRED, _OPTIONAL):
            raise ValueError(f"{wrong!r} cannot be {data.get(wrong)!r:.80}")
        members = tuple(Member(from_json(m["values"]), str(m["directory"])) for m in data["runs"])
        matrix = {n: from_json(values) for n, values in data["matrix"].items()}
        names = ("job", "digest", "folder", "folder_relative", "spec", "created", "updated")
        return cls(matrix=matrix, members=members, **{name: data[name] for name in names})


def _is_value(value: Any) -> bool:
    return scalar(value) or type(value) is int or is_tagged(value)


_PATH = named(r"[^\0]*")
_RUN = record_of(
    {
        "directory": named(r"(?!\.\.?$)[^/\0]{1,255}"),  # a name within that of the sweep
        "values": mapping_of(_is_value),
    }
)
_REQUIRED: Mapping[str, Form] = {
    "job": text,
    "matrix": mapping_of(list_of(_is_value)),
    "runs": list_of(_RUN),
}
_OPTIONAL: Mapping[str, Form] = {
    "digest": text,
    "folder": optional(_PATH),
    "folder_relative": optional(_PATH),
    "spec": optional(named(r"[^/\0][^\0]*")),
    "created": text,
    "updated": text,
}


class SweepDir:
    """The directory of a sweep, which need not exist yet.

    ``home`` is the same directory with what it shares with those of runs: its lock, its spec, and
    files that are replaced.
    """

    def __init__(self, path: str | os.PathLike[str], *, home: RunDir | None = None) -> None:
        self.path = Path(path)
        self.home = home or RunDir(path)

    def __repr__(self) -> str:
        return f"SweepDir({str(self.path)!r})"

    @property
    def name(self) -> str:
        """The name of the sweep: its directory's."""
        return self.home.name

    def shown(self) -> str:
        """Return the path as a user would type it."""
        return self.home.shown()

    def is_sweep(self) -> bool:
        """Return whether the directory holds a sweep, and can be read."""
        return os.path.isfile(self.path / SWEEP)

    def held(self) -> bool:
        """Return whether some process runs the sweep."""
        return self.home.held()

    def state(self) -> SweepState:
        """Return the content of sweep.json; raises DamagedError if it cannot be read."""
        where, hint = str(self.path / SWEEP), ""
        try:
            data = parse_json(read_run_file(self.path / SWEEP, MAX_BYTES))
            if isinstance(data["format"], int) and data["format"] > FORMAT:
                hint = "use the jobrun that wrote it, or a newer one"
                raise ValueError(f"it is of format {data['format']}, this jobrun reads {FORMAT}")
            return SweepState.from_json(data)
        except DamagedError as error:
            raise DamagedError(f"{SWEEP} cannot be read: {error.message}", where=where) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            hint = hint or f"its runs are whole: name one of those in {self.shown()}"
            raise DamagedError(
                f"{SWEEP} cannot be read: {error}", where=where, hint=hint
            ) from error

    def write(self, state: SweepState) -> None:
        """Replace sweep.json, durably; raises SaveError."""
        now = utc_now()
        state = replace(state, created=state.created or now, updated=now)
        data = json.dumps(state.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        self.home.put(SWEEP, data.encode("utf-8", "surrogatepass"))

    def run(self, member: Member) -> RunDir:
        """Return the directory of a run, which may not have begun."""
        return RunDir(self.path / member.directory)

    def runs(self) -> list[RunDir]:
        """Return the runs that have begun, in the order in which they came into the sweep.

        Where sweep.json cannot be read, all that are there, in order of their names.
        """
        try:
            names = [m.directory for m in self.state().members]
        except DamagedError:
            names = folders_in(self.path)
        return runs_at(self.path / n for n in names)


def runs_at(paths: Iterable[Path]) -> list[RunDir]:
    """Return the directories among ``paths`` that hold runs, or that cannot be read.

    Of the latter nobody knows what they hold: this is reported where one is named or listed.
    """
    found = []
    for path in paths:
        run = RunDir(path)
        try:
            if run.holds_run():
                found.append(run)
        except NotFoundError:
            found.append(run)
    return found


def folders_in(path: Path) -> list[str]:
    """Return the sorted names of the directories in one; none if it does not exist.

    Raises NotFoundError, saying why, where we may not look.
    """
    try:
        return sorted(e.name for e in DEFAULT.entries(str(path)) if os.path.isdir(e.path))
    except FsError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return []
        text = f"it cannot be read: {error.strerror}"
        raise NotFoundError(text, where=shown(path)) from error


def sweep_of(run: RunDir) -> SweepDir | None:
    """Return the sweep that a run is part of, or None."""
    sweep = SweepDir(run.path.absolute().parent)
    return sweep if sweep.is_sweep() else None


def members_of(known: Iterable[Member], combinations: Iterable[Values]) -> list[Member]:
    """Return the run of each combination: the ``known`` one, else one with a new directory."""
    directories = {_key(m.values): m.directory for m in known}
    taken = {d.casefold() for d in directories.values()}
    found = []
    for values in combinations:
        directory = directories.get(_key(values))
        if directory is None:
            directory = _directory(values, taken)
            taken.add(directory.casefold())
        found.append(Member(values, directory))
    return found


# Names of directories.

_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


def _directory(values: Values, taken: set[str]) -> str:
    """Return ``lr=0.1,hidden=32``: safe for shells and file systems, also those that fold case.

    Where that is not all of the values, too long or taken, a digest makes it one of its own.
    """
    texts = {name.replace("/", "."): value_text(value) for name, value in values.items()}
    safe = ",".join(f"{name}={_UNSAFE.sub('_', text)}" for name, text in texts.items())
    full = ",".join(f"{name}={text}" for name, text in texts.items())
    if safe == full and len(safe) <= LONGEST and safe.casefold() not in taken:
        return safe
    digest = hashlib.sha256(_key(values).encode()).hexdigest()[:8]
    return f"{safe[: LONGEST - 9]}@{digest}"


def value_text(value: Any) -> str:
    """Return a value of a matrix in full: ``0.1``, ``true``, ``null``; strings as they are."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return value if isinstance(value, str) else repr(value)


def _key(values: Values) -> str:
    """Return a string that two combinations share if they are equal, in any order of vars."""
    return json.dumps(to_json(values), sort_keys=True)
