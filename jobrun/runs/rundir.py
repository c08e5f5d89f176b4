"""A run on disk: one directory that shows one history.

::

    runs/<name>/
      run.json                        the run's state; rebuilt from the checkpoints if lost
      spec.yaml  spec.resolved.yaml   what was asked for, and what was run
      lock                            held for the life of the run; lock.<n> where it is by files
      checkpoint_<id>/                never changed again
      attempts/<n>/                   what a rewind left behind

run.json is replaced as a whole and durably.  A rewind is written into run.json first and moves the
later checkpoints then, so that a crash in between is completed at the next start, and seen as done
by whoever reads meanwhile.  Reading takes no lock and writes nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobrun.checkpoint.catalog import Catalog, Ignored
from jobrun.checkpoint.loading import find, newest
from jobrun.checkpoint.publish import find_leftovers
from jobrun.checkpoint.record import SUCCESS
from jobrun.core.paths import resolved, shown
from jobrun.errors import DamagedError, NotFoundError, SaveError
from jobrun.runs.run_state import FORMAT, Rewind, RunState, utc_now
from jobrun.storage.bounded_json import MAX_BYTES, JsonLimitError, parse_json
from jobrun.storage.fs import DEFAULT, Fs, FsError
from jobrun.storage.lock import Lock
from jobrun.storage.lock_file import LOCK_FILE
from jobrun.storage.regular_file import read_run_file, refuse_not_regular

if TYPE_CHECKING:
    from jobrun.checkpoint.part_source import RunLock
    from jobrun.checkpoint.record import Record

__all__ = ["COVERED", "SWEEP", "RunDir"]

_NUMBER = re.compile(r"[1-9][0-9]{0,11}")
SWEEP = "sweep.json"
"""The file that makes a directory one of a sweep, whose runs are directories in it."""
COVERED = ("events.jsonl", "metrics.csv")
"""The files of which a checkpoint covers rows: they are durable before it is."""
_PART = re.compile(
    r"\.(run\.json|sweep\.json|upload\.json|spec\.yaml|spec\.resolved\.yaml|metrics\.csv"
    r"|mlflow\.json|labels\.json|lock|lock\.[0-9]+)\.[0-9a-f]{8}"
)


_NO_END = "the process was killed or crashed (no end recorded)"
_WRITTEN = ("lock", "metrics.csv", "events.jsonl", "log.txt")
"""The files of a run that are written into where they are, and not replaced."""


class RunDir:
    """One run directory; it need not exist yet.

    ``lock`` is that of a CheckpointManager on the same directory, if there is one.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, lock: RunLock | None = None, fs: Fs = DEFAULT
    ) -> None:
        self.path = Path(path)
        self._fs = fs
        self.catalog = Catalog(self.path, fs)
        self._lock: RunLock = lock or Lock(self.path)

    def __repr__(self) -> str:
        return f"RunDir({str(self.path)!r})"

    @property
    def name(self) -> str:
        """The name of the run: its directory's, after that of its sweep if it is part of one."""
        path = resolved(self.path)
        if os.path.isfile(path.parent / SWEEP):
            return f"{path.parent.name}/{path.name}"
        return path.name

    @property
    def spec_path(self) -> Path:
        """The path of the spec that was asked for."""
        return self.path / "spec.yaml"

    @property
    def resolved_path(self) -> Path:
        """The path of the spec that was run."""
        return self.path / "spec.resolved.yaml"

    def is_run(self) -> bool:
        """Return whether the directory holds a run, and can be read."""
        try:
            return self.holds_run()
        except NotFoundError:
            return False

    def holds_run(self) -> bool:
        """Return whether the directory holds a run: a run.json, or a checkpoint.

        Raises NotFoundError, saying why, where that cannot be found out.
        """
        return self.holds("run.json") or any(
            self.holds(f"checkpoint_{id}/{SUCCESS}") for id in self.catalog.ids()
        )

    def holds(self, name: str) -> bool:
        """Return whether there is a file of this name; raises NotFoundError if unreadable."""
        try:
            return self._fs.kind(str(self.path / name)) in ("file", "link")
        except FsError as error:
            text = f"it cannot be read: {error.strerror}"
            raise NotFoundError(text, where=self.shown()) from error

    def is_empty(self) -> bool:
        """Return whether there is nothing but files that a new run writes before run.json."""
        before = {"lock", self.spec_path.name, self.resolved_path.name}
        try:
            names = os.listdir(self.path)
            before |= {entry.name for entry in find_leftovers(self.path, self._fs)}
        except OSError:  # we may not look
            return False
        return all(
            name in before or LOCK_FILE.fullmatch(name) or _PART.fullmatch(name) for name in names
        )

    def shown(self) -> str:
        """Return the path as a user would type it."""
        return shown(self.path)

    # What is on disk.

    def state(self) -> RunState | None:
        """Return the run's state, or None if there is no run.

        A run.json that is lost or torn is rebuilt from the checkpoints; a run that seems to be
        running while nobody holds its lock was interrupted, after an unknown time: what run.json
        has is that of the attempt before.  Raises DamagedError for a run.json of
        a newer jobrun.
        """
        state = self._read() or self._rebuilt()
        if state is not None and state.state == "running" and not self.held():
            return replace(state, state="interrupted", reason=_NO_END, elapsed=0.0)
        return state

    @property
    def checkpoints(self) -> Catalog:
        """The checkpoints of this history, without those that a rewind under way leaves."""
        rewind = self._pending()
        return Catalog(self.path, self._fs, rewind.leaves if rewind is not None else None)

    def records(self) -> list[Record]:
        """Return the listed checkpoints of this history, oldest first."""
        return self.checkpoints.listed()

    def head(self) -> Record | None:
        """Return the newest checkpoint of this history, or None."""
        return newest(self.checkpoints)

    def damaged(self) -> list[Ignored]:
        """Return the checkpoints of this history that are not whole by now, oldest first.

        Every one is checked.
        """
        return self.checkpoints.damaged()

    def checkpoint(self, *, epoch: int | None = None, id: int | None = None) -> Record | None:
        """Return the checkpoint of an epoch or id, or the newest, if there is one.

        Raises NotFoundError, with those that there are, or DamagedError, for one that is named.
        """
        if epoch is None and id is None:
            return self.head()
        return find(self.checkpoints, epoch, id)

    def _pending(self) -> Rewind | None:
        """Return the rewind that is not completed, if there is one."""
        state = self._read()
        return state.rewind if state is not None else None

    def next_id(self) -> int:
        """Return an id above that of every checkpoint there ever was, here or in attempts."""
        state = self._read()
        return self.catalog.next_id(state.next_id if state else 0)

    def _read(self) -> RunState | None:
        """Return the state in run.json, or None if it is lost or torn."""
        try:
            data = parse_json(read_run_file(self.path / "run.json", MAX_BYTES))
            written = data["format"]
            if isinstance(written, int) and written > FORMAT:
                raise DamagedError(
                    f"run.json is of format {written}; this jobrun reads format {FORMAT}",
                    where=str(self.path / "run.json"),
                    hint="use the jobrun that wrote it, or a newer one",
                )
            return RunState.from_json(data)
        except JsonLimitError as error:
            where = str(self.path / "run.json")
            raise DamagedError(f"run.json is not read: {error}", where=where) from error
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            return None
        except OSError as error:
            text = f"it cannot be read: {error.strerror}"
            raise NotFoundError(text, where=self.shown()) from error

    def _rebuilt(self) -> RunState | None:
        """Return the state that follows from the checkpoints, or None if there are none."""
        head = newest(self.catalog)
        if head is None:
            return None
        return RunState(
            name=self.name,
            job=head.job,
            digest=head.digest,
            spec="spec.yaml" if os.path.isfile(self.spec_path) else None,
            built_in_python=not os.path.isfile(self.spec_path),
            state="interrupted",
            reason="run.json was lost, and rebuilt from the checkpoints",
            epoch=head.epoch,
            elapsed=head.run_seconds,
            next_id=head.id + 1,
            created=head.time,
            updated=head.time,
            rebuilt=True,
        )

    # The lock.

    @property
    def run_lock(self) -> RunLock:
        """The lock itself, for a CheckpointManager on the same directory."""
        return self._lock

    def lock(self) -> None:
        """Lock the run for the life of this process; raises LockedError, which names the holder.

        Raises DamagedError if a file that the run writes into is a link, or no regular file: it
        would write outside of the run.
        """
        try:
            self._fs.make_dirs(str(self.path))
        except OSError as error:
            hint = "--runs-dir names another directory for the runs"
            raise SaveError(f"the run directory cannot be created: {error}", hint=hint) from error
        for name in _WRITTEN:
            refuse_not_regular(self.path / name)
        if os.path.islink(attempts := self.path / "attempts"):
            raise DamagedError("it is a symbolic link, not a directory", where=str(attempts))
        self._lock.acquire()

    def unlock(self) -> None:
        """Release the lock."""
        self._lock.release()

    def held(self) -> bool:
        """Return whether some process holds the run."""
        return self._lock.held()

    # Changes, made under the lock.

    def write(self, state: RunState) -> RunState:
        """Replace run.json durably and return its content; raises SaveError."""
        now = utc_now()
        state = replace(state, created=state.created or now, updated=now)
        line = json.dumps(state.to_json(), indent=1, ensure_ascii=False) + "\n"
        self.put("run.json", line.encode("utf-8", "surrogatepass"))
        return state

    def clean(self) -> list[str]:
        """Remove files that a crash left half written; return their names.  Raises FsError."""
        removed = []
        for entry in self._fs.entries(str(self.path)):
            if _PART.fullmatch(entry.name):
                self._fs.unlink(entry.path)
                removed.append(entry.name)
        return removed

    def put(self, name: str, data: bytes) -> None:
        """Replace a small file as a whole, durably."""
        try:
            self._fs.make_dirs(str(self.path))
            self._fs.put(str(self.path / name), data)
        except OSError as error:
            raise SaveError(f"{name} cannot be written: {error}", where=str(self.path)) from error

    def sync_covered(self) -> None:
        """Sync the files beside the checkpoints.  Raises FsError."""
        for name in COVERED:
            if not self._fs.is_gone(self.path / name):
                self._fs.sync_file(str(self.path / name))

    def store_spec(self, text: str, resolved: str) -> None:
        """Store the spec as written, and as resolved."""
        self.put(self.spec_path.name, text.encode("utf-8", "surrogateescape"))
        self.put(self.resolved_path.name, resolved.encode("utf-8", "surrogateescape"))

    def rewind(self, id: int) -> list[int]:
        """Make checkpoint ``id`` the newest: later ones move to ``attempts/<n>/``.

        Returns their ids.  run.json knows first; a crash in between is completed by
        ``finish_rewind``.  ``n`` is the attempt that is left behind: where one is running now, the
        one before it.
        """
        state = self.state()
        if state is None:
            raise NotFoundError("no run to rewind", where=str(self.path))
        if not any(r.id > id for r in self.records()):
            return []
        below = self.next_id()
        left = state.attempts - (state.state == "running")
        self.write(replace(state, next_id=below, rewind=Rewind(id, below, max(left, 1))))
        return self.finish_rewind()

    def finish_rewind(self) -> list[int]:
        """Complete a rewind that run.json records; return the ids that were moved."""
        state = self._read()
        if state is None or state.rewind is None:
            return []
        left = [id for id in self.catalog.ids() if state.rewind.leaves(id)]
        self.set_aside(left, state.rewind.attempt)
        self.write(replace(state, rewind=None))
        return left

    def attempt_path(self, attempt: int) -> Path:
        """Return the directory of the checkpoints of an attempt that a later rewind set aside."""
        return self.path / "attempts" / str(attempt)

    def attempts(self) -> list[int]:
        """Return the attempts of which checkpoints were set aside, in ascending order."""
        try:
            names = os.listdir(self.path / "attempts")
        except OSError:  # there are none, or we may not look
            return []
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def set_aside(self, ids: Iterable[int], attempt: int) -> None:
        """Move checkpoints to ``attempts/<attempt>/``, the newest first."""
        ids = sorted(ids, reverse=True)
        if not ids:
            return
        home = self.attempt_path(attempt)
        if os.path.islink(home):
            raise SaveError("it is a symbolic link, not a directory", where=str(home))
        try:
            self._fs.make_dirs(str(home))
            for id in ids:
                name = f"checkpoint_{id}"
                if not self._fs.kind(str(self.catalog.path(id))):
                    continue  # moved already, before something failed
                self._fs.rename(str(self.catalog.path(id)), str(home / name))
            self._fs.sync_dir(str(home))
            self._fs.sync_dir(str(self.path))
        except OSError as error:
            raise SaveError(
                f"later checkpoints cannot be moved: {error}", where=str(home)
            ) from error
