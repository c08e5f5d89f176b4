from __future__ import annotations

import math
from typing import Any

import pytest

from jobrun.core import json_forms


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        (json_forms.whole, [0, 2**63 - 1], [True, -1, 1.0, 2**63, "1", None]),
        (json_forms.seconds, [0, 0.5, 1e14], [True, -0.1, math.inf, math.nan, 1e16, "1", None]),
        (
            json_forms.metric,
            [None, True, 3, -1.5, math.nan, math.inf],
            ["x", [], 2**64, -(2**63) - 1],
        ),
        (json_forms.text, ["", "ü", "\udcff"], [1, None, "\ud800", "a\udfff"]),
        (json_forms.time, ["2026-01-02T03:04:05Z"], ["2026-01-02", "x", 3, None]),
        (json_forms.one_of("a", None), ["a", None], ["b", [], {}, 1]),
        (json_forms.named("[ab]+"), ["ab"], ["", "abc", "a\n", 1]),
        (json_forms.list_of(json_forms.flag), [[], [True]], [[1], {}, None]),
        (
            json_forms.pair_of(json_forms.text, json_forms.whole),
            [["a", 1]],
            [["a"], ["a", 1, 2], [1, "a"], "ab"],
        ),
        (json_forms.mapping_of(json_forms.whole), [{}, {"a": 1}], [{"a": -1}, [], None]),
        (json_forms.optional(json_forms.flag), [None, True], [1]),
        (
            json_forms.record_of({"a": json_forms.flag}),
            [{"a": True, "b": 3}],
            [{}, {"a": 1}, [], None],
        ),
    ],
)
def test_a_form_has_its_values_alone(
    form: json_forms.Form, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in good if not form(value)] == []
    assert [value for value in bad if form(value)] == []


def test_the_field_that_does_not_fit_is_named() -> None:
    required, maybe = {"a": json_forms.whole, "b": json_forms.text}, {"c": json_forms.flag}
    assert json_forms.misfit({"a": 1, "b": ""}, required, maybe) == ""
    assert json_forms.misfit({"a": 1, "b": 2}, required, maybe) == "b"
    assert json_forms.misfit({"b": ""}, required, maybe) == "a"
    assert json_forms.misfit({"a": 1, "b": "", "c": None}, required, maybe) == "c"
    assert json_forms.misfit([], required) == "it"
