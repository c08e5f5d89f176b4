from __future__ import annotations

import math
from typing import Any

import pytest

from jobrun import forms


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        (forms.whole, [0, 2**63 - 1], [True, -1, 1.0, 2**63, "1", None]),
        (forms.seconds, [0, 0.5, 1e14], [True, -0.1, math.inf, math.nan, 1e16, "1", None]),
        (forms.metric, [None, True, 3, -1.5, math.nan, math.inf], ["x", [], 2**64, -(2**63) - 1]),
        (forms.text, ["", "ü", "\udcff"], [1, None, "\ud800", "a\udfff"]),
        (forms.time, ["2026-01-02T03:04:05Z"], ["2026-01-02", "x", 3, None]),
        (forms.one_of("a", None), ["a", None], ["b", [], {}, 1]),
        (forms.named("[ab]+"), ["ab"], ["", "abc", "a\n", 1]),
        (forms.list_of(forms.flag), [[], [True]], [[1], {}, None]),
        (forms.pair_of(forms.text, forms.whole), [["a", 1]], [["a"], ["a", 1, 2], [1, "a"], "ab"]),
        (forms.mapping_of(forms.whole), [{}, {"a": 1}], [{"a": -1}, [], None]),
        (forms.optional(forms.flag), [None, True], [1]),
        (forms.record_of({"a": forms.flag}), [{"a": True, "b": 3}], [{}, {"a": 1}, [], None]),
    ],
)
def test_a_form_has_its_values_alone(form: forms.Form, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not form(value)] == []
    assert [value for value in bad if form(value)] == []


def test_the_field_that_does_not_fit_is_named() -> None:
    required, maybe = {"a": forms.whole, "b": forms.text}, {"c": forms.flag}
    assert forms.misfit({"a": 1, "b": ""}, required, maybe) == ""
    assert forms.misfit({"a": 1, "b": 2}, required, maybe) == "b"
    assert forms.misfit({"b": ""}, required, maybe) == "a"
    assert forms.misfit({"a": 1, "b": "", "c": None}, required, maybe) == "c"
    assert forms.misfit([], required) == "it"
