"""The filter that sees torch's warnings lets all others pass."""

from __future__ import annotations

import warnings

import pytest

from jobrun.session import torch_views


def test_a_warning_while_python_ends_finds_no_names_in_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python sets them to None then, and warns of processes and files that were left."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch_views.watch_views()
        monkeypatch.setattr(torch_views, "calls", None)
        monkeypatch.setattr(torch_views, "_TEXTS", None)
        warnings.warn("subprocess 7 is still running", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in seen] == ["subprocess 7 is still running"]


def test_its_filter_can_be_copied_as_scikit_learn_does_for_its_threads() -> None:
    """Each filter by its text; the copies stop no warning."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.resetwarnings()
        torch_views.watch_views()
        filters = list(warnings.filters)
        warnings.resetwarnings()
        for action, message, category, _, line in filters:
            text = "" if message is None else message.pattern
            warnings.filterwarnings(action, text, category, lineno=line, append=True)
        warnings.simplefilter("always", append=True)
        warnings.warn("a column is constant", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in seen] == ["a column is constant"]
