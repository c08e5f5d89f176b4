"""The command in a process forked from one that has imported it: no start of an interpreter.

Python, numpy and jobrun cost 0.3 s of CPU to import, in hundreds of tests.  A server, one for each
process of pytest, imports what ``jobrun train`` imports and has a single thread.  For each command
it forks a process, which gets the arguments, folder, environment and streams of the command, a
session of its own if asked, and the signal handlers, stream objects and ``__main__`` of a fresh
interpreter.  It can be killed, and ends, as the command does.

What depends on the start of an interpreter, on which modules are imported, or on the memory of a
process is for tests that start one by themselves.  An installed command is started where ignored
signals or variables differ that act as it starts, and everywhere with JOBRUN_REAL_PROCESSES=1 or
JOBRUN_LONG=1.  ``tests/cli/test_warm.py`` holds that both do the same.
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TextIO

__all__ = ["COMMAND", "REAL", "environment", "jobrun", "start"]

COMMAND = Path(sys.executable).with_name("jobrun")
REAL = sys.platform != "linux" or any(
    os.environ.get(name) for name in ("JOBRUN_REAL_PROCESSES", "JOBRUN_LONG")
)
"""All processes are started.  Read at import: tests run without the variables of jobrun."""
_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "GLIBC_", "OPENBLAS_", "OMP_", "MKL_")
"""Variables that act as an interpreter or a library starts."""
_IMPORTED = (
    *("jobrun.usercode.bind", "jobrun.cli.app", "jobrun.cli.running", "jobrun.cli.train"),
    *(
        "jobrun.cli.watching",
        "jobrun.session.factory",
        "jobrun.jobspec.validate",
        "jobrun.analysis.facts",
        "jobrun.analysis.identity",
    ),
)
_MOST = 1 << 20
"""Bytes of the longest message."""


def environment() -> dict[str, str]:
    """Return the environment of the tests without the variables of jobrun, and in no language."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("JOBRUN_", "LC_", "LANG"))}


def jobrun(
    args: Sequence[str], folder: Path, env: Mapping[str, str], seconds: float = 120
) -> tuple[int, str, str]:
    """Run the command in ``folder``; return its exit code and what it wrote to stdout and stderr.

    Raises subprocess.TimeoutExpired once it has been killed.
    """
    with tempfile.TemporaryDirectory() as elsewhere:
        out, err = Path(elsewhere, "out"), Path(elsewhere, "err")
        with out.open("ab") as stdout, err.open("ab") as stderr:
            process = start(
                args, folder, env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
        try:
            code = process.wait(timeout=seconds)
        finally:
            process.kill()
            process.wait()
        return code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")


def start(
    args: Sequence[str], folder: Path, env: Mapping[str, str], **more: Any
) -> subprocess.Popen[Any]:
    """Start the command in ``folder`` and leave it running.

    ``more`` is for Popen: the streams, ``text`` and ``start_new_session``.
    """
    as_at_start = _at_start(env) == _at_start(_ENVIRONMENT) and _ignored() == _IGNORED
    kind = _Forked if as_at_start and not REAL else subprocess.Popen
    return kind([str(COMMAND), *args], cwd=folder, env=env, **more)


def _at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_AT_START)}


def _ignored() -> set[int]:
    """The signals that a process ignores which starts now."""
    return {s for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN}


_IGNORED = _ignored()
_ENVIRONMENT = environment()
"""What holds as the tests start, and for the server."""


class _Forked(subprocess.Popen[Any]):
    """A Popen whose process is forked by the server; its keeper there says how it has ended.

    The keeper lets an ended process be forgotten once this object knows of the end: as with a child
    of one's own, a signal never meets another process.
    """

    def _execute_child(self, *args: Any) -> None:
        """Have the process forked: in place of what Popen does, with the arguments of that."""
        names = list(signature(subprocess.Popen._execute_child).parameters)[1:]
        given = dict(zip(names, args, strict=True))
        order = {
            "args": given["args"],
            "folder": str(given["cwd"]),
            "env": dict(given["env"]),
            "session": given["start_new_session"],
        }
        ends = ("p2cread", "c2pwrite", "errwrite")
        streams = [own if given[end] == -1 else given[end] for own, end in enumerate(ends)]
        self._keeper, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(_server(), [json.dumps(order).encode()], [theirs.fileno(), *streams])
        theirs.close()
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[end] for end in pipes))
        self.pid = self._hear("pid")
        self._child_created = True

    def _hear(self, what: str) -> int:
        """Wait for a number that the process or its keeper sends."""
        message = self._keeper.recv(_MOST).decode()
        assert message.startswith(what), f"{self.args}: {message or 'no server'}"
        return int(message.removeprefix(what))

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                self._try_wait(os.WNOHANG)
            finally:
                self._waitpid_lock.release()
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """Take the exit code, if it is there or one may wait for it; Popen need not decode it."""
        waiting = select.poll()
        waiting.register(self._keeper, select.POLLIN)
        if self.returncode is None and waiting.poll(0 if wait_flags else None):
            self.returncode = self._hear("end")
            self._keeper.close()
        return 0, 0


@cache
def _server() -> socket.socket:
    """The way to what processes are forked from, which ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        env=_ENVIRONMENT,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    theirs.close()
    return ours


# In the process that is forked.


def _serve(orders: socket.socket) -> None:
    """Fork a keeper for each order, until the tests have ended."""
    sys.path[0] = str(COMMAND.parent)
    for name in _IMPORTED:
        import_module(name)
    assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1, "forks have one"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the tests end, and this with them
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers leave nothing
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, _MOST, 4)
        if not order:
            return
        if os.fork() == 0:
            orders.close()
            _keep(json.loads(order), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(order: dict[str, Any], descriptor: int, *streams: int) -> NoReturn:
    """Fork the command, and send how it ended; it is forgotten when that has been taken."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    test = socket.socket(fileno=descriptor)
    pid = os.fork()
    if pid == 0:
        _become(order, test, *streams)
    for stream in streams:
        os.close(stream)
    end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert end is not None
    code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
    try:
        test.send(b"end %d" % code)
        test.recv(_MOST)
    except OSError:  # the test has ended
        pass
    os._exit(0)


def _become(order: dict[str, Any], test: socket.socket, *streams: int) -> NoReturn:
    """Be the command, to the end of the interpreter."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin = sys.__stdin__ = _stream(0, sys.stdin)
    sys.stdout = sys.__stdout__ = _stream(1, sys.stdout)
    sys.stderr = sys.__stderr__ = _stream(2, sys.stderr)
    os.chdir(order["folder"])
    language = {k: v for k, v in os.environ.items() if k == "LC_CTYPE"}  # by Python, as it started
    os.environ.clear()
    os.environ.update(order["env"] | language)
    if order["session"]:
        os.setsid()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    sys.argv[:] = order["args"]
    sys.modules["__main__"] = main = ModuleType("__main__")
    main.__file__ = sys.argv[0]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    test.send(b"pid %d" % os.getpid())
    test.detach()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    import_module("jobrun.cli").main()


def _stream(number: int, like: TextIO) -> TextIO:
    """One of the three streams, as an interpreter makes it that starts now."""
    unbuffered = like.write_through
    raw = unbuffered and number != 0
    binary = open(number, f"{like.mode}b", buffering=0 if raw else -1, closefd=False)  # noqa: SIM115
    (binary if raw else binary.raw).name = like.name
    text = io.TextIOWrapper(
        binary,
        like.encoding,
        like.errors,
        newline="\n",
        line_buffering=not unbuffered and (number == 2 or binary.isatty()),
        write_through=unbuffered,
    )
    text.mode = like.mode
    return text


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
