"""Pipes in the spec language: what they read, and their steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from jobrun.core.text import either
from jobrun.data.formats import endings, format_of
from jobrun.jobspec.closed import ClosedModel, given, one_of, short_for, without
from jobrun.jobspec.faults import FieldFault, Optional, choice, refuse
from jobrun.jobspec.fields import (
    Call,
    ColumnName,
    Count,
    Inputs,
    Name,
    Outs,
    Seconds,
    StepInputs,
    Updates,
    With,
)
from jobrun.jobspec.readers import CellLimit, Columns, FilePath, Shard, Shuffle, Types
from jobrun.jobspec.tasks import TaskRetries

__all__ = ["DoStepModel", "MapStepModel", "PipeModel", "SourceModel", "StepEveryModel"]


class StepEveryModel(ClosedModel):
    """The frequency with which a step of a pipe is called."""

    model_config = ConfigDict(json_schema_extra=one_of("batches", "epochs"))

    batches: Optional[Count] = Field(
        None, description="Call the step every N batches.", examples=[50]
    )
    epochs: Optional[Count] = Field(None, description="Call the step every N epochs.", examples=[5])

    @model_validator(mode="after")
    def _one(self) -> StepEveryModel:
        if (self.batches is None) == (self.epochs is None):
            raise refuse(FieldFault(": expected either 'batches' or 'epochs'"))
        return self


class MapStepModel(ClosedModel):
    """A step that sees columns alone and runs ahead of the steps under 'do'."""

    name: Optional[Name] = Field(
        None, description="The step's name; default: the function's.", examples=["scale"]
    )
    call: Call = Field(description="The function, module:function.", examples=["images:scale"])
    in_: Optional[Inputs] = Field(
        None,
        alias="in",
        description="Columns and vars that the function is given.",
        examples=["image"],
    )
    with_: Optional[With] = Field(
        None,
        alias="with",
        description="Literal keyword arguments of the function.",
        examples=[{"size": 28}],
    )
    out: Optional[Outs] = Field(
        None, description="Columns that the result becomes.", examples=["image"]
    )
    retries: TaskRetries = Field(
        None,
        description="How often a call that fails is repeated, on the same batch.",
        examples=[3],
    )
    timeout: Optional[Seconds] = Field(
        None,
        description="The time a call may take: 90s, 15m. With 'processes', the worker process is "
        "ended then; on threads the run ends without it, since a thread cannot be killed.",
        examples=["90s"],
    )


class DoStepModel(ClosedModel):
    """A step that is applied for each batch, in batch order."""

    name: Optional[Name] = Field(
        None, description="The step's name; default: the function's.", examples=["train"]
    )
    call: Call = Field(description="The function, module:function.", examples=["model:step"])
    in_: Optional[StepInputs] = Field(
        None,
        alias="in",
        description="Columns, blobs and vars that the function is given.",
        examples=[["image", "label", "rate"]],
    )
    with_: Optional[With] = Field(
        None,
        alias="with",
        description="Literal keyword arguments of the function.",
        examples=[{"clip": 1.0}],
    )
    update: Optional[Updates] = Field(
        None,
        description="Blobs that the function is given and changes in place.",
        examples=[["model"]],
    )
    out: Optional[Outs] = Field(
        None, description="Blobs that the result becomes.", examples=["loss"]
    )
    retries: TaskRetries = Field(
        None,
        description="How often a call that fails is repeated, on the same batch.",
        examples=[3],
    )
    every: Annotated[
        Optional[StepEveryModel],
        BeforeValidator(
            short_for("epochs", "{batches: n} or {epochs: n}"),
            json_schema_input_type=Annotated[int, Field(ge=1)] | str | StepEveryModel,
        ),
    ] = Field(
        None,
        description="Call the step every N batches or epochs only.",
        examples=[{"batches": 50}],
    )


_SOURCES = ("file", "call", "zip", "concat")
_SOURCE_RULES: dict[str, Any] = {
    "oneOf": [
        {**given("from"), **without(*_SOURCES)},
        *({**given(k), **without(*(s for s in _SOURCES if s != k))} for k in _SOURCES),
    ],
    "dependentRequired": {
        "call": ["from"],
        "types": ["file"],
        "cell_limit": ["file"],
        "in": ["call"],
        "with": ["call"],
        "resume": ["call"],
    },
    "dependentSchemas": {"zip": without("from"), "concat": without("from")},
}


class SourceModel(ClosedModel):
    """The origin of rows."""

    model_config = ConfigDict(json_schema_extra=_SOURCE_RULES)

    file: Optional[FilePath] = Field(
        None,
        description=f"A {either(endings())} (text also with .gz), or a pattern over many, read "
        "in the order of their names; a relative path begins at the spec's folder.",
        examples=["images-*.npy"],
    )
    call: Optional[Call] = Field(
        None,
        description="A function that returns the rows: an object with __len__ and __getitem__, an "
        "iterable, a dict of arrays, or a table. An iterable is made again for each pass.",
        examples=["data:rows"],
    )
    from_: Optional[Columns] = Field(
        None,
        alias="from",
        description="Blobs to read rows of, {column: blob}; with 'file', the file's columns; with "
        "'call', the keys of an item, or names for its parts. A list of names (of a file, a "
        "pattern too) makes a matrix: {x: [age, income]}.",
        examples=[{"x": "images", "y": "labels"}],
    )
    types: Optional[Types] = Field(
        None,
        description="Types of columns of a text, Parquet or Arrow file, {name: int, float or "
        "text}; default: what the first 1000 rows of a text file hold, or those of the file.",
        examples=[{"class": "int"}],
    )
    cell_limit: Optional[CellLimit] = Field(
        None,
        description="The most characters of a cell of a .csv or .tsv; default: 131072. It ends the "
        "reading of a file in which a quote is not closed.",
        examples=[1000000],
    )
    in_: Optional[Inputs] = Field(
        None,
        alias="in",
        description="Blobs and vars that the function under 'call' is given.",
        examples=["table"],
    )
    with_: Optional[With] = Field(
        None,
        alias="with",
        description="Literal keyword arguments of the function under 'call'.",
        examples=[{"split": "train"}],
    )
    resume: Annotated[
        Optional[str],
        BeforeValidator(
            choice("replay", "state"), json_schema_input_type=Literal["replay", "state"]
        ),
    ] = Field(
        None,
        description="How an iterable of 'call' is brought back to the place where a run resumes: "
        "'replay', the default, reads it again up to there; 'state' calls its load_state_dict(), "
        "whose state must then be exact.",
        examples=["state"],
    )
    zip: Optional[list[SourceModel]] = Field(
        None,
        json_schema_extra={"minItems": 1},
        description="Sources read side by side, as far as the shortest goes.",
        examples=[[{"file": "x.npy", "from": "x"}, {"file": "y.csv", "from": "y"}]],
    )
    concat: Optional[list[SourceModel]] = Field(
        None,
        json_schema_extra={"minItems": 1},
        description="Sources of the same columns, read one after another.",
        examples=[[{"file": "a.npz"}, {"file": "b.npz"}]],
    )

    @model_validator(mode="after")
    def _one_source(self) -> SourceModel:
        forms = [k for k in ("file", "call", "zip", "concat") if getattr(self, k) is not None]
        if self.from_ is None and not forms:
            raise refuse(FieldFault("reads nothing", "give it 'from: {column: blob}' or 'file:'"))
        if len(forms) > 1:
            text = f"|a pipe reads one source, not both {forms[0]!r} and {forms[1]!r}"
            raise refuse(FieldFault(text, "'zip' and 'concat' join several", (forms[1],), key=True))
        faults = [*self._from_faults(forms), *self._of_other_faults()]
        if faults:
            raise refuse(*faults)
        return self

    def _from_faults(self, forms: list[str]) -> Iterator[FieldFault]:
        if self.from_ is not None and not self.from_:
            yield FieldFault("names no column", path=("from",))
        for key in ("zip", "concat"):
            if getattr(self, key) == []:
                yield FieldFault("names no source", path=(key,))
            if key in forms and self.from_ is not None:
                text = f"|'from' belongs to the sources under {key!r}"
                yield FieldFault(text, path=("from",), key=True)
        if self.call is not None and self.from_ is None:
            hint = "from: [x, y]"
            yield FieldFault("|a 'call' needs 'from': the columns that its items have", hint)

    def _of_other_faults(self) -> Iterator[FieldFault]:
        for key, value, owner in (
            ("types", self.types, "file"),
            ("cell_limit", self.cell_limit, "file"),
            ("in", self.in_, "call"),
            ("with", self.with_, "call"),
            ("resume", self.resume, "call"),
        ):
            if value is not None and getattr(self, owner) is None:
                yield FieldFault(f"|{key!r} belongs to a {owner!r}", path=(key,), key=True)
        yield from self._option_faults()

    def _option_faults(self) -> Iterator[FieldFault]:
        """Yield the options that files of this format do not have."""
        found = format_of(self.file or "")
        for option in ("types", "cell_limit"):
            known = found is None or option in found.options
            if not known and getattr(self, option) is not None:
                text = f"|{option!r} is for {either(endings(option))} files"
                yield FieldFault(text, path=(option,), key=True)


class PipeModel(SourceModel):
    """The data that a pipe reads, and how."""

    batch: Count = Field(1, description="Rows of a batch.", examples=[64])
    shuffle: Shuffle = Field(
        False,
        description="Whether each pass has an order of its own; {buffer: n}: within blocks of n "
        "rows, for what is read from front to back.",
        examples=[True, {"buffer": 10000}],
    )
    drop_last: bool = Field(
        False, description="Whether a last batch with fewer rows is left out.", examples=[True]
    )
    batches_per_epoch: Optional[Count] = Field(
        None,
        description="Batches of an epoch; default: one pass over the data.",
        examples=[100],
    )
    passes: Optional[Count] = Field(
        None,
        description="Passes after which the data is finished; 'data_finished' must be among the "
        "stop conditions. Default: it never is.",
        examples=[1],
    )
    threads: Count = Field(
        1,
        description="Threads that read and run the 'map' steps, ahead of the 'do' steps.",
        examples=[4],
    )
    ahead: Optional[Count] = Field(
        None,
        description="Batches that may be ahead of the 'do' steps; default: twice the threads, and "
        "none with one thread.",
        examples=[8],
    )
    processes: Optional[Count] = Field(
        None,
        description="Worker processes that run the 'map' steps, ahead of the 'do' steps: for steps "
        "in Python that threads cannot run at the same time.",
        examples=[2],
    )

    rows: Optional[ColumnName] = Field(
        None,
        description="The column whose length is the number of rows that the 'map' steps leave of a "
        "batch; default: the columns of the reader that they return again.",
        examples=["x"],
    )
    as_: Optional[Literal["torch", "jax"]] = Field(
        None,
        alias="as",
        description="The library whose arrays the 'do' steps are given for columns of numbers; "
        "default: numpy.",
        examples=["torch"],
    )
    shard: Optional[Shard] = Field(
        None,
        description="Which rows this pipe reads: i/n, every n-th from the i-th on, counted from 0, "
        "each a number or a var; or 'node', one share for each of its nodes.",
        examples=["0/4", "node"],
    )
