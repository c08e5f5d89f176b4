"""Whatever has a name and is misspelt: the message says which name may be meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BASE = """\
vars: {limit: 3, wall: 1h, size: 2}
init: [{call: "m:start", out: model}]
epoch:
  - name: train
    pipe: {from: {pix: model}, batch: size}
    do: [{call: "m:step", in: pix, out: loss}]
  - {call: "m:test", in: [model, loss], out: accuracy}
exit: [{call: "m:report", in: "best:model"}]
metrics: {loss: min, accuracy: max}
stop: {epochs: limit, patience: {loss: 3}, walltime: wall, when: accuracy > 0.9}
fail: {not_finite: loss}
checkpoint: {keep: {best: loss}, include: [accuracy], compress: {model: zstd}}
"""
NODES = """\
nodes: {first: {own: 1}, second: {own: 2}}
init: [{call: "m:start", node: "*", out: model}]
epoch:
  - {call: "m:join", node: first, in: "second:model", out: joined}
  - {call: "m:all", node: second, in: ["*:model", own], out: [{}]}
metrics: {"first:joined": min}
stop: {epochs: 3, when: 'blob("first:joined") < 1'}
""".replace("[{}]", "all")


def test_the_specs_are_good(call: Callable[..., Any], folder: Path) -> None:
    for name, text in (("base", BASE), ("nodes", NODES)):
        (folder / f"{name}.yaml").write_text(text)
    result = call("validate", "base.yaml", "nodes.yaml")
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "meant"),
    [
        # keys, at every level
        ("vars:", "var:", "vars"),
        ("epoch:", "epochs:", ""),
        ("metrics:", "metric:", "metrics"),
        ("call:", "cal:", "call"),
        ("name: train", "nam: train", "name"),
        ("batch: size", "bach: size", "batch"),
        ("in: pix, out", "in: pix, ot", "out"),
        ("epochs: limit", "epoch: limit", "epochs"),
        ("patience: {loss: 3}", "patience: {loss: {epoch: 3}}", "epochs"),
        ("keep:", "kep:", "keep"),
        ("best: loss", "best: {metrik: loss}", "metric"),
        ("model: zstd", "model: {codek: zstd, codec: lz4}", "codec"),
        # words
        ("zstd", "zsdt", "zstd"),
        ("loss: min", "loss: mim", "min"),
        ("{keep:", "{on_error: wran, keep:", "warn"),
        ("keep: {best: loss}", "keep: al", "all"),
        ("stop: {epochs: limit, patience: {loss: 3}, walltime: wall, when: accuracy > 0.9}",
         "stop: nevr", "never"),
        # vars
        ("epochs: limit", "epochs: limt", "limit"),
        ("walltime: wall", "walltime: wal", "wall"),
        ("batch: size", "batch: sise", "size"),
        ("{call: \"m:test\"", "{every: sizes, call: \"m:test\"", "size"),
        # blobs
        ("in: [model, loss]", "in: [modle, loss]", "model"),
        ("in: pix", "in: pxi", "pix"),
        ("{call: \"m:test\", in: [model, loss]", "{call: \"m:test\", update: modle", "model"),
        ("best:model", "best:modle", "model"),
        ("when: accuracy", "when: acuracy", "accuracy"),
        ("not_finite: loss", "not_finite: los", "loss"),
        ("fail: {not_finite: loss}", "fail: {blob: los}", "loss"),
        ("include: [accuracy]", "include: [acuracy]", "accuracy"),
        ("{model: zstd}", "{modle: zstd}", "model"),
        # metrics
        ("loss: min", "los: min", "loss"),
        ("patience: {loss: 3}", "patience: {acuracy: 3}", "accuracy"),
        ("best: loss", "best: los", "loss"),
        # tasks
        ("{call: \"m:test\"", "{after: tarin, call: \"m:test\"", "train"),
        ("stop: {", "stop: {data_finished: tarin, ", "train"),
        # places
        ("in: \"best:model\"", "with: {a: \"${spec.dri}\"}", "spec.dir"),
    ],
)  # fmt: skip
def test_in_a_spec(old: str, new: str, meant: str, call: Callable[..., Any], folder: Path) -> None:
    assert old in BASE
    (folder / "a.yaml").write_text(BASE.replace(old, new, 1))
    said = call("validate", "a.yaml").err
    wanted = f"did you mean '{meant}'" if meant else "it belongs under 'stop' or 'fail'"
    assert wanted in said


@pytest.mark.parametrize(
    ("old", "new", "meant"),
    [
        ("node: first", "node: frist", "first"),
        ("second:model", "secnd:model", "second"),
        ("second:model", "second:modle", "model"),
        ("first:joined\": min", "first:joind\": min", "first:joined"),
        ("first:joined\") <", "first:joind\") <", "first:joined"),
    ],
)  # fmt: skip
def test_with_nodes(old: str, new: str, meant: str, call: Callable[..., Any], folder: Path) -> None:
    assert old in NODES
    (folder / "a.yaml").write_text(NODES.replace(old, new, 1))
    assert f"did you mean '{meant}'" in call("validate", "a.yaml").err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("trian", "'train'"),
        ("checkpoints lsit", "'list'"),
        ("train a.yaml --epcohs 3", "'--epochs'"),
        ("validate aa.yaml", "'a.yaml'"),
        ("train a.yml", "'a.yaml'"),
        ("validate a.yaml --set limti=3", "'limit'"),
        ("validate a.yaml --set vars.limti=3", "'limit'"),
        ("validate a.yaml --set chekpoint.every=3", "'checkpoint'"),
        ("validate a.yaml --set checkpoint.evry=3", "'every'"),
        ("validate a.yaml --set epoch.trian.pipe.batch=3", "'train'"),
        ("validate a.yaml --set epoch.train.pipe.btach=3", "'batch'"),
        ("validate a.yaml --set epoch.train.do.stpe.in=x", "'step'"),
        ("validate b.yaml --set nodes.frist.own=3", "'first'"),
        ("validate b.yaml --set nodes.first.owm=3", "'own'"),
        ("load-blobs mm", "'m'"),
        ("load-blobs m modle", "'model"),
        ("checkpoints path m --by acuracy", "'acc'"),
    ],
)
def test_on_the_command_line(
    words: str, meant: str, call: Callable[..., Any], saved: Path, folder: Path
) -> None:
    (folder / "a.yaml").write_text(BASE)
    (folder / "b.yaml").write_text(NODES)
    result = call(*words.split())
    assert result.code != 0
    assert f"did you mean {meant}" in result.err.lower()
