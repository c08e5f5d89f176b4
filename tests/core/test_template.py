"""Texts with ``${…}``."""

from __future__ import annotations

import pytest

from jobrun.core.template import (
    Template,
    TemplateError,
    render,
    template,
    templated,
    templates_in,
)
from jobrun.errors import TaskError

PLACES = {"spec.dir": "/specs", "run.dir": "/runs/a", "node": "n0"}


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("plain", "plain"),
        ("${spec.dir}/data.npz", "/specs/data.npz"),
        ("${run.dir}/${node}.txt", "/runs/a/n0.txt"),
        ("${ node }", "n0"),
        ("$${node}", "${node}"),
        ("$$${node}", "$${node}"),
        ("$${node} ${node}", "${node} n0"),
        ("$ and $node and {x}", "$ and $node and {x}"),
        ("${env.JOBRUN_TEST_PLACE}/x", "from-env/x"),
    ],
)
def test_rendering(text: str, rendered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBRUN_TEST_PLACE", "from-env")
    assert template(text).render(PLACES) == rendered
    assert str(template(text)) == text


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("${spec.dri}", 0, "'${spec.dri}' is unknown"),
        ("a ${lr} b", 2, "'${lr}' is unknown"),
        ("${}", 0, "'${}' is unknown"),
        ("x${run.dir", 1, "'${' without '}'"),
        ("${env.}", 0, "is unknown"),
        ("${env.A-B}", 0, "is unknown"),
    ],
)
def test_what_means_nothing(text: str, offset: int, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        template(text)
    assert message in caught.value.message
    assert caught.value.offset == offset
    assert caught.value.hint


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(TaskError, match=r"JOBRUN_NOT_SET_HERE is not set"):
        template("${env.JOBRUN_NOT_SET_HERE}").render(PLACES)
    with pytest.raises(TaskError, match="this run has no directory"):
        template("${run.dir}").render({"node": "n0"})
    with pytest.raises(TaskError, match="the job is of no spec"):
        template("${spec.dir}").render({"node": "n0"})


def test_values_are_gone_through() -> None:
    value = {"a": template("${node}"), "b": [1, {"c": template("$${x}")}], "d": "${node}"}
    assert render(value, PLACES) == {"a": "n0", "b": [1, {"c": "${x}"}], "d": "${node}"}
    assert [t.text for t in templates_in(value)] == ["${node}", "$${x}"]
    assert templates_in(value).__next__() == Template("${node}", ("node",))


def test_strings_become_templates_at_any_depth() -> None:
    value = {"a": "${node}", "b": [1, {"c": "$${x}"}], "d": "$", "e": ("${node}",)}
    made = templated(value)
    assert [t.text for t in templates_in(made)] == ["${node}", "$${x}"]
    assert (made["d"], made["e"]) == ("$", ("${node}",))
    assert templated(made) == made
