"""Streams of other libraries, whose state brings a resumed run back to its place."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import Driver, cut_after
from examples import Page

import jobrun
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


def of_page(name: str, **arguments: Any) -> Callable[[], Any]:
    """A function of the page ``data``."""
    page = Page(Path(jobrun.__file__).parent / "docs/data.md")
    scope: dict[str, Any] = {}
    exec(dict(page.blocks("python"))["streams.py"], scope)
    return lambda: scope[name](**arguments)


def read(
    make: Callable[[], Any],
    resume: str | None,
    cuts: list[int],
    columns: tuple[str, ...] = ("x",),
    **how: Any,
) -> list[int]:
    """Return the rows of a pass of a run that is cut after some batches, and resumed anew."""
    seen: list[int] = []
    position = Position()
    for cut in [*cuts, 10_000]:
        job = Job("j", seed=1)
        with job.epoch:
            take = Task(lambda x: seen.extend(x.tolist()), "x", name="take")
            Pipe(list(columns), 4, call=make, resume=resume, do=[take], **how)
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


@pytest.mark.parametrize("how", [{}, {"shuffle": {"buffer": 16}}])
@pytest.mark.parametrize(
    ("library", "name", "resume"),
    [
        ("datasets", "of_hugging_face", None),
        ("datasets", "of_hugging_face", "state"),
        ("grain", "of_grain", None),
        ("grain", "of_grain", "state"),
        ("torchdata", "of_torchdata", None),
        ("torchdata", "of_torchdata", "state"),
    ],
)
def test_the_streams_of_the_page_are_read_once(
    library: str, name: str, resume: str | None, how: dict[str, Any]
) -> None:
    pytest.importorskip(library)
    rows = read(of_page(name), resume, [], **how)
    assert sorted(rows) == list(range(ROWS))
    assert read(of_page(name), resume, [1, 5, 3], **how) == rows


@pytest.mark.parametrize("how", [{}, {"shuffle": {"buffer": 16}}])
def test_the_shards_of_a_web_dataset_are_read_once(tmp_path: Path, how: dict[str, Any]) -> None:
    pytest.importorskip("webdataset")
    for shard in range(2):
        with tarfile.open(tmp_path / f"part-{shard}.tar", "w") as tar:
            for number in range(30 * shard, 30 * shard + 30):
                array = io.BytesIO()
                np.save(array, np.int64(number))
                for ending, content in (("x.npy", array.getvalue()), ("y.cls", b"1")):
                    entry = tarfile.TarInfo(f"{number:03}.{ending}")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
    make = of_page("of_webdataset", shards=f"{tmp_path}/part-{{0..1}}.tar")
    rows = read(make, None, [], ("x", "y"), **how)
    assert sorted(rows) == list(range(ROWS))
    assert read(make, None, [1, 5, 3], ("x", "y"), **how) == rows
