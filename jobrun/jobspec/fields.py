"""The types of a spec's fields: which values are valid, and the errors for others.

Each is one function and no union, so that a wrong value gives one error and not one for each form
it might have had.  The unions stand in the JSON Schema alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo

from jobrun.core.text import TIMES
from jobrun.jobspec.name_validators import (
    list_of,
    metrics_of,
    name_of,
    names_of,
    reductions_of,
    state_of,
)
from jobrun.jobspec.names import (
    blob_fault,
    node_fault,
    output_fault,
    pattern_fault,
    plain_fault,
    reference_fault,
)
from jobrun.jobspec.node_reductions import InputForms, with_reductions
from jobrun.jobspec.value_validators import (
    COUNT,
    call_of,
    command_of,
    count_of,
    literals_of,
    parameter_fault,
    run_path_of,
    script_of,
    seconds_from,
)
from jobrun.model.shell import dtype_fault

__all__ = [
    "After",
    "BlobName",
    "Call",
    "ColumnName",
    "Command",
    "Count",
    "Dtype",
    "Globs",
    "Inputs",
    "Loaded",
    "Metrics",
    "Name",
    "NameForms",
    "NodePattern",
    "Outs",
    "Reductions",
    "RunPath",
    "Script",
    "Seconds",
    "State",
    "StateNames",
    "StepInputs",
    "TaskInputs",
    "Updates",
    "With",
    "annotated",
    "like",
]

NameForms = str | list[str] | dict[str, str | None]
_IN = "a name, a list of names, or a mapping {parameter: name}"
_OUT = "a name, a list of names, or a mapping {key of the result: name}"
_LOADED = "a name, a list of names, or a mapping {name there: name here}"


def _task_inputs(value: Any, info: ValidationInfo) -> Any:
    """Read names whose keys are parameters of a function; a program's are files, see ``Task``."""
    of_program = "shell" not in info.data or info.data["shell"] is not None
    return names_of(reference_fault, _IN, None if of_program else parameter_fault, distinct=False)(
        value
    )


def annotated(validator: Callable[..., Any], schema: Any) -> BeforeValidator:
    """Return a validator, with the type that stands for its forms in the JSON Schema."""
    return BeforeValidator(validator, json_schema_input_type=schema)


def like(pattern: str, what: str) -> Any:
    """Return a string of a form, for the JSON Schema: at least as wide as the validator.

    ``what`` is the form in words, which editors show where the pattern does not match.
    """
    extra: dict[str, Any] = {"patternErrorMessage": f"expected {what}"}
    return Annotated[str, Field(pattern=pattern, json_schema_extra=extra)]


def _says(what: str) -> dict[str, Any]:
    """Return what makes editors say ``what`` is expected, where the type is another."""
    return {"errorMessage": f"expected {what}"}


_NUMBER = r"[0-9][0-9. ]*"
_Time = like(rf"^ *({_NUMBER}h *)?({_NUMBER}m *)?({_NUMBER}s *)?$", TIMES)
_Positive = Annotated[int, Field(ge=1, json_schema_extra=_says(COUNT))]
_PositiveSeconds = Annotated[float, Field(gt=0, json_schema_extra=_says(TIMES))]
Name = Annotated[
    str,
    annotated(
        name_of(plain_fault, "a name"),
        like("^[A-Za-z0-9_-][A-Za-z0-9_.-]*$", "a name of letters, digits, '_', '.' and '-'"),
    ),
]
NodePattern = Annotated[str, BeforeValidator(name_of(node_fault, "a node or pattern of nodes"))]
ColumnName = Annotated[str, BeforeValidator(name_of(blob_fault, "the name of a column"))]
BlobName = Annotated[str, BeforeValidator(name_of(reference_fault, "the name of a blob"))]
Call = Annotated[str, annotated(call_of, like(r"^[^:\s]+:[^:\s]+$", "module:function"))]
Command = Annotated[str, BeforeValidator(command_of)]
Script = Annotated[str, annotated(script_of, like(r"\S", "a script that is not empty"))]
Dtype = Annotated[str, BeforeValidator(name_of(dtype_fault, "a dtype"))]
Count = Annotated[
    Any,
    annotated(
        count_of,
        _Positive | like("[^0-9]", "the name of a var or blob that holds a number"),
    ),
]
Seconds = Annotated[Any, annotated(seconds_from, _PositiveSeconds | _Time)]
Inputs = Annotated[
    Any, annotated(names_of(reference_fault, _IN, parameter_fault, distinct=False), NameForms)
]
TaskInputs = Annotated[Any, annotated(with_reductions(_task_inputs), InputForms)]
StepInputs = Annotated[
    Any,
    annotated(
        with_reductions(names_of(reference_fault, _IN, parameter_fault, distinct=False)), InputForms
    ),
]
Updates = Annotated[Any, annotated(names_of(output_fault, _IN, parameter_fault), NameForms)]
Outs = Annotated[Any, annotated(names_of(output_fault, _OUT), NameForms)]
Loaded = Annotated[Any, annotated(names_of(output_fault, _LOADED), NameForms)]
RunPath = Annotated[str, BeforeValidator(run_path_of)]
After = Annotated[
    Any, annotated(list_of(plain_fault, "a task, or a list of tasks"), str | list[str])
]
Globs = Annotated[
    Any, annotated(list_of(pattern_fault, "a list of names or patterns"), str | list[str])
]
_Adapter: Any = like(r"^[^:\s]+:[^:\s]+$", "an adapter, module:Class")
_Adapters: Any = dict[str, _Adapter | None]
State = Annotated[Any, annotated(state_of, str | list[str | _Adapters] | _Adapters)]
StateNames = Annotated[
    Any, annotated(list_of(blob_fault, "a name, or a list of names"), str | list[str])
]
With = Annotated[dict[str, Any], BeforeValidator(literals_of)]
Metrics = Annotated[
    Any,
    annotated(metrics_of, str | list[str] | dict[str, Literal["min", "max"] | None]),
]
Reductions = Annotated[
    Any,
    annotated(reductions_of, dict[str, Literal["mean", "last", "sum", "min", "max"]]),
]
