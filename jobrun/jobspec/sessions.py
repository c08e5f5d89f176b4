"""The ``session`` section of the spec language: where a job runs."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from jobrun.core.text import amount_of
from jobrun.jobspec.closed import ClosedModel, given, short_for
from jobrun.jobspec.faults import FieldFault, Optional, choice, expected, refuse
from jobrun.jobspec.fields import Seconds
from jobrun.jobspec.names import node_fault
from jobrun.jobspec.scalars import show
from jobrun.model.policy import SessionSpec

__all__ = ["Session", "SessionModel"]

_RESOURCES = "resources: {'trainer_*': {GPU: 1, memory: 8GB}}"
_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://\S+:\d+")


def _address(value: Any) -> str:
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        hint = "dask scheduler prints it when it starts: tcp://host:8786"
        raise expected("the address of a scheduler", value, hint)
    return value


def _resources(value: Any) -> dict[str, dict[str, float]]:
    if not isinstance(value, dict) or not value:
        raise expected("a mapping of nodes to what they need", value, _RESOURCES)
    faults, found = [], {}
    for node, own in value.items():
        wrong = node_fault(node) if isinstance(node, str) else f"{show(node)} is not a node"
        if wrong:
            faults.append(FieldFault(f"has a wrong key: {wrong}", "", (node,), key=True))
        elif not isinstance(own, dict) or not own:
            text = f": expected amounts by resource, got {show(own)}"
            faults.append(FieldFault(text, _RESOURCES, (node,)))
        else:
            amounts = {name: amount_of(amount) for name, amount in own.items()}
            faults += [
                FieldFault(
                    f": expected a number or a size such as 8GB, got {show(own[name])}",
                    path=(node, name),
                )
                for name, amount in amounts.items()
                if amount is None
            ]
            found[node] = {str(k): v for k, v in amounts.items() if v is not None}
    if faults:
        raise refuse(*faults)
    return found


class SessionModel(ClosedModel):
    """The place where a job runs; its results do not depend on it."""

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
        description="For dask: a worker that does not respond for so long is lost: 90s, 5m.",
        examples=["5m"],
    )
    wait: Seconds = Field(
        60.0,
        description="For dask: how long to wait for a worker where there is none.",
        examples=["60s"],
    )

    versions: Annotated[
        str,
        BeforeValidator(choice("any", "same"), json_schema_input_type=Literal["any", "same"]),
    ] = Field(
        "any",
        description="For dask: with same, a worker with another Python or numpy is an error, else "
        "a warning.",
        examples=["same"],
    )
    resources: Annotated[
        dict[str, dict[str, float]],
        BeforeValidator(_resources, json_schema_input_type=dict[str, dict[str, float | str]]),
    ] = Field(
        default_factory=dict,
        description="For dask: what nodes need of their workers, as 'dask worker --resources' "
        "declares it, by node or pattern of nodes.",
        examples=[{"trainer_*": {"GPU": 1, "memory": "8GB"}}],
    )

    @model_validator(mode="after")
    def _one_cluster(self) -> SessionModel:
        if self.workers is not None and self.address is not None:
            text = "|a session has either 'workers', which are started, or an 'address'"
            raise refuse(FieldFault(text, path=("workers",), key=True))
        if self.workers is not None and self.resources:
            text = "|'resources' are declared by the workers of a cluster that runs: 'address'"
            raise refuse(FieldFault(text, path=("resources",), key=True))
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
