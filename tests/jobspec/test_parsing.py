"""YAML to a tree with places: the scalars of YAML 1.2, marks, bounds."""

from __future__ import annotations

import gc
import math
from pathlib import Path
from typing import Any

import pytest

from jobrun.errors import SpecError
from jobrun.jobspec.parsing import MAX_BYTES, MAX_DEPTH, parse
from jobrun.jobspec.scalars import ScalarError, scalar
from jobrun.jobspec.source import SpecSource


def source(text: str) -> SpecSource:
    return parse(text.encode(), "spec.yaml")


def value(text: str) -> Any:
    return source(f"x: {text}\n").root.plain()["x"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("-3", -3),
        ("+7", 7),
        ("0", 0),
        ("0o14", 12),
        ("0xff", 255),
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1.5e3", -1500.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("tRue", "tRue"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("2024-01-01", "2024-01-01"),
        ("1e", "1e"),
        ("0o8", "0o8"),
        ("90s", "90s"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("''", ""),
        ("node:blob", "node:blob"),
        ("=", "="),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, expected: Any) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


def test_nan_is_nan() -> None:
    assert math.isnan(value(".nan"))
    assert math.isnan(value(".NaN"))


@pytest.mark.parametrize("text", ["012", "-007", "00", "08", "1e999", "9" * 1001])
def test_scalars_of_doubtful_meaning_are_refused(text: str) -> None:
    with pytest.raises(ScalarError) as caught:
        scalar(text)
    assert caught.value.hint


def test_zero_with_digits_after_the_point_is_a_float() -> None:
    assert value("0.5") == 0.5
    assert value("00.5") == 0.5


def test_every_node_knows_its_place() -> None:
    found = source("a:\n  - {b: one, c: 'two'}\n  - [3, äö]\n")
    places = {
        ("a", 0, "b"): (2, 9, 3),
        ("a", 0, "c"): (2, 17, 5),
        ("a", 1, 0): (3, 6, 1),
        ("a", 1, 1): (3, 9, 2),
    }
    for path, (line, column, width) in places.items():
        node = found.root.get(*path)
        assert node is not None
        where = found.where(node)
        assert (where.line, where.column, where.width) == (line, column, width)
    assert str(found.where(found.root.keys["a"])) == "spec.yaml:1:1"


def test_places_count_the_line_breaks_that_yaml_knows() -> None:
    found = source("a: 1\r\nb: 2\rc: 3\nd: x\n")
    node = found.root.get("d")
    assert node is not None
    assert found.where(node).line == 4
    assert found.where(node).text == "d: x"


def test_a_place_within_a_quoted_text() -> None:
    found = source("when: 'loss < x'\nother: |\n  loss < x\n")
    quoted, block = found.root.get("when"), found.root.get("other")
    assert quoted is not None
    assert block is not None
    assert found.where(quoted, 7).column == 15
    assert found.where(block, 7) == found.where(block)


def test_a_byte_order_mark_is_passed_over() -> None:
    assert parse(b"\xef\xbb\xbfname: x\n", "s").root.plain() == {"name": "x"}


def test_anchors_give_equal_values() -> None:
    assert source("a: &v {x: [1, 2]}\nb: *v\n").root.plain() == {
        "a": {"x": [1, 2]},
        "b": {"x": [1, 2]},
    }


def test_depth_through_aliases_is_bounded() -> None:
    half = MAX_DEPTH // 2
    deep = f"a: &a {'[' * half}{']' * half}\nb: {'[' * half}*a{']' * half}\n"
    with pytest.raises(SpecError, match="more than 50 levels"):
        source(deep)


def test_keys_of_one_meaning_are_duplicates() -> None:
    with pytest.raises(SpecError, match=r"1:9: error: duplicate key '16'"):
        source("x: {16: a, 0x10: b}\n".replace("x: {16: a, ", "{16: a, "))


def test_a_spec_that_is_too_large_is_refused() -> None:
    with pytest.raises(SpecError, match="more than 16 MiB"):
        parse(b"#" * (MAX_BYTES + 1), "spec.yaml")


def test_all_problems_of_the_yaml_come_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        source("a: 012\na: 1\nb: !!str 3\n<<: {}\nc: *nothing\n")
    assert [p.where.line for p in caught.value.problems if p.where] == [1, 2, 3, 4, 5]


def test_garbage_collection_is_on_again_after_a_large_spec() -> None:
    text = "x:\n" + "".join(f"  k{i}: {{a: {i}}}\n" for i in range(10_000))
    assert gc.isenabled()
    assert len(source(text).root.plain()["x"]) == 10_000
    assert gc.isenabled()
    with pytest.raises(SpecError):
        source(text + "  k1: 2\n")
    assert gc.isenabled()


def test_the_events_of_pure_python_give_the_same_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    from jobrun.jobspec import parsing as module

    data = (Path(__file__).parent / "valid" / "every_key.yaml").read_bytes()
    fast = parse(data, "s")
    monkeypatch.setattr(module, "_Loader", yaml.SafeLoader)
    slow = parse(data, "s")
    assert slow.root.plain() == fast.root.plain()
    one, other = fast.root.get("stop", 1, "when"), slow.root.get("stop", 1, "when")
    assert one is not None
    assert other is not None
    assert fast.where(one, 5) == slow.where(other, 5)
