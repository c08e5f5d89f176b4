"""A snapshot whose values stay on the workers, which keep it under a number."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobrun.checkpoint.integrity import check_written
from jobrun.checkpoint.part import PartSummary
from jobrun.errors import DamagedError, JobrunError, NotFoundError, SaveError
from jobrun.model.policy import Compress
from jobrun.session.dask.messages import Peer
from jobrun.session.dask.workers import DaskWorkers
from jobrun.storage.fs import DEFAULT

__all__ = ["WorkersSnapshot"]

_PARTS = 64
"""Workers whose parts of a checkpoint are awaited at a time."""


@dataclass(frozen=True, slots=True)
class WorkersSnapshot:
    """The blobs of all nodes at an instant; a ``checkpoint.part_source.PartSource``."""

    workers: DaskWorkers
    number: int

    def write(
        self, directory: str, id: int, share_with: Sequence[str], compress: Sequence[Compress]
    ) -> list[PartSummary]:
        """Let the workers write the parts, and check that they are visible here; durable then.

        Raises SaveError if the directory is not one that the workers see too.
        """
        keys, folder = list(self.workers), Path(directory)
        call = ("save_snapshot", self.number, folder, id, tuple(share_with), tuple(compress))
        with ThreadPoolExecutor(min(len(keys), _PARTS), "jobrun-part") as pool:
            parts = pool.map(lambda key: self._write_parts(key, call, folder, id), keys)
            return [summary for own in parts for summary in own]

    def _write_parts(
        self, worker: str, call: tuple[Any, ...], directory: Path, id: int
    ) -> list[PartSummary]:
        """Let a worker write the parts of its nodes, and check that they are visible here."""
        peer = self.workers.peers[worker]
        try:
            summaries: list[PartSummary] = self.workers.ask({worker: ("do", *call)})[worker]
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            raise _not_shared(id, peer, directory, str(error)) from error
        for summary in summaries:
            try:
                check_written(DEFAULT, str(directory), summary.node, summary.digest)
            except (DamagedError, NotFoundError) as error:
                raise _not_shared(id, peer, directory, str(error)) from error
        return summaries

    def saved(self, id: int) -> None:
        """Record that the checkpoint is durable: new values of the workers have this version.

        On return they do: what the next checkpoint links does not depend on timing.
        """
        for answer in self._end(id):
            with suppress(JobrunError):  # a lost worker ends the run, not this save
                self.workers.result(answer)

    def release(self) -> None:
        """Release the snapshot on the workers."""
        self._end(None)

    def _end(self, id: int | None) -> list[Future[Any]]:
        """Notify the workers without waiting for them; return their answers."""
        there = self.workers if self.workers.lost is None else ()
        return [self.workers.call(w, "do", "end_snapshot", self.number, id) for w in there]


def _not_shared(id: int, peer: Peer, directory: Path, why: str) -> SaveError:
    return SaveError(
        f"checkpoint {id} was not saved: what {peer.described} wrote is not visible here: {why}",
        hint=f"{directory.parent} must be on storage that all workers and this machine share",
    )
