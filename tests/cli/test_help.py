"""Help: what it shows, and what it imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import click
import pytest

from jobrun.cli.app import app

HEAVY = ("numpy", "zarr", "rich", "yaml", "pydantic", "json", "traceback", "difflib", "logging")


def commands(group: click.Group = app, above: str = "") -> dict[str, click.Command]:
    """Every command by its full name."""
    context = click.Context(group)
    found: dict[str, click.Command] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found[f"{above}{name}"] = command
        if isinstance(command, click.Group):
            found |= commands(command, f"{above}{name} ")
    return found


def test_help_lists_every_command_in_the_order_of_use(call: Callable[..., Any]) -> None:
    result = call("--help")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Usage: jobrun [OPTIONS] COMMAND [ARGS]...\n")
    listed = result.out.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines()] == [
        "init",
        "train",
        "resume",
        "runs",
        "sweep",
        "show",
        "metrics",
        "compare",
        "report",
        "load-blobs",
        "logs",
        "tag",
        "note",
        "rm",
        "validate",
        "graph",
        "smoke",
        "render",
        "schema",
        "completion",
        "checkpoints",
        "docs",
    ]


def test_the_help_of_a_group_says_what_there_is(call: Callable[..., Any]) -> None:
    result = call("checkpoints", "--help")
    listed = result.out.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines()] == [
        *("list", "inspect", "verify", "diff", "prune", "path")
    ]
    wrong = call("checkpoints", "lst")
    assert (wrong.code, wrong.out) == (2, "")
    assert "no command 'lst'; did you mean 'list'?" in wrong.err


def test_help_imports_click_and_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "import click\n"
        "before = set(sys.modules)\n"
        "from jobrun.cli.app import run\n"
        "run(['--help'])\n"
        f"print(sorted(set(sys.modules) & set({HEAVY!r}) - before), file=sys.stderr)\n"
        "print(sorted(m for m in sys.modules if m.startswith('jobrun')), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [
        "[]",
        "['jobrun', 'jobrun._version', 'jobrun.cli', 'jobrun.cli.app', 'jobrun.cli.group', "
        "'jobrun.cli.leaving', 'jobrun.cli.options', 'jobrun.cli.signals', "
        "'jobrun.cli.streams', 'jobrun.core', 'jobrun.core.children', "
        "'jobrun.core.gc_tuning', 'jobrun.core.notices', 'jobrun.core.paths', "
        "'jobrun.core.plain_text', "
        "'jobrun.core.signal_handlers']",
    ]


@pytest.mark.parametrize("name", list(commands()))
def test_every_command_has_help_and_the_common_options(name: str, call: Callable[..., Any]) -> None:
    result = call(*name.split(), "--help")
    assert (result.code, result.err) == (0, "")
    for common in ("-q, --quiet", "-v, --verbose", "--json", "--color", "--traceback"):
        assert common in result.out


@pytest.mark.parametrize("name", ["", *commands()])
def test_every_option_has_a_help_text_and_a_twin_in_the_environment(name: str) -> None:
    command = commands()[name] if name else app
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in ("help", "version"):
            long = next(n for n in option.opts if n.startswith("--"))
            assert option.envvar == "JOBRUN_" + long[2:].replace("-", "_").upper()
            assert option.help


def test_version(call: Callable[..., Any]) -> None:
    result = call("--version")
    assert (result.code, result.out.split()[0]) == (0, "jobrun")


def test_python_m_jobrun() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jobrun", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("jobrun ")


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, jobrun\n"
        "print([m for m in ('numpy', 'zarr', 'rich', 'yaml', 'click') if m in sys.modules])\n"
        "jobrun.Job, jobrun.Task, jobrun.Pipe, jobrun.Node, jobrun.JobrunError\n"
        "print([m for m in ('numpy', 'zarr', 'rich') if m in sys.modules])\n"
        "print(all(getattr(jobrun, name) is not None for name in jobrun.__all__))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]", "True"]


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    import jobrun

    with pytest.raises(AttributeError, match="no attribute 'Jop'"):
        jobrun.Jop  # noqa: B018
    assert sorted(jobrun.__all__) == dir(jobrun)
