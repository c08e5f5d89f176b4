"""Runs that someone else has forged: every field of every file, by every command that reads.

A command may show what is there, or refuse with an exit code that says why.  It never hangs, takes
much memory, imports the code of the run, or changes anything outside of it.
"""

from __future__ import annotations

import copy
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import crc32c
import pytest

from jobrun.cli.app import run

Call = Callable[..., Any]
Keys = tuple[str | int, ...]

SPEC = """\
name: sum
seed: 3
vars: {lr: 0.5}
init:
  - {call: "hostile_steps:start", out: [model, total]}
epoch:
  - {call: "hostile_steps:add", in: {model, total}, out: [model, total, loss]}
metrics: {loss: min}
checkpoint: {keep: {last: 2, best: loss}}
stop: {epochs: 2, patience: {loss: 5}}
"""
CODE = """\
import numpy as np

def start():
    return {"w": np.arange(3.0), "s": np.float32(2), "parts": [1, "a", None, True, 0.5]}, 1

def add(model, total):
    return {**model, "w": model["w"] + 1}, total + 1, 1.0 / total
"""
DEEP: Any = "deep"  # stands for nested lists, which json.dumps could not write
VALUES: list[Any] = [
    None, True, -1, 0, 2.5, 10**12, 10**30, 1e308, float("nan"), "", "x", "../../outside", "a\0b",
    "\x1b[2J", "\ud800", "<f16", "|O", "<M8[ns]", [], [2.5], [10**12], [10**12, 10**12], [[]],
    [["f", "|O"]], {}, {"a": 1}, {"float": "x"}, "0x7ff8000000000001", DEEP,
]  # fmt: skip
READING = [
    ("checkpoints", "list", "sum"),
    ("checkpoints", "list", "sum", "--json"),
    ("checkpoints", "inspect", "sum"),
    ("checkpoints", "inspect", "sum", "--stats", "--json"),
    ("checkpoints", "verify", "sum"),
    ("load-blobs", "sum", "--json"),
    ("load-blobs", "sum", "total", "model/w[0:2]"),
    ("show", "sum"),
    ("show", "sum", "--json"),
    ("runs",),
    ("metrics", "sum"),
    ("metrics", "sum", "--plot"),
    ("logs", "sum"),
]
ALLOWED = {0, 2, 3, 5}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec and its finished run."""
    folder = tmp_path_factory.mktemp("begun")
    (folder / "sum.yaml").write_text(SPEC)
    (folder / "hostile_steps.py").write_text(CODE)
    assert run(["-q", "train", str(folder / "sum.yaml"), "--runs-dir", str(folder / "runs")]) == 0
    return folder


@pytest.fixture
def here(begun: Path, folder: Path) -> Path:
    """A copy of the run, in the current directory, where the paths of its files are relative."""
    shutil.copytree(begun, folder, dirs_exist_ok=True)
    sys.modules.pop("hostile_steps", None)
    return folder / "runs/sum"


@contextmanager
def no_hang(seconds: int = 120) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise AssertionError("a command hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outside(here: Path) -> dict[str, bytes]:
    """Every file of the current directory that is not one of the run's."""
    return {
        str(p): p.read_bytes()
        for p in Path.cwd().rglob("*")
        if p.is_file() and here not in p.parents and "__pycache__" not in p.parts
    }


def check(call: Call, here: Path, what: object) -> None:
    """Every command that reads, and at last the one that goes on with the run."""
    before, peak = outside(here), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with no_hang():
        for command in READING:
            check_result(call(*command), what, command)
            assert "hostile_steps" not in sys.modules, (what, command)
        check_result(call("resume", "sum"), what, "resume")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert grown < 300 << 10, what
    assert outside(here) == before, what


def check_result(result: Any, what: object, command: object) -> None:
    said = (what, command, result)
    assert result.code in ALLOWED, said
    for text in (result.out, result.err):
        assert "Traceback" not in text, said
        assert "bug in jobrun" not in text, said


# JSON files, field by field.


