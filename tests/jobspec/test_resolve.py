"""``load``, ``--set``, ``--epochs`` and the resolved spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobrun.analysis.facts import job_facts
from jobrun.analysis.identity import compare
from jobrun.errors import SpecError, UsageError
from jobrun.jobspec.build import built
from jobrun.jobspec.parsing import parse
from jobrun.jobspec.resolve import Spec, dump_resolved, load
from jobrun.jobspec.validate import job_of

TEXT = """\
name: sum
vars: {lr: 0.1, count: 3, mode: fast, flag: true, none: null, layers: [64, 32], a.b: 1}
nodes: {n0: {own: 1}, n1: {own: 2}}
init:
  - {call: job:start, node: n0, with: {path: x, size: 1.5}, out: total}
epoch:
  - name: train
    node: n0
    pipe: {from: {x: total}, batch: count}
    do:
      - {call: job:step, in: {x}, out: loss}
stop: {epochs: 3}
checkpoint: {every: 1}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "sum.yaml"
    path.write_text(TEXT)
    return path


def at(loaded: Spec, *path: Any) -> Any:
    node = loaded.source.root.get(*path)
    assert node is not None
    assert node.plain() == _walk(loaded.tree, path)
    return node.plain()


def _walk(tree: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        tree = tree[part]
    return tree


@pytest.mark.parametrize(
    ("setting", "path", "expected"),
    [
        ("lr=0.5", ("vars", "lr"), 0.5),
        ("lr=1", ("vars", "lr"), 1.0),
        ("lr=1e-3", ("vars", "lr"), 1e-3),
        ("vars.lr=2", ("vars", "lr"), 2.0),
        ("count=7", ("vars", "count"), 7),
        ("count=1e2", ("vars", "count"), 100),
        ("mode=slow", ("vars", "mode"), "slow"),
        ("mode=12", ("vars", "mode"), "12"),
        ("mode=a=b", ("vars", "mode"), "a=b"),
        ("mode=", ("vars", "mode"), ""),
        ("mode=[x]", ("vars", "mode"), "[x]"),
        ("flag=false", ("vars", "flag"), False),
        ("none=4", ("vars", "none"), 4),
        ("a.b=2", ("vars", "a.b"), 2),
        ("layers.1=16", ("vars", "layers", 1), 16),
        ("nodes.n1.own=5", ("nodes", "n1", "own"), 5),
        ("nodes.n1.lr=5", ("nodes", "n1", "lr"), 5),
        ("seed=7", ("seed",), 7),
        ("name=12", ("name",), "12"),
        ("checkpoint.every=5", ("checkpoint", "every"), 5),
        ("checkpoint.keep.last=2", ("checkpoint", "keep", "last"), 2),
        ("stop.epochs=9", ("stop", "epochs"), 9),
        ("stop.walltime=15m", ("stop", "walltime"), "15m"),
        ("fail.not_finite=n0:loss", ("fail", "not_finite"), "n0:loss"),
        ("epoch.train.pipe.batch=32", ("epoch", 0, "pipe", "batch"), 32),
        ("epoch.0.pipe.shuffle=true", ("epoch", 0, "pipe", "shuffle"), True),
        ("epoch.train.do.step.in.x=y", ("epoch", 0, "do", 0, "in", "x"), "y"),
        ("init.start.with.path=7", ("init", 0, "with", "path"), "7"),
        ("init.start.with.size=7", ("init", 0, "with", "size"), 7.0),
        ("metrics.n0:loss=min", ("metrics", "n0:loss"), "min"),
        ("upload=2026", ("upload",), "2026"),
        ("upload.to=2026", ("upload", "to"), "2026"),
    ],
)
def test_set_replaces_one_scalar(
    spec: Path, setting: str, path: tuple[Any, ...], expected: Any
) -> None:
    found = at(load(spec, [setting]), *path)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lr", "expected NAME=VALUE"),
        ("=1", "expected NAME=VALUE"),
        ("lrr=1", "there is no 'lrr'\n  hint: did you mean 'lr'"),
        ("vars.cuont=1", "there is no 'cuont' under 'vars'\n  hint: did you mean 'count'"),
        ("chekpoint.every=1", "did you mean 'checkpoint'"),
        ("checkpoint.evry=1", "did you mean 'every'"),
        ("stop.epoch=1", "did you mean 'epochs'"),
        ("epoch.trian.pipe.batch=3", "has no entry 'trian'\n  hint: did you mean 'train'"),
        ("train.pipe.batch=3", "there is no 'train'\n  hint: did you mean 'epoch.train'?"),
        ("epoch.7.pipe.batch=3", "has no entry '7'"),
        ("epoch.train.pipe.bach=3", "did you mean 'batch'"),
        ("checkpoint.every.epochs=3", "checkpoint.every is 1, which holds no 'epochs'"),
        ("count=0.5", "a whole number in the spec, not 0.5\n  hint: write 3.0 in the spec"),
        (f"lr=1{'0' * 400}", "this is a float in the spec, not 1000"),
        ("count=many", "this is a whole number in the spec, not 'many'"),
        ("lr=low", "this is a number in the spec, not 'low'"),
        ("lr=", "this is a number in the spec, not nothing"),
        ("lr=[1]", "one number or text"),
        ("lr=012", "YAML 1.1"),
        ("flag=1", "this is true or false in the spec, not 1"),
        ("layers=3", "'layers' is a list"),
        ("nodes.n2.own=3", "there is no 'n2' under 'nodes'\n  hint: there are n0, n1"),
        ("nodes.n0.owm=3", "there is no 'owm' under 'nodes.n0'\n  hint: did you mean 'own'?"),
    ],
)
def test_set_that_cannot_be_is_a_usage_error(spec: Path, setting: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(spec, [setting])
    assert message in str(caught.value)
    assert f"--set {setting}" in str(caught.value)


def test_a_value_from_set_is_named_as_the_place(spec: Path) -> None:
    with pytest.raises(SpecError, match=r"^--set seed=-1: error: 'seed': expected a number"):
        job_of(load(spec, ["seed=-1"]))
    with pytest.raises(SpecError, match=r"^--set stop.epochs=0: error: stop.epochs"):
        job_of(load(spec, ["stop.epochs=0"]))


def test_set_through_an_alias_changes_one_place_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "x-c: &c {file: a}\nepoch:\n  - {name: one, call: j:f, with: *c}\n"
        "  - {name: two, call: j:f, with: *c}\nstop: never\n"
    )
    tree = load(path, ["epoch.two.with.file=b"]).tree
    assert [t["with"]["file"] for t in tree["epoch"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("stop: {epochs: 3, when: x > 1}", {"epochs": 8, "when": "x > 1"}),
        ("stop: {when: x > 1}", {"when": "x > 1", "epochs": 8}),
        ("stop: never", {"epochs": 8}),
        ("", {"epochs": 8}),
        ("stop: [{when: x > 1}, {epochs: 2}]", [{"when": "x > 1"}, {"epochs": 8}]),
        ("stop: [{when: x > 1}]", [{"when": "x > 1"}, {"epochs": 8}]),
    ],
)
def test_epochs_replaces_or_adds_the_condition(tmp_path: Path, stop: str, expected: Any) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"epoch: [{{call: j:f, out: x}}]\n{stop}\n")
    loaded = load(path, epochs=8)
    assert loaded.tree["stop"] == expected
    assert not job_of(loaded).never_stops


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("digits.yaml", "digits"),
        ("my spec (2).yaml", "my-spec-2"),
        (".yaml", "yaml"),
        ("é.y", "job"),
    ],
)
def test_the_name_is_the_files_by_default(tmp_path: Path, file: str, name: str) -> None:
    path = tmp_path / file
    path.write_text("epoch: [{call: j:f}]\nstop: never\n")
    assert load(path).tree["name"] == name


