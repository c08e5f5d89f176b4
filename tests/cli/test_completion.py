"""What is completed, unit by unit, and in real shells."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import CompletionItem, ShellComplete

from jobrun.cli.app import app
from jobrun.cli.options import Settings
from jobrun.cli.shells import SHELLS

from .conftest import COMMAND, environment

SPEC = """\
name: m
vars: {lr: 0.1, flag: true, layers: [64, 32]}
nodes: {a: {own: 1}, b: {own: 2}}
init: [{call: "x:start", node: a, out: total}]
epoch:
  - name: train
    node: a
    pipe: {from: {x: total}, batch: 4}
    do: [{call: "x:step", in: {x}, out: loss}]
  - {call: "x:note", node: a}
  - {call: "x:note", node: b}
stop: {epochs: 3}
"""


def items(line: str) -> list[CompletionItem[str]]:
    """What is offered at the end of a line, by click's own means."""
    words = line.split(" ")
    shell = ShellComplete(app, {"obj": Settings()}, "jobrun", "_JOBRUN_COMPLETE")
    return shell.get_completions(words[1:-1], words[-1])


def values(line: str) -> list[str]:
    return [item.value for item in items(line)]


# Commands and options.


def test_commands_with_what_they_do() -> None:
    found = items("jobrun tr")
    assert [item.value for item in found] == ["train"]
    assert found[0].help == "Train the job of a spec, or resume its run."
    assert values("jobrun ") == app.list_commands(None)  # type: ignore[arg-type]
    assert values("jobrun checkpoints p") == ["prune", "path"]
    assert values("jobrun -q checkpoints ve") == ["verify"]


def test_options_and_their_values() -> None:
    assert values("jobrun train --th") == ["--threads"]
    assert "--json" in values("jobrun --")
    assert values("jobrun --color a") == ["auto", "always"]
    assert values("jobrun init --template m") == ["minimal", "mlp", "mcmc"]
    assert values("jobrun completion ") == ["bash", "zsh", "fish"]


def test_pages() -> None:
    (item,) = items("jobrun docs checkp")
    assert (item.value, str(item.help)[:11]) == ("checkpoints", "Checkpoints")


def test_sections_of_a_page() -> None:
    assert values("jobrun docs spec con") == ["Conditions"]


def test_commands_that_are_none() -> None:
    assert values("jobrun nonsense x") == []


# Specs and runs.


