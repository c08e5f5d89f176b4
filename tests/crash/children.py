"""Processes to be killed.  They are forked from one that has imported everything already.

A ``Nursery`` is such a process, with a single thread: a child of it starts in milliseconds, where
an interpreter and numpy need half a second.  A child's number stays its own until ``wait`` has
returned, so that a signal never meets another process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

COMMAND = [str(Path(sys.executable).with_name("jobrun"))]
WAIT = 90.0
"""Seconds after which a child that has not ended is taken for one that hangs."""
CRASHED = 70
"""The exit code of a child whose function raised."""
_HERE = Path(__file__).parent
_WARM = ("crash_job", "jobrun.cli.train", "jobrun.report.lines", "jobrun.jobspec.validate")
"""What children need is imported before they are made."""
_DEADLY = (signal.SIGINT, signal.SIGTERM)


class Child:
    """A running child; ``log`` holds what it wrote to stdout and stderr."""

    def __init__(self, nursery: Nursery, pid: int, log: Path) -> None:
        self._nursery = nursery
        self.pid = pid
        self.log = log
        self.code: int | None = None

    def send(self, number: int) -> None:
        """Send a signal to the child alone."""
        if self.code is None:
            os.kill(self.pid, number)

    def send_group(self, number: int) -> None:
        """Send a signal to the child's process group, as a terminal does."""
        if self.code is None:
            os.killpg(self.pid, number)

    def kill(self) -> int:
        """End it with SIGKILL; gives how it ended."""
        self.send(signal.SIGKILL)
        return self.wait()

    def wait(self, seconds: float = WAIT) -> int:
        """How it ended: its exit code, or minus the signal.  One that hangs is a failed test."""
        if not self.ends_within(seconds):
            self.send(signal.SIGABRT)  # faulthandler says where every thread is
            self.ends_within(5.0) or self.send(signal.SIGKILL)
            raise AssertionError(f"it hangs:\n{self.text}")
        assert self.code is not None
        return self.code

    def wait_for(self, path: Path) -> None:
        """Return once a file is there; it is a failed test if the child ends before."""
        give_up = time.monotonic() + WAIT
        while not path.exists():
            assert not self.ends_within(0.002), self.text
            assert time.monotonic() < give_up, self.text

    def wait_for_text(self, text: str) -> None:
        """Return once it has written a text; it is a failed test if it ends without."""
        give_up = time.monotonic() + WAIT
        while text not in self.text:
            assert not self.ends_within(0.002) or text in self.text, self.text
            assert time.monotonic() < give_up, self.text

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends in that time."""
        if self.code is None:
            self.code = self._nursery.ask({"wait": self.pid, "seconds": seconds})
        return self.code is not None

    @property
    def text(self) -> str:
        """What it has written so far."""
        return self.log.read_text(errors="backslashreplace")


class Nursery:
    """Starts children; those that are left are killed at the end of the context."""

    def __enter__(self) -> Nursery:
        self._logs = Path(tempfile.mkdtemp(prefix="jobrun-children-"))
        paths = [str(_HERE), str(_HERE.parent / "support"), str(_HERE.parents[1])]
        environment = {
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(_HERE / "children.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={k: v for k, v in environment.items() if not k.startswith("JOBRUN_")},
            text=True,
        )
        self._children: list[Child] = []
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._children:
            if child.code is None:
                child.send(signal.SIGKILL)
                child.ends_within(10.0)
        self._process.communicate(timeout=120)
        shutil.rmtree(self._logs)

    def start(self, function: str, *arguments: Any, folder: Path | None = None) -> Child:
        """Run ``module:function`` with plain arguments in a child of its own."""
        log = self._logs / str(len(self._children))
        log.touch()
        folder = folder or self._logs
        pid = self.ask(
            {"start": function, "with": arguments, "log": str(log), "folder": str(folder)}
        )
        child = Child(self, pid, log)
        self._children.append(child)
        return child

    def warm(self, *modules: str) -> None:
        """Import more that children need, before they are made."""
        for module in modules:
            self.ask({"import": module})

    def ask(self, request: dict[str, Any]) -> Any:
        """The answer of the process to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request, default=str) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


class Places:
    """Makes empty directories that are gone after the test."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self) -> Path:
        """One more."""
        return Path(tempfile.mkdtemp(dir=self._root))


# In the process that is forked.


def _serve() -> None:
    for name in _WARM:
        import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        answer: Any = None
        if "import" in request:
            import_module(request["import"])
        elif "start" in request:
            answer = _fork(request["start"], request["with"], request["log"], request["folder"])
        else:
            answer = _wait(request["wait"], request["seconds"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _fork(function: str, arguments: Sequence[Any], log: str, folder: str) -> int:
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, _DEADLY)  # a child is not ended before it begins
    pid = os.fork()
    if pid == 0:
        _be_child(function, arguments, log, folder)
    os.setpgid(pid, pid)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _DEADLY)
    return pid


def _be_child(function: str, arguments: Sequence[Any], log: str, folder: str) -> NoReturn:
    code = CRASHED
    try:
        os.setpgid(0, 0)
        out = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.closerange(3, 64)
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        module, _, name = function.partition(":")
        call = getattr(import_module(module), name)
        # Until the call has begun, a signal ends the process, as it would one that is starting.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _DEADLY)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = call(*arguments) or 0
        signal.pthread_sigmask(signal.SIG_BLOCK, _DEADLY)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int, seconds: float) -> int | None:
    """How a child ended, or None if it has not in that time."""
    give_up = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > give_up:
            return None
        time.sleep(0.001)


if __name__ == "__main__":
    _serve()
