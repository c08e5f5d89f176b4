"""``upload``: where checkpoints are copied after the loop."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from jobrun.jobspec.closed import ClosedModel, one_of, short_for
from jobrun.jobspec.faults import FieldFault, Optional, choice, refuse
from jobrun.jobspec.fields import Call, RunPath, With

__all__ = ["Upload", "UploadModel"]


class UploadModel(ClosedModel):
    """The place to which checkpoints are copied after the loop, or the function that does it."""

    model_config = ConfigDict(
        json_schema_extra={**one_of("to", "call"), "dependentRequired": {"with": ["call"]}}
    )

    to: Optional[RunPath] = Field(
        None,
        description="A directory (a relative one begins at the spec's folder) or a URL such as "
        "s3://bucket/digits; may hold ${run.name}, ${run.dir}, ${spec.dir} and ${env.NAME}.",
        examples=["s3://bucket/${run.name}"],
    )
    call: Optional[Call] = Field(
        None,
        description="A function module:function that is called with the path of each checkpoint "
        "instead; it may be called again for the same one.",
        examples=["site:store"],
    )
    with_: Optional[With] = Field(
        None,
        alias="with",
        description="Constants for the function, as keyword arguments.",
        examples=[{"bucket": "results"}],
    )
    what: Annotated[
        str,
        BeforeValidator(choice("final", "kept"), json_schema_input_type=Literal["final", "kept"]),
    ] = Field(
        "final", description="The last checkpoint alone, or all that are kept.", examples=["kept"]
    )

    @model_validator(mode="after")
    def _one(self) -> UploadModel:
        if (self.to is None) == (self.call is None):
            raise refuse(FieldFault(": expected either 'to' or 'call'"))
        if self.with_ is not None and self.call is None:
            raise refuse(FieldFault("has 'with' for a function, but no 'call'"))
        if self.to is not None and "${node}" in self.to:
            raise refuse(
                FieldFault("names ${node}, but a checkpoint holds all nodes", path=("to",))
            )
        return self


Upload = Annotated[
    Optional[UploadModel],
    BeforeValidator(
        short_for("to", "a place, or {to, what}"), json_schema_input_type=str | UploadModel
    ),
]
