"""The pages that are made from the code: complete, and true of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest
import yaml

import jobrun
from jobrun.cli.app import app
from jobrun.cli.pages import page, pages
from jobrun.docs import Section, sections
from jobrun.jobspec.schema import spec_schema

NAMES = ("api", "commands", "keys")
PAGES = {name: {s.heading: s for s in sections(page(name))} for name in NAMES}


def blocks(section: Section, language: str) -> list[str]:
    """The code of a section alone, without that of those below it."""
    return re.findall(rf"^```{language}\n(.*?)\n```$", section.own, re.M | re.S)


@pytest.mark.parametrize("name", NAMES)
def test_headings_are_unique_and_the_title_is_that_of_the_list(name: str) -> None:
    found = sections(page(name))
    assert len(PAGES[name]) == len(found) > 15
    assert found[0].heading == pages()[name]


def test_a_section_is_shown_alone(call: Callable[..., Any]) -> None:
    assert "every: 5\n" in call("docs", "keys", "task.every").out
    assert call("docs", "keys", "batch").out.startswith("## task.pipe.batch\n")
    assert "--accept-changes" in call("docs", "commands", "train").out
    assert "times: int" in call("docs", "api", "Retries").out
    assert call("docs", "--search", "min_delta").out.count("keys ") >= 1


def commands(context: click.Context) -> Iterator[click.Context]:
    """Every command below a group."""
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        below = click.Context(command, parent=context, info_name=name)
        yield below
        if isinstance(command, click.Group):
            yield from commands(below)


def test_every_command_is_there_with_all_its_options() -> None:
    found = PAGES["commands"]
    common = found["Options of all commands"].own
    contexts = list(commands(click.Context(app, info_name="jobrun")))
    assert len(contexts) > 20
    assert len(found) == len(contexts) + 2
    for context in contexts:
        text = found[context.command_path].own
        assert text.count("\n\n") >= 2, "a usage and a description"
        for option in context.command.params:
            if isinstance(option, click.Option):
                assert any(option.opts[-1] in part for part in (text, common)), option.opts
    assert "- `-h, --help`: " in common
    assert "--help" not in found["jobrun train"].own


def keys() -> list[tuple[str, str]]:
    """Every key of the language, with its description; a source has the keys of a pipe."""
    schema = spec_schema()
    models = [schema, *(m for n, m in schema["$defs"].items() if n != "SourceModel")]
    return [(k, v["description"]) for m in models for k, v in m["properties"].items()]


def test_every_key_is_there_with_its_type_and_an_example() -> None:
    found = list(PAGES["keys"].values())[1:]
    described = [(s.heading.rpartition(".")[2], s.own.split("\n\n")[1]) for s in found]
    assert sorted(described) == sorted(keys())
    for section in found:
        assert re.search(r"^Type: .+\.$", section.own, re.M), section.heading
        (examples,) = blocks(section, "yaml")
        for line in examples.splitlines():
            assert list(yaml.safe_load(line)) == [section.heading.rpartition(".")[2]]


def test_every_public_name_is_there_with_its_signature_and_docstring() -> None:
    found = PAGES["api"]
    public = {name for name in jobrun.__all__ if not name.startswith("_")}
    assert {s.heading for s in found.values() if s.level == 2} == public | {"Errors"}
    assert len([s for s in found.values() if s.level == 3]) > 40
    for section in found.values():
        text = re.sub(r"^```.*?^```$", "", section.own, flags=re.M | re.S)
        assert len(text.split()) > 4, f"{section.heading} has no docstring"
        assert not re.search(r"^See \w+\.$", text, re.M), section.heading
        for signature in blocks(section, "python"):
            call = signature if "(" in signature else f"{signature}()"
            ast.parse(f"{call.replace('class ', 'def ', 1)}: ...")
    assert " at 0x" not in page("api")
    assert "``" not in re.sub(r"^```.*$", "", page("api"), flags=re.M)
