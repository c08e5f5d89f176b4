"""From a spec to a job: everything arrives where the job keeps it, with its place."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from inspect import signature
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.conditions.parse import build as build_conditions
from jobrun.core.template import Template
from jobrun.errors import Problem, SpecError
from jobrun.jobspec.model import SpecModel
from jobrun.jobspec.pipes import PipeModel, SourceModel
from jobrun.jobspec.resolve import load
from jobrun.jobspec.validate import job_of, validate_spec
from jobrun.model.job import Job, Pipe, data
from jobrun.model.options import Load, Retries
from jobrun.model.policy import Compress, Every
from jobrun.model.rows import Batches, FileOptions, Shuffle, Workers
from jobrun.model.shell import FileForm, Shell

FOLDER = Path(__file__).parent
EVERY_KEY = FOLDER / "valid" / "every_key.yaml"


@pytest.fixture(scope="module")
def job() -> Job:
    return job_of(load(EVERY_KEY))


def test_a_spec_with_every_key_is_valid() -> None:
    assert validate_spec(EVERY_KEY).name == "every-key"


def test_the_whole_language_is_in_the_spec_with_every_key() -> None:
    from jobrun.jobspec import model

    text = EVERY_KEY.read_text()
    for cls in vars(model).values():
        if (
            isinstance(cls, type)
            and issubclass(cls, model.ClosedModel)
            and cls is not model.ClosedModel
        ):
            for name, field in cls.model_fields.items():
                assert field.description, f"{cls.__name__}.{name} has no description"
                assert f"{field.alias or name}:" in text


def test_what_belongs_to_the_job(job: Job) -> None:
    assert (job.name, job.seed, job.multi_node) == ("every-key", 11, True)
    assert job.nodes == {"trainer_0": {"own": 1}, "trainer_1": {"own": 2}}
    assert job.vars["shape"] == [8, 8]
    assert job.metrics == {"trainer_0:mean_loss": "min", "loss": None}
    assert [len(g) for g in job.groups.values()] == [2, 5, 8, 1, 1]
    policy = job.checkpoint
    assert policy is not None
    assert policy.every == Every(2, 100, 900.0, 30.0)
    assert (policy.background, policy.link) == (False, "parent")
    assert policy.compress == (
        Compress("none", blobs="trainer_0:velocity"), Compress("zstd", 9, "model"), Compress("lz4"),
    )  # fmt: skip
    assert (policy.keep.last, policy.keep.every) == (3, 10)
    assert policy.keep.best is not None
    assert (policy.keep.best.metric, policy.keep.best.count) == ("trainer_0:mean_loss", 2)
    assert policy.include == ("loss", "vel*")
    assert policy.on_error == "fail"
    assert job.upload is not None
    assert str(job.upload.to) == "s3://bucket/${run.name}"
    assert job.upload.what == "kept"


def test_a_pipe(job: Job) -> None:
    pipe, from_file = job.epoch.tasks[:2]
    assert isinstance(pipe, Pipe)
    assert isinstance(from_file, Pipe)
    assert pipe.reader.data.blobs == {"x": "rows"}
    assert pipe.reader.batches == Batches(4, True, 3, 2)  # 4: the var ``size``
    assert (pipe.reader.shuffle, pipe.reader.workers) == (Shuffle(), Workers(2, ahead=3))
    assert [s.every for s in pipe.do] == [None, {"batches": 2}, {"epochs": 2}]
    assert pipe.reduce == {"norm": "last"}
    assert from_file.reader.data.file is not None
    assert from_file.reader.data.file.path == "rows.npz"
    assert from_file.reader.data.file.columns == {"y": "y"}
    assert from_file.after == ("train",)


def test_joined_sources(job: Job) -> None:
    pipe = job.epoch.tasks[4]
    assert isinstance(pipe, Pipe)
    reader, (file, call, rows) = pipe.reader, pipe.reader.data.zip
    assert reader.data.columns == ("pixels", "label", "t", "u")
    assert not reader.data.is_open
    assert file.file is not None
    assert file.file.columns == {"pixels": "pixel *", "label": "label"}
    assert file.file.options == FileOptions({"label": "text"}, 1_000_000)
    assert call.call is not None
    assert call.call.step.fn == "job:rows"
    assert call.call.columns == {"t": "time"}
    assert call.call.step.literals == {"file": Template("${spec.dir}/rows.npz", ("spec.dir",))}
    assert [d.blobs for d in rows.concat] == [{"u": "rows"}, {"u": "rows"}]
    assert (reader.shuffle, reader.shard) == (Shuffle(100), "node")
    assert (reader.workers.processes, pipe.map[0].timeout) == (2, 90.0)


def test_a_pipe_has_the_keys_of_its_spec_in_python_too() -> None:
    task = {"map", "do", "reduce", "name", "after", "every", "thread", "node", "where", "marks"}
    in_spec = {f.alias or name for name, f in PipeModel.model_fields.items()}
    in_python = {name.rstrip("_") for name in signature(Pipe).parameters} - task
    assert in_spec == in_python
    assert {f.alias or n for n, f in SourceModel.model_fields.items()} == {
        name.rstrip("_") for name in signature(data).parameters
    } - {"where", "marks"}


def test_tasks(job: Job) -> None:
    load_rows = job.setup.tasks[0]
    assert load_rows.literals["file"] == Template("${spec.dir}/rows.npz", ("spec.dir",))
    assert load_rows.thread == "same"
    assert load_rows.literals["parts"] == [1, {"deep": Template("$${x}", ())}]
    mean, spread = job.epoch.tasks[2:4]
    assert [a.name for a in mean.inputs] == ["trainer_*:loss"]
    assert (mean.outputs.form, mean.outputs.keys) == ("keys", ("mean", "best"))
    assert (spread.outputs.form, spread.every) == ("many", 2)
    zeros = job.init.tasks[1]
    assert zeros.fn == "numpy:zeros"
    assert zeros.name == "zeros"


def test_shell_tasks(job: Job) -> None:
    relax, script, plain = job.epoch.tasks[5:]
    assert isinstance(relax.fn, Shell)
    assert relax.fn.words == (
        "relax",
        Template("${spec.dir}/grid.txt", ("spec.dir",)),
        "in.txt",
        "out.npy",
    )
    assert [(a.parameter, a.name) for a in relax.inputs] == [("in.txt", "mean_loss")]
    assert (relax.retries, relax.timeout) == (Retries(3, 5.0, 2), 600.0)
    assert (relax.outputs.keys, relax.outputs.names) == (("out.npy",), ("relaxed",))
    assert script.fn == Shell(
        script='cat b.csv > "$JOBRUN_RUN_DIR/b"',
        files={"b.csv": FileForm("float32"), "c.txt": FileForm("int64", (2, -1))},
    )
    assert (plain.fn, plain.name) == (Shell("true"), "true")


def test_blobs_of_other_runs(job: Job) -> None:
    one, two, three = job.init.tasks[2:]
    assert one.fn == Load(Template("${spec.dir}/runs/other", ("spec.dir",)), epoch=3)
    assert (one.outputs.keys, one.outputs.names) == (("model",), ("first",))
    assert two.fn == Load("runs/other/checkpoint_2", id=2)
    assert (two.outputs.keys, two.outputs.names) == (("seen",), ("seen",))
    assert two.mark("out:seen") != two.where
    assert three.fn == Load(file="base.safetensors", strict=False)
    assert (three.outputs.keys, three.outputs.names) == (("encoder.*",), ("net",))


def test_conditions(job: Job) -> None:
    kinds = [(c.section, c.kind) for c in job.conditions]
    assert kinds == [
        *(("stop", k) for k in ("epochs", "walltime", "data_finished", "when", "patience", "blob")),
        ("fail", "not_finite"),
    ]
    assert [c.kind for c, fails in build_conditions(job) if not fails] == [k for _, k in kinds[:-1]]


def test_places(job: Job) -> None:
    lines = EVERY_KEY.read_text().splitlines()
    pipe = job.epoch.tasks[0]
    assert isinstance(pipe, Pipe)
    step = pipe.do[0]
    for task, key, text in (
        (job.setup.tasks[0], "call", "job:load"),
        (job.setup.tasks[0], "with:parts", "parts"),
        (pipe, "node", "trainer_*"),
        (pipe, "batch", "size"),
        (pipe, "from:x", "x"),
        (pipe, "from:rows", "rows"),
        (pipe, "reduce:norm", "norm"),
        (step, "in:lr", "lr"),
        (step, "update:model", "model"),
        (step, "out:loss", "loss"),
        (job.epoch.tasks[1], "after:train", "train"),
        (job.epoch.tasks[2], "in:trainer_*:loss", '"trainer_*:loss"'),
        (job.epoch.tasks[2], "out:best_loss", "best_loss"),
    ):
        where = task.marks[key]
        found = lines[where.line - 1][where.column - 1 :][: where.width]
        assert found == text, key
    assert job.marks["metrics:loss"].text.startswith("metrics:")


def test_numbers_that_differ_by_node_stay_names(tmp_path: Path) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text(
        "vars: {b: 3}\nnodes: {n0: {own: 1, same: 2}, n1: {own: 2, same: 2}}\n"
        "init: [{call: j:f, node: n*, out: rows}]\n"
        "epoch:\n  - node: n*\n"
        "    pipe: {from: rows, batch: own, batches_per_epoch: b, threads: same}\n"
        "    do: [{call: j:g, in: rows, out: loss}]\nstop: {epochs: b}\n"
    )
    job = validate_spec(spec)
    pipe = job.epoch.tasks[0]
    assert isinstance(pipe, Pipe)
    reader = pipe.reader
    assert (reader.batches, reader.workers) == (Batches("own", batches_per_epoch=3), Workers(2))


@pytest.mark.parametrize("name", ["D.TSV", "data.Zarr/x", "part-*.CSV"])
def test_endings_of_files_may_be_in_capitals(tmp_path: Path, name: str) -> None:
    spec = tmp_path / "s.yaml"
    pipe = f'pipe: {{file: "{name}", from: x}}'
    spec.write_text(f"epoch: [{{{pipe}, do: [{{call: j:g, in: x}}]}}]\nstop: {{epochs: 1}}\n")
    (task,) = validate_spec(spec).epoch.tasks
    assert isinstance(task, Pipe)
    assert task.reader.data.file is not None
    assert task.reader.data.file.path == name


def test_ten_thousand_tasks_are_read_in_linear_steps(tmp_path: Path) -> None:
    spec = tmp_path / "large.yaml"
    lines = ["init:", "  - {call: j:f, out: b0}"]
    lines += [f"  - {{call: j:f, in: {{x: b{i}}}, out: b{i + 1}}}" for i in range(10_000)]
    spec.write_text("\n".join([*lines, "epoch: [{call: j:g, in: b10000}]", "stop: {epochs: 1}"]))
    job = validate_spec(spec)
    assert len(job.init) == 10_001
    assert job.init.tasks[-1].name == "f_10001"


_VALID = [p.read_bytes() for p in (EVERY_KEY, *sorted(FOLDER.parents[1].glob("specs/*.yaml")))]
_BITS = [b"", b" ", b"\t", b":", b"{", b"}", b"[", b"]", b"- ", b"*", b"&a", b"!", b"'", b'"', b"0"]
_BITS += [b"\n", b"\n  ", b"${", b"{{", b"|", b"#", b"\xff", b"\0", b"null", b"-1", b"1e9", b"<<"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(_VALID), st.data())
def test_a_mutated_spec_is_a_job_or_an_error_with_a_place(spec: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(spec)))
        length = data.draw(st.sampled_from([0, 1, 2, 5, 40]))
        spec = spec[:start] + data.draw(st.sampled_from(_BITS)) + spec[start + length :]
    problems = _problems_of(spec)
    assert all(p.where is not None for p in problems)
    assert all(str(p) for p in problems)


def _problems_of(data: bytes) -> Sequence[Problem]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutated.yaml"
        path.write_bytes(data)
        try:
            job_of(load(path))
        except SpecError as error:
            return error.problems or [Problem("a SpecError without problems")]
    return []


@pytest.mark.parametrize("key", ["true", "False", "12"])
def test_a_key_that_is_no_text_is_shown_as_written(key: str) -> None:
    problems = _problems_of(f"{key}: 3\ninit: []\n".encode())
    assert [p.message for p in problems if "is not a name" in p.message] == [
        f"the key {key} is not a name"
    ]


@pytest.mark.parametrize("key", SpecModel.model_fields)
@pytest.mark.parametrize("value", ["", "[]", "{}", "[[1], {a: 2}]", "1", "{a: [], b: {c: {}}}"])
def test_any_value_of_a_key_is_a_job_or_an_error(tmp_path: Path, key: str, value: str) -> None:
    """An empty ``vars:`` was a traceback of our own."""
    name = SpecModel.model_fields[key].alias or key
    spec = {"init": '[{call: "m:f", out: x}]', "stop": "{epochs: 1}", name: value}
    path = tmp_path / "a.yaml"
    path.write_text("".join(f"{k}: {v}\n" for k, v in spec.items()))
    with suppress(SpecError):
        assert isinstance(Job.load(path), Job)