@pytest.fixture
def files(folder: Path) -> Path:
    """Specs, and what is none."""
    for name in ("a.yaml", "b.yml", "notes.txt", ".hidden.yaml", "deep er/c.yaml"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(SPEC)
    return folder


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("command", ["train", "validate --import", "validate a.yaml", "render"])
def test_specs(command: str) -> None:
    assert values(f"jobrun {command} ") == ["a.yaml", "b.yml", "deep er/"]
    assert values(f"jobrun {command} b") == ["b.yml"]
    assert values(f"jobrun {command} ./a") == ["./a.yaml"]
    assert values(f"jobrun {command} .h") == [".hidden.yaml"]
    assert values(f"jobrun {command} none/") == []


def test_specs_in_other_folders(files: Path) -> None:
    (files / "deep er").rename(files / "deeper")
    assert values("jobrun train deeper/") == ["deeper/c.yaml"]
    assert values(f"jobrun train {files}/deeper/") == [f"{files}/deeper/c.yaml"]


def test_a_sweep_and_its_runs_are_completed_by_the_names_that_commands_take(
    saved: Path, call: Callable[..., Any], write: Callable[..., None]
) -> None:
    write(("vars: {step: 2}", "matrix: {step: [1, 2]}\nvars: {step: 2}"), ("name: sum", "name: sw"))
    call("train", "sum.yaml", "--progress", "none")
    assert values("jobrun show s") == ["sw", "sw/step=1", "sw/step=2", "sum.yaml"]
    assert values("jobrun show sw/") == ["sw/step=1", "sw/step=2"]
    for name in ("sw", "sw/step=1"):
        assert call("show", name).code == 0


def test_columns_of_runs(saved: Path) -> None:
    assert values("jobrun runs --columns n") == ["name", "note"]
    assert values("jobrun runs --columns name,best") == ["name,best:loss", "name,best:acc"]
    assert "name,note" in values("jobrun runs --columns name,")
    assert "name,name" not in values("jobrun runs --columns name,")


def test_runs(saved: Path) -> None:
    run = saved.parent / "other"
    run.mkdir()
    (run / "run.json").write_text("{")
    (saved.parent / "no run").mkdir()
    assert values("jobrun checkpoints list ") == ["m", "other", "@latest", "@best"]
    assert values("jobrun checkpoints list o") == ["other"]
    assert values("jobrun checkpoints list @") == ["@latest", "@best"]
    assert values("jobrun checkpoints list @b") == ["@best"]
    assert values("jobrun load-blobs runs/m/check") == [
        f"runs/m/checkpoint_{id}/" for id in range(4)
    ]
    (saved.parents[1] / "model.yaml").write_text(SPEC)
    assert values("jobrun resume m") == ["m", "model.yaml"]


def test_runs_elsewhere(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved.parent.rename(saved.parents[1] / "elsewhere")
    assert values("jobrun resume ") == ["elsewhere/"]
    assert values("jobrun resume --runs-dir elsewhere m") == ["m"]
    monkeypatch.setenv("JOBRUN_RUNS_DIR", "elsewhere")
    assert values("jobrun resume m") == ["m"]
    assert values("jobrun resume elsewhere/") == ["elsewhere/m/"]


@pytest.mark.usefixtures("saved")
def test_checkpoints() -> None:
    assert values("jobrun resume m --epoch ") == ["3", "2", "1", "0"]
    assert values("jobrun load-blobs m --id ") == ["3", "2", "1", "0"]
    assert values("jobrun load-blobs --id 2") == ["2"]
    assert values("jobrun checkpoints diff m --epoch 1 --epoch ") == ["3", "2", "1", "0"]
    assert values("jobrun checkpoints diff ") == ["m"]
    assert values("jobrun checkpoints diff m ") == ["3", "2", "1", "0"]
    assert values("jobrun checkpoints diff m 3 ") == ["2", "1", "0"]
    assert values("jobrun checkpoints prune m --keep-best ") == ["loss", "acc"]


def test_blobs(saved: Path) -> None:
    assert values("jobrun load-blobs m ") == [
        *("data", "model", "model/w", "model/steps", "tags", "tags/0", "new")
    ]
    assert values("jobrun load-blobs m model model/") == ["model/w", "model/steps"]
    assert values("jobrun load-blobs m --epoch 0 o") == ["old"]
    assert values("jobrun load-blobs runs/m/checkpoint_0 o") == ["old"]
    assert values("jobrun load-blobs none ") == []


def test_tasks(saved: Path) -> None:
    (saved / "spec.resolved.yaml").write_text(SPEC)
    assert values("jobrun logs m ") == ["start", "train", "step", "note", "note_2"]
    assert values("jobrun logs m st") == ["start", "step"]
    assert values("jobrun logs none ") == []


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("command", ["show", "metrics", "compare", "compare m", "logs"])
def test_commands_that_look_at_runs(command: str) -> None:
    assert values(f"jobrun {command} ") == ["m", "runs/"]
    assert values(f"jobrun {command} @l") == ["@latest"]


@pytest.mark.usefixtures("saved")
def test_metrics() -> None:
    assert values("jobrun metrics m --metric ") == ["loss", "acc"]
    assert values("jobrun runs --sort a") == ["acc"]


# ``--set``.


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l", ["lr=", "layers."]),
        ("se", ["setup.", "seed=", "session=", "session."]),
        ("lr=", ["lr=0.1"]),
        ("flag=", ["flag=true", "flag=false"]),
        ("flag=f", ["flag=false"]),
        ("layers.", ["layers.0=", "layers.1="]),
        ("vars.l", ["vars.lr=", "vars.layers."]),
        ("nodes.", ["nodes.a.", "nodes.b."]),
        ("nodes.b.", ["nodes.b.own="]),
        ("epoch.", ["epoch.train.", "epoch.1.", "epoch.2."]),
        ("epoch.train.pipe.b", ["epoch.train.pipe.batch=", "epoch.train.pipe.batches_per_epoch="]),
        ("epoch.1.re", ["epoch.1.reduce=", "epoch.1.retries=", "epoch.1.retries."]),
        ("checkpoint.e", ["checkpoint.every=", "checkpoint.every."]),
        ("checkpoint.keep.b", ["checkpoint.keep.best=", "checkpoint.keep.best."]),
        ("stop.w", ["stop.when=", "stop.walltime="]),
        ("stop.epochs=", ["stop.epochs=3"]),
        ("none.", []),
        ("none=", []),
        ("epoch.none.", []),
    ],
)  # fmt: skip
def test_set(text: str, expected: list[str]) -> None:
    found = values(f"jobrun train a.yaml --set lr=2 --set {text}")
    if text in ("se", "l"):
        assert sorted(found) == sorted(expected)
    else:
        assert found == expected
    assert values(f"jobrun train a.yaml --set={text}") == found, "click splits at the first ="


