"""Building the job of a spec, with the place of everything that a later message may point at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jobrun.core.gc_tuning import paused
from jobrun.core.suggestions import did_you_mean
from jobrun.core.template import templated
from jobrun.errors import Problem, SpecError
from jobrun.jobspec.doubts import doubts
from jobrun.jobspec.model import TaskModel
from jobrun.jobspec.model_values import (
    callee_of,
    policy_of,
    renamed,
    retries_of,
    upload_of,
)
from jobrun.jobspec.pipes import DoStepModel, MapStepModel, SourceModel
from jobrun.jobspec.places import SpecPlaces
from jobrun.jobspec.reports import reporter_parts
from jobrun.jobspec.resolve import Spec
from jobrun.jobspec.scalars import show
from jobrun.jobspec.source import SpecNode
from jobrun.jobspec.stops import condition_specs
from jobrun.model.job import GROUPS, Data, Job, Pipe, Task, data
from jobrun.model.reporter import Reporter

__all__ = ["JobBuilder", "built"]

_NUMBERS = ("batch", "batches_per_epoch", "passes", "threads", "ahead", "processes")
_OF_SOURCE = ("from", "in", "with")


def built(spec: Spec) -> JobBuilder:
    """Return the builder of a job, once it is done."""
    with paused(spec.source.root.count > 10_000):
        builder = JobBuilder(spec)
        builder.build()
    return builder


class JobBuilder:
    """Builds the job ``made`` beside the tree of its source; ``whole``: every task of it."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.model = spec.model
        self.root = spec.source.root
        self.places = SpecPlaces(spec.source)
        self.problems: list[Problem] = []
        self.whole = True
        self.made = Job(
            str(spec.tree["name"]),
            seed=self.model.seed,
            vars=self.model.vars,
            nodes=self.model.nodes,
            metrics=self.model.metrics,
            checkpoint=policy_of(self.model.checkpoint),
            upload=upload_of(self.model.upload),
            state=self.model.state,
            constant=self.model.constant,
        )
        self.made.session = self.model.session.spec()
        self.shared = self.made.shared_vars()

    def build(self) -> None:
        """Fill the job."""
        job = self.made
        for group in GROUPS:
            self._group(job, group)
        job.conditions = condition_specs(self.spec.source)
        job.never_stops = self.spec.tree.get("stop") == "never"
        job.reporters = list(self._reporters())
        job.marks = dict(self.places.of_job(self.spec.path))
        job.doubts = list(doubts(self.spec.source))

    def _reporters(self) -> Iterator[Reporter]:
        holder = self.root.get("report")
        for number, entry in enumerate(self.model.report):
            assert holder is not None
            node = holder.get(number) if isinstance(holder.value, list) else holder
            name, value, options = reporter_parts(entry)
            where = self.places.of(node) if node is not None else None
            yield Reporter(name, templated(value), templated(options or {}), where)

    def _group(self, job: Job, group: str) -> None:
        for number, model in enumerate(self.model.tasks(group)):
            node = self.root.get(group, number)
            assert node is not None
            try:
                make = self._pipe if model.pipe is not None else self._task
                job.groups[group].tasks.append(make(model, node))
            except SpecError as error:
                self.problems += error.problems
                self.whole = False
        job.groups[group].named()

    def _task(self, model: TaskModel, node: SpecNode) -> Task:
        marks = self.places.below(node, "in", "update", "out", "with", "after")
        if model.load is not None:
            blobs = node.get("load", "blobs")
            assert blobs is not None
            marks.update(self.places.names("out", blobs))
        return Task(
            callee_of(model),
            model.in_,
            model.with_,
            model.update,
            renamed(model.load.blobs) if model.load is not None else model.out,
            model.name,
            model.after or (),
            every=self._number(model.every, node, "every", strict=True),
            retries=retries_of(model.retries),
            timeout=model.timeout,
            thread=model.thread,
            node=model.node,
            where=self.places.of(node),
            marks=marks,
        )

    def _pipe(self, model: TaskModel, node: SpecNode) -> Pipe:
        pipe, below = model.pipe, node.get("pipe")
        assert pipe is not None
        assert below is not None
        marks = self.places.below(node, "reduce", "after") | self.places.below(below, *_OF_SOURCE)
        numbers = {k: self._number(getattr(pipe, k), below, k) for k in _NUMBERS}
        shuffle = pipe.shuffle
        if isinstance(shuffle, dict):
            holder = below.get("shuffle")
            assert holder is not None
            shuffle = {"buffer": self._number(shuffle["buffer"], holder, "buffer")}
        return Pipe(
            **self._source(pipe, below),
            **numbers,
            shuffle=shuffle,
            shard=pipe.shard,
            rows=pipe.rows,
            as_=pipe.as_,
            drop_last=pipe.drop_last,
            map=self._steps(model.map or [], node.get("map")),
            do=self._steps(model.do or [], node.get("do")),
            reduce=model.reduce,
            name=model.name,
            after=model.after or (),
            every=self._number(model.every, node, "every", strict=True),
            thread=model.thread,
            node=model.node,
            where=self.places.of(node),
            marks=marks,
        )

    def _source(self, model: SourceModel, node: SpecNode) -> dict[str, Any]:
        """Return a source, as the arguments of ``Pipe`` and of ``data``."""
        return {
            "from_": model.from_,
            "file": model.file,
            "types": model.types,
            "cell_limit": model.cell_limit,
            "call": model.call,
            "in_": model.in_,
            "with_": model.with_,
            "resume": model.resume,
            "zip": self._sources(model.zip, node.get("zip")),
            "concat": self._sources(model.concat, node.get("concat")),
        }

    def _sources(self, models: Iterable[SourceModel] | None, nodes: SpecNode | None) -> list[Data]:
        found: list[Data] = []
        for number, model in enumerate(models or ()):
            node = nodes.get(number) if nodes is not None else None
            assert node is not None
            marks = self.places.below(node, *_OF_SOURCE)
            found.append(data(**self._source(model, node), where=self.places.of(node), marks=marks))
        return found

    def _steps(
        self, models: Iterable[MapStepModel | DoStepModel], nodes: SpecNode | None
    ) -> list[Task]:
        steps: list[Task] = []
        for number, model in enumerate(models):
            node = nodes.get(number) if nodes is not None else None
            assert node is not None
            try:
                steps.append(self._step(model, node))
            except SpecError as error:
                self.problems += error.problems
                self.whole = False
                steps.append(Task(model.call))
        return steps

    def _step(self, model: MapStepModel | DoStepModel, node: SpecNode) -> Task:
        marks = self.places.below(node, "in", "update", "out", "with")
        does = model if isinstance(model, DoStepModel) else None
        return Task(
            model.call,
            model.in_,
            model.with_,
            does.update if does else None,
            model.out,
            model.name,
            every=self._step_every(does, node) if does else None,
            retries=retries_of(model.retries),
            timeout=model.timeout if isinstance(model, MapStepModel) else None,
            where=self.places.of(node),
            marks=marks,
        )

    def _step_every(self, model: DoStepModel, node: SpecNode) -> Mapping[str, Any] | None:
        if model.every is None:
            return None
        key = "batches" if model.every.batches is not None else "epochs"
        below = node.get("every")
        holder = below if below is not None and isinstance(below.value, dict) else node
        name = key if holder is below else "every"
        return {key: self._number(getattr(model.every, key), holder, name, strict=True)}

    def _number(
        self, value: int | str | None, node: SpecNode, key: str, strict: bool = False
    ) -> Any:
        """Return a number; that of a var if it has one value everywhere, else the name as it is.

        ``strict``: it must be known before anything runs.
        """
        if not isinstance(value, str):
            return value
        if value not in self.shared:
            if strict:
                text = f"expected a number or a var with one value on all nodes, got {value!r}"
                self._problem(f"{key!r}: {text}", node, key, did_you_mean(value, list(self.shared)))
            return 1 if strict else value
        found = self.shared[value]
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            text = f"{key!r}: expected a whole number from 1 up, got {show(found)} (var {value!r})"
            self._problem(text, node, key)
            return 1
        return found

    def _problem(self, message: str, node: SpecNode, key: str, hint: str = "") -> None:
        below = node.get(key)
        where = self.places.of(below if below is not None else node)
        self.problems.append(Problem(message, where, hint))
