"""A LocalSession that holds the blobs of the nodes on one worker, and runs their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobrun.analysis.names import key_of
from jobrun.checkpoint.part import PartSummary
from jobrun.core.blob_paths import Key
from jobrun.errors import TaskError
from jobrun.model.job import Job
from jobrun.model.policy import Compress
from jobrun.session.dask.event_queue import NewsQueue
from jobrun.session.dask.group import WorkerGroup
from jobrun.session.dask.mailbox import Mailbox
from jobrun.session.dask.messages import Post, has_opaque
from jobrun.session.dask.step_board import StepBoard
from jobrun.session.dask.worker_plan import portion
from jobrun.session.local import LocalSession, LocalSnapshot
from jobrun.values.boxes import Value

__all__ = ["WorkerSession"]


class WorkerSession(LocalSession):
    """The blobs of ``nodes``, and their parts of the groups; snapshots have numbers.

    ``peers`` has the worker of each node of the job.  ``gone()``: whether the client has left.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        peers: Mapping[str, str],
        threads: int,
        post: Post,
        news: NewsQueue,
        gone: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(threads)
        self.steps = StepBoard(gone)
        self.nodes = tuple(nodes)
        self._peers = peers
        self.mailbox = Mailbox()
        self._post = post
        self._news = news
        self._portions: dict[str, WorkerGroup] = {}
        self._snapshots: dict[int, LocalSnapshot] = {}

    def _nodes_of(self, job: Job) -> Iterable[str]:
        return self.nodes

    def close(self) -> None:
        """See LocalSession."""
        super().close()
        for group in self._portions.values():
            group.close()

    def group(self, name: str) -> WorkerGroup:
        """Return the worker's part of a group, prepared to run."""
        found = self._portions.get(name)
        if found is None:
            found = self._portions[name] = WorkerGroup(
                portion(
                    self._analysis,
                    self._job.groups[name],
                    self.nodes,
                    self._peers,
                    counted=self._counts_batches(name),
                ),
                self.mailbox,
                self._post,
                self._news,
                self._binding,
                self._peers,
                self.steps,
            )
        return found

    def _counts_batches(self, name: str) -> bool:
        """Return whether the batches of a group decide where it is saved."""
        policy = self._job.checkpoint
        return name == "epoch" and policy is not None and policy.every.batches is not None

    def own_scalars(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the own scalars among ``names``; an error in place of one that is not a scalar.

        Blobs that were not written are absent.
        """
        found: dict[str, Any] = {}
        for name in names:
            if key_of(self._job, name)[0] not in self.nodes:
                continue
            try:
                found.update(self.scalars([name]))
            except TaskError as error:
                found[name] = error
        return found

    def value_of(self, name: str) -> Value:
        """Return a blob as it travels; raises TaskError if there is none, or it cannot travel."""
        self.blob(name)
        key = key_of(self._job, name)
        value = self._stores.get(key)
        if has_opaque(value):
            raise TaskError(f"blob {name!r} cannot leave node {key[0]!r}, where it was made")
        return value

    def take_partial(self, values: Mapping[Key, Value]) -> None:
        """Store what a cut pipe of another worker has written here so far."""
        for (node, path), value in values.items():
            self._stores.nodes[node].put(path, value)
            self._stores.written.note((node, path))

    # Snapshots by number, since the values stay here.

    def take_snapshot(self, number: int, scratch: Mapping[str, Sequence[str]]) -> bool:
        """Take a snapshot; return False if some of the scratch cannot be saved."""
        taken = self.snapshot(scratch)
        if taken is not None:
            self._snapshots[number] = taken
        return taken is not None

    def save_snapshot(
        self,
        number: int,
        directory: Path,
        id: int,
        share_with: Sequence[str],
        compress: Sequence[Compress],
    ) -> list[PartSummary]:
        """Write a snapshot into a directory; durable on return."""
        return self._snapshots[number].write(str(directory), id, share_with, compress)

    def end_snapshot(self, number: int, id: int | None) -> None:
        """Release a snapshot; it is in checkpoint ``id``, if it was saved."""
        taken = self._snapshots.pop(number, None)
        if taken is None:
            return
        if id is not None:
            taken.saved(id)
        taken.release()
