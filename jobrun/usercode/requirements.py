"""Requirements of a job on its machine, apart from its functions.

Environment variables, programs, and packages that open the URLs that it uses: reported before
anything runs, and not after days.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from jobrun.core.paths import is_url
from jobrun.core.template import Template, templates_in
from jobrun.data.weights import why_unreadable
from jobrun.errors import Problem, UsageError, Where
from jobrun.model.job import Job, Pipe, Task
from jobrun.model.options import Load
from jobrun.model.shell import Shell

__all__ = ["state_needs", "task_needs", "upload_needs"]


def task_needs(task: Task, folder: str | os.PathLike[str] | None) -> Iterator[Problem]:
    """Yield what a task, a step or a pipe needs and is missing; ``folder`` is that of the spec."""
    yield from _unset(task)
    if isinstance(task.fn, Shell):
        yield from _program_problems(task, task.fn, folder)
    elif isinstance(task.fn, Load) and task.fn.file is not None:
        yield from _weights_problems(str(task.fn.file), task.mark("load"))
    elif isinstance(task.fn, Load):
        yield from _store_problems(task.fn.run, task.mark("load"))


def state_needs(job: Job) -> Iterator[Problem]:
    """Return what ``state`` names and is missing."""
    if "rng.torch" in job.generators and find_spec("torch") is None:
        text = "'state' names 'rng.torch', but torch is not installed"
        yield Problem(text, job.marks.get("state:rng.torch"), "pip install torch, or leave it out")


def upload_needs(job: Job) -> Iterator[Problem]:
    """Yield what the upload after the loop needs and is missing."""
    upload, where = job.upload, job.marks.get("upload")
    if upload is not None:
        yield from _unset_in(upload.literals, where)
        yield from _unset_in(upload.to, where)
    if upload is not None and upload.to is not None:
        yield from _store_problems(upload.to, where)


def _unset(task: Task) -> Iterator[Problem]:
    """Yield a problem for each string with an environment variable that is not set."""
    texts: list[tuple[str, Any]] = [(f"with:{key}", v) for key, v in task.literals.items()]
    if isinstance(task.fn, Shell) and task.fn.command:
        texts.append(("shell", list(task.fn.words)))
    if isinstance(task.fn, Load):
        texts.append(("load", task.fn.run if task.fn.file is None else task.fn.file))
    if isinstance(task, Pipe):
        files = (d.file for d in task.reader.data.leaves())
        texts += [("file", f.path) for f in files if f is not None]
    for mark, value in texts:
        yield from _unset_in(value, task.mark(mark))


def _unset_in(value: Any, where: Where | None) -> Iterator[Problem]:
    for name in (n for t in templates_in(value) for n in t.names if n.startswith("env.")):
        if name[4:] not in os.environ:
            text = f"${{{name}}}: the environment variable {name[4:]} is not set"
            yield Problem(text, where, f"export {name[4:]}=…")


def _store_problems(place: object, where: Where | None) -> Iterator[Problem]:
    """Yield a problem if the package that opens a URL is not installed."""
    if is_url(str(place)):
        from jobrun.remote.store import open_store

        try:
            open_store(str(place))
        except UsageError as error:
            yield Problem(error.message, where, error.hint)


def _weights_problems(file: str, where: Where | None) -> Iterator[Problem]:
    """Yield a problem if a file of weights cannot be read, as far as its ending is known."""
    ending = os.path.splitext(file)[1]
    refused = None if ending.endswith("}") else why_unreadable(ending)
    if refused is not None:
        yield Problem(refused[0], where, refused[1])


def _program_problems(
    task: Task, shell: Shell, folder: str | os.PathLike[str] | None
) -> Iterator[Problem]:
    """Yield a problem if the program of a shell task is missing, unless its name is a template."""
    program = shell.words[0] if shell.command else "bash"
    if isinstance(program, Template):
        return
    root = os.path.abspath(folder if folder is not None else ".")
    path = os.pathsep.join((root, os.environ.get("PATH", os.defpath)))
    wanted = os.path.join(root, program) if "/" in program else program
    if shutil.which(wanted, path=path) is not None:
        return
    if os.path.isfile(os.path.join(root, program)):
        hint = f"make it executable: chmod +x {os.path.join(root, program)}"
        yield Problem(f"the program {program!r} cannot be executed", task.mark("shell"), hint)
    else:
        hint = "it must be on PATH or in the spec's folder"
        yield Problem(f"there is no program {program!r}", task.mark("shell"), hint)
