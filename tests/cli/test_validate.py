"""``jobrun validate``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.cli.github import annotation

BAD = "nam: sum\nepoch: []\n"


def test_a_good_spec(call: Callable[..., Any], write: Callable[..., None]) -> None:
    write()
    result = call("validate", "sum.yaml")
    assert (result.code, result.out, result.err) == (0, "sum.yaml: ok: job sum, 3 tasks\n", "")
    assert call("-q", "validate", "sum.yaml").out == ""


def test_all_errors_of_all_specs(
    call: Callable[..., Any], write: Callable[..., None], folder: Path
) -> None:
    write()
    (folder / "bad.yaml").write_text(BAD)
    result = call("validate", "bad.yaml", "sum.yaml", "sun.yaml")
    assert result.code == 3
    assert result.out == (
        "sum.yaml: ok: job sum, 3 tasks\n3 specs: 1 ok, 1 invalid, 1 cannot be read\n"
    )
    assert result.err == (
        "bad.yaml: error: no stop condition: the job would never end; stop: {epochs: 10}; or "
        "'stop: never' if that is intended\n"
        "bad.yaml:1:1: error: unknown key 'nam'; did you mean 'name'?\n"
        "    1 | nam: sum\n"
        "      | ^^^\n"
        "error: there is no spec sun.yaml\n"
        "  hint: did you mean 'sum.yaml'?\n"
    )


def test_the_exit_code_is_that_of_the_worst(
    call: Callable[..., Any], write: Callable[..., None], folder: Path
) -> None:
    write()
    (folder / "bad.yaml").write_text(BAD)
    unbound = (folder / "sum.yaml").read_text().replace("steps:add", "steps:ad")
    (folder / "unbound.yaml").write_text(unbound)
    for specs, code in [
        (("none.yaml",), 2),
        (("none.yaml", "unbound.yaml"), 4),
        (("none.yaml", "unbound.yaml", "bad.yaml", "sum.yaml"), 3),
    ]:
        assert call("validate", "--import", *specs).code == code
    result = call("-q", "validate", "--import", "sum.yaml", "unbound.yaml")
    assert (result.code, result.out) == (4, "")


def test_a_spec_from_stdin(
    shell: Callable[[str], Any], write: Callable[..., None], folder: Path
) -> None:
    write()
    result = shell("jobrun validate --import - < sum.yaml")
    assert (result.code, result.out) == (0, "<stdin>: ok: job sum, 3 tasks\n")
    result = shell("printf 'nam: x' | jobrun validate - sum.yaml")
    assert result.code == 3
    assert result.out.endswith("2 specs: 1 ok, 1 invalid\n")
    assert "\n<stdin>:1:1: error: unknown key 'nam'; did you mean 'name'?\n" in result.err
    result = shell("sed /name:/d sum.yaml | jobrun validate -")
    assert result.out == "<stdin>: ok: job stdin, 3 tasks\n"
    assert shell("jobrun validate - < /dev/null").code == 3


def test_as_json(call: Callable[..., Any], write: Callable[..., None], folder: Path) -> None:
    write()
    (folder / "bad.yaml").write_text("nam: sum\nstop: {epochs: 1}\nseed: -1\n")
    result = call("validate", "bad.yaml", "sum.yaml", "none.yaml", "--json")
    assert result.code == 3
    first, second, third = json.loads(result.out)
    assert first == {
        "severity": "error",
        "file": "bad.yaml",
        "line": 1,
        "column": 1,
        "message": "unknown key 'nam'",
        "hint": "did you mean 'name'?",
        "code": 3,
    }
    assert (second["line"], second["column"], second["code"]) == (3, 7, 3)
    assert (third["file"], third["line"], third["code"]) == ("none.yaml", None, 2)
    good = call("validate", "sum.yaml", "--json")
    assert (good.code, json.loads(good.out), good.err) == (0, [], "")


def test_everything_that_cannot_be_bound_as_json(
    call: Callable[..., Any], write: Callable[..., None]
) -> None:
    write(("steps:add", "steps:ad"), ("steps:loss_of", "steps:loss"))
    result = call("validate", "--import", "sum.yaml", "--json")
    assert result.code == 4
    found = json.loads(result.out)
    assert [(p["line"], p["hint"], p["code"]) for p in found] == [
        (6, "did you mean 'add'?", 4),
        (7, "did you mean 'loss_of'?", 4),
    ]


def test_warnings(call: Callable[..., Any], folder: Path) -> None:
    (folder / "w.yaml").write_text("epoch: [{shell: 'true'}]\nstop: {epochs: 1}\n")
    result = call("validate", "w.yaml")
    assert (result.code, result.out) == (0, "w.yaml: ok: job w, 1 task\n")
    assert result.err.startswith("w.yaml:1:17: warning: the shell task 'true' of group 'epoch'")
    quiet = call("-q", "validate", "w.yaml")
    assert (quiet.out, quiet.err) == ("", result.err)
    (found,) = json.loads(call("validate", "w.yaml", "--json").out)
    assert (found["severity"], found["code"], found["line"]) == ("warning", 0, 1)


def test_annotations_in_github_actions(
    call: Callable[..., Any],
    write: Callable[..., None],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write()
    at = folder / "a, b%"
    at.mkdir()
    (at / "bad.yaml").write_text("epochs: 3\nepoch: [{shell: 'true'}]\nstop: never\n")
    (folder / "w.yaml").write_text("epoch: [{shell: 'true'}]\nstop: {epochs: 1}\n")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder))
    words = ("validate", str(at / "bad.yaml"), "w.yaml", "none.yaml", "sum.yaml")
    assert "::" not in call(*words).err
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = call(*words)
    assert "::" not in result.out
    assert [line for line in result.err.splitlines() if line.startswith("::")] == [
        "::error file=a%2C b%25/bad.yaml,line=1,col=1,endColumn=7::"
        "unknown key 'epochs'; it belongs under 'stop' or 'fail'",
        "::warning file=w.yaml,line=1,col=17,endColumn=23::"
        "the shell task 'true' of group 'epoch' has no 'out': the files that it writes are "
        "in no checkpoint; name the files that belong to the state under 'out'",
        "::error file=none.yaml::there is no spec none.yaml; here are sum.yaml, w.yaml",
    ]


def test_annotations_are_one_line_whatever_they_say(tmp_path: Path) -> None:
    assert annotation("error", "100%\r\nof a:b, c") == "::error::100%25%0D%0Aof a:b, c"
    line = annotation("warning", "m", "C:\\a,b%\n", 3, 7, 2)
    assert line == "::warning file=C%3A\\a%2Cb%25%0A,line=3,col=7,endColumn=9::m"
    assert re.fullmatch(r"::\w+( [^:]*)?::.*", line)
    assert annotation("error", "m", "a.yaml", 0, 5) == "::error file=a.yaml::m"


def test_import_binds_the_functions(call: Callable[..., Any], write: Callable[..., None]) -> None:
    write(("steps:add", "steps:ad"))
    assert call("validate", "sum.yaml").code == 0
    result = call("validate", "--import", "sum.yaml")
    assert result.code == 4
    assert "did you mean 'add'?" in result.err


def test_set_is_part_of_what_is_checked(
    call: Callable[..., Any], write: Callable[..., None]
) -> None:
    write()
    assert call("validate", "sum.yaml", "--set", "step=3").code == 0
    assert call("validate", "sum.yaml", "--set", "stop.epochs=0").code == 3
    assert call("validate", "sum.yaml", "--set", "stpe=3").code == 2


def test_neither_numpy_nor_the_users_code_is_imported(
    write: Callable[..., None], folder: Path
) -> None:
    write()
    (folder / "steps.py").write_text("raise SystemExit('imported')\n")
    code = (
        "import sys\n"
        "from jobrun.cli.app import run\n"
        "code = run(['validate', 'sum.yaml'])\n"
        "print(code, [m for m in ('numpy', 'zarr', 'rich') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 []"


def test_import_finds_the_reporters(call: Callable[..., Any], write: Callable[..., None]) -> None:
    stop = "stop: {epochs: 3}"
    for report, text in (
        ("tensorbord", "sum.yaml:10:9: there is no reporter 'tensorbord'"),
        ("{lines: {pth: x}}", "the reporter 'lines' does not take these options"),
        ('{call: "steps:Telling"}', "'steps' has no 'Telling'"),
    ):
        write((stop, f"{stop}\nreport: {report}"))
        assert call("validate", "sum.yaml").code == 0
        result = call("validate", "--import", "sum.yaml")
        assert (result.code, result.out) == (4, "")
        assert text in result.err
    write((stop, f'{stop}\nreport: {{call: "steps:loss_of", with: {{total: 1}}}}'))
    assert call("validate", "--import", "sum.yaml").code == 0


def test_vars_that_nothing_reads(
    call: Callable[..., Any], write: Callable[..., None], folder: Path
) -> None:
    write(
        ("vars: {step: 2}", "vars: {step: 2, tol: 0.1, 'a-b': 1, stpe: 3}"),
        ("epochs: 3", "when: loss < tol*2"),
    )
    result = call("validate", "sum.yaml")
    assert (result.code, result.out) == (0, "sum.yaml: ok: job sum, 3 tasks\n")
    assert result.err == (
        "sum.yaml:2:27: warning: var 'a-b' is not used; no task and no condition names it\n"
        "sum.yaml:2:37: warning: var 'stpe' is not used; no task and no condition names it\n"
    )


def test_values_of_an_epoch_that_are_neither_read_nor_saved(
    call: Callable[..., Any], folder: Path
) -> None:
    spec = (
        "init: [{call: 'm:start', out: tree/w}]\n"
        "epoch:\n"
        "  - {call: 'm:f', in: {w: tree/w}, out: [tree, seen, lost, tree2/part]}\n"
        "  - {call: 'm:g', in: {v: seen}, out: {a: given, b: told}}\n"
        "  - pipe: {from: {v: seen}, batch: 2}\n"
        "    do: [{call: 'm:h', in: {v}, out: loss}]\n"
        "stop: {epochs: 1, when: told > 3}\n"
    )
    text = "'{}' is written in each epoch, but neither read nor saved"
    (folder / "n.yaml").write_text(spec)
    result = call("validate", "n.yaml")
    assert result.code == 0
    assert result.err == "".join(
        f"n.yaml:{at}: warning: {text.format(name)}; checkpoint: {{include: [{name}]}} saves it\n"
        for at, name in (("3:54", "lost"), ("3:60", "tree2/part"), ("4:43", "given"))
    )
    (folder / "n.yaml").write_text(spec + "checkpoint: {include: [lost, 'tree2/*', given]}\n")
    assert call("validate", "n.yaml").err == ""
    (folder / "n.yaml").write_text(spec + "checkpoint: false\n")
    assert call("validate", "n.yaml").err == ""


def test_vars_of_nodes_that_nothing_reads(call: Callable[..., Any], folder: Path) -> None:
    (folder / "n.yaml").write_text(
        "nodes: {a: {lr: 1, rate: 2}, b: {lr: 2, rate: 3}}\n"
        "epoch: [{call: 'm:f', node: '*', in: {x: rate}}]\nstop: {epochs: 1}\n"
    )
    result = call("validate", "n.yaml")
    text = "n.yaml:1:13: warning: var 'lr' is not used; no task and no condition names it\n"
    assert (result.code, result.err) == (0, text)


def test_arguments_in_another_order_than_the_parameters(
    call: Callable[..., Any], write: Callable[..., None]
) -> None:
    write(("in: {total, step}", "in: [step, total]"))
    assert call("validate", "sum.yaml").err == ""
    result = call("validate", "sum.yaml", "--import")
    assert result.code == 0
    assert result.err == (
        "sum.yaml:6:30: warning: steps:add(total, step) gets 'step' as its 'total'; "
        "by keyword: in: {step, total}\n"
    )
    write(("in: {total, step}", "in: [total, step]"))
    assert call("validate", "sum.yaml", "--import").err == ""
