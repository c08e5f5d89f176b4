"""Streams of other libraries, whose state brings a resumed run back to its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from engine import Driver, cut_after

from jobrun.core.position import Position
from jobrun.model.job import Job, Pipe, Task

ROWS = 60


def loader_of_torchdata() -> Any:
    """Return a shuffled loader, whose state holds a tensor."""
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    generator = torch.Generator().manual_seed(4)
    rows = list(range(ROWS))
    return StatefulDataLoader(rows, batch_size=None, shuffle=True, generator=generator)


def stream_of_hugging_face() -> Any:
    import datasets

    table = datasets.Dataset.from_dict({"x": list(range(ROWS))})
    return table.to_iterable_dataset(num_shards=3)


def shuffled_stream_of_hugging_face() -> Any:
    """Return a stream whose state leaves out the buffer that it gives from."""
    return stream_of_hugging_face().shuffle(seed=4, buffer_size=10)


def data_set_of_grain() -> Any:
    import grain

    return grain.MapDataset.source(list(range(ROWS))).shuffle(seed=4).to_iter_dataset()


def read(make: Callable[[], Any], resume: str | None, cuts: list[int]) -> list[int]:
    """Return the rows of a pass of a run that is cut after some batches, and resumed anew."""
    seen: list[int] = []
    position = Position()
    for cut in [*cuts, 10_000]:
        job = Job("j", seed=1)
        with job.epoch:
            take = Task(lambda x: seen.extend(x.tolist()), "x", name="take")
            Pipe(["x"], 4, call=make, resume=resume, do=[take])
        driver = Driver(job, 1).start()
        driver.position = Position.from_json(json.loads(json.dumps(position.to_json())))
        driver.epoch(cut_after(cut))
        position = driver.position
    return seen


@pytest.mark.parametrize("resume", ["replay", "state"])
@pytest.mark.parametrize(
    ("library", "make"),
    [
        ("torchdata", loader_of_torchdata),
        ("datasets", stream_of_hugging_face),
        ("grain", data_set_of_grain),
    ],
)
def test_a_stream_with_an_exact_state_is_read_once(
    library: str, make: Callable[[], Any], resume: str
) -> None:
    pytest.importorskip(library)
    rows = read(make, resume, [])
    assert sorted(rows) == list(range(ROWS))
    assert read(make, resume, [1, 5, 3]) == rows


def test_one_whose_state_leaves_out_a_buffer_is_replayed_by_default() -> None:
    pytest.importorskip("datasets")
    rows = read(shuffled_stream_of_hugging_face, None, [])
    assert sorted(rows) == list(range(ROWS))
    assert read(shuffled_stream_of_hugging_face, None, [1, 5, 3]) == rows
    assert len(read(shuffled_stream_of_hugging_face, "state", [5])) < ROWS
