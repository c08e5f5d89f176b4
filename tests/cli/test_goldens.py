"""What every command prints: its help, its text, the keys of its JSON, in one file a command.

The golden texts are in ``golden``; ``JOBRUN_UPDATE_GOLDEN=1`` writes them anew.  Help is 80 columns
wide.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from golden import check, constant, shape, transcript

from jobrun import CheckpointManager
from jobrun.cli.app import run
from tests.cli.conftest import CODE, SPEC
from tests.cli.test_help import commands

Call = Callable[..., Any]
GOLDEN = Path(__file__).parent / "golden"

WORLD = SPEC.replace("{step: 2}", '{step: 2, note: "[/x]"}').replace(
    "epochs: 3}", "epochs: 3}\nseed: 7\ncheckpoint: {keep: {last: 2, best: loss}, async: false}"
)
TALKS = CODE.replace("return 1 /", "print('[bold]', total)\n    return 1 /")
FAILS = TALKS.replace("return total + step", "return total + step if total < 104 else 1 / 0")

LINES: dict[str, list[str]] = {
    "jobrun": ["trian", "zzz"],
    "train": [
        "sum.yaml -n",
        "sum.yaml -n --json",
        "sum.yaml",
        "sum.yaml --json",
        "sum.yaml --epochs 4",
        "sum.yaml --set note=other -v",
        "sum.yaml --fresh -q",
        "sum.yaml --fresh --threads 0",
        "sum.yaml --shapes",
        "sum.yaml --member 0",
        "swept.yaml --member 1 -n",
        "swept.yaml --member 2",
        "swept.yaml --member stp=1",
        "swept.yaml --member 0 --fresh",
        "none.yaml",
    ],
    "resume": [
        "",
        "sum",
        "sum --json",
        "sum --epoch 2 -n",
        "sum --epoch 2 --set epochs=4",
        "sum --only exit",
        "sum --epoch 9",
        "sum --epoch 1 --id 1",
        "smu",
    ],
    "runs": ["", "--sort loss", "--sort lss", "--json", "--runs-dir none"],
    "sweep": [
        "swept.yaml",
        "swept.yaml --list",
        "swept.yaml --set step=5",
        "swept.yaml --json",
        "sum.yaml",
        "none",
    ],
    "show": ["sum", "sum-2", "m", "sum-2 --json", "none"],
    "metrics": [
        "sum sum-2",
        "m --metric 'acc[val]'",
        "sum --csv",
        "sum --plot",
        "sum -o sum.csv",
        "sum sum-2 --json",
        "sum --range x",
        "sum --metric lss",
        "sum -o sum.txt",
    ],
    "compare": ["sum sum-2", "sum sum-2 --json", "sum", "none sum"],
    "load-blobs": [
        "sum",
        "sum 'tot*' --epoch 2",
        "m 'w[0:2]' --fallback",
        "sum -o sum.npz",
        "sum --json",
        "sum totl",
        "sum --epoch 9",
        "runs/sum/checkpoint_3 --epoch 3",
    ],
    "report": ["none"],
    "tag": ["sum", "sum good paper-2", "sum good --json", "sum bad --remove", "sum 'two words'"],
    "note": ["sum", "sum 'the one of figure 2'", "sum --json"],
    "rm": ["sum", "sum.yaml -y", "none -y"],
    "logs": ["sum-2", "sum-2 loss_of", "sum-2 loss_of --json", "sum-2 los", "sum --since now"],
    "validate": [
        "sum.yaml",
        "sum.yaml wrong.yaml none.yaml",
        "sum.yaml -q",
        "wrong.yaml --json",
        "--import missing.yaml",
        "",
    ],
    "graph": [
        "sum.yaml",
        "sum.yaml --format mermaid",
        "sum.yaml --format dot",
        "sum.yaml --format svg -o gone/x.svg",
        "--run sum-2 -o sum.dot",
        "sum.yaml --json",
        "",
    ],
    "smoke": ["none.yaml", ""],
    "checkpoints": ["lst"],
    "checkpoints list": ["sum", "sum --json", "none"],
    "checkpoints inspect": ["sum", "sum --stats", "sum --json", "sum --id 7"],
    "checkpoints verify": ["sum", "m", "sum --json", "m --json"],
    "checkpoints diff": ["sum", "sum 2 3 --json", "sum 2", "sum 2 9"],
    "checkpoints prune": ["sum", "sum --keep-last 1 -n", "sum --keep-last 1 --json"],
    "checkpoints path": ["sum", "sum --best", "sum --epoch 2 --json", "m --best", "sum --epoch 1"],
    "docs": [],
    "init": ["--list", "made --template kmeans", "made --template kmeans", "--template kmaens"],
    "render": ["sum.yaml", "sum.yaml --origin --set step=3", "sum.yaml --json", "none.yaml"],
    "schema": ["--write .", "--write none/there"],
    "completion": ["csh"],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, one that failed, and some checkpoints alone, one torn."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "sum.yaml").write_text(WORLD)
    swept = WORLD.replace("name: sum", "name: swept")
    (folder / "swept.yaml").write_text(swept + "matrix: {step: [2, 3]}\n")
    (folder / "wrong.yaml").write_text(WORLD.replace("epoch:", "epcoh:"))
    (folder / "missing.yaml").write_text(WORLD.replace("steps:add", "steps:ad"))
    with chdir(folder):
        for code, args in ((TALKS, ()), (FAILS, ("--set", "step=3", "--fresh"))):
            sys.modules.pop("steps", None)
            (folder / "steps.py").write_text(code)
            run(["train", "sum.yaml", *args])
        with CheckpointManager("runs/m") as manager:
            for epoch in (1, 2):
                blobs = {"w": [0.5 * epoch, 2.0, 3.0]}
                manager.save(epoch, {"main": blobs}, metrics={"acc[val]": epoch / 4})
        torn = folder / "runs/m/checkpoint_1/_SUCCESS"
        torn.write_bytes(torn.read_bytes()[:-9])
    return folder


@pytest.fixture
def here(world: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, the current directory."""
    home = folder / "here"
    shutil.copytree(world, home, symlinks=True)
    monkeypatch.chdir(home)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("jobrun.usercode.modules._folders", [])
    return home


def shown(command: str, line: str, call: Call, home: Path, world: Path) -> str:
    """The transcript of a command; of JSON, what it is made of."""
    words = [*([] if command == "jobrun" else command.split()), *shlex.split(line)]
    result = call(*words)
    out = result.out
    if "--json" in words:
        values = [json.loads(text) for text in out.splitlines()]
        out = "".join(f"{text}\n" for text in dict.fromkeys(t for v in values for t in shape(v)))
    text = transcript(f"jobrun {' '.join(words)}", result.code, out, result.err)
    return constant(text.replace(str(world), str(home)), home)


@pytest.mark.parametrize("command", LINES)
def test_what_a_command_prints(command: str, call: Call, here: Path, world: Path) -> None:
    def parts() -> Iterator[str]:
        words = [] if command == "jobrun" else command.split()
        help = call(*words, "--help")
        assert max(map(len, help.out.splitlines())) <= 80
        yield transcript(f"{' '.join(['jobrun', *words])} --help", help.code, help.out, help.err)
        for line in LINES[command]:
            yield shown(command, line, call, here, world)

    check(GOLDEN / f"{command.replace(' ', '-')}.txt", "\n".join(parts()))


def test_every_command_is_here_and_has_its_file() -> None:
    assert set(LINES) == {"jobrun", *commands()}
    assert {p.stem for p in GOLDEN.glob("*.txt")} == {c.replace(" ", "-") for c in LINES} | {
        "errors"
    }
