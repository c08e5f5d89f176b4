"""From a spec to a job, with the place of everything that a later message may point at."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from jobrun.core.gc_tuning import paused
from jobrun.core.suggestions import did_you_mean, few_hints
from jobrun.core.template import template
from jobrun.errors import Problem, SpecError, Where, new_problems
from jobrun.jobspec.checkpoints import CheckpointModel
from jobrun.jobspec.doubts import doubts
from jobrun.jobspec.model import TaskModel
from jobrun.jobspec.pipes import DoStepModel, MapStepModel, SourceModel
from jobrun.jobspec.reports import reporter_parts
from jobrun.jobspec.resolve import Spec, load, with_values
from jobrun.jobspec.scalars import show
from jobrun.jobspec.source import SpecNode
from jobrun.jobspec.stops import condition_specs
from jobrun.jobspec.tasks import RetriesModel, ShellModel
from jobrun.jobspec.uploads import UploadModel
from jobrun.model.job import GROUPS, Data, Job, Pipe, Task, data
from jobrun.model.options import Load, Retries
from jobrun.model.policy import Best, CheckpointPolicy, Every, Keep, Upload
from jobrun.model.reporter import Reporter
from jobrun.model.shell import FileForm, Shell

__all__ = ["build", "check", "job_of", "validate_loaded", "validate_spec", "with_code_problems"]

T = TypeVar("T")

_NUMBERS = ("batch", "batches_per_epoch", "passes", "threads", "ahead", "processes")
_OF_SOURCE = ("from", "in", "with")


def validate_spec(
    path: str | os.PathLike[str],
    sets: Iterable[str] = (),
    import_: bool = False,
    *,
    epochs: int | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Job:
    """Return the job of a spec, checked as far as that goes without running it.

    ``folder`` is where its code is, if not beside it.  Raises SpecError with all problems at once.
    With ``import_`` the functions are imported and their signatures checked too, which raises
    BindError.
    """
    return validate_loaded(load(path, sets, epochs=epochs, folder=folder), import_)


def validate_loaded(spec: Spec, import_: bool = False) -> Job:
    """Return the job of a spec that has been loaded; see ``validate_spec``."""
    job = job_of(spec)
    if import_:
        from jobrun.usercode.bind import bind_job

        bind_job(job, spec.folder, spec.spec_dir)
    return job


def job_of(spec: Spec) -> Job:
    """Return the job of a spec, checked as far as that goes without its functions.

    With a matrix it is the job of its first combination, and every value is checked.  Raises
    SpecError with all problems at once.
    """
    if spec.matrix is None:
        return _checked(spec)
    jobs: list[Job] = []
    problems: list[Problem] = []
    for values in spec.matrix.covering():
        try:
            jobs.append(_checked(with_values(spec, values)))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return jobs[0]


def with_code_problems(spec: Spec, make: Callable[[], T]) -> T:
    """Return what ``make`` makes of a spec.

    Raises its SpecError with what is wrong with the code of the spec, too.
    """
    try:
        return make()
    except SpecError as invalid:
        error = invalid
    raise _with_code(spec, error)  # not while ``error`` is handled: it would be in users' traces


def _with_code(spec: Spec, error: SpecError) -> SpecError:
    """Return the error of an invalid spec with what is wrong with the code that it names, too.

    The code is imported.  In a task that has an error of its own the call is not checked: it may
    follow from that.
    """
    from jobrun.usercode.bind import code_problems

    try:
        one = spec if spec.matrix is None else with_values(spec, spec.matrix.covering()[0])
        made = _built(one).made
    except SpecError:
        return error
    imports, calls, trace = code_problems(made, spec.folder, spec.spec_dir)
    tasks = [t.where.line for g in GROUPS for t in made.groups[g].tasks if t.where]
    starts = sorted([*tasks, *(key.line + 1 for key in spec.source.root.keys.values())])
    wrong = {_task_at(starts, problem) for problem in error.problems}
    found = [*imports, *(p for p in calls if _task_at(starts, p) not in wrong)]
    return SpecError([*error.problems, *new_problems(error.problems, found)], trace=trace)


def _task_at(starts: Sequence[int], problem: Problem) -> int:
    """Return the number of the last task, or key of the spec, that starts before a problem."""
    return bisect_right(starts, problem.where.line) if problem.where is not None else -1


def _checked(spec: Spec) -> Job:
    builder = _built(spec)
    problems = [*spec.problems]
    problems += new_problems(problems, builder.problems)
    whole = spec.whole and builder.whole
    later = check(builder.made) if whole else check_names(builder.made)
    problems += new_problems(problems, later)
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return builder.made


@few_hints()
def check(job: Job) -> list[Problem]:
    """Return everything that is wrong with a job as a whole: its data flow and its conditions."""
    from jobrun.analysis.checks import check as check_flow
    from jobrun.conditions.parse import problems as condition_problems

    return [*check_flow(job), *condition_problems(job)]


@few_hints()
def check_names(job: Job) -> list[Problem]:
    """Return what is wrong with the names in a job of which some tasks are missing."""
    from jobrun.analysis.checks import name_problems

    return name_problems(job)


@few_hints()
def build(spec: Spec) -> Job:
    """Return the job of a spec.

    Raises SpecError for what is wrong with it so far, and what only shows when its parts are put
    together.
    """
    builder = _built(spec)
    problems = [*spec.problems, *new_problems(spec.problems, builder.problems)]
    if problems:
        raise SpecError(problems)
    return builder.made


def _built(spec: Spec) -> _Builder:
    """Return the builder of a job, once it is done."""
    with paused(spec.source.root.count > 10_000):
        builder = _Builder(spec)
        builder.build()
    return builder


class _Builder:
    """Builds the job ``made`` beside the tree of its source; ``whole``: every task of it."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.model = spec.model
        self.root = spec.source.root
        self.problems: list[Problem] = []
        self.whole = True
        self.made = Job(
            str(spec.tree["name"]),
            seed=self.model.seed,
            vars=self.model.vars,
            nodes=self.model.nodes,
            metrics=self.model.metrics,
            checkpoint=_policy(self.model.checkpoint),
            upload=_upload(self.model.upload),
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
        job.marks = dict(self._job_marks())
        job.doubts = list(doubts(self.spec.source))

    def _reporters(self) -> Iterator[Reporter]:
        holder = self.root.get("report")
        for number, entry in enumerate(self.model.report):
            assert holder is not None
            node = holder.get(number) if isinstance(holder.value, list) else holder
            name, value, options = reporter_parts(entry)
            where = self._where(node) if node is not None else None
            yield Reporter(name, _text(value), _literals(options), where)

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
        marks = self._marks(node, "in", "update", "out", "with", "after")
        if model.load is not None:
            blobs = node.get("load", "blobs")
            assert blobs is not None
            marks.update(self._names("out", blobs, node))
        return Task(
            _callee(model),
            model.in_,
            _literals(model.with_),
            model.update,
            _renamed(model.load.blobs) if model.load is not None else model.out,
            model.name,
            model.after or (),
            every=self._number(model.every, node, "every", strict=True),
            retries=_retries(model.retries),
            timeout=model.timeout,
            thread=model.thread,
            node=model.node,
            where=self._where(node),
            marks=marks,
        )

    def _pipe(self, model: TaskModel, node: SpecNode) -> Pipe:
        pipe, below = model.pipe, node.get("pipe")
        assert pipe is not None
        assert below is not None
        marks = self._marks(node, "reduce", "after") | self._marks(below, *_OF_SOURCE)
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
            where=self._where(node),
            marks=marks,
        )

    def _source(self, model: SourceModel, node: SpecNode) -> dict[str, Any]:
        """Return a source, as the arguments of ``Pipe`` and of ``data``."""
        return {
            "from_": model.from_,
            "file": None if model.file is None else _text(model.file),
            "types": model.types,
            "cell_limit": model.cell_limit,
            "call": model.call,
            "in_": model.in_,
            "with_": _literals(model.with_),
            "resume": model.resume,
            "zip": self._sources(model.zip, node.get("zip")),
            "concat": self._sources(model.concat, node.get("concat")),
        }

    def _sources(self, models: Iterable[SourceModel] | None, nodes: SpecNode | None) -> list[Data]:
        found: list[Data] = []
        for number, model in enumerate(models or ()):
            node = nodes.get(number) if nodes is not None else None
            assert node is not None
            marks = self._marks(node, *_OF_SOURCE)
            found.append(data(**self._source(model, node), where=self._where(node), marks=marks))
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
        marks = self._marks(node, "in", "update", "out", "with")
        does = model if isinstance(model, DoStepModel) else None
        return Task(
            model.call,
            model.in_,
            _literals(model.with_),
            does.update if does else None,
            model.out,
            model.name,
            every=self._step_every(does, node) if does else None,
            retries=_retries(model.retries),
            timeout=model.timeout if isinstance(model, MapStepModel) else None,
            where=self._where(node),
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
        where = self._where(below if below is not None else node)
        self.problems.append(Problem(message, where, hint))

    def _where(self, node: SpecNode) -> Where:
        return self.spec.source.where(node)

    def _marks(self, node: SpecNode, *roles: str) -> dict[str, Where]:
        """Return places by key, and by ``role:name`` for the names below a role."""
        marks: dict[str, Where] = {}
        for key, below in node.value.items():
            marks[key] = self._where(below)
            if key in roles:
                marks.update(self._names(key, below, node))
        return marks

    def _names(self, role: str, below: SpecNode, node: SpecNode) -> Iterator[tuple[str, Where]]:
        """Yield the names of ``in``, ``update``, ``out`` …: a string, a list, or a mapping."""
        if isinstance(below.value, str):
            yield f"{role}:{below.value}", self._where(below)
        elif isinstance(below.value, list):
            for item in map(_named, below.value):
                yield f"{role}:{item.value}", self._where(item)
        elif isinstance(below.value, dict):
            for key, item in below.value.items():
                at_key = self._where(below.keys[key])
                yield f"{role}:{key}", at_key
                named = _named(item)
                if isinstance(named.value, str):
                    yield f"{role}:{named.value}", self._where(named)

    def _job_marks(self) -> Iterator[tuple[str, Where]]:
        """Yield the places of what belongs to no task."""
        for key in ("name", "stop", "fail", "checkpoint", "upload"):
            node = self.root.get(key)
            yield key, Where(self.spec.path) if node is None else self._where(node)
        for section in ("vars", "nodes", "metrics", "constant"):
            node = self.root.get(section)
            if node is not None:
                yield from self._names(section, node, self.root)
        state = self.root.get("state")
        if state is not None:
            yield "state", self._where(state)
            entries = state.value if isinstance(state.value, list) else [state]
            for entry in entries:
                yield from self._names("state", entry, self.root)
        for path in (("keep", "best"), ("include",), ("compress",), ("catalogue",)):
            node = self.root.get("checkpoint", *path)
            if node is not None:
                name = ".".join(("checkpoint", *path))
                yield name, self._where(node)
                yield from self._names(name, node, self.root)


def _named(item: SpecNode) -> SpecNode:
    """Return the node of a name: that of ``of`` in a reduction over nodes."""
    return (item.get("of") or item) if isinstance(item.value, dict) else item


def _policy(model: CheckpointModel | None) -> CheckpointPolicy | None:
    if model is None:
        return None
    every, keep = model.every, model.keep
    best = None if keep.best is None else Best(keep.best.metric, keep.best.count)
    return CheckpointPolicy(
        every=Every(every.epochs, every.batches, every.seconds, every.min_gap or 0.0),
        keep=Keep(keep.last, keep.every, best),
        include=tuple(model.include or ()),
        on_error=model.on_error,
        on_success=model.on_success,
        background=model.background,
        link=model.link,
        compress=tuple(model.compress),
        catalogue=model.catalogue,
    )


def _upload(model: UploadModel | None) -> Upload | None:
    if model is None:
        return None
    to = None if model.to is None else _text(model.to)
    return Upload(to, model.call, _literals(model.with_), model.what)


def _callee(model: TaskModel) -> str | Shell | Load:
    """Return what a task that is not a pipe calls."""
    if model.shell is not None:
        return _shell(model.shell)
    if model.load is not None:
        given = model.load
        run = None if given.run is None else _text(given.run)
        file = None if given.file is None else _text(given.file)
        return Load(run, given.epoch, given.id, file, given.strict is not False)
    return str(model.call)


def _renamed(blobs: Any) -> dict[str, str | None]:
    """Return ``blobs`` of ``load`` as a mapping."""
    if isinstance(blobs, dict):
        return blobs
    return dict.fromkeys([blobs] if isinstance(blobs, str) else blobs)


def _retries(model: RetriesModel | None) -> Retries | None:
    return None if model is None else Retries(model.times, model.delay or 0.0, model.backoff)


def _shell(model: ShellModel) -> Shell:
    files = {
        name: FileForm(form.dtype, None if form.shape is None else tuple(form.shape))
        for name, form in (model.files or {}).items()
    }
    return Shell(model.command or "", model.script or "", files)


def _literals(given: Mapping[str, Any] | None) -> dict[str, Any]:
    return {k: _text(v) for k, v in (given or {}).items()}


def _text(value: Any) -> Any:
    """Return a value with its texts that hold ``${`` as templates."""
    if isinstance(value, str):
        return template(value) if "${" in value else value
    if isinstance(value, dict):
        return {k: _text(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_text(v) for v in value]
    return value