@pytest.mark.usefixtures("files")
def test_set_shows_the_value_of_now() -> None:
    (item,) = items("jobrun train a.yaml --set lr")
    assert item.help == "0.1"


def test_set_of_a_run(saved: Path) -> None:
    (saved / "spec.resolved.yaml").write_text(SPEC)
    assert values("jobrun resume m --set l") == ["lr=", "layers."]
    assert values("jobrun resume --set l") == ["lr=", "layers."]


def test_set_without_a_spec_or_with_a_broken_one(folder: Path) -> None:
    assert values("jobrun train --set check") == ["checkpoint=", "checkpoint."]
    (folder / "broken.yaml").write_text("vars: {lr: ")
    assert values("jobrun train broken.yaml --set l") == []


# The program.


def answer(line: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """What the command tells bash."""
    env = environment(_JOBRUN_LINE=line, _JOBRUN_COMPLETE="bash_complete", **more)
    return subprocess.run(COMMAND, env=env, cwd=folder, capture_output=True, text=True, check=True)


def test_errors_are_silent(saved: Path, folder: Path) -> None:
    (saved / "checkpoint_3/_SUCCESS").write_text("damaged")
    (folder / "bad.yaml").write_bytes(b"\xff\xfe")
    for line in (
        "jobrun load-blobs runs/m/checkpoint_3 ",
        "jobrun train bad.yaml --set ",
        "jobrun train 'unclosed",
        "jobrun nonsense ",
        "jobrun train --set",
        "",
    ):
        assert answer(line, folder).stderr == "", line
    assert answer("jobrun load-blobs m d", folder).stdout == "plain,data\n"


def test_neither_numpy_nor_zarr_nor_rich_is_imported(saved: Path, files: Path) -> None:
    code = (
        "import sys\n"
        "from jobrun.cli.app import run\n"
        "code = run([])\n"
        "print(code, [m for m in ('numpy', 'zarr', 'rich') if m in sys.modules], file=sys.stderr)\n"
    )
    for line in ("jobrun ", "jobrun resume ", "jobrun load-blobs m ", "jobrun train a.yaml --set "):
        env = environment(_JOBRUN_LINE=line, _JOBRUN_COMPLETE="bash_complete")
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=files, capture_output=True, text=True
        )
        assert done.stderr == "0 []\n"
        assert done.stdout


# Shells.


@pytest.mark.parametrize("shell", list(SHELLS))
def test_the_script_is_printed(shell: str, call: Callable[..., Any]) -> None:
    result = call("completion", shell)
    assert (result.code, result.err) == (0, "")
    assert f"jobrun completion {shell}" in result.out.partition("\n\n")[0]
    assert f"_JOBRUN_COMPLETE={shell}_complete" in result.out