def keys_in(value: Any, above: Keys = ()) -> Iterator[Keys]:
    """The way to every field, and to the first item of every list."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = list(enumerate(value))[:2]
    for key, below in items:
        yield (*above, key)
        yield from keys_in(below, (*above, key))


def forged(value: Any, keys: Keys, other: Any) -> bytes:
    """The JSON of a value with another one at a place."""
    value = copy.deepcopy(value)
    target = value
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = "«deep»" if other is DEEP else other
    text = json.dumps(value)
    return text.replace(json.dumps("«deep»"), "[" * 3000 + "]" * 3000).encode("ascii")


class Forger:
    """Rewrites files of the newest checkpoint, with all checksums that depend on them."""

    def __init__(self, here: Path) -> None:
        self.here = here
        self.root = here / "checkpoint_2"

    def record(self) -> dict[str, Any]:
        lines = (self.root / "_SUCCESS").read_text().splitlines()[:-1]
        return {name: json.loads(value) for name, value in (x.split(": ", 1) for x in lines)}

    def write_record(self, lines: dict[str, bytes]) -> None:
        body = b"".join(name.encode() + b": " + value + b"\n" for name, value in lines.items())
        seal = f"crc32c: {crc32c.crc32c(body):08x}\n".encode()
        (self.root / "_SUCCESS").write_bytes(body + seal)

    def forge_record(self, keys: Keys, other: Any) -> None:
        fields = self.record()
        lines = {name: json.dumps(value).encode() for name, value in fields.items()}
        name = str(keys[0])
        whole = forged({name: fields[name]}, keys, other)
        lines[name] = whole[len(json.dumps(name)) + 3 : -1]
        self.write_record(lines)

    def write_manifest(self, data: bytes) -> None:
        (self.root / "manifest.main.json").write_bytes(data)
        fields = self.record()
        fields["manifests"]["main"] = f"{crc32c.crc32c(data):08x}"
        self.write_record({n: json.dumps(v).encode() for n, v in fields.items()})

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "manifest.main.json").read_bytes())
        return found

    def forge_manifest(self, keys: Keys, other: Any) -> None:
        self.write_manifest(forged(self.manifest(), keys, other))

    def write_meta(self, path: str, data: bytes) -> None:
        """A zarr.json, and its length and checksum in the manifest, one entry a line."""
        file = self.root / "main" / path / "zarr.json"
        file.unlink()  # it may be linked
        file.write_bytes(data)
        manifest = self.manifest()
        for entry in manifest["entries"]:
            if entry["path"] == path:
                entry["files"][0] = ["zarr.json", len(data), f"{crc32c.crc32c(data):08x}"]
        self.write_manifest(json.dumps(manifest).encode())

    def forge_meta(self, path: str, keys: Keys, other: Any) -> None:
        meta = json.loads((self.root / "main" / path / "zarr.json").read_bytes())
        self.write_meta(path, forged(meta, keys, other))

    def forge(self, file: str, keys: Keys, other: Any) -> None:
        if file == "_SUCCESS":
            self.forge_record(keys, other)
        elif file == "manifest":
            self.forge_manifest(keys, other)
        elif file == "run.json":
            data = json.loads((self.here / file).read_bytes())
            (self.here / file).write_bytes(forged(data, keys, other))
        else:
            self.forge_meta(file, keys, other)


METAS = ["model/w", "model/s", "model/parts/1", "model/parts/4", "total"]
FILES = ["_SUCCESS", "manifest", "run.json", *METAS]


def fields_of(file: str, forger: Forger) -> list[Keys]:
    if file == "_SUCCESS":
        return list(keys_in(forger.record()))
    if file == "manifest":
        manifest = forger.manifest()
        kinds = {e["kind"]: n for n, e in enumerate(manifest["entries"])}  # one of each
        every = list(keys_in({**manifest, "entries": []}))
        for number in kinds.values():
            at: Keys = ("entries", number)
            every += [at, *keys_in(manifest["entries"][number], at)]
        return every
    path = forger.here / file if file == "run.json" else forger.root / "main" / file / "zarr.json"
    return list(keys_in(json.loads(path.read_bytes())))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("value", range(len(VALUES)))
@pytest.mark.parametrize("file", FILES)
def test_no_field_of_a_file_does_harm(
    call: Call, here: Path, begun: Path, file: str, value: int
) -> None:
    """Under JOBRUN_LONG each field gets each value; else few of them do."""
    fields = fields_of(file, Forger(here))
    few = fields if os.environ.get("JOBRUN_LONG") else fields[value % 19 :: 19]
    for keys in few:
        shutil.rmtree(here)
        shutil.copytree(begun / "runs/sum", here)
        sys.modules.pop("hostile_steps", None)
        Forger(here).forge(file, keys, VALUES[value])
        check(call, here, (file, keys, VALUES[value]))


def test_what_load_refuses_verify_refuses(call: Call, here: Path, begun: Path) -> None:
    """Shapes and dtypes whose checksums are right."""
    cases: list[tuple[Keys, Any]] = [
        (("chunk_grid", "configuration", "chunk_shape"), [2.5]),
        (("chunk_grid", "configuration", "chunk_shape"), [1]),
        (("chunk_grid", "configuration", "chunk_shape"), [0]),
        (("shape",), [10**12]),
        (("shape",), [3.0]),
        (("data_type",), "float32"),
        (("data_type",), {"name": "structured"}),
        (("attributes", "jobrun", "dtype"), "<f16"),
        (("codecs",), [{"name": "bytes"}]),
        (("node_type",), "group"),
    ]
    for keys, other in cases:
        shutil.rmtree(here)
        shutil.copytree(begun / "runs/sum", here)
        Forger(here).forge_meta("model/w", keys, other)
        for command in (("checkpoints", "verify", "sum"), ("load-blobs", "sum", "--epoch", "2")):
            result = call(*command)
            assert result.code == 5, (keys, other, result)
            assert "model/w" in result.out + result.err, (keys, other, result)


@pytest.mark.parametrize("dtype", ["<f16", "|O", [["a", "|O"]], "<f8,<f8", "finfo", 3, [[1, 2]]])
def test_a_forged_dtype_is_damage(call: Call, here: Path, dtype: Any) -> None:
    forger = Forger(here)
    meta = json.loads((forger.root / "main/model/w/zarr.json").read_bytes())
    meta["attributes"]["jobrun"]["dtype"] = dtype
    manifest = forger.manifest()
    next(e for e in manifest["entries"] if e["path"] == "model/w")["dtype"] = dtype
    forger.write_manifest(json.dumps(manifest).encode())
    forger.write_meta("model/w", json.dumps(meta).encode())
    for command in (("checkpoints", "verify", "sum"), ("load-blobs", "sum", "--epoch", "2")):
        assert call(*command).code == 5
    check(call, here, dtype)


def test_chunks_are_counted_before_they_are_enumerated(call: Call, here: Path) -> None:
    forger = Forger(here)
    meta = json.loads((forger.root / "main/model/w/zarr.json").read_bytes())
    meta["shape"] = [10**12]
    meta["chunk_grid"]["configuration"]["chunk_shape"] = [1]
    manifest = forger.manifest()
    next(e for e in manifest["entries"] if e["path"] == "model/w")["shape"] = [10**12]
    forger.write_manifest(json.dumps(manifest).encode())
    forger.write_meta("model/w", json.dumps(meta).encode())
    assert call("checkpoints", "verify", "sum").code == 5
    check(call, here, "10^12 chunks")


def test_a_manifest_of_a_million_entries_names_the_limit(call: Call, here: Path) -> None:
    fields = b'"kind":"int","dtype":null,"shape":[],"version":0'
    line = b'{"path":"a",' + fields + b',"files":[["zarr.json",1,"0"]]}'
    head = b'{"format":1,"id":2,"node":"main","entries":['
    Forger(here).write_manifest(head + b",".join([line] * 200_000) + b"]}")
    shown = call("checkpoints", "verify", "sum")
    assert shown.code == 5
    assert "more than 2,000,000 values" in shown.out + shown.err
    check(call, here, "many entries")


# Other files.

LINES = [
    b"\xff\xfe", b"null", b"[]", b"{}", b'{"event": "RunStarted"}', b"[" * 3000, b"1" * 5000,
    b'{"event": "EpochFinished", "epoch": -1, "seconds": "x", "elapsed": [], "metrics": 3}',
    b'{"time": "x", "event": "RunStarted", "attempt": 1, "epoch": 0, "session": "s"}',
    b'{"time": "2026-01-01", "event": "RunEnded", "outcome": 3, "slowest": {"a": 1}}',
    b'{"event": "GroupFinished", "group": [], "slowest": [[1, 2, 3]]}', b"{" * 5000,
]  # fmt: skip
ROWS = [
    b"nan,nan,nan,nan", b"1,inf,-1,x", b"-5,1,1,1", b"9" * 400 + b",1,1,1",
    b"1,1,1," + b"9" * 400, b"1,1,1," + b'"' * 3, b"1,1", b"\xff,\x00,1,1", b"1e5,1,1,1",
    b"1,1,1,1e999", b"1,1,1," + b"x" * 200_000,
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("line", range(len(LINES)))
def test_lines_of_events(call: Call, here: Path, line: int) -> None:
    data = (here / "events.jsonl").read_bytes()
    (here / "events.jsonl").write_bytes(LINES[line] + b"\n" + data + LINES[line] + b"\n")
    check(call, here, LINES[line])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("row", range(len(ROWS)))
def test_rows_of_metrics(call: Call, here: Path, row: int) -> None:
    with (here / "metrics.csv").open("ab") as file:
        file.write(ROWS[row] + b"\n")
    check(call, here, ROWS[row])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "text",
    [b"", b"\xff", b"[", b"a: !!python/object:os.system x", b"[" * 1000, b"seed: 0x" + b"1" * 9999,
     b"name: [1]\nepoch: 3\n", b"&a [*a]", b"x: " + b"1" * 100_000],
)  # fmt: skip
def test_the_spec_of_a_run(call: Call, here: Path, text: bytes) -> None:
    (here / "spec.resolved.yaml").write_bytes(text)
    check(call, here, text[:40])


# What is no file.

NAMES = [
    "run.json", "events.jsonl", "metrics.csv", "log.txt", "lock", "spec.yaml",
    "spec.resolved.yaml", "checkpoint_2/_SUCCESS", "checkpoint_2/manifest.main.json",
    "checkpoint_2/zarr.json", "checkpoint_2/main/model/w/zarr.json", "checkpoint_2/main/model/w/0",
]  # fmt: skip


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def to_a_file(path: Path) -> None:
    path.symlink_to(Path.cwd() / "sum.yaml")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


SHAPES: list[Callable[[Path], object]] = [endless, to_a_file, loop, huge, os.mkfifo, Path.mkdir]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_file_is_not_read_and_not_written_into(
    call: Call, here: Path, name: str, shape: Callable[[Path], object]
) -> None:
    (here / name).unlink()
    shape(here / name)
    check(call, here, (name, shape.__name__))


@pytest.mark.parametrize("name", ["metrics.csv", "events.jsonl", "log.txt"])
def test_a_file_that_is_one_hole_hangs_neither_show_nor_a_resume(
    call: Call, here: Path, name: str
) -> None:
    (here / name).unlink()
    huge(here / name)
    with no_hang(60):
        check_result(call("show", "sum"), name, "show")
        check_result(call("resume", "sum", "--set", "stop.epochs=4"), name, "resume")


@pytest.mark.parametrize("name", ["metrics.csv", "events.jsonl", "log.txt", "lock"])
def test_a_link_that_a_run_would_write_through_is_refused(
    call: Call, here: Path, name: str
) -> None:
    precious = Path.cwd() / "precious.txt"
    precious.write_text("a line\ntorn")
    (here / name).unlink()
    (here / name).symlink_to(precious)
    for command in (
        ("resume", "sum", "--set", "stop.epochs=4"),
        ("train", "sum.yaml", "--set", "stop.epochs=4"),
    ):
        refused = call(*command)
        assert refused.code == 5, refused
        assert name in refused.err
        assert "is a symbolic link, not a file" in refused.err
    assert precious.read_text() == "a line\ntorn"
    assert not (here / "checkpoint_3").exists()


def test_a_run_directory_may_be_a_link(call: Call, here: Path) -> None:
    here.rename("elsewhere")
    here.symlink_to(Path.cwd() / "elsewhere")
    assert call("resume", "sum", "--set", "stop.epochs=3").code == 0
    assert (here / "checkpoint_3").is_dir()


# Names in a directory.


def test_a_number_without_end_is_no_id(call: Call, here: Path) -> None:
    (here / f"checkpoint_{'9' * 40}").mkdir()
    shown = call("checkpoints", "list", "sum")
    assert "the number has more than 12 digits" in shown.out
    check(call, here, "40 digits")
    assert call("resume", "sum", "--set", "stop.epochs=3").code == 0
    assert (here / "checkpoint_3/_SUCCESS").is_file()


def test_a_link_that_leads_in_a_circle_among_the_runs(call: Call, here: Path) -> None:
    (here.parent / "loop").symlink_to("loop")
    check(call, here, "loop")
    for command in (("show", "runs/loop"), ("resume", "loop"), ("runs", "--runs-dir", "runs/loop")):
        check_result(call(*command), "loop", command)


def test_thousands_of_empty_checkpoints_are_read_once_each(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobrun.storage.fs import Fs

    for number in range(10, 1010):
        (here / f"checkpoint_{number}").mkdir()
    listed = []
    entries = Fs.entries
    monkeypatch.setattr(Fs, "entries", lambda fs, path: listed.append(path) or entries(fs, path))
    assert call("resume", "sum", "--set", "stop.epochs=3").code == 0
    of_the_run = [path for path in listed if Path(path).resolve() == here.resolve()]
    assert len(of_the_run) < 50
