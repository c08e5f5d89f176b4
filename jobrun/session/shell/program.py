"""A program as a task's function: blobs in as files, the program run, files out as blobs.

Each call has a fresh folder.  The spec's folder comes first on ``PATH``; ``JOBRUN_SPEC_DIR``,
``JOBRUN_RUN_DIR``, ``JOBRUN_EPOCH`` and ``JOBRUN_NODE`` are in the environment.  The output of the
program is printed; its last lines are in the error if it fails.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobrun.core.process import Ended, run_process
from jobrun.core.template import render
from jobrun.errors import TaskError
from jobrun.model.shell import FileForm, Shell
from jobrun.session.base import Places
from jobrun.session.current import Running, TaskStoppedError, current
from jobrun.session.shell.files import read_file, write_file
from jobrun.session.shell.task_folder import task_folder

__all__ = ["Program"]

_STRICT = ("--noprofile", "--norc", "-euo", "pipefail", "-c")
_LAST_LINES = 20
_LONGEST_LINE = 500


class Program:
    """Called with ``{file: value}``, returns ``{file: value}`` of the files ``wanted``.

    Raises TaskError if the program fails, takes longer than ``timeout`` seconds, or does not leave
    the files ``wanted``; TaskStoppedError if it was ended because the run ends.
    """

    def __init__(
        self,
        shell: Shell,
        wanted: tuple[str, ...],
        places: Places,
        node: str,
        timeout: float | None = None,
    ) -> None:
        self._shell = shell
        self._wanted = wanted
        self._places = places
        self._node = node
        self._timeout = timeout
        self._folder = places.folder

    def __call__(self, **given: Any) -> dict[str, Any] | None:
        """Run the program once."""
        with task_folder() as folder:
            for file, value in given.items():
                write_file(folder / file, value, self._form(file))
            given.clear()
            for file in self._wanted:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
            self._run(folder)
            if not self._wanted:
                return None
            return {file: self._left(folder, file) for file in self._wanted}

    def _form(self, file: str) -> FileForm:
        return self._shell.files.get(file, FileForm())

    def _left(self, folder: Path, file: str) -> Any:
        path = folder / file
        if not path.is_file():
            left = [str(p.relative_to(folder)) for p in sorted(folder.rglob("*")) if p.is_file()]
            raise TaskError(
                f"it succeeded, but wrote no file {file!r}",
                hint=f"it wrote {', '.join(left[:10]) or 'nothing'}",
            )
        return read_file(path, self._form(file))

    def _run(self, folder: Path) -> None:
        running = current()
        tail: deque[str] = deque(maxlen=_LAST_LINES)

        def keep(line: str) -> None:
            tail.append(line[:_LONGEST_LINE])
            print(line)

        words = self._words()
        stop = running.stopping if running is not None else lambda: False
        try:
            environment = self._environment(running)
            ended = run_process(words, folder, environment, keep, stop, self._timeout)
        except OSError as error:
            raise TaskError(
                f"{words[0]} cannot be run: {error.strerror}", hint=_remedy(error)
            ) from None
        if ended.reason == "stopped":
            raise TaskStoppedError
        if ended.reason or ended.code:
            raise self._failure(words[0], ended, tail)

    def _words(self) -> list[str]:
        """Return the words to run; a program named by a relative path is in the spec's folder."""
        if self._shell.script:
            return ["bash", *_STRICT, self._shell.script, "script"]
        texts = self._places.texts(self._node)
        first, *others = (str(render(word, texts)) for word in self._shell.words)
        return [str(self._folder / first) if "/" in first else first, *others]

    def _environment(self, running: Running | None) -> Mapping[str, str]:
        own = {
            "PATH": os.pathsep.join((str(self._folder), os.environ.get("PATH", os.defpath))),
            "JOBRUN_SPEC_DIR": str(self._folder),
            "JOBRUN_NODE": self._node,
            "JOBRUN_EPOCH": str(running.epoch if running is not None else 0),
        }
        if self._places.run_dir is not None:
            own["JOBRUN_RUN_DIR"] = str(self._places.run_dir.absolute())
        outer = {k: v for k, v in os.environ.items() if k != "JOBRUN_RUN_DIR"}
        return {**outer, **own}

    def _failure(self, program: str, ended: Ended, tail: deque[str]) -> TaskError:
        name = "the script" if self._shell.script else program
        text = f"{name} {ended}"
        if ended.reason == "timeout":
            text = f"{name} exceeded its timeout of {self._timeout:g} s, and was stopped"
        lines = "\n".join(tail)
        return TaskError(text, trace=f"the end of its output:\n{lines}" if lines else "")


def _remedy(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "it must be on PATH or in the spec's folder"
    if isinstance(error, PermissionError):
        return "make it executable: chmod +x"
    return "a script begins with a line such as #!/usr/bin/env python3"