def reply(line: str, folder: Path) -> list[str]:
    """What the function of bash puts into COMPREPLY."""
    code = (
        'eval "$(jobrun completion bash)"; COMP_LINE=$1 COMP_POINT=${#1}\n'
        '_jobrun_completion jobrun 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code, "bash", line],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def test_the_function_of_bash(files: Path) -> None:
    (files / "it's.yaml").write_text(SPEC)
    assert reply("jobrun val", files) == ["validate"]
    assert reply("jobrun train a.yaml --set lr", files) == ["lr="]
    assert reply("jobrun train a.yaml --set lr=", files) == ["0.1"]
    assert reply("jobrun train a.yaml --set=fl", files) == ["flag="]
    assert reply("jobrun train 'deep er/", files) == ["deep er/c.yaml"]
    assert reply("jobrun train deep", files) == ["deep er"]
    assert reply('jobrun train "it', files) == ["it's.yaml"]


class Terminal:
    """A shell on a terminal, to type into."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self.leader, follower = pty.openpty()
        env = environment(TERM="xterm", HOME=str(folder), PS1="> ", HISTFILE="", LANG="C.UTF-8")
        self.process = subprocess.Popen(
            words,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=folder,
            env=env,
            start_new_session=True,
        )
        os.close(follower)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.leader, text.encode())

    def read_until(self, pattern: str, seconds: float = 120) -> str:
        """What came on the screen since the last call, up to the pattern; escapes are left out."""
        until = time.monotonic() + seconds
        written = select.poll()
        written.register(self.leader, select.POLLIN)
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < until, f"no {pattern!r} in {self.seen!r}"
            if written.poll(100):
                self.seen += os.read(self.leader, 1 << 16).decode(errors="replace")
                self.seen = re.sub(
                    r"\x1b\[[0-9;?<>=]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]", "", self.seen
                )
        before, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.leader)


SETUPS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(jobrun completion bash)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -Uz compinit && compinit -u -D; eval "$(jobrun completion zsh)"',
    ),
}


@pytest.fixture(params=list(SETUPS))
def shell_terminal(request: pytest.FixtureRequest, files: Path) -> Iterator[Terminal]:
    """A real shell that has loaded its script."""
    words, setup = SETUPS[request.param]
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]}")
    terminal = Terminal(words, files)
    terminal.type(f"{setup}; bind 'set bell-style none' 2>/dev/null; echo rea''dy\r")
    terminal.read_until(r"ready\r")
    yield terminal
    terminal.close()


def test_a_line_is_completed_in_a_real_shell(shell_terminal: Terminal, files: Path) -> None:
    """Tabs and no spaces: the spaces come from the shell where a word is finished."""
    shell_terminal.type("echo done: ; jobrun vali\t")
    shell_terminal.read_until("jobrun validate ")
    shell_terminal.type("a.y\t")
    shell_terminal.read_until("a.yaml ")
    shell_terminal.type("--se\t")
    shell_terminal.read_until("--set ")
    shell_terminal.type("l\tr\t")  # a list of two first, then the only one: no space after it
    shell_terminal.read_until("lr=")
    shell_terminal.type("\t")
    shell_terminal.read_until(r"0\.1")
    shell_terminal.type("\r")
    shell_terminal.read_until("a.yaml: ok: job m")


def test_paths_with_spaces_are_quoted_in_a_real_shell(shell_terminal: Terminal) -> None:
    shell_terminal.type("jobrun validate dee\t")
    shell_terminal.read_until(r"deep\\ er/")
    shell_terminal.type("\t")
    shell_terminal.read_until(r"c\.yaml")
    shell_terminal.type("\r")
    shell_terminal.read_until("deep er/c.yaml: ok: job m")


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish(files: Path) -> None:
    def complete(line: str) -> list[str]:
        code = 'jobrun completion fish | source; complete -C "$argv[1]"'
        done = subprocess.run(
            ["fish", "--no-config", "-c", code, line],
            env=environment(HOME=str(files)),
            cwd=files,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert complete("jobrun vali") == ["validate\tCheck specs without running anything."]
    assert complete("jobrun train a.") == ["a.yaml"]
    assert complete("jobrun train a.yaml --set lr") == ["lr=\t0.1"]
    assert complete("jobrun train a.yaml --set lr=") == ["lr=0.1"]
    assert complete("jobrun train a.yaml --set=fl") == ["--set=flag=\ttrue"]
    assert complete("jobrun train deep") == ["deep er/"]