def test_a_spec_knows_its_folder(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(spec.parent)
    loaded = load("sum.yaml")
    assert (loaded.path, loaded.folder) == ("sum.yaml", str(spec.parent))
    assert loaded.text == TEXT
    assert load("sum.yaml", folder="/elsewhere").folder == "/elsewhere"


def test_python_and_stdin_are_no_specs(spec: Path) -> None:
    code = spec.with_suffix(".py")
    code.write_text("def f():\n    pass\n")
    with pytest.raises(UsageError, match=r"sum\.py is Python(.|\n)*did you mean 'sum\.yaml'"):
        load(code)
    spec.unlink()
    with pytest.raises(UsageError, match="is Python") as caught:
        load(code)
    assert caught.value.hint == "a job that is built in Python runs as any script"
    with pytest.raises(UsageError, match="no spec -") as caught:
        load("-")
    assert "'validate' alone reads it from stdin" in caught.value.hint


def test_a_file_that_is_not_there(spec: Path) -> None:
    with pytest.raises(UsageError, match=r"no spec .*smu\.yaml(.|\n)*did you mean 'sum\.yaml'"):
        load(spec.with_name("smu.yaml"))
    with pytest.raises(UsageError, match="cannot be read"):
        load(spec.parent)


def test_the_resolved_spec_is_the_same_job(tmp_path: Path) -> None:
    every = Path(__file__).parent / "valid" / "every_key.yaml"
    first = load(every, ["lr=0.2"])
    copy = tmp_path / "spec.resolved.yaml"
    copy.write_text(dump_resolved(first))
    second = load(copy)
    assert second.tree == first.tree
    assert not compare(job_facts(built(first).made), job_facts(built(second).made))
    assert "${run.dir}/${node}.txt" in copy.read_text()
    assert "x-file" not in copy.read_text()


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)
    | st.sampled_from(["no", "1e-4", "012", "0o7", "<<", "~", "1_0", "a: b", "*x", "${x}", "- "])
)
_trees = st.recursive(
    _scalars,
    lambda t: (
        st.lists(t, max_size=3) | st.dictionaries(st.text("ab/:0", min_size=1), t, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(_trees)
@example("\x85")
@example({"a": "x\u2028y"})
def test_what_is_dumped_is_read_back(tree: Any) -> None:
    loaded = load(Path(__file__).parent / "valid" / "every_key.yaml")
    text = dump_resolved(Spec("s", "/", "", {"x": tree}, loaded.model, loaded.source))
    assert _same(parse(text.encode(), "s").root.plain()["x"], tree)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and repr(a) == repr(b)


def test_vars_that_are_called_by_numbers_are_one_problem_among_others(tmp_path: Path) -> None:
    text = "vars: {7: 1, n: 2}\nnodes: {a: {8: 1}}\ninit: []\nepoch: []\nstop: {epochs: m}\n"
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(SpecError) as error:
        load(tmp_path / "job.yaml")
    found = [problem.message for problem in error.value.problems]
    assert any("7" in message for message in found)
    assert any("'m'" in message for message in found)


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("stop.when=null", ("stop", "when")),
        ("stop.when=~", ("stop", "when")),
        ("checkpoint.every=null", ("checkpoint", "every")),
        ("upload=null", ("upload",)),
        ("unset upload", ("upload",)),
        ("unset stop.when", ("stop", "when")),
        ("unset lr", ("vars", "lr")),
        ("unset epoch.last", ("epoch", 1)),
        ("unset epoch.1", ("epoch", 1)),
    ],
)
def test_null_and_unset_drop_a_key(tmp_path: Path, setting: str, path: tuple[Any, ...]) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "vars: {lr: 0.1, size: 2}\nupload: there\ncheckpoint: {every: 2, keep: all}\n"
        "stop: {epochs: 3, when: 'x > 1'}\nmetrics: {x: min}\n"
        "epoch: [{call: 'm:f', out: x}, {name: last, call: 'm:g', in: x, out: y}]\n"
    )
    before, after = load(file).source.root, load(file, [setting]).source.root
    *above, key = path
    for step in above:
        before, after = before.get(step), after.get(step)
    assert before.get(key) is not None
    assert after.get(key) is None
    assert len(after.value) == len(before.value) - 1


def test_null_is_a_value_of_vars_and_metrics(spec: Path) -> None:
    assert at(load(spec, ["none=null"]), "vars", "none") is None
    assert at(load(spec, ["metrics.n0:loss=null"]), "metrics", "n0:loss") is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "upload=false",
            "--set upload=false: 'upload' is a place\n  hint: --unset upload drops it",
        ),
        ("unset uplod", "--unset uplod: there is no 'uplod'\n  hint: did you mean 'upload'?"),
        ("unset upload", "--unset upload: the spec has no 'upload'"),
        ("unset ", "--unset : expected the name of a key"),
        ("unset lr=3", "--unset lr=3: expected the name of a key"),
        ("unset epoch.nothing", "--unset epoch.nothing: epoch has no entry 'nothing'"),
        ("lr", "--set lr: expected NAME=VALUE\n  hint: --unset lr drops it"),
    ],
)
def test_what_cannot_be_dropped_is_a_usage_error(spec: Path, setting: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(spec, [setting])
    assert str(caught.value).startswith(message)
