"""The forms of a task that call no function of Python."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from jobrun.jobspec.closed import ClosedModel, given, one_of, short_for, without
from jobrun.jobspec.faults import FieldFault, Optional, refuse
from jobrun.jobspec.fields import Command, Dtype, Loaded, RunPath, Script, Seconds

__all__ = ["FileModel", "LoadModel", "RetriesModel", "ShellModel", "TaskRetries"]


class FileModel(ClosedModel):
    """The options that a file's ending leaves open."""

    dtype: Optional[Dtype] = Field(
        None,
        description="The dtype of its numbers (float32, int64, …); 'str': the file is one text.",
        examples=["float32"],
    )
    shape: Optional[list[Annotated[int, Field(ge=-1)]]] = Field(
        None,
        description="The shape of its array; -1, once, is what is left.",
        examples=[[-1, 2]],
    )


class ShellModel(ClosedModel):
    """A program, and the files by which it gets and leaves blobs."""

    model_config = ConfigDict(json_schema_extra=one_of("command", "script"))

    command: Optional[Command] = Field(
        None,
        description="A program and its arguments: split into words, without a shell. Each word may "
        "hold ${spec.dir}, ${run.dir}, ${node} and ${env.NAME}.",
        examples=["relax grid.txt next.npy"],
    )
    script: Optional[Script] = Field(
        None,
        description="A script for bash -euo pipefail. Its text is not touched: JOBRUN_SPEC_DIR, "
        "JOBRUN_RUN_DIR, JOBRUN_EPOCH and JOBRUN_NODE are in its environment.",
        examples=["sort -n values.csv > sorted.csv"],
    )
    files: Optional[
        dict[
            str,
            Annotated[
                FileModel,
                BeforeValidator(
                    short_for("dtype", "a dtype, or {dtype, shape}"),
                    json_schema_input_type=str | FileModel,
                ),
            ],
        ]
    ] = Field(
        None,
        description="What the endings of files leave open: {file: dtype}.",
        examples=[{"sorted.raw": {"dtype": "float32", "shape": [-1, 2]}}],
    )

    @model_validator(mode="after")
    def _one(self) -> ShellModel:
        if (self.command is None) == (self.script is None):
            raise refuse(FieldFault(": expected either 'command' or 'script'"))
        return self


class LoadModel(ClosedModel):
    """Blobs of another run or checkpoint, or of a file of weights."""

    model_config = ConfigDict(
        json_schema_extra={
            **one_of("run", "file"),
            "not": given("epoch", "id"),
            "dependentSchemas": {"file": without("epoch", "id")},
            "dependentRequired": {"strict": ["file"]},
        }
    )

    run: Optional[RunPath] = Field(
        None,
        description="The directory of a run or of one checkpoint; a relative path begins at the "
        "spec's folder.",
        examples=["runs/teacher"],
    )
    file: Optional[RunPath] = Field(
        None,
        description="A file of weights: .safetensors, .npz, .pt or .pth.",
        examples=["base.safetensors"],
    )
    strict: Optional[bool] = Field(
        None,
        description="false: of a file and an object under 'state', what fits is taken; default: "
        "both have the same names.",
        examples=[False],
    )
    epoch: Optional[Annotated[int, Field(ge=0)]] = Field(
        None,
        description="The checkpoint of this epoch; default: the newest.",
        examples=[20],
    )
    id: Optional[Annotated[int, Field(ge=0)]] = Field(
        None,
        description="The checkpoint with this id; default: the newest.",
        examples=[7],
    )
    blobs: Loaded = Field(
        description="The blobs: one name, a list, or a mapping {name there: name here}. Of a file, "
        "'*' in a name there stands for the names in a dict or an object here.",
        examples=[["w"], {"encoder.*": "net"}],
    )

    @model_validator(mode="after")
    def _one(self) -> LoadModel:
        if (self.run is None) == (self.file is None):
            raise refuse(FieldFault(": expected either 'run' or 'file'"))
        if self.epoch is not None and self.id is not None:
            raise refuse(FieldFault(": expected either 'epoch' or 'id', not both"))
        for key in ("epoch", "id") if self.file is not None else ():
            if getattr(self, key) is not None:
                raise refuse(FieldFault(": belongs to a load of a 'run'", "", (key,)))
        if self.run is not None and self.strict is not None:
            raise refuse(FieldFault(": belongs to a load of a 'file'", "", ("strict",)))
        return self


class RetriesModel(ClosedModel):
    """The retries of a call that fails."""

    times: Annotated[int, Field(ge=1)] = Field(
        description="How often it is tried again at most.", examples=[3]
    )
    delay: Optional[Seconds] = Field(
        None, description="The time before the first retry: 90s, 15m.", examples=["10s"]
    )
    backoff: Annotated[float, Field(ge=1)] = Field(
        1.0,
        description="Each further pause is N times the one before.",
        examples=[2],
    )


TaskRetries = Annotated[
    Optional[RetriesModel],
    BeforeValidator(
        short_for("times", "a number of retries, or {times, delay, backoff}"),
        json_schema_input_type=Annotated[int, Field(ge=1)] | RetriesModel,
    ),
]
