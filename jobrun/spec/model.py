"""The spec language as models of pydantic: every key, its type and what it means.

The world is closed: a key that is not here is an error (top-level ``x-…`` keys may hold anchors).
A task is one flat model with "exactly one of ``call``, ``shell``, ``load`` and ``pipe``", since a
union would report each error once for every form.  Conditions under ``stop`` and ``fail`` are
looked at by ``jobrun.conditions``, for specs and for jobs made in Python alike; here stand their
forms, for the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WrapValidator, model_validator

from jobrun.job import GROUPS
from jobrun.spec.closed import ClosedModel, short_for
from jobrun.spec.compression import Compression
from jobrun.spec.faults import Fault, Optional, choice, refuse
from jobrun.spec.fields import (
    After,
    BlobName,
    Call,
    Columns,
    Count,
    FilePath,
    Globs,
    Inputs,
    Metrics,
    Name,
    NodePattern,
    Nodes,
    Outs,
    Reductions,
    Seconds,
    Shard,
    Shuffle,
    TaskInputs,
    Types,
    Updates,
    Vars,
    With,
)
from jobrun.spec.scalars import show
from jobrun.spec.tasks import LoadModel, ShellModel, TaskRetries

__all__ = [
    "CheckpointModel",
    "ConditionsModel",
    "DoStepModel",
    "EveryModel",
    "KeepModel",
    "MapStepModel",
    "PipeModel",
    "SourceModel",
    "SpecModel",
    "StepEveryModel",
    "TaskModel",
]


class StepEveryModel(ClosedModel):
    """How often a step of a pipe is called."""

    batches: Optional[Count] = Field(None, description="Call the step every so many batches.")
    epochs: Optional[Count] = Field(None, description="Call the step every so many epochs.")

    @model_validator(mode="after")
    def _one(self) -> StepEveryModel:
        if (self.batches is None) == (self.epochs is None):
            raise refuse(Fault("wants either 'batches' or 'epochs'"))
        return self


class MapStepModel(ClosedModel):
    """A step that sees columns alone and runs ahead of the steps under ``do``."""

    name: Optional[Name] = Field(None, description="The step's name; default: the function's.")
    call: Call = Field(description="The function, module:function.")
    in_: Optional[Inputs] = Field(
        None, alias="in", description="Columns and vars that the function is given."
    )
    with_: Optional[With] = Field(
        None, alias="with", description="Literal keyword arguments of the function."
    )
    out: Optional[Outs] = Field(None, description="Columns that the result becomes.")
    retries: TaskRetries = Field(
        None, description="How often a call that fails is made again, on the same batch."
    )


class DoStepModel(ClosedModel):
    """A step that is applied for each batch, in batch order."""

    name: Optional[Name] = Field(None, description="The step's name; default: the function's.")
    call: Call = Field(description="The function, module:function.")
    in_: Optional[Inputs] = Field(
        None, alias="in", description="Columns, blobs and vars that the function is given."
    )
    with_: Optional[With] = Field(
        None, alias="with", description="Literal keyword arguments of the function."
    )
    update: Optional[Updates] = Field(
        None, description="Blobs that the function is given and changes in place."
    )
    out: Optional[Outs] = Field(None, description="Blobs that the result becomes.")
    retries: TaskRetries = Field(
        None, description="How often a call that fails is made again, on the same batch."
    )
    every: Annotated[
        Optional[StepEveryModel],
        BeforeValidator(
            short_for("epochs", "{batches: n} or {epochs: n}"),
            json_schema_input_type=StepEveryModel,
        ),
    ] = Field(None, description="Call the step every so many batches or epochs only.")


class SourceModel(ClosedModel):
    """Where rows come from."""

    file: Optional[FilePath] = Field(
        None,
        description="A .npz, .npy, .csv, .tsv, .jsonl, .txt or .zarr, or a pattern over many, read "
        "in the order of their names; a relative path begins at the spec's folder.",
    )
    call: Optional[Call] = Field(
        None,
        description="A function that gives the rows: an object with __len__ and __getitem__, an "
        "iterable, or a dict of arrays. An iterable is made anew for each pass.",
    )
    from_: Optional[Columns] = Field(
        None,
        alias="from",
        description="Blobs to read rows of, {column: blob}; with 'file', the file's columns, where "
        "a pattern makes a matrix; with 'call', the keys of an item, or names for its parts.",
    )
    types: Optional[Types] = Field(
        None,
        description="Types of columns of a text file, {name: int, float or text}; default: what "
        "the first 1000 rows hold.",
    )
    in_: Optional[Inputs] = Field(
        None, alias="in", description="Blobs and vars that the function under 'call' is given."
    )
    with_: Optional[With] = Field(
        None, alias="with", description="Literal keyword arguments of the function under 'call'."
    )
    zip: Optional[list[SourceModel]] = Field(
        None, description="Sources read side by side, as far as the shortest goes."
    )
    concat: Optional[list[SourceModel]] = Field(
        None, description="Sources of the same columns, read one after another."
    )

    @model_validator(mode="after")
    def _one_source(self) -> SourceModel:
        forms = [k for k in ("file", "call", "zip", "concat") if getattr(self, k) is not None]
        if self.from_ is None and not forms:
            raise refuse(Fault("reads nothing", "give it 'from: {column: blob}' or 'file:'"))
        if len(forms) > 1:
            text = f"|a pipe reads one source, not both {forms[0]!r} and {forms[1]!r}"
            raise refuse(Fault(text, "'zip' and 'concat' join several", (forms[1],), key=True))
        faults = [*self._from_faults(forms), *self._of_other_faults()]
        if faults:
            raise refuse(*faults)
        return self

    def _from_faults(self, forms: list[str]) -> Iterator[Fault]:
        if self.from_ is not None and not self.from_:
            yield Fault("names no column", path=("from",))
        for key in ("zip", "concat"):
            if getattr(self, key) == []:
                yield Fault("names no source", path=(key,))
            if key in forms and self.from_ is not None:
                text = f"|'from' belongs to the sources under {key!r}"
                yield Fault(text, path=("from",), key=True)
        if self.call is not None and self.from_ is None:
            hint = "from: [x, y]"
            yield Fault("|a 'call' needs 'from': the columns that its items have", hint)

    def _of_other_faults(self) -> Iterator[Fault]:
        for key, value, owner in (
            ("types", self.types, "file"),
            ("in", self.in_, "call"),
            ("with", self.with_, "call"),
        ):
            if value is not None and getattr(self, owner) is None:
                yield Fault(f"|{key!r} belongs to a {owner!r}", path=(key,), key=True)


class PipeModel(SourceModel):
    """What a pipe reads, and how."""

    batch: Count = Field(1, description="Rows of a batch.")
    shuffle: Shuffle = Field(
        False,
        description="Whether each pass has an order of its own; {buffer: n}: within blocks of n "
        "rows, for what is read from front to back.",
    )
    drop_last: bool = Field(False, description="Whether a last batch with fewer rows is left out.")
    batches_per_epoch: Optional[Count] = Field(
        None, description="Batches of an epoch; default: one pass over the data."
    )
    passes: Optional[Count] = Field(
        None,
        description="Passes after which the data is finished; 'data_finished' must be among the "
        "stop conditions. Default: it never is.",
    )
    threads: Count = Field(
        1, description="Threads that read and run the 'map' steps, ahead of the 'do' steps."
    )
    ahead: Optional[Count] = Field(
        None,
        description="Batches that may be ahead of the 'do' steps; default: twice the threads, and "
        "none with one thread.",
    )

    shard: Optional[Shard] = Field(
        None,
        description="Which rows this pipe reads: i/n, every n-th from the i-th on, counted from 0, "
        "each a number or a var; or 'node', one share for each of its nodes.",
    )


def _whose(key: str, in_pipe: bool) -> str:
    """Where a key belongs that is in the wrong form of a task."""
    if in_pipe:
        return "" if key == "timeout" else "; its steps have that"
    return "; that belongs to a task with 'pipe'" if key in ("map", "do", "reduce") else ""


_NOT_OF_PIPE = ("in", "with", "update", "out", "retries", "timeout")


class TaskModel(ClosedModel):
    """A task: one call of a function or program, or a pipe with steps for each batch."""

    name: Optional[Name] = Field(None, description="The task's name; default: the function's.")
    call: Optional[Call] = Field(
        None,
        description="The function, module:function. The spec's folder is on the import path.",
    )
    shell: Annotated[
        Optional[ShellModel],
        BeforeValidator(
            short_for("command", "the words of a command, or {script: …}"),
            json_schema_input_type=str | ShellModel,
        ),
    ] = Field(
        None,
        description="A program; the spec's folder is on PATH. 'in' and 'out' name files: "
        "{file: blob}, written and read by their ending (.npy, .txt, .csv, .json, .raw).",
    )
    load: Optional[LoadModel] = Field(
        None, description="Blobs of another run or checkpoint become blobs of this job."
    )
    in_: Optional[TaskInputs] = Field(
        None,
        alias="in",
        description="Blobs, vars and reserved names (epoch, rng, node) that the function is given: "
        "one or a list by position, a mapping {parameter: name} by keyword.",
    )
    with_: Optional[With] = Field(
        None,
        alias="with",
        description="Literal keyword arguments; texts may hold ${spec.dir}, ${run.dir}, ${node} "
        "and ${env.NAME}.",
    )
    update: Optional[Updates] = Field(
        None, description="Blobs that the function is given and changes in place."
    )
    out: Optional[Outs] = Field(
        None,
        description="Blobs that the result becomes: one name takes the value, a list takes a "
        "tuple, a mapping {key: name} takes parts of a dict.",
    )
    pipe: Optional[PipeModel] = Field(None, description="What is read, batch by batch.")
    map: Optional[list[MapStepModel]] = Field(
        None, description="Steps of a pipe that see columns alone and run ahead."
    )
    do: Optional[list[DoStepModel]] = Field(
        None, description="Steps of a pipe that are applied for each batch, in batch order."
    )
    reduce: Optional[Reductions] = Field(
        None,
        description="How numbers that the steps put out are joined over the epoch; default: the "
        "mean, weighted by rows.",
    )
    node: Optional[NodePattern] = Field(
        None, description="The node the task runs on; a pattern makes a copy for each."
    )
    after: Optional[After] = Field(None, description="Tasks of the same group that come first.")
    every: Optional[Count] = Field(None, description="Run the task every so many epochs.")
    retries: TaskRetries = Field(
        None, description="How often a call that fails is made again, with what it was given."
    )
    timeout: Optional[Seconds] = Field(
        None,
        description="The time the task may take: 90s, 15m. A program is ended then; of a function "
        "the run ends without it, since a thread cannot be killed.",
    )

    @model_validator(mode="after")
    def _one_form(self) -> TaskModel:
        forms = [f for f in ("call", "shell", "load", "pipe") if getattr(self, f) is not None]
        if not forms:
            raise refuse(Fault("|a task calls nothing", "call: module:function"))
        if len(forms) > 1:
            hint = "a pipe's functions are called under 'do'" if "pipe" in forms else ""
            text = " or ".join(map(repr, forms))
            raise refuse(Fault(f"|a task has either {text}, not both", hint))
        wrong = _NOT_OF_PIPE if self.pipe else ("map", "do", "reduce")
        if self.load:
            wrong = (*wrong, "in", "with", "update", "out")
        owner = "a pipe" if self.pipe else f"a task with {forms[0]!r}"
        given = {self.__class__.model_fields[f].alias or f for f in self.model_fields_set}
        faults = [
            Fault(f"|{owner} has no {k!r}{_whose(k, self.pipe is not None)}", path=(k,), key=True)
            for k in wrong
            if k in given
        ]
        if self.pipe and not self.do:
            faults.append(Fault("|a pipe without 'do' steps does nothing", "do: [{call: …}]"))
        if faults:
            raise refuse(*faults)
        return self


class PatienceModel(ClosedModel):
    """How long to wait for a metric to become better."""

    epochs: int | str = Field(description="Epochs without improvement after which to stop.")
    min_delta: float | str = Field(
        0.0, description="What counts as an improvement: more than this."
    )
    start: int | str = Field(0, description="Epochs at the beginning that are not looked at.")


def _anything(value: Any, _handler: Any) -> Any:
    return value


def _condition(schema: Any) -> Any:
    return WrapValidator(_anything, json_schema_input_type=schema)


class ConditionsModel(ClosedModel):
    """Conditions after each epoch: the first that is true ends the run."""

    epochs: Annotated[Any, _condition(Annotated[int, Field(ge=1)] | str)] = Field(
        None, description="True after so many epochs in all, counted over resumes."
    )
    when: Annotated[Any, _condition(str)] = Field(
        None,
        description="An expression over scalar blobs, vars, epoch and elapsed: loss < 0.1 and "
        "epoch >= 3.",
    )
    blob: Annotated[Any, _condition(str)] = Field(
        None, description="True if this one-element blob is."
    )
    data_finished: Annotated[Any, _condition(str)] = Field(
        None, description="A pipe's task: true when nothing is left to read in it."
    )
    patience: Annotated[Any, _condition(dict[str, int | str | PatienceModel])] = Field(
        None, description="True when a metric has not become better for so many epochs."
    )
    walltime: Annotated[Any, _condition(float | str)] = Field(
        None, description="True after 90s, 15m or 2h of run time, counted over resumes."
    )
    not_finite: Annotated[Any, _condition(str)] = Field(
        None, description="True when a metric is NaN or infinite; for 'fail'."
    )


def _conditions(value: Any) -> Any:
    """One mapping of conditions is a list of one; ``never`` is a list of none."""
    if value == "never":
        return []
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        what = "a mapping of conditions, a list of such, or 'never'"
        raise refuse(Fault(f"wants {what}, not {show(value)}", "stop: {epochs: 10}"))
    return value


def _fail_conditions(value: Any) -> Any:
    if value == "never":
        text = "wants a mapping of conditions, or a list of such"
        raise refuse(Fault(text, "'never' is for 'stop'"))
    return _conditions(value)


class EveryModel(ClosedModel):
    """When to save: whichever comes first since the last save; epoch 0 and the last always."""

    epochs: Optional[Annotated[int, Field(ge=1)]] = Field(
        None, description="Save after so many epochs."
    )
    batches: Optional[Annotated[int, Field(ge=1)]] = Field(
        None, description="Save after so many batches, inside an epoch too."
    )
    seconds: Optional[Seconds] = Field(
        None, description="Save after so much time, inside an epoch too: 90s, 15m, 2h."
    )
    min_gap: Optional[Seconds] = Field(
        None, description="At least so much time lies between two saves."
    )

    @model_validator(mode="after")
    def _some(self) -> EveryModel:
        if self.epochs is None and self.batches is None and self.seconds is None:
            raise refuse(Fault("needs one of epochs, batches, seconds"))
        return self


class BestModel(ClosedModel):
    """Which checkpoints are the best."""

    metric: BlobName = Field(description="The metric that says which is better.")
    count: Annotated[int, Field(ge=1)] = Field(1, description="How many of the best stay.")


def _keep(value: Any) -> Any:
    if value == "all":
        return {}
    if not isinstance(value, dict) or not value:
        raise refuse(Fault(f"wants 'all' or a mapping, not {show(value)}", "keep: {last: 3}"))
    return value


class KeepModel(ClosedModel):
    """Which checkpoints stay: those that any of the keys keeps."""

    last: Optional[Annotated[int, Field(ge=1)]] = Field(
        None, description="The newest so many stay."
    )
    every: Optional[Annotated[int, Field(ge=1)]] = Field(
        None, description="Every so many epochs one stays."
    )
    best: Annotated[
        Optional[BestModel],
        BeforeValidator(
            short_for("metric", "a metric, or {metric, count}"),
            json_schema_input_type=str | BestModel,
        ),
    ] = Field(None, description="The best by a metric stay.")


class CheckpointModel(ClosedModel):
    """When, what and how long to save."""

    every: Annotated[
        EveryModel,
        BeforeValidator(
            short_for("epochs", "a number of epochs"),
            json_schema_input_type=Annotated[int, Field(ge=1)] | EveryModel,
        ),
    ] = Field(EveryModel(epochs=1), description="When to save: every so many epochs.")
    keep: Annotated[
        KeepModel,
        BeforeValidator(_keep, json_schema_input_type=Literal["all"] | KeepModel),
    ] = Field(KeepModel(), description="Which checkpoints stay; default: all.")
    include: Optional[Globs] = Field(
        None, description="Further blobs to save; patterns are allowed."
    )
    on_error: Annotated[
        str, BeforeValidator(choice("warn", "fail"), json_schema_input_type=Literal["warn", "fail"])
    ] = Field("warn", description="Whether a save that fails is a warning or ends the run.")
    on_success: Annotated[
        str,
        BeforeValidator(choice("keep", "delete"), json_schema_input_type=Literal["keep", "delete"]),
    ] = Field("keep", description="Whether the checkpoints stay when the job is done.")
    link: Annotated[
        str,
        BeforeValidator(
            choice("alternate", "parent", "never"),
            json_schema_input_type=Literal["alternate", "parent", "never"],
        ),
    ] = Field(
        "alternate",
        description="From which earlier checkpoint unchanged blobs are linked: the one before the "
        "parent, the parent, or none.",
    )
    compress: Compression = Field(
        (), description="How blobs are compressed: for all, or by patterns of their names."
    )
    background: bool = Field(
        True, alias="async", description="Whether the run goes on while a checkpoint is written."
    )


def _checkpoint(value: Any) -> Any:
    if value is False:
        return None
    if not isinstance(value, dict):
        hint = "remove the key for the defaults" if value is True or value is None else ""
        raise refuse(Fault(f"wants a mapping or false, not {show(value)}", hint))
    return value


def _group(value: Any) -> Any:
    if value is not None and not isinstance(value, list):
        hint = "an entry begins with '- call:'" if isinstance(value, dict) else ""
        raise refuse(Fault(f"wants a list of tasks, not {show(value)}", hint))
    return value or []


Tasks = Annotated[
    list[TaskModel], BeforeValidator(_group, json_schema_input_type=list[TaskModel] | None)
]
_ListForm = list[ConditionsModel]


class SpecModel(ClosedModel):
    """A spec: what a job is."""

    version: Optional[Literal[1]] = Field(None, description="The version of the language: 1.")
    name: Optional[Name] = Field(None, description="The job's name; default: the file's.")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        0, description="What all random numbers are derived from."
    )
    vars: Vars = Field({}, description="Constants, read like blobs; --set NAME=VALUE changes one.")
    nodes: Optional[Nodes] = Field(
        None,
        description="Namespaces of blobs: a list of names, or a mapping {name: vars of its own}.",
    )
    setup: Tasks = Field([], description="Run at every start; its blobs are never saved.")
    init: Tasks = Field([], description="Run once; what it writes is in every checkpoint.")
    epoch: Tasks = Field([], description="Run again and again.")
    download: Tasks = Field([], description="Run after the loop, to gather what is scattered.")
    exit: Tasks = Field([], description="Run at the end.")
    metrics: Metrics = Field(
        {}, description="Scalar blobs to record, and whether min, max or nothing is better."
    )
    stop: Annotated[
        list[ConditionsModel],
        BeforeValidator(
            _conditions, json_schema_input_type=ConditionsModel | _ListForm | Literal["never"]
        ),
    ] = Field([], description="When the loop ends.")
    fail: Annotated[
        list[ConditionsModel],
        BeforeValidator(_fail_conditions, json_schema_input_type=ConditionsModel | _ListForm),
    ] = Field([], description="When the run ends as a failure; wins over 'stop'.")
    checkpoint: Annotated[
        CheckpointModel | None,
        BeforeValidator(_checkpoint, json_schema_input_type=CheckpointModel | Literal[False]),
    ] = Field(CheckpointModel(), description="When and what to save; false: nothing.")

    def tasks(self, group: str) -> list[TaskModel]:
        """The tasks of a group."""
        found: list[TaskModel] = getattr(self, group)
        return found


assert set(GROUPS) <= set(SpecModel.model_fields)
