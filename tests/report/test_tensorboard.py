"""TensorBoard's files: every metric once for each epoch, also after a kill."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from jobrun.core.events import CheckpointLoaded, RunStarted, RunWentBack, StepLogged
from jobrun.report.tensorboard import TensorBoard

pytest.importorskip("tensorboardX")


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The scalars of a folder as TensorBoard shows them: a restart voids the steps from its own on.

    The files are TFRecords: length, its checksum, an Event, its checksum.
    """
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    points: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(filter(Path.is_file, folder.iterdir())):
        data, place = path.read_bytes(), 0
        while place < len(data):
            (length,) = struct.unpack_from("<Q", data, place)
            event = Event.FromString(data[place + 12 : place + 12 + length])
            place += 12 + length + 4
            if event.session_log.status == SessionLog.START:
                points = {k: [p for p in v if p[0] < event.step] for k, v in points.items()}
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    points.setdefault(value.tag, []).append((event.step, value.simple_value))
    return points


def run(folder: Path, started: RunStarted, epochs: range, make: Any, *, close: bool = True) -> None:
    reporter = TensorBoard()
    reporter(started)
    for epoch in epochs:
        reporter(
            make.epoch(epoch, loss=1 / epoch, **{"acc[val]": epoch, "flag": True, "none": None})
        )
    if close:
        reporter(make.ended())
        reporter.close()


def test_every_epoch_is_a_step(tmp_path: Path, make: Any) -> None:
    run(tmp_path, make.started(run_dir=str(tmp_path), vars={"lr": 0.1}), range(1, 4), make)
    points = read(tmp_path / "tensorboard")
    assert points["loss"] == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert points["acc_val_"] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert points["flag"] == [(1, 1.0), (2, 1.0), (3, 1.0)]
    assert set(points) == {"loss", "acc_val_", "flag", "epoch_seconds"}


def test_epochs_that_are_run_again_show_once(tmp_path: Path, make: Any) -> None:
    first = make.started(run_dir=str(tmp_path))
    run(tmp_path, first, range(1, 6), make, close=False)  # killed: never closed
    assert [step for step, _ in read(tmp_path / "tensorboard")["loss"]] == [1, 2, 3, 4, 5]
    again = make.started(run_dir=str(tmp_path), attempt=2, epoch=3, checkpoint=3)
    run(tmp_path, again, range(4, 8), make)
    assert [step for step, _ in read(tmp_path / "tensorboard")["loss"]] == [1, 2, 3, 4, 5, 6, 7]


def test_running_exit_again_voids_nothing(tmp_path: Path, make: Any) -> None:
    run(tmp_path, make.started(run_dir=str(tmp_path)), range(1, 6), make)
    reporter = TensorBoard()
    reporter(make.started(run_dir=str(tmp_path), attempt=2, epoch=3, checkpoint=3, only="exit"))
    reporter(CheckpointLoaded(2, 2, "p", 9, 0.1))
    reporter(RunWentBack("a worker was lost", 1, 3, 2, 2))
    reporter.close()
    assert [step for step, _ in read(tmp_path / "tensorboard")["loss"]] == [1, 2, 3, 4, 5]


def test_a_fallback_to_an_earlier_checkpoint(tmp_path: Path, make: Any) -> None:
    run(tmp_path, make.started(run_dir=str(tmp_path)), range(1, 6), make)
    reporter = TensorBoard()
    reporter(make.started(run_dir=str(tmp_path), attempt=2, epoch=5, checkpoint=5))
    reporter(CheckpointLoaded(2, 2, "p", 9, 0.1))
    for epoch in (3, 4):
        reporter(make.epoch(epoch, loss=9.0))
    reporter.close()
    points = read(tmp_path / "tensorboard")["loss"]
    assert points == [(1, 1.0), (2, 0.5), (3, 9.0), (4, 9.0)]


def test_epochs_that_are_run_again_since_a_worker_was_lost(tmp_path: Path, make: Any) -> None:
    reporter = TensorBoard()
    reporter(make.started(run_dir=str(tmp_path)))
    for epoch in range(1, 6):
        reporter(make.epoch(epoch, loss=1.0))
    reporter(RunWentBack("a worker was lost", 1, 3, 4, 4))
    reporter(CheckpointLoaded(2, 2, "p", 9, 0.1))  # checkpoint_4 and 3 were damaged
    reporter(make.epoch(3, loss=9.0))
    reporter.close()
    assert read(tmp_path / "tensorboard")["loss"] == [(1, 1.0), (2, 1.0), (3, 9.0)]


def test_a_folder_of_ones_own(tmp_path: Path, make: Any) -> None:
    reporter = TensorBoard(str(tmp_path / "logs"))
    reporter(make.started())
    reporter(make.epoch(1, loss=1.0))
    reporter.close()
    assert read(tmp_path / "logs")["loss"] == [(1, 1.0)]
    with pytest.raises(ValueError, match="needs a logdir"):
        TensorBoard()(make.started())


def steps(folder: Path, started: RunStarted, numbers: range, make: Any, scale: float = 1) -> None:
    reporter = TensorBoard()
    reporter(started)
    for number in numbers:
        epoch, batch = 1 + (number - 1) // 5, 1 + (number - 1) % 5
        reporter(StepLogged("train", "main", epoch, batch, {"loss": number * scale}, 5))
        reporter(StepLogged("train", "b", epoch, batch, {"loss": -number}, 5))
        if batch == 5:
            reporter(make.epoch(epoch, loss=1.0))
    reporter.close()


def test_steps_that_are_run_again_show_once(tmp_path: Path, make: Any) -> None:
    steps(tmp_path, make.started(run_dir=str(tmp_path)), range(1, 9), make)
    again = make.started(run_dir=str(tmp_path), attempt=2, epoch=1)
    steps(tmp_path, again, range(7, 11), make, scale=2)
    points = read(tmp_path / "tensorboard/steps")
    expected = [(n, float(n)) for n in range(1, 7)] + [(n, 2.0 * n) for n in range(7, 11)]
    assert points["train/loss"] == expected
    assert points["b/train/loss"] == [(n, -float(n)) for n in range(1, 11)]
