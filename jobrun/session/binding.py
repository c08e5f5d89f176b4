"""Tasks bound to a session: to its blobs, functions, directories and threads.

Kinds of tasks that a job does not have are not imported: they would be a tenth of its start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.dataflow import updated_blobs
from jobrun.core.blob_paths import PathSet
from jobrun.model.job import Pipe, Task
from jobrun.model.options import Load
from jobrun.model.shell import Shell
from jobrun.session.base import Places
from jobrun.session.call import Call
from jobrun.session.call_outputs import Write
from jobrun.session.deadline import Deadline
from jobrun.session.generators import give_up
from jobrun.session.scheduler import Scheduler
from jobrun.session.stores import Stores

if TYPE_CHECKING:
    from jobrun.session.pipe.run import PipeRun
    from jobrun.session.weights_task import PutWeights

__all__ = ["Binding"]


@dataclass(frozen=True)
class Binding:
    """The parts of an open session that all groups of its job share.

    ``functions`` holds the imported function of each task by the task's ``id``, ``persistent`` the
    blobs that persist.
    """

    analysis: JobAnalysis
    stores: Stores
    functions: Mapping[int, Callable[..., Any]]
    places: Places
    persistent: PathSet
    scheduler: Scheduler

    @cached_property
    def _is_updated(self) -> Callable[[str], bool]:
        return updated_blobs(self.analysis.job)

    def call(
        self,
        group: str,
        task: Task,
        node: str,
        stores: Stores,
        name: str | None = None,
        columns: Collection[str] | None = None,
        puts_columns: bool = False,
    ) -> Call:
        """Bind a task, or a step of a pipe, to a node; ``stores`` are the blobs as it sees them."""
        return Call(
            self.analysis.job,
            group,
            task,
            node,
            self._function(group, task, node),
            stores,
            name=name,
            columns=columns,
            puts_columns=puts_columns,
            texts=self.places.texts(node),
            check=self.places.check,
            is_updated=self._is_updated,
        )

    def pipe(
        self,
        group: str,
        task: Pipe,
        node: str,
        stores: Stores,
        store: Callable[[Sequence[Write]], None],
    ) -> PipeRun:
        """Bind a pipe to a node; ``store`` writes blobs."""
        from jobrun.session.pipe.run import PipeRun

        return PipeRun(
            self.analysis.job,
            group,
            task,
            node,
            stores,
            store,
            lambda step, name, columns, puts: self.call(
                group, step, node, stores, name, columns, puts
            ),
            self.places,
        )

    def _function(self, group: str, task: Task, node: str) -> Callable[..., Any]:
        """Return the function that a task calls on a node."""
        if isinstance(task.fn, Shell):
            from jobrun.session.shell.program import Program

            return Program(task.fn, task.outputs.keys, self.places, node, task.timeout)
        function: Callable[..., Any]
        if isinstance(task.fn, Load) and task.fn.file is not None:
            from jobrun.session.weights_task import WeightsTask

            live = self._weights_of(task, node)
            function = WeightsTask(task.fn, task.outputs.keys, self.places, node, live)
        elif isinstance(task.fn, Load):
            from jobrun.session.load_task import LoadTask

            function = LoadTask(task.fn, task.outputs.keys, self.places, node)
        else:
            function = self.functions[id(task)]
        if task.timeout is None:
            return function
        at = f" on node {node!r}" if self.analysis.job.multi_node else ""
        name = f"task {task.name!r} of group {group!r}{at}"
        where = task.mark("timeout")
        return Deadline(function, task.timeout, self._abandon, name, where)

    def _abandon(self, error: BaseException) -> None:
        """End the run without a function that has exceeded its timeout."""
        if self.stores.generators is not None:
            give_up()
        self.scheduler.abandon(error)

    def _weights_of(self, task: Task, node: str) -> dict[str, PutWeights]:
        """Return how weights get into each live object that a load of a file names."""
        live = self.stores.live
        pairs = zip(task.outputs.keys, task.outputs.names, strict=True)
        named = {pattern: (node, name.rpartition(":")[2]) for pattern, name in pairs}
        return {
            pattern: partial(live.put_weights, key)
            for pattern, key in named.items()
            if live is not None and key in live
        }
