"""The ``session`` section of the spec language: where a job runs."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from jobrun.jobspec.closed import ClosedModel, given, short_for
from jobrun.jobspec.faults import FieldFault, Optional, choice, expected, refuse
from jobrun.jobspec.fields import Seconds
from jobrun.model.policy import SessionSpec

__all__ = ["Session", "SessionModel"]

_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://\S+:\d+")


def _address(value: Any) -> str:
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        hint = "dask scheduler prints it when it starts: tcp://host:8786"
        raise expected("the address of a scheduler", value, hint)
    return value


class SessionModel(ClosedModel):
    """Where a job runs; its results do not depend on that."""

    model_config = ConfigDict(json_schema_extra={"not": given("workers", "address")})

    kind: Annotated[
        str,
        BeforeValidator(choice("local", "dask"), json_schema_input_type=Literal["local", "dask"]),
    ] = Field(
        "local",
        description="local: in this process; dask: on a dask.distributed cluster.",
        examples=["dask"],
    )
    threads: Optional[Annotated[int, Field(ge=1)]] = Field(
        None,
        description="Tasks at a time; for dask, on each worker.",
        examples=[4],
    )
    workers: Optional[Annotated[int, Field(ge=1)]] = Field(
        None,
        description="For dask: start N processes on this machine.",
        examples=[2],
    )
    address: Optional[Annotated[str, BeforeValidator(_address)]] = Field(
        None,
        description="For dask: the scheduler of a cluster that runs, tcp://host:8786.",
        examples=["tcp://host:8786"],
    )
    max_restarts: Annotated[int, Field(ge=0)] = Field(
        3,
        description="For dask: how often the run goes back to its last checkpoint by itself when "
        "a worker is lost.",
        examples=[3],
    )
    timeout: Seconds = Field(
        300.0,
        description="For dask: a worker that gives no sign of life for so long is lost: 90s, 5m.",
        examples=["5m"],
    )
    wait: Seconds = Field(
        60.0,
        description="For dask: how long to wait for a worker where there is none.",
        examples=["60s"],
    )

    @model_validator(mode="after")
    def _one_cluster(self) -> SessionModel:
        if self.workers is not None and self.address is not None:
            text = "|a session has either 'workers', which are started, or an 'address'"
            raise refuse(FieldFault(text, path=("workers",), key=True))
        return self

    def spec(self) -> SessionSpec:
        """Return the section as plain values."""
        return SessionSpec(**self.model_dump())


Session = Annotated[
    SessionModel,
    BeforeValidator(
        short_for("kind", "local or dask, or a mapping"),
        json_schema_input_type=Literal["local", "dask"] | SessionModel,
    ),
]
