"""The spec language as models of pydantic: every key, its type and what it means.

The world is closed: a key that is not here is an error (top-level ``x-…`` keys may hold anchors).
A task is one flat model with "exactly one of ``call``, ``shell``, ``load`` and ``pipe``", since a
union would report each error once for every form.  Conditions under ``stop`` and ``fail`` are
looked at by ``conditions.parse``, for specs and for jobs made in Python alike; here are
their keys, and ``schema`` adds their forms.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, create_model, model_validator

from jobrun.conditions.kinds import KINDS
from jobrun.core.suggestions import did_you_mean
from jobrun.jobspec.checkpoints import CheckpointModel, checkpoint_form
from jobrun.jobspec.closed import ClosedModel, given, one_of, short_for, without
from jobrun.jobspec.faults import FieldFault, Optional, choice, refuse
from jobrun.jobspec.fields import (
    After,
    Call,
    Count,
    Metrics,
    Name,
    NodePattern,
    Outs,
    Reductions,
    Seconds,
    State,
    StateNames,
    TaskInputs,
    Updates,
    With,
)
from jobrun.jobspec.matrix import SEEDS, MatrixField
from jobrun.jobspec.pipes import DoStepModel, MapStepModel, PipeModel
from jobrun.jobspec.reports import Reports
from jobrun.jobspec.scalars import show
from jobrun.jobspec.sessions import Session
from jobrun.jobspec.tasks import LoadModel, ShellModel, TaskRetries
from jobrun.jobspec.uploads import Upload
from jobrun.jobspec.vars import Nodes, Vars
from jobrun.model.job import GROUPS

__all__ = ["ConditionsModel", "SpecModel", "TaskModel"]


def _whose(key: str, in_pipe: bool) -> str:
    """Return where a key belongs that is in the wrong form of a task."""
    if in_pipe:
        return "" if key == "timeout" else "; its steps have that"
    return "; that belongs to a task with 'pipe'" if key in ("map", "do", "reduce") else ""


_FORMS = ("call", "shell", "load", "pipe")
_OF_PIPE = ("map", "do", "reduce")
_NOT_OF_PIPE = ("in", "with", "update", "out", "retries", "timeout")
_NOT_OF_LOAD = ("in", "with", "update", "out", "thread")
_NOT_OF_SHELL = ("thread",)
_TASK_RULES = {
    **one_of(*_FORMS),
    "dependentRequired": {"pipe": ["do"], **{key: ["pipe"] for key in _OF_PIPE}},
    "dependentSchemas": {
        "pipe": without(*_NOT_OF_PIPE),
        "load": without(*_NOT_OF_LOAD),
        "shell": without(*_NOT_OF_SHELL),
    },
}


class TaskModel(ClosedModel):
    """A task: one call of a function or program, or a pipe with steps for each batch."""

    model_config = ConfigDict(json_schema_extra=_TASK_RULES)

    name: Optional[Name] = Field(
        None, description="The task's name; default: the function's.", examples=["train"]
    )
    call: Optional[Call] = Field(
        None,
        description="The function, module:function. The spec's folder is on the import path.",
        examples=["model:step"],
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
        examples=["relax grid.txt next.npy"],
    )
    load: Optional[LoadModel] = Field(
        None,
        description="Blobs of another run or checkpoint become blobs of this job.",
        examples=[{"run": "runs/teacher", "blobs": ["w"]}],
    )
    in_: Optional[TaskInputs] = Field(
        None,
        alias="in",
        description="Blobs, vars and reserved names (epoch, rng, node) that the function is given: "
        "one or a list by position, a mapping {parameter: name} by keyword. {reduce: mean, of: "
        "'trainer_*:g'} instead of a name is one value of all these nodes.",
        examples=[["x", "rate"], {"image": "x", "label": "y"}],
    )
    with_: Optional[With] = Field(
        None,
        alias="with",
        description="Literal keyword arguments; texts may hold ${spec.dir}, ${run.dir}, ${node} "
        "and ${env.NAME}.",
        examples=[{"size": 100, "path": "${spec.dir}/x.npz"}],
    )
    update: Optional[Updates] = Field(
        None,
        description="Blobs that the function is given and changes in place.",
        examples=[["model"], {"model": "net"}],
    )
    out: Optional[Outs] = Field(
        None,
        description="Blobs that the result becomes: one name takes the value, a list takes a "
        "tuple, a mapping {key: name} takes parts of a dict.",
        examples=["loss", ["loss", "accuracy"], {"l": "loss"}],
    )
    pipe: Optional[PipeModel] = Field(
        None,
        description="What is read, batch by batch.",
        examples=[{"from": {"x": "images", "y": "labels"}, "batch": 64}],
    )
    map: Optional[list[MapStepModel]] = Field(
        None,
        description="Steps of a pipe that see columns alone and run ahead.",
        examples=[[{"call": "images:scale", "in": "x", "out": "x"}]],
    )
    do: Optional[list[DoStepModel]] = Field(
        None,
        json_schema_extra={"minItems": 1},
        description="Steps of a pipe that are applied for each batch, in batch order.",
        examples=[[{"call": "model:step", "in": ["x", "y"], "out": "loss"}]],
    )
    reduce: Optional[Reductions] = Field(
        None,
        description="How numbers that the steps return are combined over the epoch; default: the "
        "mean, weighted by rows.",
        examples=[{"loss": "mean", "norm": "last"}],
    )
    node: Optional[NodePattern] = Field(
        None,
        description="The node the task runs on; a pattern makes a copy for each.",
        examples=["trainer_*"],
    )
    after: Optional[After] = Field(
        None, description="Tasks of the same group that come first.", examples=[["prepare"]]
    )
    every: Optional[Count] = Field(None, description="Run the task every N epochs.", examples=[5])
    retries: TaskRetries = Field(
        None,
        description="How often a call that fails is repeated, with the same inputs.",
        examples=[3],
    )
    timeout: Optional[Seconds] = Field(
        None,
        description="The time the task may take: 90s, 15m. A program is ended then; of a function "
        "the run ends without it, since a thread cannot be killed.",
        examples=["15m"],
    )
    thread: Optional[
        Annotated[str, BeforeValidator(choice("same"), json_schema_input_type=Literal["same"])]
    ] = Field(
        None,
        description="'same': the task, and all tasks that read what it returns, run on one "
        "thread; for objects that may be used only on the thread that made them.",
        examples=["same"],
    )

    @model_validator(mode="after")
    def _one_form(self) -> TaskModel:
        forms = [f for f in _FORMS if getattr(self, f) is not None]
        if not forms:
            hint = "call: module:function"
            data = [f for f in ("in_", "with_", "update", "out") if f in self.model_fields_set]
            if data:
                key = data[0].strip("_")
                hint += f"; if {key!r} belongs to the task above, remove the '- ' before it"
            raise refuse(FieldFault("|a task calls nothing", hint))
        if len(forms) > 1:
            hint = "a pipe's functions are called under 'do'" if "pipe" in forms else ""
            text = " or ".join(map(repr, forms))
            raise refuse(FieldFault(f"|a task has either {text}, not both", hint))
        wrong = _NOT_OF_PIPE if self.pipe else _OF_PIPE
        if self.load:
            wrong = (*wrong, *_NOT_OF_LOAD)
        if self.shell:
            wrong = (*wrong, *_NOT_OF_SHELL)
        owner = "a pipe" if self.pipe else f"a task with {forms[0]!r}"
        given = {self.__class__.model_fields[f].alias or f for f in self.model_fields_set}
        faults = [
            FieldFault(
                f"|{owner} has no {k!r}{_whose(k, self.pipe is not None)}", path=(k,), key=True
            )
            for k in wrong
            if k in given
        ]
        if self.pipe and not self.do:
            faults.append(FieldFault("|a pipe without 'do' steps does nothing", "do: [{call: …}]"))
        if faults:
            raise refuse(*faults)
        return self


_CONDITIONS: dict[str, Any] = {
    kind: (Any, Field(None, description=c.summary, examples=[c.example]))
    for kind, c in KINDS.items()
}
ConditionsModel: Any = create_model(
    "ConditionsModel",
    __base__=ClosedModel,
    __doc__="Conditions after each epoch: the first that is true ends the run.",
    **_CONDITIONS,
)


def _conditions(value: Any) -> Any:
    """Make a list of one mapping of conditions, and an empty one of ``never``."""
    if value == "never":
        return []
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        what = "a mapping of conditions, a list of such, or 'never'"
        near = did_you_mean(value, ("never",)) if isinstance(value, str) else ""
        count = value if isinstance(value, int) and value is not True and value > 0 else 10
        hint = near or f"stop: {{epochs: {count}}}"
        raise refuse(FieldFault(f": expected {what}, got {show(value)}", hint))
    return value


def _fail_conditions(value: Any) -> Any:
    if value == "never":
        text = ": expected a mapping of conditions, or a list of such"
        raise refuse(FieldFault(text, "'never' is for 'stop'"))
    return _conditions(value)


def _group(value: Any) -> Any:
    if value is not None and not isinstance(value, list):
        hint = "an entry begins with '- call:'"
        if isinstance(value, dict):
            named = value and all(isinstance(task, dict) for task in value.values())
            hint = f"an entry begins with '- {f'name: {next(iter(value))}' if named else 'call:'}'"
        raise refuse(FieldFault(f": expected a list of tasks, got {show(value)}", hint))
    return value or []


Tasks = Annotated[
    list[TaskModel], BeforeValidator(_group, json_schema_input_type=list[TaskModel] | None)
]
_ListForm = list[ConditionsModel]
_StopForms = ConditionsModel | Annotated[_ListForm, Field(min_length=1)] | Literal["never"]


class SpecModel(ClosedModel):
    """A spec: what a job is."""

    model_config = ConfigDict(
        json_schema_extra={**given("stop"), "patternProperties": {"^x-": True}}
    )

    version: Optional[Literal[1]] = Field(
        None, description="The version of the language: 1.", examples=[1]
    )
    name: Optional[Name] = Field(
        None, description="The job's name; default: the file's.", examples=["digits"]
    )
    seed: Annotated[int, Field(ge=0, lt=SEEDS)] = Field(
        0,
        description="What all random numbers are derived from.",
        examples=[7],
    )
    vars: Vars = Field(
        {},
        description="Constants, read like blobs; --set NAME=VALUE changes one.",
        examples=[{"rate": 0.1, "rows": 64}],
    )
    matrix: Optional[MatrixField] = Field(
        None,
        description="A sweep: several values for each of some vars, or for seed; each combination "
        "is a run.",
        examples=[{"rate": [0.1, 0.01], "seed": [1, 2, 3]}],
    )
    nodes: Optional[Nodes] = Field(
        None,
        description="Namespaces of blobs: a list of names, a mapping {name: vars of its own}, a "
        "number (8: n0 to n7), or {trainer: 8} (trainer_0 to trainer_7).",
        examples=[["a", "b"], {"a": {"rate": 0.1}, "b": {"rate": 0.2}}, 8, {"trainer": 8}],
    )
    setup: Tasks = Field(
        [],
        description="Run at every start; its blobs are never saved.",
        examples=[[{"call": "data:read", "out": ["x", "y"]}]],
    )
    init: Tasks = Field(
        [],
        description="Run once; what it writes is in every checkpoint.",
        examples=[[{"call": "model:start", "out": "model"}]],
    )
    epoch: Tasks = Field(
        [],
        description="Run again and again.",
        examples=[[{"call": "model:step", "update": ["model"], "out": "loss"}]],
    )
    download: Tasks = Field(
        [],
        description="Run after the loop, to gather what is scattered.",
        examples=[[{"call": "model:gather", "in": "model", "out": "weights"}]],
    )
    exit: Tasks = Field(
        [], description="Run at the end.", examples=[[{"call": "model:report", "in": "model"}]]
    )
    state: State = Field(
        {},
        description="Objects of 'setup' whose content is saved (a module, an optimizer, an "
        "estimator), and the global generators rng.python, rng.numpy, rng.torch: a list of names, "
        "or a mapping {name: adapter, module:Class}.",
        examples=[["net", "opt", "rng.torch"], {"env": "mycode:EnvState"}],
    )
    constant: StateNames = Field(
        [],
        description="Objects of 'setup' that no task changes: their content is never saved.",
        examples=[["teacher"]],
    )
    metrics: Metrics = Field(
        {},
        description="Scalar blobs to record, and whether min, max or nothing is better.",
        examples=[{"loss": "min", "accuracy": "max", "norm": None}],
    )
    stop: Annotated[
        list[ConditionsModel],
        BeforeValidator(_conditions, json_schema_input_type=_StopForms),
    ] = Field(
        [], description="When the loop ends.", examples=[{"epochs": 50, "when": "loss < 0.01"}]
    )
    fail: Annotated[
        list[ConditionsModel],
        BeforeValidator(_fail_conditions, json_schema_input_type=ConditionsModel | _ListForm),
    ] = Field(
        [],
        description="When the run ends as a failure; wins over 'stop'.",
        examples=[{"not_finite": "loss"}],
    )
    upload: Upload = Field(
        None,
        description="Where checkpoints are copied after the loop: a directory or a URL.",
        examples=["s3://bucket/${run.name}"],
    )
    checkpoint: Annotated[
        CheckpointModel | None,
        BeforeValidator(checkpoint_form, json_schema_input_type=CheckpointModel | Literal[False]),
    ] = Field(
        {},
        validate_default=True,
        description="When and what to save; false: nothing.",
        examples=[{"every": 5, "keep": {"last": 3, "best": "loss"}}],
    )
    report: Reports = Field(
        [],
        description="Further reporters of the run: tensorboard, {mlflow: {experiment: x}}, "
        "{lines: FILE}, {events: FILE}, or {call: module:function, with: {…}}.",
        examples=[["tensorboard", {"lines": "progress.txt"}]],
    )
    session: Session = Field(
        "local",
        validate_default=True,
        description="Where the job runs; default: in this process.",
        examples=["dask"],
    )

    def tasks(self, group: str) -> list[TaskModel]:
        """Return the tasks of a group."""
        found: list[TaskModel] = getattr(self, group)
        return found


assert set(GROUPS) <= set(SpecModel.model_fields)
