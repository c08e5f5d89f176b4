"""The command in a process of its own that has imported everything: forked from one that did.

It starts in a tenth of the time.  What depends on the start of an interpreter, on its environment
or on a terminal is for tests of the installed command itself.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

COMMAND = Path(sys.executable).with_name("jobrun")
_IMPORTED = (
    *("jobrun.usercode.bind", "jobrun.cli.app", "jobrun.cli.running", "jobrun.cli.train"),
    *(
        "jobrun.cli.watching",
        "jobrun.session.factory",
        "jobrun.jobspec.build",
        "jobrun.analysis.facts",
        "jobrun.analysis.identity",
    ),
)


def jobrun(
    args: Sequence[str], folder: Path, env: Mapping[str, str], seconds: float = 60
) -> tuple[int, str, str]:
    """Run the command in ``folder``; gives its exit code and what it wrote to stdout and stderr."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as elsewhere:
        out, err = Path(elsewhere, "out"), Path(elsewhere, "err")
        order = [list(args), str(folder), dict(env), str(out), str(err)]
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        answer = select.poll()  # tests of files that cannot be closed leave more than select knows
        answer.register(server.stdout, select.POLLIN)
        if not answer.poll(1000 * seconds):
            _server.cache_clear()
            raise subprocess.TimeoutExpired(["jobrun", *args], seconds)
        code = int(server.stdout.readline())
        return code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")


@cache
def _server() -> subprocess.Popen[str]:
    """What children are forked from; it ends with this process, whose pipe it reads."""
    return subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _serve() -> None:
    del sys.path[0]  # the folder of this file, which the command does not have
    sys.modules["__main__"].__file__ = str(COMMAND)
    for name in _IMPORTED:
        import_module(name)
    assert threading.active_count() == 1, "a fork has one thread"
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(*json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(args: list[str], folder: str, env: dict[str, str], out: str, err: str) -> NoReturn:
    """Be the command, to the end of the interpreter."""
    from jobrun.cli import main

    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, opened in enumerate(
        (os.open(os.devnull, os.O_RDONLY), os.open(out, flags), os.open(err, flags))
    ):
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[:] = [str(COMMAND), *args]
    main()


if __name__ == "__main__":
    _serve()
