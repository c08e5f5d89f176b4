"""A snapshot whose values stay on the nodes, which keep it under a number."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobrun.checkpoint.integrity import check_written
from jobrun.checkpoint.part import PartSummary
from jobrun.errors import DamagedError, NotFoundError, SaveError
from jobrun.model.policy import Compress
from jobrun.session.dask.nodes import Nodes
from jobrun.storage.fs import DEFAULT

__all__ = ["NodesSnapshot"]

_PARTS = 64
"""Parts of a checkpoint that are awaited at a time."""


@dataclass(frozen=True, slots=True)
class NodesSnapshot:
    """The blobs of all nodes at an instant; a ``checkpoint.part_source.PartSource``."""

    nodes: Nodes
    number: int

    def write(
        self, directory: str, id: int, share_with: Sequence[str], compress: Sequence[Compress]
    ) -> list[PartSummary]:
        """Let each node write its part, and check that it is visible here; durable then.

        Raises SaveError if the directory is not one that the nodes' workers see too.
        """
        names, folder = list(self.nodes), Path(directory)
        call = ("save_snapshot", self.number, folder, id, tuple(share_with), tuple(compress))
        with ThreadPoolExecutor(min(len(names), _PARTS), "jobrun-part") as pool:
            return list(pool.map(lambda node: self._write_part(node, call, folder, id), names))

    def _write_part(
        self, node: str, call: tuple[Any, ...], directory: Path, id: int
    ) -> PartSummary:
        """Let a node write its part, and check that it is visible here."""
        try:
            summary: PartSummary = self.nodes.ask({node: ("do", *call)})[node]
        except FileNotFoundError as error:
            raise self._not_shared(id, node, directory, str(error)) from error
        try:
            check_written(DEFAULT, str(directory), node, summary.digest)
        except (DamagedError, NotFoundError) as error:
            raise self._not_shared(id, node, directory, str(error)) from error
        return summary

    def _not_shared(self, id: int, node: str, directory: Path, why: str) -> SaveError:
        address = self.nodes.addresses[node]
        return SaveError(
            f"checkpoint {id} was not saved: what the worker {address} wrote for node {node!r} "
            f"is not visible here: {why}",
            hint=f"{directory.parent} must be on storage that all workers and this machine share",
        )

    def saved(self, id: int) -> None:
        """Record that the checkpoint is durable: new values of the nodes have this version."""
        self._end(id)

    def release(self) -> None:
        """Release the snapshot on the nodes."""
        self._end(None)

    def _end(self, id: int | None) -> None:
        """Notify the nodes without waiting for them."""
        for node in self.nodes if self.nodes.lost is None else ():
            self.nodes.call(node, "do", "end_snapshot", self.number, id)
