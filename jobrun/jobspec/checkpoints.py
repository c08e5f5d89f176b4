"""The ``checkpoint`` section of the spec language: when, what and how long to save."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from jobrun.core.suggestions import did_you_mean
from jobrun.core.text import seconds_of
from jobrun.jobspec.closed import ClosedModel, given, short_for
from jobrun.jobspec.compression import Compression
from jobrun.jobspec.faults import FieldFault, Optional, choice, expected, refuse
from jobrun.jobspec.fields import BlobName, Call, Globs, Seconds
from jobrun.jobspec.scalars import show

__all__ = ["BestModel", "CheckpointModel", "EveryModel", "KeepModel", "checkpoint_form"]


class EveryModel(ClosedModel):
    """When to save: whichever comes first since the last save; epoch 0 and the last always."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [given("epochs"), given("batches"), given("seconds")]}
    )

    epochs: Optional[Annotated[int, Field(ge=1)]] = Field(
        None, description="Save after N epochs.", examples=[5]
    )
    batches: Optional[Annotated[int, Field(ge=1)]] = Field(
        None,
        description="Save after N batches, inside an epoch too.",
        examples=[1000],
    )
    seconds: Optional[Seconds] = Field(
        None,
        description="Save after so much time, inside an epoch too: 90s, 15m, 2h.",
        examples=["15m"],
    )
    min_gap: Optional[Seconds] = Field(
        None,
        description="The least time between two saves.",
        examples=["1m"],
    )

    @model_validator(mode="after")
    def _some(self) -> EveryModel:
        if self.epochs is None and self.batches is None and self.seconds is None:
            raise refuse(FieldFault("needs one of epochs, batches, seconds"))
        return self


def _every(value: Any) -> Any:
    if isinstance(value, str):
        number = re.fullmatch(r"(\d+) *(epoch|batch)(es|s)?", value)
        hint = f"every: {{seconds: {value}}}" if seconds_of(value) is not None else ""
        if number is not None:
            hint = f"every: {{{_UNITS[number[2]]}: {number[1]}}}"
        raise expected("a number of epochs, or {epochs, batches, seconds}", value, hint)
    return short_for("epochs", "a number of epochs")(value)


_UNITS = {"epoch": "epochs", "batch": "batches"}


class BestModel(ClosedModel):
    """The order by which checkpoints are the best."""

    metric: BlobName = Field(description="The metric to rank by.", examples=["loss"])
    count: Annotated[int, Field(ge=1)] = Field(
        1, description="How many of the best to keep.", examples=[2]
    )


def _keep(value: Any) -> Any:
    if value == "all":
        return {}
    if not isinstance(value, dict) or not value:
        near = did_you_mean(value, ("all",)) if isinstance(value, str) else ""
        hint = near or "keep: {last: 3}"
        raise refuse(FieldFault(f": expected 'all' or a mapping, got {show(value)}", hint))
    return value


class KeepModel(ClosedModel):
    """The checkpoints that stay: those that any of the keys keeps."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    last: Optional[Annotated[int, Field(ge=1)]] = Field(
        None, description="Keep the newest N.", examples=[3]
    )
    every: Optional[Annotated[int, Field(ge=1)]] = Field(
        None,
        description="Keep those of every N-th epoch.",
        examples=[50],
    )
    best: Annotated[
        Optional[BestModel],
        BeforeValidator(
            short_for("metric", "a metric, or {metric, count}"),
            json_schema_input_type=str | BestModel,
        ),
    ] = Field(
        None,
        description="Keep the best by a metric.",
        examples=["loss", {"metric": "loss", "count": 2}],
    )


class CheckpointModel(ClosedModel):
    """When, what and how long to save."""

    every: Annotated[
        EveryModel,
        BeforeValidator(
            _every,
            json_schema_input_type=Annotated[int, Field(ge=1)] | EveryModel,
        ),
    ] = Field(
        1,
        validate_default=True,
        description="When to save: every N epochs.",
        examples=[5, {"epochs": 5, "seconds": "15m"}],
    )
    keep: Annotated[
        KeepModel,
        BeforeValidator(_keep, json_schema_input_type=Literal["all"] | KeepModel),
    ] = Field(
        "all",
        validate_default=True,
        description="Which checkpoints to keep; default: all.",
        examples=["all", {"last": 3, "best": "loss"}],
    )
    include: Optional[Globs] = Field(
        None,
        description="Further blobs to save; patterns are allowed.",
        examples=[["loss", "layer*"]],
    )
    on_error: Annotated[
        str, BeforeValidator(choice("warn", "fail"), json_schema_input_type=Literal["warn", "fail"])
    ] = Field(
        "warn",
        description="Whether a save that fails is a warning or ends the run.",
        examples=["fail"],
    )
    on_success: Annotated[
        str,
        BeforeValidator(choice("keep", "delete"), json_schema_input_type=Literal["keep", "delete"]),
    ] = Field(
        "keep",
        description="Whether to keep the checkpoints when the job is done.",
        examples=["delete"],
    )
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
        examples=["parent"],
    )
    compress: Compression = Field(
        "none",
        validate_default=True,
        description="How blobs are compressed: for all, or by patterns of their names.",
        examples=["zstd", {"*": "lz4"}],
    )
    catalogue: Optional[Call] = Field(
        None,
        description="A site's own record of checkpoints, module:name: asked for the epoch to "
        "resume from, and notified of every save.",
        examples=["site:Records"],
    )
    background: bool = Field(
        True,
        alias="async",
        description="Whether the run continues while a checkpoint is written.",
        examples=[False],
    )


def checkpoint_form(value: Any) -> Any:
    """Return the mapping as it is, or None for false: no checkpoints."""
    if value is False:
        return None
    if not isinstance(value, dict):
        hint = "remove the key for the defaults" if value is True or value is None else ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            hint = f"checkpoint: {{every: {show(value)}}}"
        raise refuse(FieldFault(f": expected a mapping or false, got {show(value)}", hint))
    return value
