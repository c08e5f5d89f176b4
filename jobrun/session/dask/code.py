"""The transfer of the user's code to the workers.

A worker that sees the folder of the code, with the same files in it, uses that.  To another one the
client sends the modules of the folder, and the files that the spec names in its own; they are
unpacked below the worker's own directory.
"""

from __future__ import annotations

import io
import linecache
import os
import re
import threading
import zipfile
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp

from jobrun.analysis.dataflow import inner_steps
from jobrun.core.template import Template, render, templates_in
from jobrun.errors import BindError, TaskError
from jobrun.model.job import Job, Pipe
from jobrun.session.base import Places
from jobrun.session.dask.messages import Setup
from jobrun.usercode.code_hash import changed_code
from jobrun.usercode.modules import forget

__all__ = ["CodeMissingError", "archive", "packed_job", "place_code", "with_lines"]

_LARGEST = 64 * 2**20
"""The largest size in bytes of a named file that is sent."""

_OTHERS = {"node_modules", "site-packages", "__pycache__"}


class CodeMissingError(Exception):
    """The worker does not see the folder of the code as it is: the files must be sent."""


# On the client.


def packed_job(job: Job) -> bytes:
    """Return a job as dask sends it; functions that no module contains are included.

    The parts that are used on the client only are left out, and may be unserializable: the
    registry, uploads, reporters.
    """
    sent = copy(job)
    if job.checkpoint is not None:
        sent.checkpoint = replace(job.checkpoint, catalogue=None)
    sent.upload = None
    sent.reporters = []
    data: bytes = import_module("distributed.protocol").serialize_bytes(sent)
    return data


def archive(job: Job, places: Places) -> bytes:
    """Return the modules below the folder of the code, and the files that the spec names, as a zip.

    Its names are relative to the folder that holds both.
    """
    code, root, packed = _code(places), _root(places), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted({*_modules(code), *_named(job, places.folder)}):
            out.write(path, path.relative_to(root).as_posix())
    return packed.getvalue()


def _code(places: Places) -> Path:
    assert places.code is not None  # a job that no spec has made is sent as a whole
    return places.code


def _root(places: Places) -> Path:
    """Return the folder that holds both the code and the spec."""
    return Path(os.path.commonpath((_code(places), places.folder)))


def _modules(folder: Path) -> Iterator[Path]:
    """Yield the ``.py`` files below a folder, except in environments, runs and hidden folders."""
    for root, folders, files in os.walk(folder):
        folders[:] = [
            f
            for f in folders
            if not f.startswith(".")
            and f not in _OTHERS
            and not {"pyvenv.cfg", "run.json"} & set(os.listdir(Path(root, f)))
        ]
        yield from (Path(root, file) for file in files if file.endswith(".py"))


def _named(job: Job, folder: Path) -> Iterator[Path]:
    """Yield files of the folder that the job names, such as ``${spec.dir}/digits.npz``."""
    texts = {"spec.dir": str(folder)}
    for text in _texts(job):
        if isinstance(text, Template):
            if any(name != "spec.dir" for name in text.names):
                continue
            text = str(render(text, texts))
        path = folder / text
        if path.is_relative_to(folder) and path.is_file() and path.stat().st_size <= _LARGEST:
            yield path


def _texts(job: Job) -> Iterator[str | Template]:
    for group in job.groups.values():
        for task in group.tasks:
            for step in inner_steps(task):
                yield from templates_in(step.literals)
            if isinstance(task, Pipe):
                yield from (d.file.path for d in task.reader.data.leaves() if d.file is not None)


_TRAVELLED = re.compile(r'  File "<dynamic-code>", line (\d+), in .*')


def with_lines(error: TaskError, job: Job) -> TaskError:
    """Return an error of a function that was sent along, with the lines of its file.

    A function that is sent along loses its file; the traceback finds it if all such functions of
    the job are in one file.
    """
    calls = (step.fn for g in job.groups.values() for t in g.tasks for step in inner_steps(t))
    code = (getattr(fn, "__code__", None) for fn in calls)
    files = {c.co_filename for c in code if c is not None}
    if len(files) == 1:
        (file,) = files

        def placed(found: re.Match[str]) -> str:
            line = linecache.getline(file, int(found[1])).strip()
            place = found[0].replace("<dynamic-code>", file)
            return f"{place}\n    {line}" if line else place

        error.trace = _TRAVELLED.sub(placed, error.trace)
    return error


# On the worker.

_lock = threading.Lock()
_seen: dict[str, dict[str, str]] = {}
"""The checksums of the code in each folder that this process has used."""


_unpacked: dict[str, Path] = {}
"""The folders into which archives were unpacked, by their digest."""


def place_code(setup: Setup, local_directory: str) -> tuple[Job, Places]:
    """Return the job, and the directories as this worker sees them.

    Raises CodeMissingError if the code is neither here nor sent along, BindError for functions
    whose modules are not here.
    """
    places = setup.places
    if places.code is not None:
        with _lock:
            places = _located(setup, places, local_directory)
            code, folder = dict(setup.code), _code(places)
            if _seen.get(str(folder), code) != code:
                forget(folder)
            _seen[str(folder)] = code
    try:
        job: Job = import_module("distributed.protocol").deserialize_bytes(setup.job)
    except (ImportError, AttributeError) as error:
        raise BindError(
            f"a worker cannot import the code of the job: {error}",
            hint="install the module on the workers, or send it: client.upload_file('module.py')",
        ) from error
    return job, places


def _located(setup: Setup, places: Places, local_directory: str) -> Places:
    """Return the directories as they are, or in the unpacked archive."""
    code = _code(places)
    if code.is_dir() and not changed_code(setup.code, code):
        return places
    if setup.archive is None:
        raise CodeMissingError
    digest = sha256(setup.archive).hexdigest()
    if digest not in _unpacked:
        target = Path(mkdtemp(prefix="jobrun-code-", dir=local_directory))
        with zipfile.ZipFile(io.BytesIO(setup.archive)) as packed:
            packed.extractall(target)
        _unpacked[digest] = target
    root, there = _root(places), _unpacked[digest]
    spec_dir = there / places.folder.relative_to(root)
    return replace(places, spec_dir=spec_dir, code_dir=there / code.relative_to(root))
