"""Makes ``tests/support`` and ``tests/contracts`` importable, and what is compiled lasts."""

from __future__ import annotations

import compileall
import gc
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jobrun

sys.path.insert(0, str(Path(__file__).parent / "support"))
sys.path.insert(0, str(Path(__file__).parent / "contracts"))
from s3_server import s3_server
from sampling import sample

from jobrun.usercode import modules

pytest.register_assert_rewrite(
    "adapter_contract", "engine", "examples", "golden", "live_adapter_contract", "oracle"
)

# Whatever the environment says: what jobrun and its tests consist of is compiled once, and what
# tests write is never kept compiled.  Code that a test changes within a second, without a change of
# its length, would be taken for the old.
sys.dont_write_bytecode = False
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
# Messages name the command as a user types it, however the tests are started.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# Threads of OpenBLAS wait for work by spinning: half of what the import of numpy costs a process.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A shell ignores SIGINT for what it starts in the background, nohup SIGHUP, and what tests start
# inherits that.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, usual)


def pytest_configure(config: pytest.Config) -> None:
    """Compiles jobrun here: not in each of the many hundred processes that import it."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(jobrun.__file__).parent, quiet=2)


def pytest_collection_finish() -> None:
    """Tests that search for garbage, and there are many, need not look at all tests for it."""
    sys.dont_write_bytecode = True
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _sessions_are_closed() -> Iterator[None]:
    """What a test has opened does not disturb the next ones."""
    yield
    if "engine" in sys.modules:
        sys.modules["engine"].close_sessions()


@pytest.fixture(autouse=True)
def _folders_of_specs_are_left() -> Iterator[None]:
    """The folders of specs that a test has used leave the import path, and their modules go.

    Each further folder makes each import slower, and there would be hundreds.
    """
    before = set(modules._folders)
    yield
    left = set(modules._folders) - before
    if left:
        modules._folders[:] = [folder for folder in modules._folders if folder not in left]
        sys.path[:] = [folder for folder in sys.path if folder not in left]
        below = tuple(folder + os.sep for folder in left)
        for name, module in list(sys.modules.items()):
            if modules._file_of(module).startswith(below):
                del sys.modules[name]


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URL of a bucket on a server of this machine, until the tests are over."""
    with s3_server() as (endpoint, bucket):
        settings = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        yield f"s3://{bucket}"
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@pytest.fixture(params=["directory", "file", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place of each kind."""
    name = secrets.token_hex(8)
    if request.param == "directory":
        return str(tmp_path / "elsewhere")
    if request.param == "file":
        return f"file://{tmp_path}/elsewhere"
    if request.param == "memory":
        pytest.importorskip("fsspec")
        return f"memory://{name}"
    return f"{request.getfixturevalue('s3')}/{name}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test marked ``sampled(n)`` an n-th of its cases is run; see ``sampling``.

    All of them are under JOBRUN_LONG, and where cases are named on the command line.
    """
    if os.environ.get("JOBRUN_LONG") or any("[" in arg for arg in config.args):
        return
    tests: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sampled"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[pytest.Item] = set()
    for cases in tests.values():
        marker = cases[0].get_closest_marker("sampled")
        assert marker is not None
        values = [[(k, id(v)) for k, v in c.callspec.params.items()] for c in cases]
        chosen = sample(values, marker.args[0])
        left_out |= set(cases) - {cases[i] for i in chosen}
    if left_out:
        config.hook.pytest_deselected(items=[i for i in items if i in left_out])
        items[:] = [i for i in items if i not in left_out]
