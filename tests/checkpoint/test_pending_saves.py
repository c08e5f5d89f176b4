"""Saves in the background, by a loop of one's own: never lost without a word."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from jobrun.checkpoint import pending_saves
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.errors import SaveError
from jobrun.storage.fs import Fs


class Full(Fs):
    """A disk that is full where ``wrong`` is set."""

    wrong = True

    def at(self, op: str, path: str) -> None:
        if self.wrong and op == "write":
            raise OSError(28, "No space left on device")


def test_what_is_changed_meanwhile_is_not_in_it(tmp_path: Path) -> None:
    weights = np.arange(4.0)
    tree = {"b": np.zeros(2)}
    with CheckpointManager(tmp_path / "run") as manager:
        assert manager.save(1, {"main": {"w": weights, "t": tree}}, wait=False) == 0
        weights[:] = -1
        tree["b"][:] = -1
        manager.wait()
        blobs = manager.load().blobs["main"]
        assert blobs["w"].tolist() == [0, 1, 2, 3]
        assert blobs["t"]["b"].tolist() == [0, 0]


@pytest.mark.parametrize("ask", ["wait", "save", "close"])
def test_whoever_asks_is_told_once(tmp_path: Path, ask: str) -> None:
    fs = Full()
    manager = CheckpointManager(tmp_path / "run", fs=fs)
    manager.save(1, {"main": {"w": np.arange(4.0)}}, wait=False)
    with pytest.raises(SaveError, match=r"checkpoint 0 was not saved.*No space left"):
        manager.save(2, {"main": {}}) if ask == "save" else getattr(manager, ask)()
    fs.wrong = False
    manager.wait()
    manager.save(2, {"main": {"w": np.arange(4.0)}})
    manager.close()
    assert [manager.load().record.epoch] == [2]


def test_ctrl_c_while_it_is_waited_for_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CheckpointManager(tmp_path / "run", fs=Held()) as manager:
        manager.save(1, {"main": {"w": np.arange(4.0)}}, wait=False)
        flying = manager._flying
        assert flying is not None
        with monkeypatch.context() as patch:
            patch.setattr(flying, "result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                manager.wait()
        assert flying in pending_saves._pending
        Held.go.set()
        manager.wait()
        assert flying not in pending_saves._pending
        assert manager.load().record.epoch == 1


class Held(Fs):
    """Nothing is written before ``go``."""

    go = threading.Event()

    def at(self, op: str, path: str) -> None:
        assert op != "write" or self.go.wait(30)


def interrupted() -> None:
    raise KeyboardInterrupt


SCRIPT = """
import os
import numpy as np
from jobrun import CheckpointManager
from jobrun.storage.fs import Fs

class Full(Fs):
    def at(self, op, path):
        if op == "write" and WRONG:
            raise OSError(28, "No space left on device")

manager = CheckpointManager("run", fs=Full())
manager.save(1, {"main": {"w": np.arange(4.0)}}, wait=False)
"""


@pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3),
    reason="Python 3.12.0 to 3.12.2 starts no thread while it ends (gh-113964)",
)
@pytest.mark.parametrize("wrong", [False, True])
def test_a_script_that_ends_without_asking(tmp_path: Path, wrong: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("WRONG", str(wrong)))
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    if wrong:
        assert done.stderr.startswith("error: checkpoint 0 was not saved: write of ")
        assert "Traceback" not in done.stderr
    else:
        assert done.stderr == ""
        assert CheckpointManager(tmp_path / "run").load().record.epoch == 1


def test_a_forked_child_waits_for_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        SCRIPT.replace("WRONG", "not os.getpid()")
        + "child = os.fork()\n"
        + "if child:\n    print(os.waitpid(child, 0)[1], flush=True)\n"
    )
    done = subprocess.run(  # newer Pythons warn of a fork beside threads
        [sys.executable, "-W", "ignore", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
