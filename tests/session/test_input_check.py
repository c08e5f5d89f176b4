"""Writes into inputs past the read-only flag: some are found always, the rest by --check.

By numpy and ctypes everywhere, and by torch where it is installed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import Driver

from jobrun import CheckpointManager, JobRunner, LocalSession
from jobrun.core.position import Position
from jobrun.errors import TaskError
from jobrun.model.job import Job, Pipe, Task

Write = Callable[[Any], Any]
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


@pytest.fixture(autouse=True)
def _own_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        yield


def torch() -> Any:
    """The library, as a task imports it."""
    return importlib.import_module("torch")


def ones() -> Any:
    return np.ones(3)


def job_of(write: Write, **how: Any) -> Job:
    """A job with a task that writes into its input ``w``, and one that reads it after that."""
    job = Job("j")
    with job.init:
        Task(ones, out="w")
    with job.epoch:
        Task(lambda w: write(w), "w", out="seen", name="culprit", **how)
        Task(lambda w: None, "w", name="innocent")
    return job


def error_of(write: Write, *, check: bool, **how: Any) -> TaskError:
    with pytest.raises(TaskError) as caught:
        Driver(job_of(write, **how), 1, check_inputs=check).start().epochs(2)
    return caught.value


# What is found always.


def by_base(w: Any) -> None:
    """The stored array itself, made writable."""
    w.base.setflags(write=True)
    w.base[0] = 5


def by_base_of_a_view(w: Any) -> None:
    view = w[1:].reshape(1, 2).T
    view.base.flags.writeable = True
    np.asarray(view.base)[1] = 5


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("write", [by_base, by_base_of_a_view])
def test_the_stored_array_made_writable(write: Write, check: bool) -> None:
    error = error_of(write, check=check)
    assert "task 'culprit'" in error.message
    assert "changed one of its inputs ('w')" in error.message
    assert "'update'" in error.hint


def from_numpy(w: Any) -> None:
    torch().from_numpy(w).add_(1)


def from_buffer(w: Any) -> None:
    torch().frombuffer(w, dtype=torch().float64).add_(1)


def from_memory(w: Any) -> None:
    torch().frombuffer(memoryview(w), dtype=torch().float64).add_(1)


def as_array(w: Any) -> None:
    torch().asarray(w).add_(1)


def as_tensor(w: Any) -> None:
    torch().as_tensor(w).add_(1)


WARNED = [from_numpy, from_buffer, from_memory, as_array, as_tensor]


@needs_torch
@pytest.mark.filterwarnings("ignore:The given")
@pytest.mark.parametrize("write", WARNED)
def test_a_write_through_what_torch_warns_of_is_found(write: Write) -> None:
    for _ in range(2):  # torch would warn once in a process, and Python once at a line
        error = error_of(write, check=False)
        assert "task 'culprit'" in error.message
        assert "changed one of its inputs ('w')" in error.message
        assert "'update'" in error.hint


@needs_torch
@pytest.mark.filterwarnings("ignore:The given")
def test_a_tensor_that_is_kept_is_found_when_it_is_written_to() -> None:
    kept: list[Any] = []

    def write(w: Any) -> None:
        if kept:
            kept[0].add_(1)
        kept.append(torch().from_numpy(w))

    assert "changed one of its inputs" in error_of(write, check=False).message


@needs_torch
@pytest.mark.filterwarnings("ignore:The given")
@pytest.mark.parametrize("write", WARNED)
def test_a_tensor_that_is_only_read_is_allowed(write: Write) -> None:
    kind = torch().Tensor
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "add_", lambda self, number: self.sum())
        driver = Driver(job_of(write), 1).start().epochs(2)
    assert driver.blob("w").tolist() == [1, 1, 1]


def of_the_user(_: Any) -> None:
    own = np.ones(2)
    own.setflags(write=False)
    torch().from_numpy(own).add_(1)


@needs_torch
def test_torch_does_not_warn_of_inputs_which_are_watched() -> None:
    def read(w: Any) -> None:
        assert torch().from_numpy(w).sum() == 3

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        Driver(job_of(read), 1).start().epochs(3)
    assert caught == []


@needs_torch
def test_an_array_of_the_user_is_as_in_plain_torch_outside_of_tasks() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        Driver(job_of(lambda w: None), 1).start().epochs(1)
        for _ in range(3):
            of_the_user(None)
        assert len([w for w in caught if "not writable" in str(w.message)]) == 1
        warnings.filterwarnings("error", "The given NumPy array is not writ")
        Driver(job_of(lambda w: None), 1).start()  # its filter stands before the user's again
        with pytest.raises(UserWarning, match="not writable"):
            of_the_user(None)


@needs_torch
def test_an_array_of_the_user_in_a_task_is_theirs() -> None:
    Driver(job_of(of_the_user), 1).start().epochs(2)


# What --check finds.


def by_pointer(w: Any) -> None:
    ctypes.memset(w.__array_interface__["data"][0], 1, 1)


def by_ctypes_array(w: Any) -> None:
    pointer = w.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    np.ctypeslib.as_array(pointer, w.shape)[1] = 5


def by_capsule(w: Any) -> None:
    """By DLPack, as a library does that does not look at the flag."""

    class Tensor(ctypes.Structure):
        _fields_ = (
            ("major", ctypes.c_uint32),
            ("minor", ctypes.c_uint32),
            ("context", ctypes.c_void_p),
            ("deleter", ctypes.c_void_p),
            ("flags", ctypes.c_uint64),
            ("data", ctypes.c_void_p),
        )

    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.POINTER(Tensor), [ctypes.py_object, ctypes.c_char_p]
    capsule = w.__dlpack__(max_version=(1, 0))
    tensor = get(capsule, b"dltensor_versioned").contents
    assert tensor.flags & 1  # numpy says that it is read-only
    ctypes.memset(tensor.data, 1, 1)


def by_base_and_back(w: Any) -> None:
    """The stored array made writable, and read-only again."""
    by_base(w)
    w.base.setflags(write=False)


def by_shape(w: Any) -> None:
    """The stored array itself, in another shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w.base.shape = (3, 1)


