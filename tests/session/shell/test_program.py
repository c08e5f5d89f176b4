"""Shell tasks: blobs through files, the environment, what fails, and how programs are ended."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import Driver, same, within

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.checks import warnings
from jobrun.core.position import Position
from jobrun.errors import BindError, SpecError, TaskError
from jobrun.model.job import Job, Node, Pipe, Task
from jobrun.model.shell import FileForm, Shell
from jobrun.session.base import Control, Places
from jobrun.usercode.bind import bind_job

RELAX = """#!/bin/bash
set -e
read -r -a u < "$1"
for x in "${u[@]}"; do echo $((x / 2)); done > "$2"
echo "relaxed ${#u[@]}"
"""


def program(folder: Path, text: str, name: str = "relax") -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def script(text: str, inputs: Any = None, out: Any = None, **files: FileForm) -> Driver:
    """Runs a script as the only task of an epoch."""
    job = Job("j")
    with job.init:
        Task(lambda: 5.0, out="five", name="five")
    with job.epoch:
        Task(Shell(script=text, files=files), inputs, out=out)
    return Driver(job).start()


def test_blobs_go_through_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path, RELAX)
    job = Job("j")
    with job.init:
        Task(lambda: np.array([[8, 4, 2]]), out="u", name="begin")
    with job.epoch:
        Task(Shell("relax in.txt out.txt"), {"in.txt": "u"}, out={"out.txt": "v"})
    driver = Driver(job, spec_dir=tmp_path).start().epochs(0)
    assert driver.epoch()
    assert same(driver.blob("v"), np.array([4.0, 2.0, 1.0]))
    assert capsys.readouterr().out == "relaxed 3\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["relax"]


def test_a_program_of_a_subfolder_is_named_from_the_specs_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "#!/bin/sh\necho 3 > n.txt\n", "three.sh")
    job = Job("j")
    with job.epoch:
        Task(Shell("bin/three.sh"), out={"n.txt": "n"})
    assert job.epoch.tasks[0].name == "three"
    bind_job(job, tmp_path)
    driver = Driver(job, spec_dir=tmp_path)
    driver.epoch()
    assert driver.blob("n") == 3.0


def test_words_are_split_without_a_shell_and_filled_in_afterwards(tmp_path: Path) -> None:
    program(tmp_path, '#!/bin/bash\nprintf "%s\\n" "$@" > words.txt\n', "words")
    job = Job("j")
    command = "words 'a b' $HOME * ${env.TWO} \"${node};rm\""
    with job.epoch:
        Task(Shell(command, files={"words.txt": FileForm("str")}), out={"words.txt": "words"})
    os.environ["TWO"] = "two $(words)"
    try:
        driver = Driver(job, spec_dir=tmp_path)
        driver.epoch()
    finally:
        del os.environ["TWO"]
    assert driver.blob("words").split("\n") == ["a b", "$HOME", "*", "two $(words)", "main;rm"]


def test_what_is_in_the_environment(tmp_path: Path) -> None:
    text = 'echo "$JOBRUN_SPEC_DIR|$JOBRUN_RUN_DIR|$JOBRUN_EPOCH|$JOBRUN_NODE|${PATH%%:*}" > e.txt'
    job = Job("j", nodes=["a", "b"])
    with job.epoch, Node("*"):
        Task(Shell(script=text, files={"e.txt": FileForm("str")}), out={"e.txt": "e"})
    driver = Driver(job)
    spec, run = tmp_path / "spec", tmp_path / "run"
    driver.session.open(job, Places(spec, run))
    driver.position = Position(epochs=4)
    driver.epoch()
    assert driver.blob("b:e") == f"{spec}|{run}|5|b|{spec}"


def test_a_script_is_not_touched_and_strict() -> None:
    driver = script('x="${five:-6}"; echo $x > x.txt', out={"x.txt": "x"})
    driver.epoch()
    assert driver.blob("x") == 6.0
    for text in ("false; echo 1 > x.txt", "echo $nothing > x.txt", "false | cat > x.txt"):
        with pytest.raises(TaskError, match="the script ended with exit code 1"):
            script(text, out={"x.txt": "x"}).epoch()


def test_the_end_of_the_output_is_in_the_error() -> None:
    with pytest.raises(TaskError, match="task 'script' of group 'epoch' failed: the script") as e:
        script("seq 100; echo broken >&2; exit 9").epoch()
    assert e.value.message.endswith("ended with exit code 9")
    lines = e.value.trace.split("\n")
    assert lines == ["the end of its output:", *(str(i) for i in range(82, 101)), "broken"]


def test_a_file_that_is_missing_is_an_error() -> None:
    with pytest.raises(TaskError, match=r"wrote no file 'b\.txt'") as caught:
        script("echo 1 > a.txt", out={"b.txt": "b"}).epoch()
    assert caught.value.hint == "it wrote a.txt"


def test_a_file_may_go_in_and_out() -> None:
    driver = script("echo 6 >> d/x.txt", {"d/x.txt": "five"}, {"d/x.txt": "y"})
    driver.epoch()
    assert driver.blob("y").tolist() == [5, 6]


def test_the_folder_is_fresh_and_gone_afterwards() -> None:
    driver = script("ls > ls.txt; pwd > pwd.txt", out={"pwd.txt": "pwd", "ls.txt": "ls"})
    job = driver.job
    assert isinstance(job.epoch.tasks[0].fn, Shell)
    files = {"pwd.txt": FileForm("str"), "ls.txt": FileForm("str")}
    driver = script("ls > ls.txt; pwd > pwd.txt", out={"pwd.txt": "p", "ls.txt": "l"}, **files)
    folders = []
    for _ in range(2):
        driver.epoch()
        assert driver.blob("l") == "ls.txt"
        folders.append(driver.blob("p"))
    assert len(set(folders)) == 2
    assert not any(Path(f).exists() for f in folders)


def test_a_program_that_cannot_be_executed_says_why(tmp_path: Path) -> None:
    program(tmp_path, "echo no line with an interpreter\n", "bare")
    job = Job("j")
    with job.epoch:
        Task(Shell("bare"))
    with pytest.raises(TaskError, match="bare cannot be run: Exec format error") as caught:
        Driver(job, spec_dir=tmp_path).epoch()
    assert "#!" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "mode", "message"),
    [("relax", None, "there is no program 'relax'"), ("relax", 0o644, "chmod")],
)
def test_programs_are_looked_for_before_anything_runs(
    tmp_path: Path, name: str, mode: int | None, message: str
) -> None:
    if mode is not None:
        program(tmp_path, RELAX)
        (tmp_path / "relax").chmod(mode)
    job = Job("j")
    with job.epoch:
        Task(Shell(name))
    with pytest.raises(BindError, match=message):
        bind_job(job, tmp_path)


def test_a_variable_that_is_not_set_is_found_before_anything_runs() -> None:
    job = Job("j")
    with job.epoch:
        Task(Shell("true ${env.JOBRUN_TEST_NOT_SET}"))
    with pytest.raises(BindError, match="JOBRUN_TEST_NOT_SET is not set"):
        bind_job(job)


@pytest.mark.parametrize(
    "given",
    [
        {"in_": "u"},
        {"out": "u"},
        {"out": ["u"]},
        {"update": "u"},
        {"with_": {"a": 1}},
        {"out": {"a.raw": "u"}},
        {"out": {"a.exe": "u"}},
    ],
)
def test_a_shell_task_has_files_alone(given: Any) -> None:
    with pytest.raises(SpecError):
        Task(Shell("true"), **given)


def test_a_task_that_leaves_nothing_is_warned_about() -> None:
    job = Job("j")
    with job.epoch:
        Task(Shell("true"))
        Task(Shell("cp a.txt b.txt"), {"a.txt": "u"}, out={"b.txt": "v"})
        Task(print)
    (warning,) = warnings(JobAnalysis(job))
    assert "the shell task 'true' of group 'epoch' has no 'out'" in warning.message


# Ended on the way.

SLEEP = "echo up > $JOBRUN_SPEC_DIR/up; sleep 1000; echo 1 > n.txt"


def sleeping(tmp_path: Path) -> Job:
    job = Job("j")
    with job.init:
        Task(lambda: 0.0, out="n", name="zero")
    with job.epoch:
        Task(Shell(script=SLEEP), out={"n.txt": "n"}, name="sleep")
        Task(lambda n: n + 1, "n", out="m", name="after")
    return job


def up(tmp_path: Path) -> bool:
    return (tmp_path / "up").exists()


def test_an_interrupt_ends_the_program_and_the_task_is_not_done(tmp_path: Path) -> None:
    job = sleeping(tmp_path)
    driver = Driver(job, spec_dir=tmp_path).start()
    control = Control(cut=lambda: up(tmp_path), interrupted=lambda: up(tmp_path))
    reached = driver.run("epoch", control)
    assert (reached.epochs, reached.tasks) == (0, ())
    assert driver.blob("n") == 0.0
    job.epoch.tasks[0].fn = Shell(script="echo 5 > n.txt")
    again = Driver(job, spec_dir=tmp_path).start()
    again.position = reached
    assert again.epoch()
    assert again.blob("m") == 6.0


BEGINS = "grep -q 2 x.txt && [ ! -e $JOBRUN_SPEC_DIR/up ] && echo up > $JOBRUN_SPEC_DIR/up"


@pytest.mark.parametrize(
    ("place", "seconds", "batches"), [("map", 1000, 2), ("first", 1000, 2), ("second", 0.3, 3)]
)
def test_an_interrupt_leaves_a_batch_applied_as_a_whole_or_not_at_all(
    tmp_path: Path, place: str, seconds: float, batches: int
) -> None:
    """A program is ended while nothing of its batch was applied, else the batch ends."""
    script = f"if {BEGINS}; then sleep {seconds}; fi; echo 1 > y.txt"
    program = Task(Shell(script=script), {"x.txt": "x"}, out={"y.txt": "y"}, name="program")
    add = Task(lambda x, w: np.add(w, x, out=w) is None or None, "x", update="w", name="add")
    do = {"map": [add], "first": [program, add], "second": [add, program]}[place]
    job = Job("j")
    with job.init:
        Task(lambda: np.arange(4.0), out="data", name="load")
        Task(lambda: np.zeros(1), out="w", name="begin")
    with job.epoch:
        Pipe({"x": "data"}, map=[program] if place == "map" else [], do=do)
    driver = Driver(job, spec_dir=tmp_path).start()
    control = Control(cut=lambda: up(tmp_path), interrupted=lambda: up(tmp_path))
    driver.position = within(20, lambda: driver.run("epoch", control))
    assert driver.position.pipes["pipe"].batches == batches
    assert driver.blob("w").tolist() == [sum(range(batches))]
    assert driver.epoch()
    assert driver.blob("w").tolist() == [6.0]


def test_a_cut_for_a_save_lets_the_program_end(tmp_path: Path) -> None:
    job = sleeping(tmp_path)
    job.epoch.tasks[0].fn = Shell(script=SLEEP.replace("sleep 1000", "sleep 0.3"))
    driver = Driver(job, spec_dir=tmp_path).start()
    reached = driver.run("epoch", Control(cut=lambda: up(tmp_path)))
    assert reached.tasks == ("sleep",)
    assert driver.blob("n") == 1.0


def test_a_failure_beside_it_ends_the_program(tmp_path: Path) -> None:
    job = sleeping(tmp_path)

    def fail() -> None:
        while not up(tmp_path):
            threading.Event().wait(0.01)
        raise ValueError("no")

    with job.epoch:
        Task(fail)
    driver = Driver(job, 2, spec_dir=tmp_path).start()
    with pytest.raises(TaskError, match=r"task 'fail' .* ValueError: no"):
        within(20, driver.epoch)
