"""A LocalSession that holds the blobs of one node of a job, and runs that node's parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobrun.analysis.names import Key, key_of
from jobrun.checkpoint.part import PartSummary
from jobrun.errors import TaskError
from jobrun.model.job import Job
from jobrun.model.policy import Compress
from jobrun.session.dask.event_queue import NewsQueue
from jobrun.session.dask.group import Mailbox, NodeGroup, Post
from jobrun.session.dask.messages import has_opaque
from jobrun.session.dask.node_plan import portion
from jobrun.session.local import LocalSession, LocalSnapshot
from jobrun.values.boxes import Value

__all__ = ["NodeSession"]


class NodeSession(LocalSession):
    """The blobs of ``node``, and its parts of the groups; snapshots have numbers."""

    def __init__(self, node: str, threads: int, post: Post, news: NewsQueue) -> None:
        super().__init__(threads)
        self.node = node
        self.mailbox = Mailbox()
        self._post = post
        self._news = news
        self._portions: dict[str, NodeGroup] = {}
        self._snapshots: dict[int, LocalSnapshot] = {}

    def _nodes_of(self, job: Job) -> Iterable[str]:
        return (self.node,)

    def close(self) -> None:
        """See LocalSession."""
        super().close()
        for group in self._portions.values():
            group.close()

    def group(self, name: str) -> NodeGroup:
        """Return the node's part of a group, prepared to run."""
        found = self._portions.get(name)
        if found is None:
            found = self._portions[name] = NodeGroup(
                portion(self._analysis, self._job.groups[name], self.node),
                self.node,
                self.mailbox,
                self._post,
                self._news,
                self._binding,
            )
        return found

    def own_scalars(self, names: Iterable[str]) -> dict[str, Any]:
        """Return this node's scalars among ``names``; an error in place of one that is no scalar.

        Blobs that were not written are absent.
        """
        found: dict[str, Any] = {}
        for name in names:
            if key_of(self._job, name)[0] != self.node:
                continue
            try:
                found.update(self.scalars([name]))
            except TaskError as error:
                found[name] = error
        return found

    def value_of(self, name: str) -> Value:
        """Return a blob as it travels; raises TaskError if there is none, or it cannot travel."""
        self.blob(name)
        value = self._stores.get(key_of(self._job, name))
        if has_opaque(value):
            raise TaskError(f"blob {name!r} cannot leave node {self.node!r}, where it was made")
        return value

    def take_partial(self, values: Mapping[Key, Value]) -> None:
        """Store what a cut pipe of another node has written here so far."""
        for (node, path), value in values.items():
            self._stores.nodes[node].put(path, value)
            self._stores.written.note((node, path))

    def load_timed(self, directory: Path, part: str) -> tuple[int, float]:
        """Read and verify a part of a checkpoint, beside the blobs; return bytes and seconds."""
        return self.load_parts(directory, {self.node: part})[self.node]

    # Snapshots by number, since the values stay here.

    def take_snapshot(self, number: int, scratch: Sequence[str]) -> bool:
        """Take a snapshot; return False if some of the scratch cannot be saved."""
        taken = self.snapshot({self.node: scratch} if scratch else {})
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
    ) -> PartSummary:
        """Write a snapshot into a directory; durable on return."""
        return self._snapshots[number].write(str(directory), id, share_with, compress)[0]

    def end_snapshot(self, number: int, id: int | None) -> None:
        """Release a snapshot; it is in checkpoint ``id``, if it was saved."""
        taken = self._snapshots.pop(number, None)
        if taken is None:
            return
        if id is not None:
            taken.saved(id)
        taken.release()
