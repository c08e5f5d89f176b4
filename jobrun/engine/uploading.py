"""The upload of a run after the loop: its newest checkpoint or all that are kept.

Nothing is done twice: a copy that has its ``_SUCCESS`` is whole, and of a function's
calls ``upload.json`` in the run directory knows.  A failure ends the attempt, and the next one
begins here again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from jobrun.checkpoint.record import Record
from jobrun.core.events import Report, Uploaded
from jobrun.core.paths import is_url
from jobrun.core.template import render
from jobrun.errors import DamagedError, NotFoundError, StoreError, TaskError, Where
from jobrun.model.job import Job
from jobrun.model.policy import Upload
from jobrun.remote.store import Store, open_store
from jobrun.remote.upload import UploadStopped, is_uploaded, upload_checkpoint, upload_files
from jobrun.runs.fetch import RUN_FILES
from jobrun.runs.rundir import RunDir
from jobrun.session.base import Places
from jobrun.storage.bounded_json import MAX_BYTES, parse_json
from jobrun.storage.regular_file import read_run_file
from jobrun.usercode.bind import bind
from jobrun.usercode.traces import user_trace

__all__ = ["upload"]

_DONE = "upload.json"


def upload(
    job: Job,
    run: RunDir,
    places: Places,
    report: Report,
    stopped: Callable[[], bool],
) -> bool:
    """Upload what ``job.upload`` says; return whether all is done, false if ``stopped``.

    Raises StoreError or TaskError on failure.
    """
    asked = job.upload
    if asked is None:
        return True
    records = run.records() if asked.what == "kept" else filter(None, [run.head()])
    wanted = [record for record in records if run.catalog.is_whole(record.id)]
    if asked.call is not None:
        return _call(asked, run, places, wanted, job.marks.get("upload"), stopped)
    store = _store(asked, run, places)
    for record in wanted:  # before anything is written there
        is_uploaded(run.catalog.path(record.id), store)
    _refuse_another_run(run, store)
    upload_files(run.path, RUN_FILES, store)
    try:
        for record in wanted:
            start = time.perf_counter()
            done = upload_checkpoint(run.catalog.path(record.id), store, stopped)
            took = time.perf_counter() - start
            report(Uploaded(record.id, done.place, done.bytes, done.files, done.sent, took))
    except UploadStopped:
        return False
    return True


def _store(asked: Upload, run: RunDir, places: Places) -> Store:
    """Return the target store; a relative path begins at the folder of ``places``."""
    place = str(render(asked.to, _texts(run, places)))
    return open_store(place if is_url(place) else str(places.folder / place))


def _texts(run: RunDir, places: Places) -> dict[str, str]:
    """Return the values of ``${…}``."""
    texts = {"run.dir": str(run.path.absolute()), "run.name": run.name}
    return texts if places.spec_dir is None else {**texts, "spec.dir": str(places.spec_dir)}


def _refuse_another_run(run: RunDir, store: Store) -> None:
    """Raise StoreError if another run is at the target: two would be taken for one."""
    here = run.state()
    if here is None:
        return
    for _ in range(2):  # a network may damage what it carries
        there = _run_json(store)
        if there is None or there.get("created") == here.created:
            return
        name = there.get("name")
    raise StoreError(
        f"another run, {name!r}, is already there and is not overwritten",
        where=store.place,
        hint="upload to another place; '${run.name}' in it makes one for each run",
    )


def _run_json(store: Store) -> dict[str, Any] | None:
    """Return the content of run.json at the target; None if there is none, or a torn one."""
    try:
        found = parse_json(store.read("run.json"))
    except (NotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else {}


def _call(
    asked: Upload,
    run: RunDir,
    places: Places,
    wanted: list[Record],
    where: Where | None,
    stopped: Callable[[], bool],
) -> bool:
    """Call the user's function with each checkpoint that it was not called with."""
    assert asked.call is not None
    function = bind(asked.call, places.code, where)
    literals = render(dict(asked.literals), _texts(run, places))
    done = _done(run)
    for record in wanted:
        if record.id in done:
            continue
        if stopped():
            return False
        path = str(run.catalog.path(record.id))
        try:
            function(path, **literals)
        except Exception as error:
            what = f"the upload of checkpoint_{record.id} failed: {type(error).__name__}: {error}"
            raise TaskError(what, where=where, trace=user_trace(error)) from error
        done = [*done, record.id]
        run.put(_DONE, json.dumps({"ids": done}).encode("ascii"))
    return True


def _done(run: RunDir) -> list[int]:
    """Return the checkpoints that the user's function was called with."""
    try:
        ids = parse_json(read_run_file(run.path / _DONE, MAX_BYTES))["ids"]
        return [int(i) for i in ids]
    except (DamagedError, OSError, ValueError, KeyError, TypeError):
        return []