def by_dtype(w: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w.base.dtype = np.int64


UNSEEN = [by_pointer, by_ctypes_array, by_capsule, by_base_and_back, by_shape, by_dtype]


@pytest.mark.parametrize("write", UNSEEN)
def test_what_nothing_stops_is_found_by_the_check(write: Write) -> None:
    error = error_of(write, check=True)
    assert "task 'culprit'" in error.message
    assert "changed one of its inputs ('w')" in error.message
    assert "'update'" in error.hint


def from_dlpack(w: Any) -> None:
    torch().from_dlpack(w).add_(1)


def from_dlpack_of_old(w: Any) -> None:
    torch().utils.dlpack.from_dlpack(w).add_(1)


def without_warnings(w: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        as_tensor(w)


@needs_torch
@pytest.mark.parametrize("write", [from_dlpack, from_dlpack_of_old, without_warnings])
def test_torch_where_it_does_not_warn(write: Write) -> None:
    assert "task 'culprit'" in error_of(write, check=True).message


@needs_torch
@pytest.mark.parametrize("write", [from_dlpack, from_numpy, from_buffer])
def test_torch_may_write_into_what_it_updates(write: Write) -> None:
    job = Job("j")
    with job.init:
        Task(ones, out="w")
    with job.epoch:
        Task(write, update="w")
    driver = Driver(job, 1, check_inputs=True).start().epochs(2)
    assert driver.blob("w").tolist() == [3, 3, 3]


@needs_torch
def test_torch_written_through_dlpack_and_a_resume_say_the_same(tmp_path: Path) -> None:
    """Four epochs gave 4, two and a resume to four gave 2; now both say who does it."""

    def build(epochs: int) -> Job:
        job = Job("j")
        with job.init:
            Task(lambda: np.zeros(3), out="w")
        with job.epoch:
            Task(from_dlpack, "w", name="culprit")
        job.stop(epochs=epochs)
        return job

    for number in range(2):
        runner = JobRunner(build(4), CheckpointManager(tmp_path / str(number)), check_inputs=True)
        with pytest.raises(TaskError, match="task 'culprit'"):
            runner.train(LocalSession(threads=1))


# References that were kept.


def keeper() -> tuple[Write, list[Any]]:
    """A function that keeps a way to write into its input, and where it keeps it."""
    kept: list[Any] = []

    def keep(w: Any) -> None:
        kept.append(np.ctypeslib.as_array(w.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), (3,)))

    return keep, kept


def test_a_change_after_the_call_is_found_when_the_blob_is_read() -> None:
    keep, kept = keeper()
    job = Job("j")
    with job.init:
        Task(ones, out="w")
    with job.epoch:
        Task(keep, "w", name="keeps")
        Task(lambda: kept[0].fill(7), name="writes", after="keeps")
        Task(lambda w: None, "w", name="reads", after="writes")
    with pytest.raises(TaskError) as caught:
        Driver(job, 1, check_inputs=True).start().epoch()
    assert "task 'reads'" in caught.value.message
    assert "the memory of its input 'w' was changed between two calls" in caught.value.message


def test_a_change_after_the_last_call_is_found_at_the_end_of_the_group() -> None:
    keep, kept = keeper()
    job = Job("j")
    with job.init:
        Task(lambda: {"a": 1, "x": np.ones(3)}, out="t")
    with job.epoch:
        Task(keep, "t/x", name="keeps")
        Task(lambda: kept[0].fill(7), name="writes", after="keeps")
    with pytest.raises(TaskError) as caught:
        Driver(job, 1, check_inputs=True).start().epoch()
    assert "group 'epoch' found that the memory of blob 't/x' was changed" in caught.value.message


def test_a_generator_of_rows_that_writes_into_its_input_is_found() -> None:
    def rows(w: Any) -> Any:
        for number in range(3):
            yield {"x": number}
            by_pointer(w)

    job = Job("j")
    with job.init:
        Task(ones, out="w")
    with job.epoch:
        Pipe(["x"], call=rows, in_="w", do=[Task(lambda x: None, "x")], passes=1)
    with pytest.raises(TaskError, match="memory of blob 'w' was changed"):
        Driver(job, 1, check_inputs=True).start().epoch()


def test_an_update_and_a_new_value_are_no_change() -> None:
    def grow(w: Any) -> None:
        w += 1

    job = Job("j")
    with job.init:
        Task(ones, out="w")
    with job.epoch:
        Task(lambda w: None, "w", name="first")
        Task(grow, update="w")
        Task(lambda w: w + 1, "w", out="w", name="new")
        Task(lambda w: None, "w", name="last")
    assert Driver(job, 1, check_inputs=True).start().epochs(2).blob("w").tolist() == [5, 5, 5]


def test_a_column_belongs_to_its_batch_and_may_be_written_to() -> None:
    job = Job("j")
    with job.init:
        Task(lambda: np.zeros((4, 2)), out="data")
    with job.epoch:
        step = Task(lambda x: by_pointer(x), "x", name="writes")
        Pipe({"x": "data"}, batch=2, name="p", do=[step])
    driver = Driver(job, 1, check_inputs=True).start().epochs(2)
    assert not driver.blob("data").any()


def test_the_positions_are_those_of_a_run_without_the_check() -> None:
    job = job_of(lambda w: None)
    assert Driver(job, 1, check_inputs=True).start().epochs(2).position == Position(2)
