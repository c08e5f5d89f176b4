"""The models as a tree of keys."""

from __future__ import annotations

from jobrun.jobspec.keys import keys_of


def test_the_keys_at_a_path() -> None:
    assert "pipe" in keys_of(("epoch", 3))
    assert "batch" in keys_of(("epoch", 0, "pipe"))
    assert keys_of(("checkpoint", "keep")) == ["last", "every", "best"]
    assert "walltime" in keys_of(("stop", 0))
    assert keys_of(("vars",)) == []
    assert keys_of(("stop", "patience", "loss")) == []


def test_mappings_of_names_to_models() -> None:
    files = ("epoch", 0, "shell", "files")
    assert keys_of(files) == []
    assert keys_of((*files, "a.raw")) == ["dtype", "shape"]
    assert keys_of((*files, "a.raw", "dtype")) == []
