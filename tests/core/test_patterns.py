"""Which blobs a name or pattern means, and that all who ask are told the same."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun import CheckpointManager, CheckpointPolicy, Job, Node, Task, load_blobs
from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.checks import warnings
from jobrun.analysis.persistence import persistent
from jobrun.checkpoint.codecs import choose
from jobrun.core.patterns import Blob, leaves_of, may_mean, means, select, touches
from jobrun.errors import NotFoundError
from jobrun.model.policy import Compress
from jobrun.tools.inspect import pick

LEAF = [
    ("aux", True),
    ("au?", True),
    ("aux/", True),
    ("aux/x", True),
    ("aux/*", True),
    ("*x/d*", True),
    ("aux/x/deep", True),
    ("*deep", True),
    ("main:aux", True),
    ("m*:aux", True),
    ("au", False),
    ("aux/x/deep/er", False),
    ("other:aux", False),
    ("AUX", False),
    ("m*", False),  # not by way of the node's name
    ("main*", False),
    ("", False),
    (":", False),
]


@pytest.mark.parametrize(("pattern", "meant"), LEAF)
def test_what_a_pattern_means(pattern: str, meant: bool) -> None:
    assert means(pattern, "main", "aux/x/deep") is meant


@pytest.mark.parametrize(
    ("pattern", "sure", "possible"),
    [
        ("a", True, True),
        ("a/x", True, True),
        ("?/x", True, True),
        ("a/*/w", True, True),
        ("*w", False, True),  # there may be a leaf a/w
        ("*", True, True),
        ("a*z", False, True),
        ("b/x", False, False),
        ("aa/x", False, False),
        ("n:a/x", False, False),
        ("b", False, False),
    ],
)
def test_of_a_blob_whose_leaves_are_not_known(pattern: str, sure: bool, possible: bool) -> None:
    assert touches(pattern, "main", "a") is sure
    assert may_mean(pattern, "main", "a") is possible


def test_a_name_comes_before_a_pattern() -> None:
    blobs = [Blob(name, "main", name, True) for name in ("w[0]", "w0")]
    assert select("w[0]", blobs) == blobs[:1]
    assert select("w?", blobs) == blobs[1:]


def test_an_empty_tree_is_there_and_has_no_leaves() -> None:
    blobs = [Blob("e", "main", "e", False), Blob("w", "main", "w", True)]
    assert select("e", blobs) == blobs[:1]
    assert leaves_of(select("e", blobs), blobs) == []
    assert select("?", blobs) == blobs[1:]


def test_what_means_nothing_names_the_nearest() -> None:
    blobs = [Blob("n:total", "n", "total", True), Blob("o:total", "o", "total", True)]
    for name, hint in (("n:totl", "did you mean 'n:total'"), ("x?", "there are n:total, o:total")):
        with pytest.raises(NotFoundError, match="there is no blob") as caught:
            select(name, blobs)
        assert caught.value.hint.startswith(hint)


_name = st.sampled_from(["a", "b", "ab", "aux", "m"])
_path = st.lists(_name, min_size=1, max_size=3).map("/".join)
_pattern = st.one_of(
    _path,
    st.builds("{}:{}".format, st.sampled_from(["m", "n", "?", "*", "main"]), _path),
    st.text("ab*?/[]:m", min_size=1, max_size=6).filter(lambda p: p.count(":") < 2),
)


def _without_parts(paths: list[str]) -> list[str]:
    """No blob lies under another one."""
    return [p for p in dict.fromkeys(paths) if not any(q.startswith(f"{p}/") for q in paths)]


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["m", "n"]),
        st.lists(_path, min_size=1, max_size=4).map(_without_parts),
        min_size=1,
    ),
    _pattern,
)
def test_all_who_ask_are_told_the_same(parts: dict[str, list[str]], pattern: str) -> None:
    meant = {(n, p) for n, paths in parts.items() for p in paths if means(pattern, n, p)}
    assert included(parts, pattern) == meant
    assert {(n, p) for n, paths in parts.items() for p in paths if compressed(pattern, n, p)} == (
        meant
    )
    with TemporaryDirectory() as place:
        saved = {n: dict.fromkeys(paths, 1) for n, paths in parts.items()}
        with CheckpointManager(place) as manager:
            manager.save(0, saved)
        assert picked(Path(place), pattern) == meant
        assert loaded(Path(place), pattern, parts) == meant


def included(parts: dict[str, list[str]], pattern: str) -> set[tuple[str, str]]:
    """The leaves that ``checkpoint.include`` saves; it warns if there are none."""
    job = Job("j", nodes=list(parts))
    with job.epoch:
        for node, paths in parts.items():
            with Node(node):
                for path in paths:
                    Task(len, out=path)
    job.checkpoint = CheckpointPolicy(include=(pattern,))
    found = {(n, p) for n, paths in persistent(JobAnalysis(job)).items() for p in paths}
    by_part = {(n, p) for n, paths in parts.items() for p in paths if touches(pattern, n, p)}
    assert found == by_part  # of a name below a leaf nobody knows yet that there is nothing
    assert bool(list(warnings(JobAnalysis(job)))) is (not found and pattern != "*")
    return {key for key in found if means(pattern, *key)}


def compressed(pattern: str, node: str, path: str) -> bool:
    return choose([Compress("zstd", blobs=pattern)], node, path) is not None


def picked(place: Path, pattern: str) -> set[tuple[str, str]]:
    try:
        return {(leaf.node, leaf.path) for leaf in pick(place / "checkpoint_0", [pattern])[1]}
    except NotFoundError:
        return set()


def loaded(place: Path, pattern: str, parts: dict[str, list[str]]) -> set[tuple[str, str]]:
    """The leaves that ``load_blobs`` gives; a tree's stand for it."""
    try:
        names = list(load_blobs(place, pattern))
    except NotFoundError:
        return set()
    found = set()
    for name in names:
        node, colon, path = name.rpartition(":")
        node = node if colon else next(iter(parts))
        found |= {(node, p) for p in parts[node] if p == path or p.startswith(f"{path}/")}
    return found
